"""DEAP: fitness of a whole generation in one call.

    evaluator = srjit.deap.Evaluator(pset, X, y)
    toolbox.register("evaluate", evaluator.evaluate)
    toolbox.register("map", evaluator.map)

Everything else of a program with DEAP stays: its algorithms hand all individuals without a fitness to ``toolbox.map``.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from . import _core
from ._engine import Engine
from ._expressions import CONSTANT, PARAMETER, VARIABLE, Population, ops
from ._lambdify import default_engine

# Functions that mean one of our operators exactly, on finite numbers.
_KNOWN: list[tuple[Any, str]] = [
    *((getattr(operator, name), op) for name, op in (
        ("add", "add"), ("sub", "sub"), ("mul", "mul"), ("truediv", "div"), ("pow", "pow"), ("neg", "neg"),
        ("abs", "abs"), ("mod", "mod"), ("lt", "lt"), ("le", "le"), ("gt", "gt"), ("ge", "ge"))),
    *((getattr(math, name), name) for name in (
        "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp",
        "expm1", "log", "log2", "log10", "log1p", "sqrt", "floor", "ceil", "erf", "pow")),
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


class Evaluator:
    """Evaluates individuals of DEAP, lists of nodes of one primitive set, all of a generation at once.

    Args:
        pset: The primitive set. Arguments are the columns of X, in order; ephemeral constants and terminals are numbers.
            Primitives from `operator`, `math` and NumPy are known by what they are.
        X: Numbers, shape (rows, columns), one column for each argument: as of `Engine.upload`.
        y: The target, shape (rows,).
        weights: Weights of the rows.
        primitives: The operators of other primitives, by their names in the set, such as
            ``{"protectedDiv": "zdiv", "if_then_else": "if"}``; docs/operators.md lists all. A name that is given here
            wins over what is known.
        loss: What is computed, as of `Engine.loss`.
        nan: What rows do whose prediction is not finite; by default they make the loss infinite.
        engine: Where it is computed. By default an engine of precision f64 on cuda:0, if it can be used, else the CPU.

    Raises:
        ValueError: Primitives that have no operator, with their names; a wrong number of columns.

    Attributes:
        engine, data: What it computes with.
        evaluations: How many individuals were evaluated.
    """

    def __init__(self, pset: Any, X: Any, y: Any, *, weights: Any = None, primitives: Mapping[str, str] | None = None,
                 loss: str = "mse", nan: str = "reject", engine: Engine | None = None):
        self.engine = engine or default_engine()
        self.data = self.engine.upload(X, y, weights)
        if self.data.shape[1] != len(pset.arguments):
            raise ValueError(f"X has {self.data.shape[1]} columns, but the primitive set {len(pset.arguments)} arguments")
        self.loss = loss
        self.nan = nan
        self.evaluations = 0
        self._pset = pset
        self._arguments = {name: i for i, name in enumerate(pset.arguments)}
        self._nodes = _core.NodeCodes(self._resolve, False)
        self._ops = _ops_of(pset, primitives or {})
        for node in _nodes_of(pset):
            if isinstance(node, type):  # an ephemeral constant; individuals have instances
                self._nodes.add_constant_type(node)
            else:
                self._nodes.add(node, *self._resolve(node))

    def losses(self, individuals: Iterable[Any]) -> np.ndarray:
        """One loss per individual: float64, in order."""
        individuals = list(individuals)
        self.evaluations += len(individuals)
        return self.engine.loss(self._nodes.arrays(individuals), self.data, loss=self.loss, nan=self.nan,
                                prefix=True).values

    def evaluate(self, individual: Any) -> tuple[float]:
        """The fitness of one individual, for ``toolbox.evaluate``."""
        return (float(self.losses([individual])[0]),)

    def map(self, function: Callable[..., Any], *iterables: Any) -> list[Any]:
        """``map`` for ``toolbox.map``: all individuals at once where `function` is `evaluate`, else as usual."""
        if getattr(function, "func", function) != self.evaluate or len(iterables) != 1:
            return list(map(function, *iterables))
        return [(value,) for value in self.losses(iterables[0]).tolist()]

    def population(self, individuals: Iterable[Any]) -> Population:
        """Individuals as expressions, to print them or to fit them."""
        return Population.from_arrays(*self._nodes.arrays(list(individuals)), prefix=True,
                                      names=list(self._pset.arguments))

    def _resolve(self, node: Any) -> tuple[int, float]:
        """Code and number of a node. Also for nodes that are copies, as of individuals that were pickled."""
        if node.arity:
            if node.name not in self._ops:
                raise ValueError(f"primitive {node.name!r} is none of the primitive set")
            return ops[self._ops[node.name]].code, 0.0
        if isinstance(node.value, str):
            if node.value in self._arguments:
                return VARIABLE - self._arguments[node.value], 0.0
            return CONSTANT, _number_of(self._pset.context.get(node.value), node.value)
        return CONSTANT, _number_of(node.value, node.name)


def _nodes_of(pset: Any) -> list[Any]:
    """Primitives, terminals and types of ephemeral constants, without repetition."""
    found = {}
    for kinds in (pset.primitives, pset.terminals):
        for nodes in kinds.values():
            found.update((id(node), node) for node in nodes)
    return list(found.values())


def _ops_of(pset: Any, primitives: Mapping[str, str]) -> dict[str, str]:
    """The names of operators by those of primitives."""
    made = {}
    unknown = []
    absent = set(primitives) - {node.name for node in _nodes_of(pset) if not isinstance(node, type)}
    if absent:
        raise ValueError(f"`primitives` names {', '.join(sorted(absent))}, which the primitive set does not have")
    for node in _nodes_of(pset):
        if isinstance(node, type) or not node.arity:
            continue
        name = primitives.get(node.name)
        if name is None:
            function = pset.context.get(node.name)
            name = next((op for known, op in _KNOWN if known is function), None)
        if name is None:
            unknown.append(f"{node.name} ({node.arity} operands)")
        elif name not in ops:
            raise ValueError(f"primitive {node.name!r}: there is no operator {name!r}")
        elif ops[name].arity != node.arity:
            raise ValueError(f"primitive {node.name!r} has {node.arity} operands, but operator {name!r} "
                             f"{ops[name].arity}")
        else:
            made[node.name] = name
    if unknown:
        raise ValueError(f"no operator is known for {', '.join(unknown)}: name one for each in `primitives`")
    return made


def _number_of(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"terminal {name!r} is no number") from None


def tree_of(population: Population, expression: int, pset: Any, primitives: Mapping[str, str] | None = None) -> list[Any]:
    """The nodes of an expression in prefix order: ``creator.Individual(tree_of(...))`` is the way back to DEAP.

    Raises:
        ValueError: An operator that is no primitive of the set, or an expression with parameters.
    """
    from deap import gp

    by_op = {op: name for name, op in _ops_of(pset, primitives or {}).items()}
    codes = population.codes[population.offsets[expression]:population.offsets[expression + 1]]
    numbers = population.constants[population.offsets[expression]:population.offsets[expression + 1]]
    names = {op.code: op for op in ops.values()}
    stack: list[list[Any]] = []
    for code, number in zip(codes.tolist(), numbers.tolist()):
        if code > 0:
            op = names[code]
            if op.name not in by_op:
                raise ValueError(f"operator {op.name!r} is no primitive of the set")
            operands = stack[-op.arity:]
            del stack[-op.arity:]
            stack.append([pset.mapping[by_op[op.name]], *(node for operand in operands for node in operand)])
        elif code == CONSTANT:
            stack.append([gp.Terminal(number, False, pset.ret)])
        elif code <= PARAMETER:
            raise ValueError("an expression with parameters is no individual")
        else:
            stack.append([pset.mapping[pset.arguments[VARIABLE - code]]])
    return stack[0]
