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
import math
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core, _engine
from ._arrays import is_on_device
from ._errors import Error, InvalidError
from ._expressions import Population
from ._ranks import (
    MPI, Channel, Division, Failures, Pause, bounds_by_cost, device_of, error_of_rank, portable, sendable, threads_of,
)
from ._results import Failure, Pending


class Dataset(_engine.Dataset):
    """Rows that every rank holds: made by `Engine.upload`, `Engine.upload_from`, and the methods of another one."""

    def __init__(self, local: _engine.Dataset, number: int, owner: Engine):
        super().__init__(local._data, owner, local.names)
        self._number = number

    def _derived(self, function: str, *arguments: Any) -> Dataset:
        if function == "with_device_weights":
            raise ValueError(_ON_DEVICE)
        command = {"data": self._engine._data_of(self, None), "function": function, "arguments": arguments}
        return self._engine._made("derive", command)


class Program(_engine.Program):
    """A batch of expressions that the ranks have compiled, each its share: adjacent expressions of about equal cost.

    `status` is that of the root's share.

    Attributes:
        parameter_offsets, names: as of `srjit.Program`.
        bounds: int64, shape (ranks + 1,): rank r has the expressions ``bounds[r]`` to ``bounds[r + 1] - 1``.
    """

    def __init__(self, owner: Engine, number: int, bounds: np.ndarray, parameters: np.ndarray, failures: Failures,
                 reasons: dict[int, Failure], names: Sequence[str]):
        super().__init__(owner._held[number]._program, names)
        self.parameter_offsets = np.concatenate([[0], np.cumsum(parameters)])
        self.bounds = bounds
        self._owner, self._number, self._reasons, self._failures = owner, number, reasons, failures

    @property
    def failures(self) -> list[Failure]:
        """As of `srjit.Program`."""
        return self._failures


class Engine(_engine.Engine):
    """One engine per rank, called by one of them.

    Every rank of ``comm`` makes the engine, with the same arguments. Then the root makes calls, from one thread, and the
    others `serve`. A call divides its expressions among the ranks by their tokens; results lie in the order of the
    expressions, on the root. What is wrong with arguments is an exception of the root, and the ranks serve on; so is what
    another rank runs into, whose message names it. An exception that nothing catches ends the job, on whatever rank it is.

    The methods are those of `srjit.Engine`, with numbers of the host. ``submit_`` forms return when each rank has taken its
    share, which it does when it has ended the call before; their results cannot be stopped. `device`, `threads`, `notices`
    and `cache_stats` are those of this rank.

    Args:
        device: ``"auto"``: the rank's number on its host selects the GPU, or the CPU if there is no GPU;
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

    def __init__(self, device: str = "auto", precision: str = "f32", math: str = "precise", tier: str = "auto", *,
                 comm: Any = None, root: int = 0, threads: int = 0, **options: Any):
        self._channel = channel = Channel(MPI.COMM_WORLD if comm is None else comm, root)
        self.rank, self.size, self.is_root = channel.rank, channel.size, channel.rank == root
        problem = None
        try:
            node = channel.comm.Split_type(MPI.COMM_TYPE_SHARED)
            threads = threads_of(node) if threads == 0 else threads
            device = device_of(node) if device == "auto" else device
            self._local = _engine.Engine(device, precision, math, tier, threads=threads, **options)
        except Exception as caught:
            problem = caught
        problems = channel.comm.allgather(None if problem is None else (channel.host, portable(problem)))
        failed = next((rank for rank, found in enumerate(problems) if found), None)
        if failed is not None:
            raise problem or error_of_rank(failed, *problems[failed])
        vars(self).update(vars(self._local))
        self.devices: list[str] = channel.comm.allgather(self.device)
        self._hosts: list[str] = channel.comm.allgather(channel.host)
        self._held: dict[int, Any] = {}  # programs and data of this rank, by number
        self._dropped: list[int] = []
        self._next_number = 0
        self._calls: list[_Call] = []
        self._open = True
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
        """On the root: waits for submitted calls, and lets the other ranks return from `serve`."""
        if self._open and self.is_root:
            for call in list(self._calls):
                call.finish()
            self._channel.send({"what": "close"})
            self._leave()

    def serve(self) -> None:
        """On the other ranks: evaluates what the root sends, until it closes the engine.

        If a rank has several engines, it serves all of them meanwhile.
        """
        if self.is_root:
            raise ValueError("the root makes the calls: serve() is for the other ranks")
        pause = Pause()
        while self._open:
            called = [engine for engine in _serving if engine._channel.arrived()]
            for engine in called:
                engine._answer(*engine._channel.receive())
            pause.after(bool(called))

    def upload(self, X: Any, y: Any = None, weights: Any = None, names: Sequence[str] | None = None) -> Dataset:
        """Makes data resident on every rank: sends them once. As of `srjit.Engine`, with numbers of the host."""
        if any(is_on_device(array) for array in (X, y, weights) if array is not None):
            raise ValueError(_ON_DEVICE)
        return super().upload(X, y, weights, names)

    def upload_from(self, load: Callable[..., tuple], *arguments: Any, names: Sequence[str] | None = None) -> Dataset:
        """Makes data resident that each rank reads itself: from files on a shared disk, for example.

        Args:
            load: A function of the script or of a module: ``load(*arguments)`` gives ``(X, y)`` or ``(X, y, weights)``, the
                same on every rank.

        Raises:
            Error: Ranks that read another number of rows or columns; what ``load`` raises, with the rank.
        """
        return self._made("load", {"load": load, "arguments": arguments, "names": names})

    def prepare(self, program: Program, data: Dataset, loss: str | None = None, nan: str = "propagate") -> None:
        """As of `srjit.Engine`, on every rank."""
        command = {"program": self._number_of(program), "data": self._data_of(data, program), "options": (loss, nan)}
        self._send("prepare", command).result()

    def _uploaded(self, columns: list[np.ndarray], *vectors_and_names: Any) -> Dataset:
        return self._made("upload", {"arguments": (columns, *vectors_and_names)})

    def _compiled(self, source: Any, prefix: bool, names: Sequence[str], options: tuple, data: Dataset | None) -> Program:
        # Ranks get token arrays, so only the root knows why a text is no expression.
        unread = source.failures if isinstance(source, Population) else ()
        arrays = (source.codes, source.constants, source.offsets) if isinstance(source, Population) else source
        command = {"prefix": prefix, "names": list(names), "number": self._new_number(), "options": options,
                   "data": None if data is None else self._data_of(data, None)}
        call = self._send_expressions("compile", command, arrays)
        division = Division(call.bounds, reasons={failure.expression: failure for failure in unread})
        counts, failures = division.joined(self._result(call))
        return self._tracked(Program(self, command["number"], call.bounds, counts, failures, division.reasons, names))

    def _loss_of_arrays(self, waits: bool, arrays: tuple, prefix: bool, data: Dataset, numbers: np.ndarray, words: tuple) -> Any:
        if len(numbers):
            return self._loss(waits, self.compile(arrays, prefix=prefix), data, numbers, *words, False)
        command = {"prefix": prefix, "data": self._data_of(data, None), "options": words}
        call = self._send_expressions("loss_of_arrays", command, arrays)
        return self._pending(waits, call, lambda results: _engine._losses(Division(call.bounds).joined(results), None))

    def _call(self, waits: bool, kind: str, program: Program, data: Dataset, numbers: np.ndarray, options: tuple,
              convert: Callable[[Any], Any], *outs: np.ndarray) -> Any:
        command = {"kind": kind, "program": self._number_of(program), "data": self._data_of(data, program), "options": options}
        bounds = program.parameter_offsets[program.bounds]
        given = numbers.reshape(len(numbers) // program.parameter_count if len(numbers) else 1, program.parameter_count)
        shares = [given[:, begin:end].reshape(-1) for begin, end in zip(bounds, bounds[1:])]
        division = Division(program.bounds, 1 if kind == "fit" else len(given), np.diff(bounds) > 0, program._reasons)

        def whole(results: list) -> Any:
            result = division.joined(results, *outs)
            return convert(result[1] if outs else result)

        return self._pending(waits, self._send("evaluate", command, shares, program.bounds), whole)

    def _pending(self, waits: bool, call: _Call, convert: Callable[..., Any]) -> Any:
        if call.error is not None:
            call.result()
        pending = Pending(call, convert)
        return pending.result() if waits else pending

    def _device_output(self, shape: tuple[int, ...], out: Any) -> Any:
        return self._output(shape, out)  # refuses it

    def _data_of(self, data: Any, program: Any) -> Any:
        super()._data_of(data, program)
        if not isinstance(data, Dataset) or data._engine is not self:
            raise ValueError("the data are of another engine: call upload() of this one")
        return data._number

    def _number_of(self, program: Any) -> int:
        if getattr(program, "_owner", None) is not self:
            raise ValueError("the program is of another engine: call compile() of this one")
        return program._number

    def _made(self, what: str, command: dict[str, Any]) -> Dataset:
        number = self._new_number()
        shapes = self._result(self._send(what, {**command, "number": number}))
        made = self._tracked(Dataset(self._held[number], number, self))
        for rank, shape in enumerate(shapes):
            if shape != made.shape:
                raise InvalidError("rank {} read {} rows and {} columns, but the root {} and {}".format(rank, *shape, *made.shape))
        return made

    def _send_expressions(self, what: str, command: dict[str, Any], arrays: tuple) -> _Call:
        """A call that divides token arrays by their cost."""
        codes, constants, offsets = arrays
        if not (len(codes) == len(constants) and len(offsets) and offsets[0] == 0 and offsets[-1] == len(codes)) or np.any(
                np.diff(offsets) < 0):
            # Raises an exception that names the mistake; no arrays at all are none, and become offsets.
            tokens = _core.tokens(codes, constants, offsets, command["prefix"])
            codes, constants, offsets, command["prefix"] = tokens.codes, tokens.constants, tokens.offsets, False
        bounds = bounds_by_cost(offsets, self.size)
        shares = []
        for first, end in zip(bounds, bounds[1:]):
            tokens = slice(offsets[first], offsets[end])
            shares.append((codes[tokens], constants[tokens], offsets[first:end + 1] - offsets[first]))
        return self._send(what, command, shares, bounds)

    def _send(self, what: str, command: dict[str, Any], shares: Sequence[Any] = (), bounds: np.ndarray | None = None) -> _Call:
        """Sends a call, and begins the root's share. Exceptions of that are those of `_Call.result`."""
        if not self._open or not self.is_root:
            raise ValueError("the engine is closed" if self.is_root else "calls are made by the root alone")
        for earlier in [earlier for earlier in self._calls if earlier.ready()]:
            earlier.finish()
        # Not copied and cleared: the collector may append meanwhile.
        dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
        command = {**command, "what": what, "dropped": dropped}
        self._channel.send(command, shares)
        return _Call(self, command, shares[self.rank] if shares else None, bounds)

    def _answer(self, command: dict[str, Any], share: Any) -> None:
        """One call, on a rank that serves."""
        if command["what"] == "close":
            self._channel.finish_replies()
            self._leave()
            return
        for number in command["dropped"]:
            self._held.pop(number, None)
        try:
            answer = None, self._start(command, share).result()
        except Exception as problem:
            answer = portable(problem), None
        self._channel.reply(answer)

    def _start(self, command: dict[str, Any], share: Any) -> Pending:
        """A rank's part of a call, which gives a result that can be sent."""
        what, engine, held = command["what"], self._local, self._held
        data = held[command["data"]] if command.get("data") is not None else None
        done = Pending(None, None)
        if what == "loss_of_arrays":
            arguments = (engine._engine, *share, command["prefix"], data._data, np.empty(0), *command["options"])
            return _engine._core_call(False, what, arguments, sendable)
        if what == "evaluate":
            program, kind, options = held[command["program"]], command["kind"], command["options"]
            if kind not in ("predict", "jacobian"):
                return engine._call(False, kind, program, data, share, options, sendable)
            shape = _engine._derivative_shape(program, data, *options) if options else (len(program),)
            vectors = len(share) // program.parameter_count if len(share) else 1
            out = np.empty(vectors * math.prod(shape) * data.shape[0], self._dtype)
            return engine._call(False, kind, program, data, share, options, lambda failures: sendable((out, failures)), out)
        if what == "compile":
            program = engine._compiled(share, command["prefix"], command["names"], command["options"], data)
            held[command["number"]] = program
            done._result = np.diff(program.parameter_offsets), Failures(program.failures)
            return done
        if what == "prepare":
            engine.prepare(held[command["program"]], data, *command["options"])
            return done
        if what == "upload":
            made = engine._uploaded(*command["arguments"])
        elif what == "load":
            made = engine.upload(*command["load"](*command["arguments"]), names=command["names"])
        else:
            made = data._derived(command["function"], *command["arguments"])
        held[command["number"]] = made
        done._result = made.shape
        return done

    def _result(self, call: _Call) -> list[Any]:
        """Waits for a call that makes something; drops it if a rank failed."""
        try:
            return call.result()
        except BaseException:
            self._drop(call.command["number"])
            raise

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _drop(self, number: int) -> None:
        self._held.pop(number, None)
        self._dropped.append(number)

    def _tracked(self, made: Any) -> Any:
        """What the other ranks hold until `made` is collected."""
        weakref.finalize(made, self._drop, made._number).atexit = False
        return made

    def _leave(self) -> None:
        self._open = False
        if not self.is_root:
            _serving.remove(self)
        atexit.unregister(self._on_exit)
        if sys.excepthook == self._on_exception:
            sys.excepthook = self._previous_hook

    def _on_exception(self, *problem: Any) -> None:
        self._previous_hook(*problem)
        if self._open:
            self._abort("raised an exception")

    def _on_exit(self) -> None:
        if self.is_root:
            self.close()
        else:
            self._abort("ended while the engine was open")

    def _abort(self, why: str) -> None:
        print(f"srjit.mpi: rank {self.rank} on {self._channel.host} {why}, which ends the job", file=sys.stderr, flush=True)
        self._channel.comm.Abort(1)


_ON_DEVICE = "an array of a GPU cannot be sent to other ranks: hand over numbers of the host"

# The open engines that this rank serves.
_serving: list[Engine] = []


class _Call:
    """A call on its way, on the root: what `srjit.Pending` waits for.

    Attributes:
        bounds: Where each rank's expressions begin, if the call has some.
    """

    def __init__(self, engine: Engine, command: dict[str, Any], share: Any, bounds: np.ndarray | None):
        self.command, self.bounds = command, bounds
        self.error: Exception | None = None
        self._engine, self._tag = engine, engine._channel.tag
        self._answers: dict[int, tuple] = {}  # of ranks: error, and result
        self._results: list[Any] | None = None
        engine._calls.append(self)
        try:
            self._own = engine._start(command, share)
        except Exception as problem:
            self.error = problem
            self._answers[engine.rank] = None, None

    def ready(self) -> bool:
        if self._results is not None:
            return True
        engine = self._engine
        return (engine.rank in self._answers or self._own.ready()) and all(
            rank in self._answers or engine._channel.has_replied(rank, self._tag) for rank in range(engine.size)
            if rank != engine.rank)

    def finish(self) -> None:
        """Waits for all ranks."""
        if self._results is not None:
            return
        engine = self._engine
        if engine.rank not in self._answers:
            try:
                self._answers[engine.rank] = None, self._own.result()
            except Exception as problem:
                self.error = problem
                self._answers[engine.rank] = None, None
        for rank in range(engine.size):
            if rank not in self._answers:
                self._answers[rank] = engine._channel.take(rank, self._tag)
        self._results = []
        for rank, (error, result) in sorted(self._answers.items()):
            if error is not None and self.error is None:
                self.error = error_of_rank(rank, engine._hosts[rank], error)
            self._results.append(result)
        self._answers.clear()
        engine._calls.remove(self)

    def result(self) -> list[Any]:
        self.finish()
        if self.error is not None:
            raise self.error
        return self._results

    def stop(self) -> None:
        raise Error("what several ranks compute cannot be stopped", "unsupported")
