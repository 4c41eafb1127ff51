"""What ranks of MPI send one another, and how the arrays of a call are divided among them."""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from ._errors import Error
from ._packages import needs
from ._results import Failure

with needs("mpi4py"):
    from mpi4py import MPI

_CHUNK = 1 << 30  # bytes of one message: MPI counts in 32 bits
_SMALL = 1 << 14  # bytes of an array that lies in the pickle, since a message of its own would take longer
_TAGS = 1 << 15  # tags that every MPI has


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


class Failures(list):
    """Failures of expressions, as results of the extension module have them."""

    def list(self) -> list:
        return self


def sendable(result: Any) -> Any:
    """A result of the extension module, as ranks send it."""
    if isinstance(result, tuple):
        return tuple(map(sendable, result))
    if isinstance(result, list):
        return [sys.intern(word) for word in result]  # of a fit's status: each word is sent once
    return result if isinstance(result, np.ndarray) else Failures(result.list())


@dataclass
class Division:
    """How the expressions of a call are divided, and the numbers of its results.

    A rank without a parameter has the results of one vector of parameters, which are those of every vector.
    """

    bounds: np.ndarray  #: rank r has the expressions ``bounds[r]`` to ``bounds[r + 1] - 1``
    vectors: int = 1  #: vectors of parameters that have results
    has_parameters: Sequence[bool] | None = None  #: of the ranks; None: there are none
    reasons: dict[int, Failure] = field(default_factory=dict)  #: failures that only the root can explain

    def joined(self, results: Sequence[Any], out: np.ndarray | None = None) -> Any:
        """Results of ranks as those of the first vector of parameters, of the second, ...; the array of it in `out`."""
        if isinstance(results[0], tuple):
            return tuple(self.joined(parts, out) for parts in zip(*results))
        if isinstance(results[0], np.ndarray):
            has = [False] * len(results) if self.has_parameters is None else self.has_parameters
            parts = [part.reshape(self.vectors if own else 1, -1) for part, own in zip(results, has)]
            whole = [np.broadcast_to(part, (self.vectors, part.shape[1])) for part in parts]
            return np.concatenate(whole, axis=1, out=None if out is None else out.reshape(self.vectors, -1)).reshape(-1)
        if not isinstance(results[0], Failures):
            return sum(results, [])
        failures = [Failure(int(first) + number, why) for first, part in zip(self.bounds, results) for number, why in part]
        return Failures(self.reasons.get(failure.expression, failure) for failure in failures)


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
    """A communicator of its own, between the root and the others.

    A message is a pickle whose large arrays follow as they lie in memory. The root sends a command to all, and to each rank its
    share of some arrays; a rank answers with one message. Everything is nonblocking but for the root's waiting.
    """

    def __init__(self, comm: Any, root: int):
        if not 0 <= root < comm.size:
            raise ValueError(f"root is {root}, but there are {comm.size} ranks")
        self.comm = comm.Dup()
        self.root, self.rank, self.size = root, comm.rank, comm.size
        self.host = socket.gethostname()
        self.tag = 0  # of the last call
        self._sending: list[tuple[Any, np.ndarray]] = []
        self._length = np.empty(1, np.int64)
        self._incoming: Any = None

    def send(self, command: dict[str, Any], shares: Sequence[Any] = ()) -> None:
        """On the root: a command, and each rank's share, if any. Arrays may be changed afterwards."""
        self.tag = (self.tag + 1) % _TAGS
        parts = _packed({**command, "has_share": len(shares) > 0})
        sent = [np.array([len(parts[0])]), *parts]
        requests = [self.comm.Ibcast(part, self.root) for part in sent]
        more = [one for rank, share in enumerate(shares) if rank != self.root for one in self._sent(share, rank)]
        MPI.Request.Waitall([*requests, *(request for request, _ in more)])

    def arrived(self) -> bool:
        """On the other ranks: whether there is a command to receive."""
        if self._incoming is None:
            self._incoming = self.comm.Ibcast(self._length, self.root)
        return self._incoming.Test()

    def receive(self) -> tuple[dict[str, Any], Any]:
        """On the other ranks: the command that has `arrived`, and this rank's share."""
        self._incoming = None
        self.tag = (self.tag + 1) % _TAGS
        text = np.empty(self._length[0], np.uint8)
        command = _unpacked(text, lambda part: self.comm.Ibcast(part, self.root).Wait())
        return command, self.take(self.root, self.tag) if command["has_share"] else None

    def reply(self, answer: Any) -> None:
        """On the other ranks: what became of the last call."""
        self._sending = [(request, part) for request, part in self._sending if not request.Test()]
        self._sending += self._sent(answer, self.root)

    def finish_replies(self) -> None:
        """On the other ranks: waits until the root has all answers."""
        MPI.Request.Waitall([request for request, _ in self._sending])

    def has_replied(self, rank: int, tag: int) -> bool:
        """On the root: whether `take` would find the rank's answer to this call."""
        return self.comm.Iprobe(rank, tag)

    def take(self, rank: int, tag: int) -> Any:
        """A message of a rank; waits for it."""
        pause, status = Pause(), MPI.Status()
        while not self.comm.Iprobe(rank, tag, status):
            pause.after(False)
        text = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        return _unpacked(text, lambda part: self.comm.Recv(part, rank, tag))

    def _sent(self, value: Any, rank: int) -> list[tuple[Any, np.ndarray]]:
        return [(self.comm.Isend(part, rank, self.tag), part) for part in _packed(value)]


def _packed(value: Any) -> list[np.ndarray]:
    """A text, and pieces of the arrays that lie outside of it."""
    arrays: list[np.ndarray] = []

    def lies_inside(buffer: pickle.PickleBuffer) -> bool:
        array = np.frombuffer(buffer.raw(), np.uint8)
        if len(array) >= _SMALL:
            arrays.append(array)
        return len(array) < _SMALL

    text = pickle.dumps(value, 5, buffer_callback=lies_inside)
    return [np.frombuffer(pickle.dumps((text, [len(array) for array in arrays])), np.uint8), *_pieces(arrays)]


def _unpacked(text: np.ndarray, receive: Callable[[np.ndarray], Any]) -> Any:
    """The way back; `receive` fills the text, and then piece by piece what follows."""
    receive(text)
    inner, lengths = pickle.loads(text)
    arrays = [np.empty(length, np.uint8) for length in lengths]
    for piece in _pieces(arrays):
        receive(piece)
    return pickle.loads(inner, buffers=arrays)


def _pieces(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    return [array[begin:begin + _CHUNK] for array in arrays for begin in range(0, len(array), _CHUNK)]


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
