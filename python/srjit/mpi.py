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
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _core, _engine
from ._arrays import is_on_device
from ._errors import Error, InvalidError
from ._expressions import Population
from ._ranks import (
    LOSSES, MPI, Channel, Pause, bounds_by_cost, by_rank, device_of, error_of_rank, in_order, portable, result_of, results_of,
    stored, threads_of,
)
from ._results import Failure, Pending


class _Failures(list):
    """Failures of all ranks, as results have them."""

    def list(self) -> list[Failure]:
        return self


class Dataset(_engine.Dataset):
    """Rows that every rank holds: made by `Engine.upload`, `Engine.upload_from`, and the methods of another one."""

    def __init__(self, local: _engine.Dataset, number: int, owner: Engine):
        super().__init__(local._data, owner, local.names)
        self._number = number

    def _derived(self, function: str, *arguments: Any) -> Dataset:
        if function == "with_device_weights":
            raise ValueError(_ON_DEVICE)
        arrays = [(argument, None) for argument in arguments if isinstance(argument, np.ndarray)]
        command = {"data": self._engine._data_of(self, None), "function": function}
        return self._engine._made("derive", {**command, "arguments": () if arrays else arguments}, arrays)


class Program(_engine.Program):
    """A batch of expressions that the ranks have compiled, each its share: adjacent expressions of about equal cost.

    `status` is that of the root's share.

    Attributes:
        parameter_offsets, names: as of `srjit.Program`.
        bounds: int64, shape (ranks + 1,): rank r has the expressions ``bounds[r]`` to ``bounds[r + 1] - 1``.
    """

    def __init__(self, owner: Engine, number: int, bounds: np.ndarray, parameters: np.ndarray, failures: _Failures,
                 unread: Sequence[Failure], names: Sequence[str]):
        super().__init__(owner._held[number]._program, names)
        self.parameter_offsets = np.concatenate([[0], np.cumsum(parameters)])
        self.bounds = bounds
        self._owner, self._number = owner, number
        self._unread = {failure.expression: failure for failure in unread}
        self._failures = self._explained(failures)

    @property
    def failures(self) -> list[Failure]:
        """As of `srjit.Program`."""
        return self._failures.list()

    def _explained(self, failures: _Failures) -> _Failures:
        """Ranks get token arrays, so only the root knows why a text is no expression."""
        return _Failures(self._unread.get(failure.expression, failure) for failure in failures)


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
        *vectors, names = vectors_and_names
        command = {"columns": len(columns), "has": [vector is not None for vector in vectors], "names": names}
        return self._made("upload", command, [(array, None) for array in (*columns, *vectors) if array is not None])

    def _compiled(self, source: Any, prefix: bool, names: Sequence[str], options: tuple, data: Dataset | None) -> Program:
        unread = source.failures if isinstance(source, Population) else ()
        arrays = (source.codes, source.constants, source.offsets) if isinstance(source, Population) else source
        command = {"prefix": prefix, "names": list(names), "number": self._new_number(), "options": options,
                   "data": None if data is None else self._data_of(data, None)}
        call = self._send_expressions("compile", command, arrays, [("expressions", 1, np.int64)])
        counts, failures, _ = self._result(call)
        return self._tracked(Program(self, command["number"], call.command["bounds"]["expressions"], counts[0], failures,
                                     unread, names))

    def _loss_of_arrays(self, waits: bool, arrays: tuple, prefix: bool, data: Dataset, numbers: np.ndarray, words: tuple) -> Any:
        if len(numbers):
            *words, simplify = words
            program = self.compile(arrays, prefix=prefix, simplify=simplify)
            return self._loss(waits, program, data, numbers, *words, False, True)
        command = {"prefix": prefix, "data": self._data_of(data, None), "options": words}
        return self._pending(waits, self._send_expressions("loss_of_arrays", command, arrays, LOSSES),
                             lambda arrays, failures, _: _engine._losses((*arrays, failures), None))

    def _call(self, waits: bool, kind: str, program: Program, data: Dataset, numbers: np.ndarray, options: tuple,
              convert: Callable[[Any], Any], *outs: np.ndarray) -> Any:
        command = {"kind": kind, "program": self._number_of(program), "data": self._data_of(data, program), "options": options}
        bounds = {"expressions": program.bounds, "parameters": program.parameter_offsets[program.bounds]}
        results = results_of(kind, options[-1] if options else "", *data.shape, self._dtype)
        count = len(numbers) // program.parameter_count if len(numbers) else 1
        shares = by_rank(numbers.reshape(count, program.parameter_count), bounds["parameters"])
        call = self._send("evaluate", command, [(shares, bounds["parameters"] * count)], bounds, results,
                          1 if kind == "fit" else count, *outs)
        return self._pending(waits, call, lambda arrays, failures, names: convert(
            result_of(kind, arrays, program._explained(failures), names, program.bounds)))

    def _pending(self, waits: bool, call: _Call, convert: Callable[..., Any]) -> Any:
        if call.error is not None:
            call.result()
        pending = Pending(call, lambda taken: convert(*taken))
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

    def _made(self, what: str, command: dict[str, Any], arrays: Any = ()) -> Dataset:
        number = self._new_number()
        shapes = self._result(self._send(what, {**command, "number": number}, arrays))[2]
        made = self._tracked(Dataset(self._held[number], number, self))
        for rank, shape in sorted(shapes.items()):
            if shape != made.shape:
                raise InvalidError("rank {} read {} rows and {} columns, but the root {} and {}".format(rank, *shape, *made.shape))
        return made

    def _send_expressions(self, what: str, command: dict[str, Any], arrays: tuple, results: list) -> _Call:
        """A call that divides token arrays by their cost."""
        codes, constants, offsets = arrays
        if not (len(codes) == len(constants) and len(offsets) and offsets[0] == 0 and offsets[-1] == len(codes)) or np.any(
                np.diff(offsets) < 0):
            # Raises an exception that names the mistake; no arrays at all are none, and become offsets.
            tokens = _core.tokens(codes, constants, offsets, command["prefix"])
            codes, constants, offsets, command["prefix"] = tokens.codes, tokens.constants, tokens.offsets, False
        cuts = bounds_by_cost(offsets, self.size)
        arrays = [(codes, offsets[cuts]), (constants, offsets[cuts]), (offsets[:-1], cuts)]
        return self._send(what, command, arrays, {"expressions": cuts}, results)

    def _send(self, what: str, command: dict[str, Any], arrays: Any = (), bounds: dict[str, np.ndarray] | None = None,
              results: Any = (), vectors: int = 1, out: np.ndarray | None = None) -> _Call:
        """Sends a call, and begins the root's share. Exceptions of that are those of `_Call.result`."""
        if not self._open or not self.is_root:
            raise ValueError("the engine is closed" if self.is_root else "calls are made by the root alone")
        for earlier in [earlier for earlier in self._calls if earlier.ready()]:
            earlier.finish()
        if any(share[-1] * vectors >= 2**31 for share in (bounds or {}).values()) or any(
                share is not None and share[-1] >= 2**31 for _, share in arrays):
            raise ValueError("a call of 2^31 tokens, parameters or results: divide the population")
        # Not copied and cleared: the collector may append meanwhile.
        dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
        command = {**command, "what": what, "dropped": dropped, "bounds": bounds, "results": results, "vectors": vectors}
        return _Call(self, command, self._channel.send(command, arrays), out)

    def _answer(self, command: dict[str, Any], parts: list[np.ndarray]) -> None:
        """One call, on a rank that serves."""
        if command["what"] == "close":
            self._channel.finish_replies()
            self._leave()
            return
        for number in command["dropped"]:
            self._held.pop(number, None)
        shares = []
        for per, size, dtype in command["results"]:
            begin, end = command["bounds"][per][self.rank:self.rank + 2]
            shares.append(np.zeros((end - begin) * command["vectors"] * size, dtype))
        failures, more, error = [], None, None
        try:
            pending, store = self._start(command, parts, shares)
            failures, more = store(pending.result() if pending else None)
        except Exception as problem:
            error = portable(problem)
        words = (error, failures, more) if error or failures or more is not None else None
        self._channel.reply([(share, size) for share, (_, size, _) in zip(shares, command["results"])], words)

    def _start(self, command: dict[str, Any], parts: list[np.ndarray], shares: list[np.ndarray]) -> tuple[Any, Callable]:
        """A rank's part of a call: its pending evaluation, and a function that stores the result in `shares` and gives failures and more."""
        what, engine, held = command["what"], self._local, self._held
        if what in ("compile", "loss_of_arrays"):
            codes, constants, begins = parts
            offsets = np.append(begins - (begins[0] if len(begins) else 0), len(codes))
            arrays = engine._engine, codes, constants, offsets, command["prefix"]
            data = None if command["data"] is None else held[command["data"]]._data
            if what == "loss_of_arrays":
                pending = _core.submit_loss_of_arrays(*arrays, data, np.empty(0), *command["options"])
                return pending, lambda result: stored("loss", result, shares)
            made = _core.compile_arrays(*arrays, *command["options"], data)
            held[command["number"]] = program = _engine.Program(made, command["names"])
            shares[0][:] = np.diff(program.parameter_offsets)
            return None, lambda _: (made.failures.list(), None)
        if what in ("evaluate", "prepare"):
            arguments = engine._engine, held[command["program"]]._program, held[command["data"]]._data
            if what == "prepare":
                _core.prepare(*arguments, *command["options"])
                return None, lambda _: ([], None)
            # Without a parameter, every vector has the results of the first.
            copies = [] if len(parts[0]) else [share.reshape(command["vectors"], -1) for share in shares]
            kind, targets = command["kind"], [by_vector[0] for by_vector in copies] or shares
            pending = getattr(_core, f"submit_{kind}")(
                *arguments, parts[0], *command["options"], *(targets if kind in ("predict", "jacobian") else ()))

            def store(result: Any) -> Any:
                said = stored(kind, result, targets)
                for by_vector in copies:
                    by_vector[1:] = by_vector[0]
                return said

            return pending, store
        if what == "upload":
            vectors = iter(parts[command["columns"]:])
            made = engine._uploaded(parts[:command["columns"]], *(next(vectors) if has else None for has in command["has"]),
                                    command["names"])
        elif what == "load":
            made = engine.upload(*command["load"](*command["arguments"]), names=command["names"])
        else:
            made = held[command["data"]]._derived(command["function"], *command["arguments"], *parts)
        held[command["number"]] = made
        return None, lambda _: ([], made.shape)

    def _result(self, call: _Call) -> tuple[list[np.ndarray], _Failures, dict[int, Any]]:
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
    """A call on its way, on the root: what `srjit.Pending` waits for."""

    def __init__(self, engine: Engine, command: dict[str, Any], parts: list[np.ndarray], out: np.ndarray | None):
        self.command = command
        self.error: Exception | None = None
        self._engine, self._out = engine, out
        self._wholes, shares = [], []
        for per, size, dtype in command["results"]:
            bounds = command["bounds"][per] * command["vectors"]
            is_in_order = out is not None and command["vectors"] == 1
            whole = out if is_in_order else np.empty(bounds[-1] * size, dtype)
            self._wholes.append((whole, size, bounds))
            shares.append(whole[bounds[engine.rank] * size:bounds[engine.rank + 1] * size])
        self._replies = engine._channel.replies(self._wholes)
        self._outcome: Any = None
        self._pending: Any = None
        self._store: Any = None
        engine._calls.append(self)
        try:
            self._pending, self._store = engine._start(command, parts, shares)
        except Exception as problem:
            self.error = problem

    def ready(self) -> bool:
        return self._outcome is not None or ((self._pending is None or self._pending.ready()) and self._replies.ready())

    def finish(self) -> None:
        """Waits for all ranks."""
        if self._outcome is not None:
            return
        words: dict[int, Any] = {}
        if self.error is None:
            try:
                words[self._engine.rank] = (None, *self._store(self._pending.result() if self._pending else None))
            except Exception as problem:
                self.error = problem
        words.update(self._replies.words())
        failures, more = _Failures(), {}
        for rank, (error, failed, what) in sorted(words.items()):
            if error is not None and self.error is None:
                self.error = error_of_rank(rank, self._engine._hosts[rank], error)
            failures += [Failure(int(self.command["bounds"]["expressions"][rank]) + number, why) for number, why in failed]
            if what is not None:
                more[rank] = what
        vectors = self.command["vectors"]
        arrays = [in_order(whole, bounds // vectors * size, vectors) for whole, size, bounds in self._wholes]
        if self._out is not None and vectors > 1:
            self._out[:] = arrays[0]
        self._outcome = arrays, failures, more
        self._engine._calls.remove(self)

    def result(self) -> Any:
        self.finish()
        if self.error is not None:
            raise self.error
        return self._outcome

    def stop(self) -> None:
        raise Error("what several ranks compute cannot be stopped", "unsupported")
