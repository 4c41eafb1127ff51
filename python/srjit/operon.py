"""pyoperon: trees both ways.

    population = srjit.operon.population_of(trees, dataset.Variables[:-1])
    fits = engine.fit(engine.compile(population, deferred=True), data)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ._expressions import CONSTANT, PARAMETER, VARIABLE, Population, arrays_of, built, ops, pieces_of
from ._packages import needs

with needs("pyoperon"):
    import pyoperon

# Types of nodes as operators in prefix: the last one's operands follow.
_TYPES = {name: meaning.split() for name, meaning in (
    ("Add", "add"), ("Sub", "sub"), ("Mul", "mul"), ("Div", "div"), ("Aq", "aq"), ("Pow", "pow"), ("Powabs", "pow abs"),
    ("Fmin", "min"), ("Fmax", "max"), ("Abs", "abs"), ("Acos", "acos"), ("Asin", "asin"), ("Atan", "atan"),
    ("Cbrt", "cbrt"), ("Ceil", "ceil"), ("Cos", "cos"), ("Cosh", "cosh"), ("Exp", "exp"), ("Floor", "floor"),
    ("Log", "log"), ("Logabs", "log abs"), ("Log1p", "log1p"), ("Sin", "sin"), ("Sinh", "sinh"), ("Sqrt", "sqrt"),
    ("Sqrtabs", "sqrt abs"), ("Square", "square"), ("Tan", "tan"), ("Tanh", "tanh"))}


def _is_minimum(kind: Any) -> bool:
    """What a type of node computes of 1 and 2. (Those of pyoperon 0.6.2 that are called Fmin and Fmax are exchanged.)"""
    numbers = np.zeros((1, 1), np.float32, order="F")
    node = pyoperon.Node(kind)
    node.Arity = 2
    tree = pyoperon.Tree([pyoperon.Node.Constant(2.0), pyoperon.Node.Constant(1.0), node]).UpdateNodes()
    return float(pyoperon.Evaluate(tree, pyoperon.Dataset(numbers), pyoperon.Range(0, 1))[0]) == 1.0


for _name in ("Fmin", "Fmax"):
    _TYPES[_name] = ["min" if _is_minimum(getattr(pyoperon.NodeType, _name)) else "max"]
# What an operator of one operand stands for where the node has just one.
_OF_ONE = {"sub": "neg", "div": "inv"}
_NODE_TYPES = {meaning[0]: getattr(pyoperon.NodeType, name) for name, meaning in _TYPES.items() if len(meaning) == 1}
_TYPE_NAMES = {int(getattr(pyoperon.NodeType, name)): name for name in _TYPES}


def population_of(trees: Iterable[Any], variables: Sequence[Any], *, parameters: bool = False) -> Population:
    """Trees of pyoperon as expressions.

    Args:
        trees: ``pyoperon.Tree`` objects.
        variables: The variables in the order of the columns, as ``dataset.Variables`` has them.
        parameters: Whether the coefficients of constants and variables become parameters p0, p1, ..., in the order of
            ``tree.GetCoefficients()``, rather than numbers.

    Raises:
        ValueError: An unknown variable, a node without an operator.
    """
    indices = {variable.Hash: i for i, variable in enumerate(variables)}
    pieces = [_piece_of(tree, indices, parameters) for tree in trees]
    return Population.from_arrays(*arrays_of(pieces), prefix=True, names=[variable.Name for variable in variables])


def _piece_of(tree: Any, indices: dict[int, int], parameters: bool) -> tuple[list[int], list[float]]:
    """The first operand of a node stands next to it, so nodes from the last to the first are prefix."""
    codes: list[int] = []
    constants: list[float] = []
    nodes = tree.Nodes
    coefficient = sum(1 for node in nodes if node.IsLeaf and node.Optimize)
    for node in reversed(nodes):
        if node.IsLeaf:
            if node.Optimize:
                coefficient -= 1
            if node.IsVariable:
                if node.HashValue not in indices:
                    raise ValueError(f"a tree has a variable of hash {node.HashValue}, which is none of `variables`")
                codes.append(ops["mul"].code)
                constants.append(0.0)
            is_parameter = parameters and node.Optimize
            codes.append(PARAMETER - coefficient if is_parameter else CONSTANT)
            constants.append(0.0 if is_parameter else float(node.Value))
            if node.IsVariable:
                codes.append(VARIABLE - indices[node.HashValue])
                constants.append(0.0)
            continue
        name = _TYPE_NAMES.get(int(node.Type))
        if name is None:
            raise ValueError(f"there is no operator for a node of type {node.Name}")
        words = _TYPES[name]
        arity = ops[words[0]].arity
        if arity == 2 and node.Arity == 1:
            words = [_OF_ONE[words[0]]] if words[0] in _OF_ONE else []
        elif arity == 2:
            words = words[:1] * (node.Arity - 2) + words
        codes += [ops[word].code for word in words]
        constants += [0.0] * len(words)
    return codes, constants


def trees_of(population: Population, variables: Sequence[Any], parameters: Sequence[Any] | None = None) -> list[Any]:
    """Expressions as trees of pyoperon.

    Args:
        variables: Those of the columns, in order.
        parameters: Values of the parameters, one array per expression.

    Raises:
        ValueError: An operator without a type of node; a parameter without a value.
    """
    def operation(op: Any, operands: list[list[Any]]) -> list[Any]:
        # The first operand next to the operator.
        return [*(node for operand in reversed(operands) for node in operand), _node_of(op)]

    trees = []
    for e, (codes, constants) in enumerate(pieces_of(population)):
        def leaf(code: int, number: float) -> list[Any]:
            if PARAMETER < code <= VARIABLE:
                return [_variable(variables[VARIABLE - code])]
            if code != CONSTANT:
                if parameters is None or PARAMETER - code >= len(parameters[e]):
                    raise ValueError(f"expression {e} has parameter p{PARAMETER - code}, which has no value")
                number = float(parameters[e][PARAMETER - code])
            return [pyoperon.Node.Constant(number)]

        trees.append(pyoperon.Tree(built(codes, constants, leaf, operation)).UpdateNodes())
    return trees


def _variable(variable: Any) -> Any:
    node = pyoperon.Node(pyoperon.NodeType.Variable, variable.Hash)
    node.CalculatedHashValue = variable.Hash
    node.Value = 1.0
    return node


def _node_of(op: Any) -> Any:
    name = {"neg": "sub", "inv": "div"}.get(op.name, op.name)
    if name not in _NODE_TYPES:
        raise ValueError(f"there is no type of node for the operator {op.name!r}")
    node = pyoperon.Node(_NODE_TYPES[name])
    node.Arity = op.arity
    return node
