"""Results of evaluations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ._errors import Error


class Failure(NamedTuple):
    """Why one expression of a batch has no result."""

    expression: int  #: its number in the batch, from 0
    error: Error


class _WithFailures:
    """The failures that all results of batches have."""

    _failures: Any

    @cached_property
    def failures(self) -> list[Failure]:
        """The expressions that failed, in order. Their results are NaN."""
        return [Failure(*failure) for failure in self._failures.list()]

    def check(self) -> None:
        """Raises the error of the first expression that failed, if any.

        Raises:
            Error: that of the expression; the message begins with its number.
        """
        if len(self._failures):
            number, error = self.failures[0]
            raise type(error)(f"expression {number}: {error}", error.code, error.where)


@dataclass(eq=False)
class Losses(_WithFailures):
    """One loss per expression.

    Attributes:
        values: float64, shape (expressions,), or (vectors, expressions) for several vectors of parameters. NaN for an
            expression that failed.
        valid_rows: int64 of the same shape: rows with a finite prediction. -1 where a loss under ``nan="propagate"`` is
            not finite: rows are not counted then.
    """

    values: np.ndarray
    valid_rows: np.ndarray
    _failures: Any = field(repr=False)


@dataclass(eq=False)
class Gradients(_WithFailures):
    """One loss per expression, and its derivatives.

    Attributes:
        values, valid_rows: as of `Losses`.
        derivatives: float64. By parameters: shape (parameters,) in the layout of the parameters, which
            `Program.split` divides by expressions; by variables: shape (expressions, columns). Several vectors of
            parameters give one more dimension in front. NaN for an expression that failed, or whose loss is not finite.
    """

    values: np.ndarray
    valid_rows: np.ndarray
    derivatives: np.ndarray
    _failures: Any = field(repr=False)


@dataclass(eq=False)
class Fits(_WithFailures):
    """Fitted parameters, one fit per expression.

    Attributes:
        parameters: float64, shape (parameters,): the best that were evaluated, one expression after another;
            `Program.split` divides them. NaN for an expression that failed.
        losses: float64, shape (expressions,), with these parameters.
        valid_rows: int64, as of `Losses`.
        iterations: int64, shape (expressions,): passes over the data, of the start that won.
        status: per expression ``"converged"``, ``"iterations"`` (their number was reached), ``"no parameters"``, or
            ``"failed: ..."``.
        start: int64, shape (expressions,): which start won.
        standard_errors: float64, in the layout of `parameters`; NaN if a parameter has none.
    """

    parameters: np.ndarray
    losses: np.ndarray
    valid_rows: np.ndarray
    iterations: np.ndarray
    status: list[str]
    start: np.ndarray
    standard_errors: np.ndarray
    _failures: Any = field(repr=False)


class Pending:
    """An evaluation in flight, as `Engine.submit_loss` and the like give it.

    It keeps what it reads and writes alive. Dropping it waits for its end. One thread at a time may use it.
    """

    def __init__(self, pending: Any, convert: Any):
        self._pending = pending
        self._convert = convert
        self._result: Any = None

    def ready(self) -> bool:
        """Whether `result` would return at once."""
        return self._pending is None or self._pending.ready()

    def result(self) -> Any:
        """Waits, and returns what the call without ``submit_`` returns; the same object every time.

        Ctrl-C ends the waiting; the evaluation goes on, and may be waited for again.

        Raises:
            Error: that of the evaluation.
        """
        pending = self._pending
        if pending is not None:
            taken = pending.result()
            # A handler of a signal may have been here meanwhile.
            if self._pending is not None:
                self._result = self._convert(taken)
                self._pending = None
        return self._result

    def stop(self) -> None:
        """Ends fits after the pass that runs, with the best parameters so far. Other work goes on."""
        if self._pending is not None:
            self._pending.stop()
