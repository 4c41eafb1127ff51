"""PySR: the constants of its equations refitted, and their scores, on data that are too large for its search.

    model.fit(X[:5000], y[:5000])
    table = srjit.pysr.refit(model.equations_, X, y)

PySR evaluates one tree at a time in Julia, so a batch evaluator can only serve it where it hands over many equations:
before the search or after it. docs/python.md says more. PySR itself is not imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._arrays import names_of
from ._engine import Engine
from ._expressions import CONSTANT, PARAMETER, Population
from ._lambdify import engine_of
from ._sympy import from_sympy, to_sympy


def refit(equations: Any, X: Any, y: Any, *, weights: Any = None, names: Sequence[str] | None = None,
          iterations: int = 100, loss: str = "mse", engine: Engine | str | None = None) -> Any:
    """A copy of PySR's table of equations, with constants that are fitted to `X` and `y`.

    Every number that is no integer is a constant to be fitted, from its present value.

    Args:
        equations: ``model.equations_``: a data frame with the columns ``sympy_format`` (SymPy expressions) or ``equation``
            (text), and ``complexity``.
        X, y, weights: As of `Engine.upload`.
        names: Names of the variables in the equations; by default those of a data frame, else x0, x1, ...
        iterations, loss: As of `Engine.fit`.
        engine: An engine, or a device such as ``"cpu"``: one of precision f64 there. By default on cuda:0, if it can be
            used, else the CPU.

    Returns:
        The table with new values in ``equation``, ``sympy_format``, ``loss`` and ``score`` (PySR's: the fall of log(loss)
        per unit of complexity), and the columns ``loss_before`` (on these data), ``valid_rows`` and ``fit``.

    Raises:
        ValueError: An equation that cannot be read; a loss of which larger values are better.
    """
    import sympy

    if loss in _core.LARGER_IS_BETTER:
        raise ValueError(f"loss is {loss!r}, expected one that is smaller for better predictions")
    engine = engine_of(engine)
    names = list(names_of(X) or []) if names is None else list(names)
    data = engine.upload(X, y, weights, names)
    table = equations.copy()
    symbols = {name: sympy.Symbol(name) for name in names}  # S, N and others mean something else to SymPy
    source = table["sympy_format"] if "sympy_format" in table else [
        sympy.sympify(text, locals=symbols) for text in table["equation"]]
    population, starts = _with_parameters(from_sympy(list(source), names))
    program = engine.compile(population)
    before = engine.loss(program, data, starts, loss=loss)
    fits = engine.fit(program, data, starts, iterations, loss=loss)
    worse = ~(fits.losses <= before.values)
    values = program.split(np.where(np.isfinite(fits.parameters), fits.parameters, np.concatenate([np.zeros(0), *starts])))
    values = [start if is_worse else fitted for start, fitted, is_worse in zip(starts, values, worse)]
    formulas = to_sympy(population, parameters=values)
    table["sympy_format"] = formulas
    table["equation"] = [str(formula) for formula in formulas]
    table["loss_before"] = before.values
    table["loss"] = np.where(worse, before.values, fits.losses)
    table["valid_rows"] = fits.valid_rows
    table["fit"] = fits.status
    table["score"] = _scores(table["loss"].to_numpy(), table["complexity"].to_numpy())
    return table


def _with_parameters(population: Population) -> tuple[Population, list[np.ndarray]]:
    """The expressions with parameters in place of numbers that are no integers, and these numbers by expression."""
    codes, constants, offsets = population.codes, population.constants, population.offsets
    chosen = (codes == CONSTANT) & (constants != np.round(constants)) & np.isfinite(constants)
    count = np.concatenate([[0], np.cumsum(chosen)])
    first = np.repeat(count[offsets[:-1]], np.diff(offsets))
    codes = np.where(chosen, PARAMETER - (count[:-1] - first), codes).astype(np.int32)
    starts = np.split(constants[chosen], count[offsets[1:-1]])
    return Population.from_arrays(codes, constants, offsets, names=population.names), starts


def _scores(losses: np.ndarray, complexities: np.ndarray) -> np.ndarray:
    """PySR's score: - d log(loss) / d complexity from one equation to the next (M. Cranmer, "Interpretable Machine
    Learning for Science with PySR and SymbolicRegression.jl", 2023)."""
    scores = np.zeros(len(losses))
    with np.errstate(divide="ignore", invalid="ignore"):
        scores[1:] = -np.diff(np.log(np.maximum(losses, 1e-300))) / np.diff(complexities)
    return np.where(np.isfinite(scores), np.maximum(scores, 0), 0.0)
