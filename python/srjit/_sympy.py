"""SymPy both ways. Imported when it is asked for, since importing SymPy takes half a second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ._arrays import name_of
from ._expressions import CONSTANT, PARAMETER, VARIABLE, Op, Population, arrays_of, built, ops, parse, pieces_of
from ._packages import needs

with needs("sympy"):
    import sympy
    from sympy.core.function import AppliedUndef
    from sympy.logic.boolalg import BooleanFalse, BooleanTrue

# Functions of SymPy whose arguments are the operands of one of our operators.
_FUNCTIONS = {
    sympy.sin: "sin", sympy.cos: "cos", sympy.tan: "tan", sympy.asin: "asin", sympy.acos: "acos", sympy.atan: "atan",
    sympy.atan2: "atan2", sympy.sinh: "sinh", sympy.cosh: "cosh", sympy.tanh: "tanh", sympy.asinh: "asinh",
    sympy.acosh: "acosh", sympy.atanh: "atanh", sympy.exp: "exp", sympy.log: "log", sympy.Abs: "abs", sympy.erf: "erf",
    sympy.sign: "sign", sympy.floor: "floor", sympy.ceiling: "ceil", sympy.Mod: "mod",
}
# Functions that are quotients of others.
_RECIPROCALS = {sympy.sec: "cos", sympy.csc: "sin", sympy.cot: "tan"}
_RELATIONS = {sympy.StrictLessThan: "lt", sympy.LessThan: "le", sympy.StrictGreaterThan: "gt",
              sympy.GreaterThan: "ge"}
_CONSTANTS = {sympy.oo: np.inf, sympy.S.NegativeInfinity: -np.inf, sympy.nan: np.nan}


class _Writer:
    """Token arrays in postfix, from expressions of SymPy. Works on a stack of its own, so depth is not limited here."""

    def __init__(self, names: Sequence[str]):
        self.indices = {name: i for i, name in enumerate(names)}
        self.codes: list[int] = []
        self.constants: list[float] = []

    def number(self, value: float) -> None:
        self.codes.append(CONSTANT)
        self.constants.append(value)

    def code(self, code: int) -> None:
        self.codes.append(code)
        self.constants.append(0.0)

    def op(self, name: str) -> None:
        self.code(ops[name].code)

    def write(self, expression: Any) -> None:
        # The steps that remain, the next last: expressions, and calls that follow their operands.
        work: list[Any] = [expression]
        while work:
            step = work.pop()
            if callable(step) and not isinstance(step, sympy.Basic):
                step()
            else:
                work.extend(reversed(self.steps(step)))

    def call(self, name: str, *operands: Any) -> list[Any]:
        return [*operands, lambda: self.op(name)]

    def fold(self, name: str, operands: Sequence[Any]) -> list[Any]:
        """An operator of two operands over several."""
        steps = [operands[0]]
        for operand in operands[1:]:
            steps += [operand, lambda: self.op(name)]
        return steps

    def steps(self, e: Any) -> list[Any]:
        """What writes `e`: expressions and calls."""
        if isinstance(e, (int, float, np.integer, np.floating)) and not isinstance(e, bool):
            return [lambda: self.number(float(e))]
        if isinstance(e, sympy.Symbol):
            return [lambda: self.code(self.symbol(e))]
        if e in _CONSTANTS:
            return [lambda: self.number(_CONSTANTS[e])]
        if getattr(e, "is_number", False) and e.is_real and not e.has(AppliedUndef):
            return [lambda: self.number(float(e))]
        if isinstance(e, sympy.Add):
            return self.sum(e)
        if isinstance(e, sympy.Mul):
            return self.product(e)
        if isinstance(e, sympy.Pow):
            return self.power(*e.as_base_exp()) if e.exp.is_number and e.exp.is_negative else self.power(e.base, e.exp)
        if type(e) in _FUNCTIONS and len(e.args) == ops[_FUNCTIONS[type(e)]].arity:
            return self.call(_FUNCTIONS[type(e)], *e.args)
        if type(e) in _RECIPROCALS:
            return self.call("inv", *[_FUNCTIONS_BY_NAME[_RECIPROCALS[type(e)]](e.args[0])])
        if isinstance(e, sympy.Min):
            return self.fold("min", e.args)
        if isinstance(e, sympy.Max):
            return self.fold("max", e.args)
        if isinstance(e, sympy.Piecewise):
            return self.piecewise(e.args)
        if isinstance(e, AppliedUndef) and e.func.__name__ in ops:
            return self.call(e.func.__name__, *self.checked(e))
        return self.condition(e)

    def condition(self, e: Any) -> list[Any]:
        """A relation or a combination of some: 1 where it holds, else 0."""
        if type(e) in _RELATIONS:
            return self.call(_RELATIONS[type(e)], *e.args)
        if isinstance(e, sympy.Equality):
            return self.call("mul", sympy.LessThan(*e.args, evaluate=False), sympy.GreaterThan(*e.args, evaluate=False))
        if isinstance(e, sympy.Unequality):
            return self.condition(sympy.Not(sympy.Eq(*e.args, evaluate=False), evaluate=False))
        if isinstance(e, (BooleanTrue, BooleanFalse)):
            return [lambda: self.number(float(bool(e)))]
        if isinstance(e, sympy.And):
            return self.fold("mul", e.args)
        if isinstance(e, sympy.Or):
            return self.fold("max", e.args)
        if isinstance(e, sympy.Not):
            return [lambda: self.number(1.0), e.args[0], lambda: self.op("sub")]
        what = f"a number that is not real, {e}" if getattr(e, "is_number", False) else type(e).__name__
        raise ValueError(f"there is no operator for {what}")

    def checked(self, e: Any) -> Sequence[Any]:
        name = e.func.__name__
        if len(e.args) != ops[name].arity:
            raise ValueError(f"{name} has {len(e.args)} operands, expected {ops[name].arity}")
        return e.args

    def symbol(self, symbol: sympy.Symbol) -> int:
        name = symbol.name
        if name in self.indices:
            return VARIABLE - self.indices[name]
        if name[:1] in ("x", "p") and name[1:].isdecimal() and name[1:].isascii():
            return (VARIABLE if name[0] == "x" else PARAMETER) - int(name[1:])
        known = "nor one of " + ", ".join(self.indices) if self.indices else "and no names were given"
        raise ValueError(f"symbol {name} is neither a variable x0, x1, ... nor a parameter p0, p1, ..., {known}")

    def sum(self, e: sympy.Add) -> list[Any]:
        terms = e.as_ordered_terms()
        steps: list[Any] = []
        # A term with a minus sign is subtracted, unless it is the first.
        terms.sort(key=lambda term: term.could_extract_minus_sign())
        for term in terms:
            if steps and term.could_extract_minus_sign():
                steps += [-term, lambda: self.op("sub")]
            else:
                steps += [term, lambda: self.op("add")] if steps else [term]
        return steps

    def product(self, e: sympy.Mul) -> list[Any]:
        coefficient, rest = e.as_coeff_Mul()
        if coefficient == -1:
            return self.call("neg", rest)
        over = [factor for factor in e.args if not _is_reciprocal(factor)]
        under = [1 / factor for factor in e.args if _is_reciprocal(factor)]
        steps = self.fold("mul", over) if over else [sympy.S.One]
        if under:
            steps += [*self.fold("mul", under), lambda: self.op("div")]
        return steps

    def power(self, base: Any, exponent: Any) -> list[Any]:
        if exponent == sympy.S.Half:
            return self.call("sqrt", base)
        if exponent == -1:
            return self.call("inv", base)
        if exponent == 2:
            return self.call("square", base)
        if exponent == 3:
            return self.call("cube", base)
        if exponent == -sympy.S.Half:
            return [base, lambda: self.op("sqrt"), lambda: self.op("inv")]
        return self.call("pow", base, exponent)

    def piecewise(self, pieces: Sequence[Any]) -> list[Any]:
        value, holds = pieces[0]
        if isinstance(holds, BooleanTrue):
            return [value]
        rest = self.piecewise(pieces[1:]) if len(pieces) > 1 else [sympy.nan]
        return [*self.condition(holds), value, *rest, lambda: self.op("if")]


_FUNCTIONS_BY_NAME = {name: function for function, name in _FUNCTIONS.items()}


def _is_reciprocal(factor: Any) -> bool:
    return isinstance(factor, sympy.Pow) and factor.exp.is_number and bool(factor.exp.is_negative)


def from_sympy(expressions: Any, names: Sequence[str] = ()) -> Population:
    """Expressions of SymPy as a `Population`.

    Sums and products of any number of terms become chains of operators; subtraction, division, squares, square roots
    and reciprocals are recognised; ``Piecewise`` becomes choices (NaN where no piece holds); relations are 1 where they
    hold, else 0. A number becomes the nearest double. Undefined functions may have the name of one of our operators:
    ``Function("pdiv")(x, y)``.

    Args:
        expressions: One, or several.
        names: Names of the variables, in the order of columns. Symbols ``x0, x1, ...`` are variables and ``p0, p1, ...``
            parameters in any case.

    Raises:
        ValueError: An unknown symbol, a function without an operator, a number that is not real.
    """
    several = list(expressions) if isinstance(expressions, (list, tuple)) else [expressions]
    pieces = []
    for expression in several:
        writer = _Writer(names)
        writer.write(sympy.sympify(expression))
        pieces.append((writer.codes, writer.constants))
    return Population.from_arrays(*arrays_of(pieces), names=names)


def _protected(value: Callable[..., Any], guarded: int, otherwise: Any) -> Callable[..., Any]:
    """Like `value` where the operand of this number is not near 0."""
    def of(*operands: Any) -> Any:
        near_zero = sympy.Abs(operands[guarded]) <= sympy.Float(0.001)
        return sympy.Piecewise((otherwise, near_zero), (value(*operands), True))
    return of


def _relation(relation: Any, otherwise: int = 0) -> Callable[..., Any]:
    return lambda x, y: sympy.Piecewise((1, relation(x, y)), (otherwise, True))


def _away_from_zero(x: Any) -> Any:
    """`x` pushed up to 1e-9 in magnitude, its sign kept."""
    delta = sympy.Float(1e-9)
    return sympy.Piecewise((x, sympy.Abs(x) >= delta), (delta, x >= 0), (-delta, True))


def _positive_power(x: Any, y: Any) -> Any:
    return sympy.Abs(x) ** y


# What operators are in SymPy; those that are not here have the name of a function there, or become an undefined function.
_TO_SYMPY: dict[str, Callable[..., Any]] = {
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y, "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y, "neg": lambda x: -x, "fma": lambda x, y, z: x * y + z, "fms": lambda x, y, z: x * y - z,
    "fnma": lambda x, y, z: z - x * y, "inv": lambda x: 1 / x, "square": lambda x: x**2, "cube": lambda x: x**3,
    "sqrt": sympy.sqrt, "min": sympy.Min, "max": sympy.Max, "exp2": lambda x: 2**x, "expm1": lambda x: sympy.exp(x) - 1,
    "log2": lambda x: sympy.log(x) / sympy.log(2), "log10": lambda x: sympy.log(x) / sympy.log(10),
    "log1p": lambda x: sympy.log(1 + x), "logistic": lambda x: 1 / (1 + sympy.exp(-x)),
    "cbrt": lambda x: sympy.sign(x) * sympy.Abs(x) ** sympy.Rational(1, 3),
    "aq": lambda x, y: x / sympy.sqrt(1 + y**2), "lt": _relation(sympy.StrictLessThan), "le": _relation(sympy.LessThan),
    "gt": _relation(sympy.StrictGreaterThan), "ge": _relation(sympy.GreaterThan),
    "lt_sign": _relation(sympy.StrictLessThan, -1), "le_sign": _relation(sympy.LessThan, -1),
    "gt_sign": _relation(sympy.StrictGreaterThan, -1), "ge_sign": _relation(sympy.GreaterThan, -1),
    "if": lambda x, y, z: sympy.Piecewise((y, x > 0), (z, True)),
    "pdiv": _protected(lambda x, y: x / y, 1, 1), "plog": _protected(lambda x: sympy.log(sympy.Abs(x)), 0, 0),
    "psqrt": lambda x: sympy.sqrt(sympy.Abs(x)), "pinv": _protected(lambda x: 1 / x, 0, 0),
    "ppow": _protected(_positive_power, 0, 1),
    "zdiv": lambda x, y: sympy.Piecewise((1, sympy.Eq(y, 0)), (x / y, True)),
    "loose_div": lambda x, y: x / _away_from_zero(y), "loose_inv": lambda x: 1 / _away_from_zero(x),
    "loose_log": lambda x: sympy.Piecewise((-sympy.Float(1e9), sympy.Eq(x, 0)), (sympy.log(sympy.Abs(x)), True)),
    "loose_sqrt": lambda x: sympy.sqrt(sympy.Abs(x)),
    "loose_pow": lambda x, y: sympy.Piecewise((0, sympy.Eq(sympy.Abs(x) + sympy.Abs(y), 0)), (_positive_power(x, y), True)),
    **_FUNCTIONS_BY_NAME,
}


def to_sympy(expressions: Any, names: Sequence[str] | None = None, *, parameters: Sequence[Any] | None = None,
             real: bool = False, exact: bool = True) -> Any:
    """Expressions as those of SymPy.

    Symbols are called by the names of columns, or ``x0, x1, ...`` and ``p0, p1, ...``, and are plain: those of
    ``sympy.Symbol("x0")``. SymPy simplifies some sums and products as they are made, but takes no number out of a root:
    ``sqrt(112/w)`` stays what it is. Operators without a function there become undefined functions of their name
    (``round``), protected ones ``Piecewise``.

    Args:
        expressions: A text, several, or a `Population`.
        names: Names of the variables; by default those of the population.
        parameters: Values in place of the parameters: one array per expression.
        real: Whether symbols are real: ``sympy.Symbol("x0", real=True)``, which SymPy takes for another symbol than
            ``Symbol("x0")``. It then simplifies more, ``sqrt(x0**2)`` to ``Abs(x0)`` for example, and derivatives of ``Abs``
            have no real and imaginary parts.
        exact: Whether numbers that are integers become SymPy's integers rather than floats.

    Returns:
        One expression for a text, else a list.

    Raises:
        InvalidError: A text that is no expression.
        ValueError: A comparison with a number that is not real, such as ``sqrt(-1)``; a column that is called like a
            parameter that the expression has.
    """
    one = isinstance(expressions, str)
    if not isinstance(expressions, Population):
        expressions = parse(expressions, names=() if names is None else names)
    if expressions.failures:
        raise expressions.failures[0].error
    names = expressions.names if names is None else [name_of(name) for name in names]
    assumptions = {"real": True} if real else {}

    def leaf_of(values: Any) -> Callable[[int, float], Any]:
        def leaf(code: int, number: float) -> Any:
            if code == CONSTANT:
                return _number_of(number, exact)
            if code > PARAMETER:
                index = VARIABLE - code
                return sympy.Symbol(names[index] if index < len(names) else f"x{index}", **assumptions)
            index = PARAMETER - code
            if values is not None:
                return sympy.Float(float(values[index]))
            if f"p{index}" in names:
                raise ValueError(f"p{index} is a column, so parameter p[{index}] has no symbol: give values of the parameters")
            return sympy.Symbol(f"p{index}", **assumptions)
        return leaf

    values = parameters if parameters is not None else [None] * len(expressions)
    results = [built(*piece, leaf_of(own), _operation) for piece, own in zip(pieces_of(expressions), values)]
    return results[0] if one else results


def _operation(op: Op, operands: list[Any]) -> Any:
    try:
        return _applied(_TO_SYMPY.get(op.name, sympy.Function(op.name)), operands)
    except TypeError as problem:  # of a comparison
        raise ValueError(f"a part of the expression has no real value: {problem}") from None


def _applied(function: Callable[..., Any], operands: Sequence[Any]) -> Any:
    """A function of operands. Where SymPy would take a number out of a root, as 112/w is 4 sqrt(7) sqrt(1/w), the root stays."""
    made = function(*operands)
    if _roots_of_numbers(made) <= set().union(*map(_roots_of_numbers, operands)):
        return made
    with sympy.evaluate(False):
        return function(*operands)


def _roots_of_numbers(e: Any) -> set[Any]:
    """The roots of numbers among the terms and factors of `e`."""
    roots, parts = set(), [e]
    while parts:
        part = parts.pop()
        if isinstance(part, (sympy.Add, sympy.Mul)):
            parts += part.args
        elif isinstance(part, sympy.Pow) and part.base.is_Rational and part.exp.is_Rational:
            roots.add(part)
    return roots


def _number_of(number: float, exact: bool) -> Any:
    if np.isnan(number):
        return sympy.nan
    if np.isinf(number):
        return sympy.oo if number > 0 else -sympy.oo
    if exact and number == int(number) and abs(number) < 2**53:
        return sympy.Integer(int(number))
    return sympy.Float(number)


def symbols_of(expressions: Iterable[Any]) -> list[Any]:
    """All free symbols, by name; x10 behind x9."""
    found = set().union(*(sympy.sympify(expression).free_symbols for expression in expressions))
    return sorted(found, key=lambda symbol: (symbol.name.rstrip("0123456789"), len(symbol.name), symbol.name))
