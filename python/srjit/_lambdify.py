"""Functions of arrays from expressions, and the engine of those who do not choose one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ._arrays import float64_of
from ._engine import Engine


@lru_cache(maxsize=None)
def _engine_of_process(process: int, device: str, precision: str) -> Engine:
    return Engine(device, precision)


def default_engine(device: str = "auto", precision: str = "f64") -> Engine:
    """An engine of this process, made at the first call and kept."""
    return _engine_of_process(os.getpid(), device, precision)


def engine_of(chosen: Engine | str | None) -> Engine:
    """An engine; or `default_engine` of the device that is named, such as ``"cpu"``, or of any."""
    if isinstance(chosen, str):
        return default_engine(chosen)
    return default_engine() if chosen is None else chosen


class Lambdified:
    """A function of arrays; see `lambdify`."""

    def __init__(self, names: Sequence[str], expressions: Any, one: bool, engine: Engine):
        from ._sympy import from_sympy, symbols_of

        unknown = {symbol.name for symbol in symbols_of(expressions)} - set(names)
        if unknown:
            raise ValueError(f"symbols that are no arguments: {', '.join(sorted(unknown))}")
        self._names = list(names)
        self._one = one
        self._engine = engine
        self._program = engine.compile(from_sympy(expressions, self._names), expected_evaluations=1000)

    def __call__(self, *arguments: Any) -> Any:
        """Evaluates the expressions; arguments are broadcast against each other.

        Returns:
            An array of the broadcast shape, or a number if all arguments are numbers; a list of them for a list of
            expressions.
        """
        if len(arguments) != len(self._names):
            raise TypeError(f"{len(arguments)} arguments, expected {len(self._names)}: {', '.join(self._names)}")
        arrays = np.broadcast_arrays(*(float64_of(argument, name) for name, argument in zip(self._names, arguments)))
        shape = arrays[0].shape if arrays else ()
        if arrays and arrays[0].size == 0:
            values = np.empty((len(self._program), 0))
        else:
            # Expressions without variables have a row, too.
            columns = [array.reshape(-1) for array in arrays] or [np.zeros(1)]
            values = self._engine.predict(self._program, self._engine.upload(np.array(columns).T))
        results = [row.reshape(shape) if shape else row[0] for row in values]
        return results[0] if self._one else results


def lambdify(args: Any, expr: Any = None, *, engine: Engine | str | None = None) -> Callable[..., Any]:
    """A function that evaluates expressions of SymPy on arrays: ``sympy.lambdify(args, expr, "numpy")`` for large ones.

    Args:
        args: The symbols that are its arguments, in order: one, or several. If `expr` is left out, this is the
            expression, and its symbols are the arguments, by name.
        expr: An expression, or a list of them.
        engine: An engine, or a device such as ``"cpu"``: one of precision f64 there. By default on cuda:0, if it can
            be used, else the CPU.

    Raises:
        ValueError: A symbol that is no argument; what `from_sympy` raises.

    Examples:
        >>> import sympy
        >>> x, y = sympy.symbols("x y")
        >>> lambdify((x, y), x**2 + y)(3.0, [1.0, 2.0])
        array([10., 11.])
    """
    from ._sympy import symbols_of

    if expr is None:
        args, expr = None, args
    one = not isinstance(expr, (list, tuple))
    expressions = [expr] if one else list(expr)
    if args is None:
        args = symbols_of(expressions)
    elif not isinstance(args, (list, tuple)):
        args = [args]
    return Lambdified([getattr(symbol, "name", symbol) for symbol in args], expressions, one, engine_of(engine))
