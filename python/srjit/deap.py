"""DEAP: fitness of a whole generation in one call.

    evaluator = srjit.deap.Evaluator(pset, X, y)
    toolbox.register("evaluate", evaluator.evaluate)
    toolbox.register("map", evaluator.map)

Everything else of a program with DEAP stays: its algorithms hand all individuals without a fitness to ``toolbox.map``.
"""

from __future__ import annotations

import copy
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import _core
from ._arrays import names_of
from ._engine import FIT_ITERATIONS, Engine
from ._errors import Error
from ._expressions import CONSTANT, PARAMETER, VARIABLE, Population, built, ops, parse
from ._lambdify import engine_of

# Functions that mean one of our operators exactly, on finite numbers.
_KNOWN: list[tuple[Any, str]] = [
    *((getattr(operator, name), op) for name, op in (
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("pow", "pow"), ("neg", "neg"),
        ("abs", "abs"), ("mod", "mod"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge"))),
    *((getattr(math, name), name) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp",
        "expm1", "log", "log2", "log10", "log1p", "sqrt", "floor", "ceil", "erf", "pow")),
    (math.fabs, "abs"), (np.fabs, "abs"), (np.round, "round"), (np.around, "round"),
    (abs, "abs"), (min, "min"), (max, "max"), (round, "round"), (pow, "pow"),
    *((getattr(np, name), op) for name, op in (
        ("add", "add"), ("subtract", "sub"), ("multiply", "mul"), ("divide", "div"), ("power", "pow"),
        ("negative", "neg"), ("absolute", "abs"), ("mod", "mod"), ("minimum", "min"), ("maximum", "max"),
        ("sin", "sin"), ("cos", "cos"), ("tan", "tan"), ("arcsin", "asin"), ("arccos", "acos"), ("arctan", "atan"),
        ("arctan2", "atan2"), ("sinh", "sinh"), ("cosh", "cosh"), ("tanh", "tanh"), ("arcsinh", "asinh"),
        ("arccosh", "acosh"), ("arctanh", "atanh"), ("exp", "exp"), ("exp2", "exp2"), ("expm1", "expm1"),
        ("log", "log"), ("log2", "log2"), ("log10", "log10"), ("log1p", "log1p"), ("sqrt", "sqrt"), ("cbrt", "cbrt"),
        ("square", "square"), ("reciprocal", "inv"), ("floor", "floor"), ("ceil", "ceil"), ("rint", "round"),
        ("sign", "sign"))),
]


# A primitive that stands for an expression can double a tree at each level.
_MOST_NODES = 1 << 24
# A fit of k numbers takes k^2 / 2 sums.
_MOST_NUMBERS = 256


class Evaluator:
    """Evaluates individuals of DEAP, lists of nodes of one primitive set, all of a generation at once.

    Args:
        pset: The primitive set. Arguments are the columns of X, in order; ephemeral constants and terminals are numbers,
            True and False 1 and 0. Primitives from `operator`, `math` and NumPy are known by what they are.
        X: Numbers, shape (rows, columns), one column for each argument: as of `Engine.upload`.
        y: The target, shape (rows,).
        weights: Weights of the rows.
        primitives: What other primitives compute, by their names in the set: operators, which docs/operators.md lists, or
            expressions over x0, x1, ..., such as ``{"protectedDiv": "zdiv", "my_log": "log(max(abs(x0), 1e-9))"}``. A
            name that is given here overrides a known one.
        loss: What is computed, as of `Engine.loss`.
        nan: What rows do whose prediction is not finite; by default they make the loss infinite.
        fitness: The fitness of an individual by its loss, ``fitness(individual, loss)``, where it is more than the loss:
            ``lambda individual, loss: (loss, len(individual))`` has two objectives.
        engine: An engine, or a device such as ``"cpu"``: one of precision f64 there. By default on cuda:0, if it can
            be used, else the CPU.

    Raises:
        ValueError: Primitives that have no operator, with their names; columns of X that are not the arguments; a loss
            or a treatment of NaN that does not exist.

    Attributes:
        engine, data: What it computes with.
        evaluations: How many individuals were evaluated.
    """

    def __init__(self, pset: Any, X: Any, y: Any, *, weights: Any = None, primitives: Mapping[str, str] | None = None,
                 loss: str = "mse", nan: str = "reject", fitness: Callable[[Any, float], Any] | None = None,
                 engine: Engine | str | None = None):
        if not hasattr(pset, "arguments"):
            raise TypeError(f"pset is of type {type(pset).__name__}, expected one primitive set: automatically defined "
                            "functions (ADFs) are not supported")
        _check_columns(X, list(pset.arguments))
        self._templates, self._ops = _meanings_of(pset, primitives or {})
        self.engine = engine_of(engine)
        self.data = self.engine.upload(X, y, weights, list(pset.arguments))
        self.loss = loss
        self.nan = nan
        self.evaluations = 0
        self._fitness = fitness or (lambda individual, value: (value,))
        self._is_mapping_another = False  # another function is mapped, and nobody was warned yet
        self._pset = pset
        self._primitives = dict(primitives or {})
        self._arguments = {name: i for i, name in enumerate(pset.arguments)}
        self._nodes = _core.NodeCodes(self._resolve, False)
        for node in _nodes_of(pset):
            if isinstance(node, type):  # an ephemeral constant; individuals have instances
                self._nodes.add_constant_type(node)
            elif node.name not in self._templates:
                self._nodes.add(node, *self._resolve(node))
        self.losses([])  # refuses losses that there are not

    def losses(self, individuals: Iterable[Any]) -> np.ndarray:
        """One loss per individual: float64, in order."""
        individuals = list(individuals)
        self.evaluations += len(individuals)
        return self.engine.loss(self._arrays_of(individuals), self.data, loss=self.loss, nan=self.nan, prefix=True).values

    def evaluate(self, individual: Any) -> Any:
        """The fitness of one individual, for ``toolbox.evaluate``."""
        if self._is_mapping_another:
            self._is_mapping_another = False
            warnings.warn("individuals are evaluated one by one, since toolbox.evaluate is not `evaluate` alone: "
                          "`fitness` can add to the loss, and `map` evaluates all at once", RuntimeWarning, stacklevel=2)
        return self._fitness(individual, float(self.losses([individual])[0]))

    def map(self, function: Callable[..., Any], *iterables: Any) -> list[Any]:
        """``map`` for ``toolbox.map``: all individuals at once where `function` is `evaluate`, else as usual."""
        if getattr(function, "func", function) != self.evaluate or len(iterables) != 1:
            self._is_mapping_another = True
            try:
                return list(map(function, *iterables))
            finally:
                self._is_mapping_another = False
        individuals = list(iterables[0])
        return list(map(self._fitness, individuals, self.losses(individuals).tolist()))

    def fit(self, individuals: Iterable[Any], iterations: int = FIT_ITERATIONS, *,
            loss_tolerance: float = _core.LOSS_TOLERANCE, step_tolerance: float = _core.STEP_TOLERANCE) -> np.ndarray:
        """Fits the numbers of individuals to the target, and puts them, and the fitness, into the individuals.

        Ephemeral constants and unnamed terminals are fitted, from what they are, but for integers and booleans of typed
        sets, and but for individuals of more than 256 numbers. Where the loss does not improve, an individual keeps its
        numbers. docs/fitting.md has the method.

        Args:
            individuals: Lists of nodes; those that have an attribute `fitness` get a new one.
            iterations, loss_tolerance, step_tolerance: As of `Engine.fit`.

        Returns:
            One loss per individual: float64, in order.
        """
        individuals = list(individuals)
        before = [list(individual) for individual in individuals]
        old = self.losses(individuals)
        arrays, starts, places = self._with_parameters(individuals)
        program = self.engine.compile(Population.from_arrays(*arrays, prefix=True), deferred=True)
        fits = self.engine.fit(program, self.data, starts, iterations, loss=self.loss, nan=self.nan,
                               loss_tolerance=loss_tolerance, step_tolerance=step_tolerance)
        for individual, nodes, values in zip(individuals, places, program.split(fits.parameters)):
            for node, value in zip(nodes, values.tolist()):
                if math.isfinite(value):
                    individual[node] = _with_number(individual[node], value)
        new = self.losses(individuals)
        is_worse = new < old if self.loss in _core.LARGER_IS_BETTER else new > old
        for place in np.flatnonzero(is_worse | (np.isnan(new) & ~np.isnan(old))):
            _restore(individuals[place], before[place])
        losses = np.where(is_worse | np.isnan(new), old, new)
        try:
            for individual, loss in zip(individuals, losses.tolist()):
                if hasattr(individual, "fitness"):
                    individual.fitness.values = self._fitness(individual, loss)
        except BaseException:
            for individual, nodes in zip(individuals, before):
                _restore(individual, nodes)
            raise
        return losses

    def population(self, individuals: Iterable[Any]) -> Population:
        """Individuals as expressions: to print them, or for `srjit.to_sympy` and `srjit.latex`."""
        return Population.from_arrays(*self._arrays_of(list(individuals)), prefix=True, names=list(self._pset.arguments))

    def tree_of(self, population: Population, expression: int) -> list[Any]:
        """The nodes of an expression: ``creator.Individual(evaluator.tree_of(...))`` is the way back, but of operators that
        primitives have only as part of an expression. See `tree_of`."""
        return tree_of(population, expression, self._pset, self._primitives)

    def __reduce__(self) -> Any:
        raise TypeError("an Evaluator has data and an engine, and cannot be copied or sent to other processes: register "
                        "its `map` as toolbox.map, in place of the map of a pool; it uses all processors")

    def _arrays_of(self, individuals: list[Any], origins: list[int] | None = None) -> tuple[Any, Any, Any]:
        """Token arrays in prefix. `origins` gets the place of each token's node, -1 of what a template adds, if there are
        templates; else tokens are nodes."""
        if not self._templates:
            return self._nodes.arrays(individuals)
        tokens: list[tuple[int, float]] = []
        offsets = [0]
        for individual in individuals:
            if not isinstance(individual, list):
                raise TypeError("expected a list of individuals, each a list of nodes")
            for token, origin in self._written_out(individual):
                tokens.append(token)
                if origins is not None:
                    origins.append(origin)
            offsets.append(len(tokens))
        return (np.array([code for code, _ in tokens], np.int32), np.array([number for _, number in tokens], np.float64),
                np.array(offsets, np.int64))

    def _with_parameters(self, individuals: list[Any]) -> tuple[Any, np.ndarray, list[list[int]]]:
        """Token arrays with parameters in place of numbers; these numbers; for each individual, the places of their nodes."""
        origins: list[int] = []
        codes, constants, offsets = self._arrays_of(individuals, origins)
        codes = codes.copy()
        starts: list[float] = []
        places: list[list[int]] = []
        for individual, begin, end in zip(individuals, offsets[:-1].tolist(), offsets[1:].tolist()):
            own = codes[begin:end]
            values: dict[int, float] = {}  # of parameters, in their order, by place: templates may repeat their operands
            numbers = {}
            for at in np.flatnonzero(own == CONSTANT).tolist():
                place = origins[begin + at] if self._templates else at
                if place >= 0 and _is_fitted(individual[place]):
                    own[at] = PARAMETER - numbers.setdefault(place, len(numbers))
                    values[place] = float(constants[begin + at])
            if len(values) > _MOST_NUMBERS:
                own[own <= PARAMETER] = CONSTANT
                values = {}
            starts += values.values()
            places.append(list(values))
        return (codes, constants, offsets), np.array(starts), places

    def _written_out(self, tree: list[Any]) -> Iterable[tuple[tuple[int, float], int]]:
        """Tokens of a tree in prefix, with the places of their nodes; templates in place of primitives. Nothing, which is no
        expression, of a list of nodes that is no tree."""
        operands = _operands_of(tree)
        if operands is None:
            return
        templates = [self._templates.get(node.name) if operands[at] else None for at, node in enumerate(tree)]
        sizes = [1] * len(tree)  # of subtrees, written out
        for at in range(len(tree) - 1, -1, -1):
            template = templates[at]
            if template is None:
                sizes[at] += sum(sizes[operand] for operand in operands[at])
            else:
                sizes[at] = sum(sizes[operands[at][VARIABLE - code]] if PARAMETER < code <= VARIABLE else 1
                                for code, _ in template)
        if sizes[0] > _MOST_NODES:
            raise ValueError(f"an individual has more than {_MOST_NODES} nodes once its primitives are written out")
        left: list[Any] = [0]  # places of nodes, and tokens of templates
        while left:
            at = left.pop()
            if isinstance(at, tuple):
                yield at, -1
                continue
            template = templates[at]
            if template is None:
                yield self._resolve(tree[at]), at
                left += reversed(operands[at])
            else:
                left += [operands[at][VARIABLE - code] if PARAMETER < code <= VARIABLE else (code, number)
                         for code, number in reversed(template)]

    def _resolve(self, node: Any) -> tuple[int, float]:
        """Code and number of a node. Also for nodes that are copies, as of individuals that were pickled."""
        if isinstance(node, float):
            return CONSTANT, node
        if node.arity:
            if node.name not in self._ops:
                raise ValueError(f"primitive {node.name!r} is none of the primitive set")
            return ops[self._ops[node.name]].code, 0.0
        if isinstance(node.value, str):
            if node.value in self._arguments:
                return VARIABLE - self._arguments[node.value], 0.0
            return CONSTANT, _number_of(self._pset.context.get(node.value), node.value)
        return CONSTANT, _number_of(node.value, node.name)


def _operands_of(tree: list[Any]) -> list[list[int]] | None:
    """The places of each node's operands; None if the nodes are no tree."""
    ends = [0] * len(tree)  # of subtrees
    operands: list[list[int]] = [[] for _ in tree]
    for at in range(len(tree) - 1, -1, -1):
        ends[at] = at + 1
        for _ in range(getattr(tree[at], "arity", 0)):
            if ends[at] == len(tree):
                return None
            operands[at].append(ends[at])
            ends[at] = ends[ends[at]]
    return operands if tree and ends[0] == len(tree) else None


def _check_columns(X: Any, arguments: list[str]) -> None:
    shape = getattr(X, "shape", ())
    columns = shape[1] if len(shape) == 2 else 1 if len(shape) == 1 else len(arguments)
    if columns != len(arguments):
        raise ValueError(f"X has {_counted(columns, 'column')}, but the primitive set {_counted(len(arguments), 'argument')}")
    names = names_of(X) or []
    if any(name in arguments and name != argument for name, argument in zip(names, arguments)):
        raise ValueError(f"the columns of X are {', '.join(names)}, in another order than the arguments of the primitive "
                         f"set: {', '.join(arguments)}")


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _nodes_of(pset: Any) -> list[Any]:
    """Primitives, terminals and types of ephemeral constants, without repetition."""
    found = {}
    for kinds in (pset.primitives, pset.terminals):
        for nodes in kinds.values():
            found.update((id(node), node) for node in nodes)
    return list(found.values())


def _meanings_of(pset: Any, primitives: Mapping[str, str]) -> tuple[dict[str, list[tuple[int, float]]], dict[str, str]]:
    """What primitives compute, by their names: templates, tokens in prefix over x0, x1, ...; and names of operators."""
    if not isinstance(primitives, Mapping) or not all(isinstance(name, str) for pair in primitives.items() for name in pair):
        raise TypeError("`primitives` has the names of primitives, and for each an operator or an expression, as text")
    nodes = [node for node in _nodes_of(pset) if not isinstance(node, type) and node.arity]
    absent = set(primitives) - {node.name for node in nodes}
    if absent:
        raise ValueError(f"`primitives` names {', '.join(sorted(absent))}, which the primitive set does not have")
    templates = {}
    names = {}
    unknown = []
    for node in nodes:
        name = primitives.get(node.name)
        if name is None:
            function = pset.context.get(node.name)
            name = next((op for known, op in _KNOWN if known is function), None)
        if name is None:
            if node.name not in pset.context:
                raise ValueError(f"{node.name} is an automatically defined function (ADF), which is not supported")
            unknown.append(f"{node.name} ({_counted(node.arity, 'operand')})")
        elif name not in ops:
            templates[node.name] = _template_of(name, node)
        elif ops[name].arity != node.arity:
            raise ValueError(f"primitive {node.name!r} has {_counted(node.arity, 'operand')}, but operator {name!r} "
                             f"{ops[name].arity}")
        else:
            names[node.name] = name
    if unknown:
        raise ValueError(f"no operator is known for {', '.join(unknown)}: name an operator or an expression for each in "
                         "`primitives`")
    return templates, names


def _template_of(text: str, primitive: Any) -> list[tuple[int, float]]:
    """An expression over x0, x1, ..., the operands of a primitive, as tokens in prefix."""
    what = f"primitive {primitive.name!r}: {text!r}"
    try:
        expression = parse(text)
    except Error as problem:
        raise ValueError(f"{what} is no operator (docs/operators.md) and no expression: {problem}") from None

    def leaf(code: int, number: float) -> list[tuple[int, float]]:
        if code <= PARAMETER:
            raise ValueError(f"{what} has a parameter, expected x0, x1, ... and numbers alone")
        if code <= VARIABLE and VARIABLE - code >= primitive.arity:
            raise ValueError(f"{what} has x{VARIABLE - code}, but the primitive {_counted(primitive.arity, 'operand')}")
        return [(code, number)]

    return built(expression.codes.tolist(), expression.constants.tolist(), leaf, lambda op, operands: [
        (op.code, 0.0), *(token for operand in operands for token in operand)])


def _number_of(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"terminal {name!r} is no number") from None


def _is_fitted(node: Any) -> bool:
    """Whether a node is a number that may become any other."""
    if isinstance(node, float):
        return True
    is_number = not isinstance(node.value, (str, bool, np.bool_))
    return is_number and not (isinstance(node.ret, type) and issubclass(node.ret, (int, np.integer, np.bool_)))


def _restore(individual: Any, nodes: list[Any]) -> None:
    # DEAP's trees take no slice as a whole.
    for place, node in enumerate(nodes):
        if individual[place] is not node:
            individual[place] = node


def _with_number(node: Any, value: float) -> Any:
    if isinstance(node, float):
        return value
    made = copy.copy(node)  # others may have the same node
    made.value = value
    if not isinstance(vars(type(node)).get("name"), str):  # that of an ephemeral constant is its type's
        made.name = str(value)
    return made


def tree_of(population: Population, expression: int, pset: Any, primitives: Mapping[str, str] | None = None) -> list[Any]:
    """The nodes of an expression in prefix order: ``creator.Individual(tree_of(...))`` is the way back to DEAP.

    Of a typed set, constants have the types of their places.

    Raises:
        ValueError: An operator that is no primitive of the set, an expression with parameters, or a part that has not the
            type of its place.
    """
    by_op: dict[str, list[str]] = {}
    for name, op_name in _meanings_of(pset, primitives or {})[1].items():
        by_op.setdefault(op_name, []).append(name)

    def operation(op: Any, operands: list[list[Any]]) -> list[Any]:
        if op.name not in by_op:
            raise ValueError(f"operator {op.name!r} is no primitive of the set")
        return _applied([pset.mapping[name] for name in by_op[op.name]], operands)

    def leaf(code: int, number: float) -> list[Any]:
        if code <= PARAMETER:
            raise ValueError("an expression with parameters is no individual")
        return [number if code == CONSTANT else pset.mapping[pset.arguments[VARIABLE - code]]]

    part = slice(*population.offsets[expression:expression + 2])
    nodes = built(population.codes[part].tolist(), population.constants[part].tolist(), leaf, operation)
    nodes[0] = _of_type(nodes[0], pset.ret)
    return nodes


def _applied(primitives: list[Any], operands: list[list[Any]]) -> list[Any]:
    """The first of some primitives of one meaning that takes operands of these types, with them."""
    problem = None
    for primitive in primitives:
        try:
            tops = [_of_type(operand[0], wanted) for operand, wanted in zip(operands, primitive.args)]
        except ValueError as found:
            problem = problem or found
            continue
        return [primitive, *(node for top, operand in zip(tops, operands) for node in (top, *operand[1:]))]
    raise problem


def _of_type(node: Any, wanted: Any) -> Any:
    """A node in a place of this type; of a number, its terminal."""
    from deap import gp

    if isinstance(node, float):
        if not (isinstance(wanted, type) and issubclass(wanted, int)):
            return gp.Terminal(node, False, wanted)
        number = wanted(node) if math.isfinite(node) else None  # also of bool, whose numbers are 0 and 1
        if number != node:
            raise ValueError(f"the number {node:g} stands where the primitive set has {wanted.__name__}")
        return gp.Terminal(number, False, wanted)
    if isinstance(wanted, type) and isinstance(node.ret, type) and not issubclass(node.ret, wanted):
        raise ValueError(f"{node.name!r} gives {node.ret.__name__}, where the primitive set has {wanted.__name__}")
    return node
