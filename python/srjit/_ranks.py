"""What ranks of MPI send one another, and how the arrays of a call are divided among them.

A call is a command (small, pickled, the same for all), arrays, which each rank gets whole or its share of, and replies:
shares of results, gathered where they belong, and a pickled text of ranks that have more to say. Arrays travel as they lie
in memory. All messages are nonblocking and in one order on every rank; `Channel.send` and `receive` wait for their end.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import time
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ._errors import Error
from ._packages import needs

with needs("mpi4py"):
    from mpi4py import MPI

_CHUNK = 1 << 30  # bytes of one broadcast: MPI counts in 32 bits
_TAGS = 1 << 15  # tags that every MPI has

#: The arrays of losses: see `results_of`.
LOSSES = [("expressions", 1, np.float64), ("expressions", 1, np.int64)]


def device_of(node: Any) -> str:
    """The device of a rank of the host whose communicator this is: the GPU of its number, in turn."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            count.value = 0
    except OSError:
        pass
    return f"cuda:{node.rank % count.value}" if count.value else "auto"


def threads_of(node: Any) -> int:
    """A rank's share of the processors that it may use: those of several ranks of the host are divided."""
    mine = os.sched_getaffinity(0)
    everyone = node.allgather(mine)
    return max(1, int(sum(Fraction(1, sum(cpu in other for other in everyone)) for cpu in mine)))


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
    per, derivatives = ("expressions", columns) if by == "variables" else ("parameters", 1)
    return {
        "loss": LOSSES, "gradient": [*LOSSES, (per, derivatives, np.float64)],
        "predict": [("expressions", rows, dtype)], "jacobian": [(per, derivatives * rows, dtype)],
        "fit": [("parameters", 1, np.float64), *LOSSES, ("expressions", 1, np.int64), ("expressions", 1, np.int32),
                ("expressions", 1, np.int64), ("parameters", 1, np.float64)],
    }[kind]


def stored(kind: str, result: Any, shares: list[np.ndarray]) -> tuple[list, Any]:
    """Puts a result of the extension module into `shares`. Its failures, and the names of a fit's status."""
    if kind in ("predict", "jacobian"):
        return result.list(), None
    names = None
    if kind == "loss":
        *arrays, failures = result
    elif kind == "gradient":
        (*arrays, failures), derivatives = result
        arrays.append(derivatives)
    else:
        parameters, (values, valid_rows, failures), iterations, status, start, errors = result
        names = sorted(set(status))
        arrays = [parameters, values, valid_rows, iterations, [names.index(name) for name in status], start, errors]
    for share, array in zip(shares, arrays):
        share[:] = array
    return failures.list(), names


def result_of(kind: str, arrays: list[np.ndarray], failures: Any, names: dict[int, list[str]], bounds: np.ndarray) -> Any:
    """The way back from the arrays of all ranks, whose expressions have these bounds."""
    if kind in ("predict", "jacobian"):
        return failures
    if kind == "loss":
        return *arrays, failures
    if kind == "gradient":
        return (*arrays[:2], failures), arrays[2]
    parameters, values, valid_rows, iterations, codes, start, errors = arrays
    parts = enumerate(np.split(codes, bounds[1:-1]))
    status = [names[rank][code] for rank, part in parts for code in part.tolist()]
    return parameters, (values, valid_rows, failures), iterations, status, start, errors


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


class Channel:
    """A communicator of its own, between the root and the others."""

    def __init__(self, comm: Any, root: int):
        if not 0 <= root < comm.size:
            raise ValueError(f"root is {root}, but there are {comm.size} ranks")
        self.comm = comm.Dup()
        self.root, self.rank, self.size = root, comm.rank, comm.size
        self.host = socket.gethostname()
        self._calls = 0
        self._sending: list[tuple[Any, Any]] = []
        self._size = np.empty(1, np.int64)
        self._incoming: Any = None

    def send(self, command: dict[str, Any], arrays: Sequence[tuple[np.ndarray, np.ndarray | None]] = ()) -> list[np.ndarray]:
        """On the root: a command, and arrays with the bounds of the ranks' shares, or None for all of it to each.

        Returns:
            The root's shares. The others have theirs by now, so arrays may be changed.
        """
        command["arrays"] = [(array.dtype.str, len(array) if bounds is None else bounds) for array, bounds in arrays]
        text = np.array(bytearray(pickle.dumps(command)), dtype=np.uint8)
        requests = [self.comm.Ibcast(np.array([len(text)]), self.root), self.comm.Ibcast(text, self.root)]
        parts = []
        for array, bounds in arrays:
            if bounds is None:
                requests += self._broadcast(array)
                parts.append(array)
                continue
            shares = [array, (np.diff(bounds), bounds[:-1]), _rows_of(array.dtype)]
            requests.append(self.comm.Iscatterv(shares, MPI.IN_PLACE, self.root))
            parts.append(array[bounds[self.rank]:bounds[self.rank + 1]])
        MPI.Request.Waitall(requests)
        self._calls += 1
        return parts

    def arrived(self) -> bool:
        """On the other ranks: whether there is a command to receive."""
        if self._incoming is None:
            self._incoming = self.comm.Ibcast(self._size, self.root)
        return self._incoming.Test()

    def receive(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """On the other ranks: the command that has `arrived`, and this rank's shares."""
        self._incoming = None
        text = np.empty(self._size[0], np.uint8)
        self.comm.Ibcast(text, self.root).Wait()
        command = pickle.loads(text)
        requests, parts = [], []
        for dtype, shares in command["arrays"]:
            if np.ndim(shares) == 0:
                parts.append(np.empty(shares, dtype))
                requests += self._broadcast(parts[-1])
            else:
                parts.append(np.empty(shares[self.rank + 1] - shares[self.rank], dtype))
                requests.append(self.comm.Iscatterv(None, [parts[-1], _rows_of(parts[-1].dtype)], self.root))
        MPI.Request.Waitall(requests)
        self._calls += 1
        return command, parts

    def reply(self, shares: Sequence[tuple[np.ndarray, int]], words: Any = None) -> None:
        """On the other ranks: this rank's shares of the results, with the numbers of a row; and what else it has to say."""
        text = np.frombuffer(b"" if words is None else pickle.dumps(words), np.uint8)
        requests = [self.comm.Igather(np.array([len(text)]), None, self.root)]
        if len(text):
            self._sending.append((self.comm.Isend(text, self.root, self._calls % _TAGS), text))
        types = [_rows_of(share.dtype, size) for share, size in shares]
        for (share, size), rows in zip(shares, types):
            requests.append(self.comm.Igatherv([share, len(share) // max(size, 1), rows], None, self.root))
        _finish(requests, types)
        self._sending = [(request, text) for request, text in self._sending if not request.Test()]

    def finish_replies(self) -> None:
        """On the other ranks: waits until the root has read what this rank had to say."""
        for request, _ in self._sending:
            request.Wait()

    def replies(self, wholes: Sequence[tuple[np.ndarray, int, np.ndarray]]) -> Replies:
        """On the root: begins to gather results: arrays, numbers of a row, and bounds of the ranks' rows."""
        return Replies(self, self._calls % _TAGS, wholes)

    def _broadcast(self, array: np.ndarray) -> list[Any]:
        numbers = array.view(np.uint8)
        return [self.comm.Ibcast([numbers[begin:begin + _CHUNK], MPI.BYTE], self.root)
                for begin in range(0, len(numbers), _CHUNK)]


class Replies:
    """Results on their way to the root, whose own share of the arrays may be written meanwhile."""

    def __init__(self, channel: Channel, tag: int, wholes: Sequence[tuple[np.ndarray, int, np.ndarray]]):
        self._channel, self._tag = channel, tag
        self._lengths = np.zeros(channel.size, np.int64)
        self._wholes = wholes  # kept until they are there
        self._types = [_rows_of(whole.dtype, size) for whole, size, _ in wholes]
        self._requests = [channel.comm.Igather(MPI.IN_PLACE, self._lengths, channel.root)]
        for (whole, _, bounds), rows in zip(wholes, self._types):
            self._requests.append(channel.comm.Igatherv(
                MPI.IN_PLACE, [whole, (np.diff(bounds), bounds[:-1]), rows], channel.root))

    def ready(self) -> bool:
        """Whether `words` would return at once."""
        return MPI.Request.Testall(self._requests)

    def words(self) -> dict[int, Any]:
        """Waits for all results. What ranks have to say, by rank."""
        pause = Pause()
        while not self._requests[0].Test():
            pause.after(False)
        _finish(self._requests, self._types)
        words = {}
        for rank in np.flatnonzero(self._lengths).tolist():
            text = np.empty(self._lengths[rank], np.uint8)
            self._channel.comm.Recv(text, rank, self._tag)
            words[rank] = pickle.loads(text)
        return words


class Pause:
    """Between looks at what may take long: MPI's own waiting keeps a processor busy, which others of the host may need."""

    def __init__(self) -> None:
        self._busy_until = 0.0

    def after(self, was_busy: bool) -> None:
        """Sleeps unless the last millisecond had something to do."""
        now = time.perf_counter()
        if was_busy or not self._busy_until:
            self._busy_until = now + 0.001
        elif now > self._busy_until:
            time.sleep(5e-5)


def _rows_of(dtype: np.dtype, size: int | None = None) -> Any:
    """MPI's type of a number, or a new one of a row of `size` numbers."""
    number = MPI.Datatype.fromcode(dtype.char)
    return number if size is None else number.Create_contiguous(size).Commit()


def _finish(requests: list[Any], types: list[Any]) -> None:
    MPI.Request.Waitall(requests)
    for rows in types:
        rows.Free()
