"""Many GPUs of many hosts: one rank of MPI for each, and one program that calls them all.

    with srjit.mpi.Engine(precision="f64") as engine:       # every rank makes it
        if engine.is_root:                                   # the search: on one rank
            data = engine.upload(X, y)
            program = engine.compile(population)
            fits = engine.fit(program, data)

``mpirun -n 4 python search.py`` runs it. The root (rank 0) has the methods of `srjit.Engine`, with the same arguments,
results and exceptions, and the same bits for any number of ranks. The other ranks serve: at the end of their block
they evaluate what the root sends, until it leaves its own. docs/scaling.md says when this pays.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _engine
from ._calls import Calls
from ._engine import Dataset
from ._errors import InvalidError
from ._ranks import MPI, Channel, Pause, device_of, error_of_rank, portable, threads_of


class Program(_engine.Program):
    """A batch of expressions that the ranks have compiled, each its share: adjacent expressions of about equal cost.

    `status` is that of the root's share.

    Attributes:
        parameter_offsets, names: as of `srjit.Program`.
        bounds: int64, shape (ranks + 1,): rank r has the expressions ``bounds[r]`` to ``bounds[r + 1] - 1``.
    """

    @property
    def bounds(self) -> np.ndarray:
        return self._program.bounds


class Engine(_engine.Engine):
    """One engine per rank, called by one of them.

    Every rank of ``comm`` makes the engine, with the same arguments. Then the root makes calls, from one thread, and
    the others `serve`. A call divides its expressions among the ranks by their tokens; results lie in the order of
    the expressions, on the root. Arrays are of the host's memory. ``submit_`` calls return when each rank has taken
    its share, which it does when it has ended the call before; they cannot be stopped. What is wrong with arguments
    is an exception of the root, and the ranks serve on; so is what another rank runs into, whose message names it. An
    exception that nothing catches ends the job, on whatever rank it is.

    Args:
        device: ``"auto"``: the rank's number on its host selects the GPU, or the CPU is taken where there is none;
            otherwise as of `srjit.Engine`, on each rank.
        comm: The communicator, which is duplicated. None: ``MPI.COMM_WORLD``.
        root: The rank that makes the calls.
        threads: Threads of the host, per rank; 0: a share of the processors that the ranks of a host may use.
        precision, math, tier, options: As of `srjit.Engine`.

    Attributes:
        is_root: Whether this rank makes the calls.
        rank, size: Number of this rank, and number of ranks.
        devices: The device of each rank.

    Raises:
        Error: A device that does not exist, on every rank: the message names the first rank without one.
    """

    _program_type = Program

    def __init__(self, device: str = "auto", precision: str = "f32", math: str = "precise", tier: str = "auto", *,
                 comm: Any = None, root: int = 0, threads: int = 0, **options: Any):
        self._channel = channel = Channel(MPI.COMM_WORLD if comm is None else comm, root)
        self.rank, self.size, self.is_root = channel.rank, channel.size, channel.is_root
        problem = None
        try:
            node = channel.comm.Split_type(MPI.COMM_TYPE_SHARED)
            local = _engine.Engine(device_of(node) if device == "auto" else device, precision, math, tier,
                                   threads=threads_of(node) if threads == 0 else threads, **options)
        except Exception as caught:
            problem = caught
        problems = channel.comm.allgather(None if problem is None else portable(problem))
        failed = next((rank for rank, found in enumerate(problems) if found), None)
        if failed is not None:
            raise problem or error_of_rank(failed, channel.hosts[failed], problems[failed])
        self.devices: list[str] = channel.comm.allgather(local.device)
        self.__dict__.update(vars(local))
        self._core = Calls(channel, local)
        if not self.is_root:
            _serving.append(self)
        self._previous_hook = sys.excepthook
        sys.excepthook = self._on_exception
        atexit.register(self._on_exit)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.is_root:
            self.close()
        elif kind is None:
            self.serve()

    def close(self) -> None:
        """On the root: waits for what was submitted, and lets the other ranks return from `serve`."""
        if self._core.is_open and self.is_root:
            self._core.close()
            self._leave()

    def serve(self) -> None:
        """On the other ranks: evaluates what the root sends, until it closes the engine.

        If a rank has several engines, it serves all of them meanwhile.
        """
        if self.is_root:
            raise ValueError("the root makes the calls: serve() is for the other ranks")
        pause = Pause()
        while self._core.is_open:
            called = [(engine, received) for engine in _serving if (received := engine._channel.receive())]
            for engine, received in called:
                engine._core.answer(*received)
                if not engine._core.is_open:
                    engine._leave()
            pause.after(bool(called) or any(engine._channel.is_busy() for engine in _serving))

    def upload_from(self, load: Callable[..., tuple], *arguments: Any, names: Sequence[str] | None = None) -> Dataset:
        """Makes data resident that each rank reads itself: from files on a shared disk, for example.

        Args:
            load: A function of the script or of a module: ``load(*arguments)`` gives ``(X, y)`` or ``(X, y, weights)``, the
                same on every rank.

        Raises:
            Error: Ranks that read another number of rows or columns; what ``load`` raises, with the rank.
        """
        data, read = self._core.load(load, arguments, names)
        root = read[self.rank]
        for rank, (rows, columns, _) in enumerate(read):
            if (rows, columns) != root[:2]:
                raise InvalidError(f"rank {rank} read {rows} rows and {columns} columns, but the root {root[0]} and {root[1]}")
        return Dataset(data, self, root[2])

    def _leave(self) -> None:
        self._core.is_open = False
        if not self.is_root:
            _serving.remove(self)
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook

    def _on_exception(self, *problem: Any) -> None:
        self._previous_hook(*problem)
        if self._core.is_open:
            self._abort("raised an exception")

    def _on_exit(self) -> None:
        if self.is_root:
            self.close()
        else:
            self._abort("ended while the engine was open")

    def _abort(self, why: str) -> None:
        host = self._channel.hosts[self.rank]
        print(f"srjit.mpi: rank {self.rank} on {host} {why}, which ends the job", file=sys.stderr, flush=True)
        self._channel.comm.Abort(1)


# The open engines that this rank serves.
_serving: list[Engine] = []
