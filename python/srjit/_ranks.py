"""What ranks of MPI send one another.

A call is a command with each rank's share of its arrays, and a reply of each rank. mpi4py pickles them; arrays travel as
they lie in memory.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import socket
import time
from fractions import Fraction
from typing import Any

from ._errors import Error
from ._packages import needs

with needs("mpi4py"):
    from mpi4py import MPI
    from mpi4py.util import pkl5

_TAGS = 1 << 15  # tags that every MPI has
_COMMAND = 0  # the tag of commands; replies have 1 to _TAGS - 1, in turn


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


class Channel:
    """A communicator of its own, between the root and the others."""

    def __init__(self, comm: Any, root: int):
        if not 0 <= root < comm.size:
            raise ValueError(f"root is {root}, but there are {comm.size} ranks")
        self.comm = pkl5.Intracomm(comm.Dup())
        self.root, self.rank, self.size = root, comm.rank, comm.size
        self.is_root = comm.rank == root
        self.hosts: list[str] = self.comm.allgather(socket.gethostname())
        self._calls = 0
        self._sending: list[Any] = []
        self._large: Any = None  # a request among these

    def send(self, command: dict[str, Any], shares: list[Any], everyone: list[Any]) -> int:
        """On the root: a command, each rank's share, and what all get. All have them then. Returns the tag of replies."""
        self._calls += 1
        command["calls"], command["for_all"] = self._calls, bool(everyone)
        pkl5.Request.waitall([self.comm.isend((command, shares[rank]), rank, _COMMAND) for rank in range(self.size)
                              if rank != self.root])
        if everyone:
            self.comm.bcast(everyone, self.root)
        return self._calls % (_TAGS - 1) + 1

    def receive(self) -> tuple[dict[str, Any], Any] | None:
        """On the other ranks: the next command, and the arrays of this rank; None if there is none yet."""
        message = self.comm.improbe(self.root, _COMMAND)
        if message is None:
            return None
        command, share = message.recv()
        self._calls = command["calls"]
        return command, self.comm.bcast(None, self.root) if command["for_all"] else share

    def reply(self, words: Any, is_large: bool) -> None:
        """On the other ranks: begins to answer the command that was received last."""
        self._sending = [request for request in self._sending if not request.test()[0]]
        self._sending.append(self.comm.isend(words, self.root, self._calls % (_TAGS - 1) + 1))
        self._large = self._sending[-1] if is_large else self._large

    def is_busy(self) -> bool:
        """On the other ranks: whether a large reply is on its way, which takes calls of MPI."""
        if self._large is not None and self._large.test()[0]:
            self._large = None
        return self._large is not None

    def finish_replies(self) -> None:
        """On the other ranks: waits until the root has their replies."""
        pkl5.Request.waitall(self._sending)


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
