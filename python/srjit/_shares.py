"""Calls of several ranks: what each gets of the arrays of a call, and how their results become one."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ._errors import Error
from ._expressions import Population, token_arrays
from ._results import Failure

#: The arrays of losses, as of `results_of`.
LOSSES = [("expressions", 1, np.float64), ("expressions", 1, np.int64)]


class FailuresOfRanks:
    """Failures of all ranks, as results have them."""

    def __init__(self, failures: list[Failure]):
        self._failures = failures

    def __len__(self) -> int:
        return len(self._failures)

    def list(self) -> list[Failure]:
        return self._failures


def bounds_by_cost(offsets: np.ndarray, ranks: int) -> np.ndarray:
    """Where each rank's expressions begin, shape (ranks + 1,): adjacent ones of about equal cost, tokens and one each."""
    costs = offsets + np.arange(len(offsets))
    goals = costs[-1] * np.arange(1, ranks) / ranks
    after = np.searchsorted(costs, goals)
    before = np.maximum(after - 1, 0)
    cuts = np.where(goals - costs[before] < costs[after] - goals, before, after)
    return np.concatenate([[0], cuts, [len(offsets) - 1]]).astype(np.int64)


def results_of(kind: str, by: str, rows: int, columns: int, dtype: Any) -> list[tuple[str, int, Any]]:
    """The arrays of a result: whether they have rows per expression or parameter, the numbers of a row, the type."""
    by_variables = by == "variables"
    per = "expressions" if by_variables else "parameters"
    if kind == "loss":
        return LOSSES
    if kind == "predict":
        return [("expressions", rows, dtype)]
    if kind == "gradient":
        return [*LOSSES, (per, columns if by_variables else 1, np.float64)]
    if kind == "jacobian":
        return [(per, columns * rows if by_variables else rows, dtype)]
    return [("parameters", 1, np.float64), *LOSSES, ("expressions", 1, np.int64), ("expressions", 1, np.int32),
            ("expressions", 1, np.int64), ("parameters", 1, np.float64)]


def stored(kind: str, result: Any, shares: list[np.ndarray]) -> tuple[list, Any]:
    """Puts a result of the extension module into `shares`. Its failures, and the names of a fit's status."""
    if kind in ("predict", "jacobian"):
        return result.list(), None
    more = None
    if kind == "loss":
        *arrays, failures = result
    elif kind == "gradient":
        (*arrays, failures), derivatives = result
        arrays.append(derivatives)
    else:
        parameters, (values, valid_rows, failures), iterations, status, start, errors = result
        more = sorted(set(status))
        codes = [more.index(name) for name in status]
        arrays = [parameters, values, valid_rows, iterations, codes, start, errors]
    for share, array in zip(shares, arrays):
        share[:] = array
    return failures.list(), more


def arrays_of(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A rank's token arrays, of its share of the population's."""
    codes, constants, begins = parts
    first = begins[0] if len(begins) else 0
    return codes, constants, np.append(begins - first, len(codes))


def checked(expressions: Any, prefix: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Token arrays whose offsets may be divided."""
    codes, constants, offsets = token_arrays(*expressions)
    fit = len(codes) == len(constants) and len(offsets) and offsets[0] == 0 and offsets[-1] == len(codes)
    if not fit or np.any(np.diff(offsets) < 0):
        # Its exception says what is wrong; what is not wrong (no arrays at all) becomes offsets.
        population = Population.from_arrays(codes, constants, offsets, prefix=prefix)
        return population.codes, population.constants, population.offsets
    return codes, constants, offsets


def by_rank(numbers: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Vectors of all parameters as what each rank gets: its parameters of the first vector, of the second, ..."""
    if len(numbers) == 1:
        return numbers.reshape(-1)
    return np.concatenate([numbers[:, begin:end].reshape(-1) for begin, end in zip(bounds, bounds[1:])])


def in_order(whole: np.ndarray, bounds: np.ndarray, vectors: int) -> np.ndarray:
    """The way back: results of ranks as those of the first vector, of the second, ..."""
    if vectors == 1:
        return whole
    parts = [whole[begin * vectors:end * vectors].reshape(vectors, -1) for begin, end in zip(bounds, bounds[1:])]
    return np.concatenate(parts, axis=1).reshape(-1)


def portable(problem: Exception) -> Exception:
    """An exception that can be sent."""
    try:
        pickle.loads(pickle.dumps(problem))
        return problem
    except Exception:
        return Error(f"{type(problem).__name__}: {problem}", "machine")


def error_of_rank(rank: int, host: str, problem: Exception) -> Error:
    """What another rank ran into."""
    message = f"rank {rank} on {host}: "
    if isinstance(problem, Error):
        return type(problem)(message + str(problem), problem.code, problem.where)
    return Error(f"{message}{type(problem).__name__}: {problem}", "io" if isinstance(problem, OSError) else "machine")
