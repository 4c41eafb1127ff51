"""Expressions: text, token arrays, operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import float64_of, name_of, text_of
from ._results import Failure

#: The code of a constant.
CONSTANT: int = _core.CONSTANT
#: The code of variable 0; that of variable i is ``VARIABLE - i``.
VARIABLE: int = _core.VARIABLE
#: The code of parameter 0; that of parameter i is ``PARAMETER - i``.
PARAMETER: int = _core.PARAMETER


class Op(NamedTuple):
    """An operator."""

    name: str  #: as in calls: ``"add"``
    text: str  #: as in infix, postfix and prefix: ``"+"``
    arity: int
    code: int  #: in token arrays; the same in every version
    doc: str


#: All operators by name.
ops: dict[str, Op] = {row[0]: Op(*row) for row in _core.operators()}
OPS_BY_CODE = {op.code: op for op in ops.values()}


class Population:
    """Expressions as token arrays in postfix, as `parse`, `from_sympy` and the adapters make them.

    A sequence of texts: ``population[0]`` is the first expression in infix.

    Attributes:
        codes: int32, one per token: `CONSTANT`, ``VARIABLE - i``, ``PARAMETER - i``, or the code of an operator.
        constants: float64, one per token: its number where the code is `CONSTANT`.
        offsets: int64: expression e has the tokens ``offsets[e]`` to ``offsets[e + 1] - 1``.
        names: names of the variables, or an empty list.
    """

    def __init__(self, tokens: Any, names: Sequence[str] = ()):
        self._tokens = tokens
        self.names = [name_of(name) for name in names]

    @classmethod
    def from_arrays(cls, codes: Any, constants: Any, offsets: Any, *, prefix: bool = False,
                    names: Sequence[str] = ()) -> Population:
        """Expressions from token arrays, which are copied.

        Args:
            prefix: Whether operators stand before their operands rather than behind them.

        Raises:
            ValueError: Offsets that do not fit. An expression that is none is one of `failures`.
        """
        return cls(_core.tokens(*token_arrays(codes, constants, offsets), prefix), names)

    @property
    def codes(self) -> np.ndarray:
        return self._tokens.codes

    @property
    def constants(self) -> np.ndarray:
        return self._tokens.constants

    @property
    def offsets(self) -> np.ndarray:
        return self._tokens.offsets

    @property
    def failures(self) -> list[Failure]:
        """Texts that are no expressions, and why."""
        return [Failure(*failure) for failure in self._tokens.failures]

    def text(self, expression: int, language: str = "infix") -> str:
        """An expression as text.

        Args:
            language: ``"infix"``, ``"postfix"``, ``"prefix"`` or ``"json"``.

        Raises:
            Error: That of an expression that is one of `failures`.
        """
        return self._tokens.print(expression, text_of(language, "language"), self.names)

    def simplified(self, math: str = "fast") -> Population:
        """The expressions in simpler form; see `simplify`."""
        return Population(self._tokens.simplified(math), self.names)

    def __reduce__(self) -> Any:
        return _population_of_arrays, (self.codes, self.constants, self.offsets, self.names)

    def __len__(self) -> int:
        return len(self._tokens)

    def __getitem__(self, expression: int) -> str:
        if not isinstance(expression, int):
            raise TypeError(f"the number of an expression is of type {type(expression).__name__}, expected int")
        count = len(self)
        if not -count <= expression < count:
            raise IndexError(f"expression {expression} of {count}")
        return self.text(expression % count)

    def __repr__(self) -> str:
        return f"<srjit.Population of {len(self)} expressions, {len(self.codes)} tokens>"


def pieces_of(population: Population) -> Iterator[tuple[list[int], list[float]]]:
    """Codes and constants of each expression."""
    codes, constants, offsets = population.codes.tolist(), population.constants.tolist(), population.offsets.tolist()
    return ((codes[begin:end], constants[begin:end]) for begin, end in zip(offsets, offsets[1:]))


def arrays_of(pieces: Sequence[tuple[Sequence[int], Sequence[float]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The way back: token arrays of the codes and constants of each expression."""
    return (np.array([code for codes, _ in pieces for code in codes], np.int32),
            np.array([number for _, constants in pieces for number in constants], np.float64),
            np.cumsum([0, *(len(codes) for codes, _ in pieces)]))


def built(codes: Iterable[int], constants: Iterable[float], leaf: Callable[[int, float], Any],
          operation: Callable[[Op, list[Any]], Any]) -> Any:
    """Something of an expression in postfix, from its leaves up: `operation` gets what its operands have become."""
    stack: list[Any] = []
    for code, number in zip(codes, constants):
        if code > 0:
            op = OPS_BY_CODE[code]
            operands = stack[-op.arity:]
            stack[-op.arity:] = [operation(op, operands)]
        else:
            stack.append(leaf(code, number))
    return stack[0]


def _population_of_arrays(codes: Any, constants: Any, offsets: Any, names: Sequence[str]) -> Population:
    return Population.from_arrays(codes, constants, offsets, names=names)


def token_arrays(codes: Any, constants: Any, offsets: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arrays with the types that the library reads, without a copy where they have them."""
    made = (_integers(codes, np.int32, "codes"), float64_of(constants, "constants"),
            _integers(offsets, np.int64, "offsets"))
    for array, name in zip(made, ("codes", "constants", "offsets")):
        if array.ndim != 1:
            raise ValueError(f"{name} has {array.ndim} dimensions, expected 1")
    return made


def _integers(values: Any, dtype: Any, what: str) -> np.ndarray:
    array = np.asarray(values)
    if array.size == 0:
        array = array.astype(dtype)
    if array.dtype.kind not in "iu":
        raise TypeError(f"{what} has numbers of type {array.dtype}, expected integers")
    converted = np.ascontiguousarray(array, dtype=dtype)
    if array.dtype != converted.dtype and not np.array_equal(array, converted):
        raise ValueError(f"{what} has numbers beyond the range of {np.dtype(dtype).name}")
    return converted


def parse(texts: str | Iterable[str], language: str = "infix", names: Sequence[str] = (), *,
          max_nodes: int = 0) -> Population:
    """Reads expressions from text.

    Args:
        texts: One text, or several. Variables are ``x0, x1, ...``, or names of columns; parameters are
            ``p0, p1, ...``; docs/operators.md lists the operators.
        language: ``"infix"``, ``"postfix"``, ``"prefix"`` or ``"json"``.
        names: Names of the columns, in order.
        max_nodes: Refuses longer texts, and stops reading them there; 0: no limit.

    Returns:
        A `Population`. Of several texts, those that are no expressions are its `failures`.

    Raises:
        InvalidError: A single text that is no expression, with its place.
        Error: A single text of more than `max_nodes` nodes.
    """
    one = isinstance(texts, str)
    plain = [text_of(text, "an expression") for text in ([texts] if one else texts)]
    columns = [name_of(name) for name in names]
    population = Population(_core.parse(plain, text_of(language, "language"), columns, max_nodes), columns)
    if one and population.failures:
        raise population.failures[0].error
    return population


def simplify(text: str, math: str = "fast", names: Sequence[str] = ()) -> str:
    """An expression in infix, in a simpler form for people to read.

    Args:
        math: What the result keeps: ``"strict"`` every bit of every value, ``"precise"`` values within the bounds of
            that mode, ``"fast"`` values in real arithmetic.

    Examples:
        >>> simplify("x0*1 + 2*3 + (x1 - x1)")
        'x0 + 6'
    """
    if not isinstance(text, str):
        raise TypeError(f"text is of type {type(text).__name__}; of several expressions use Population.simplified()")
    return parse(text, names=names).simplified(math).text(0)


def population_of(expressions: Any, language: str = "infix", names: Sequence[str] = (), max_nodes: int = 0) -> Population:
    """Expressions of any kind that is not token arrays: texts or expressions of SymPy, one or several, or a `Population`.

    Raises:
        InvalidError: A single text that is no expression, with its place.
        TypeError: Something else.
    """
    if isinstance(expressions, Population):
        if len(names):
            raise ValueError("a population has names of its own, so `names` has no effect on it")
        return expressions
    if isinstance(expressions, str):
        return parse(expressions, language, names, max_nodes=max_nodes)
    if not hasattr(expressions, "free_symbols"):
        expressions = list(expressions) if isinstance(expressions, Iterable) else [expressions]
        if all(isinstance(expression, str) for expression in expressions):
            return parse(expressions, language, names, max_nodes=max_nodes)
        if not all(hasattr(expression, "free_symbols") for expression in expressions):
            raise TypeError("expressions are neither texts, SymPy expressions, a Population, nor (codes, constants, offsets)")
    from ._sympy import from_sympy

    return from_sympy(expressions, names)


def latex(expressions: Any, names: Sequence[str] | None = None) -> Any:
    """Expressions in LaTeX's mathematical mode, as they are written: nothing is simplified, and no number changes.
    A number stands before the factor that it multiplies.

    ``sr-jit search --latex`` and `SymbolicRegressor.latex` write formulas the same way. The document needs the package
    amsmath.
    Of names of columns, one letter or a Greek letter's name is that letter, digits at the end are an index, and all else is
    upright, with LaTeX's special characters escaped.

    Args:
        expressions: A text, an expression of SymPy, several of these, or a `Population`.
        names: Names of the variables; by default those of the population.

    Returns:
        One text for a text or an expression of SymPy, else a list.

    Raises:
        Error: That of a text that is no expression.

    Examples:
        >>> latex("sqrt(112/w_1) * `a%b`", names=["w_1", "a%b"])
        '\\\\sqrt{\\\\frac{112}{w_{1}}} \\\\, \\\\text{a\\\\%b}'
    """
    one = isinstance(expressions, str) or hasattr(expressions, "free_symbols")
    if isinstance(expressions, Population) and names is not None:
        expressions = Population(expressions._tokens, names)
        names = None
    population = population_of(expressions, names=() if names is None else names)
    texts = [population._tokens.latex(e, population.names) for e in range(len(population))]
    return texts[0] if one else texts


@lru_cache(maxsize=1)
def loss_names() -> tuple[str, ...]:
    """Names of all losses; docs/losses.md says what they are."""
    return tuple(_core.loss_names())
