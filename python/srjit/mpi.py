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
from ._arrays import column_of, columns_of, is_on_device, names_of
from ._engine import FIT_ITERATIONS
from ._errors import Error, InvalidError
from ._expressions import population_of
from ._ranks import MPI, Channel, Pause, device_of, threads_of
from ._results import Failure, Fits, Gradients, Losses, Pending
from ._shares import (
    LOSSES, FailuresOfRanks, arrays_of, bounds_by_cost, by_rank, checked, error_of_rank, in_order, portable, results_of, stored,
)


class Dataset(_engine.Dataset):
    """Rows that every rank holds: made by `Engine.upload`, `Engine.upload_from`, and `rows` and `sample` of another one."""

    def __init__(self, local: _engine.Dataset, number: int, owner: Engine):
        super().__init__(local._data, local._engine, local.names)
        self._number = number
        self._owner = owner

    def rows(self, first: int, count: int) -> Dataset:
        """As of `srjit.Dataset`."""
        return self._owner._derived(self, "rows", first, count)

    def sample(self, groups: int, seed: int) -> Dataset:
        """As of `srjit.Dataset`: every rank has the same rows."""
        return self._owner._derived(self, "sample", groups, seed)

    def with_weights(self, weights: Any) -> Dataset:
        """As of `srjit.Dataset`, with weights in memory of the host."""
        return self._owner._derived(self, "with_weights", arrays=[(column_of(weights, "weights"), None)])


class Program(_engine.Program):
    """A batch of expressions that the ranks have compiled, each its share: adjacent expressions of about equal cost.

    Attributes:
        parameter_offsets, names: as of `srjit.Program`.
        bounds: int64, shape (ranks + 1,): rank r has the expressions ``bounds[r]`` to ``bounds[r + 1] - 1``.
    """

    def __init__(self, owner: Engine, number: int, bounds: np.ndarray, parameters: np.ndarray,
                 failures: FailuresOfRanks, unread: list[Failure], names: Sequence[str]):
        self.parameter_offsets = np.concatenate([[0], np.cumsum(parameters)])
        self.names = list(names)
        self.bounds = bounds
        self._owner = owner
        self._number = number
        self._unread = {failure.expression: failure for failure in unread}
        self._failures = self._explained(failures)

    @property
    def failures(self) -> list[Failure]:
        """As of `srjit.Program`."""
        return self._failures.list()

    def status(self) -> dict[str, Any]:
        """That of the root's share: as of `srjit.Program`."""
        return self._owner._held[self._number].status()

    def _explained(self, failures: FailuresOfRanks) -> FailuresOfRanks:
        """Ranks get token arrays, so only the root knows why a text is no expression."""
        return FailuresOfRanks([self._unread.get(failure.expression, failure) for failure in failures.list()])

    def __len__(self) -> int:
        return len(self.parameter_offsets) - 1


class Engine:
    """One engine per rank, called by one of them.

    Every rank of ``comm`` makes the engine, with the same arguments. Then the root makes calls, from one thread, and the
    others `serve`. A call divides its expressions among the ranks by their tokens; results lie in the order of the
    expressions, on the root. What is wrong with arguments is an exception of the root, and the ranks serve on; so is what
    another rank runs into, whose message names it. An exception that nothing catches ends the job, on whatever rank it is.

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
        self._channel = Channel(MPI.COMM_WORLD if comm is None else comm, root)
        self.rank, self.size, self.is_root = self._channel.rank, self._channel.size, self._channel.is_root
        problem = None
        try:
            node = self._channel.comm.Split_type(MPI.COMM_TYPE_SHARED)
            threads = threads_of(node) if threads == 0 else threads
            device = device_of(node) if device == "auto" else device
            self._local = _engine.Engine(device, precision, math, tier, threads=threads, **options)
        except Exception as caught:
            problem = caught
        problems = self._channel.exchange(None if problem is None else (self._channel.host, portable(problem)))
        failed = next((rank for rank, found in enumerate(problems) if found), None)
        if failed is not None:
            raise problem or error_of_rank(failed, *problems[failed])
        self.devices: list[str] = self._channel.exchange(self._local.device)
        self._hosts: list[str] = self._channel.exchange(self._channel.host)
        self.precision, self.math, self.tier = precision, math, tier
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

    @property
    def device(self) -> str:
        """That of this rank."""
        return self._local.device

    @property
    def threads(self) -> int:
        """Threads of this rank."""
        return self._local.threads

    @property
    def notices(self) -> list[str]:
        """Those of this rank's engine."""
        return self._local.notices

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self.is_root:
            self.close()
        elif kind is None:
            self.serve()

    def close(self) -> None:
        """On the root: waits for what was submitted, and lets the other ranks return from `serve`."""
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
            raise ValueError("an array of a GPU cannot be sent to other ranks: hand over numbers of the host")
        names = [str(name) for name in (names_of(X) or [] if names is None else names)]
        columns = columns_of(X)
        vectors = [None if values is None else column_of(values, what) for values, what in ((y, "y"), (weights, "weights"))]
        command = {"columns": len(columns), "has": [vector is not None for vector in vectors], "names": names}
        return self._made("upload", command, [(array, None) for array in (*columns, *vectors) if array is not None])

    def upload_from(self, load: Callable[..., tuple], *arguments: Any, names: Sequence[str] | None = None) -> Dataset:
        """Makes data resident that each rank reads itself: from files on a shared disk, for example.

        Args:
            load: A function of the script or of a module: ``load(*arguments)`` gives ``(X, y)`` or ``(X, y, weights)``, the
                same on every rank.

        Raises:
            Error: Ranks that read another number of rows or columns; what ``load`` raises, with the rank.
        """
        return self._made("load", {"load": load, "arguments": arguments, "names": names})

    def compile(self, expressions: Any, *, language: str = "infix", names: Sequence[str] | Dataset = (),
                prefix: bool = False, tier: str | None = None, passes: str | None = None,
                expected_evaluations: float = 1, expected_rows: int = 0, keep_order: bool = False,
                data: Dataset | None = None, deferred: bool = False) -> Program:
        """Compiles a batch of expressions, each rank its share. As of `srjit.Engine`."""
        names = names.names if isinstance(names, _engine.Dataset) else names
        unread: list[Failure] = []
        if _engine._is_token_arrays(expressions):
            arrays = checked(expressions, prefix)
        else:
            population = population_of(expressions, language, names)
            names, unread, prefix = population.names, population.failures, False
            arrays = population.codes, population.constants, population.offsets
        command = {"prefix": prefix, "names": list(names), "number": self._number(),
                   "data": None if data is None else self._data_number(data),
                   "options": (tier, passes, float(expected_evaluations), expected_rows, keep_order, deferred)}
        call = self._call("compile", command, arrays)
        counts, failures, _ = self._result(call)
        return self._tracked(Program(self, command["number"], call.command["bounds"]["expressions"], counts[0], failures,
                                     unread, names))

    def loss(self, program: Any, data: Dataset, parameters: Any = None, loss: str = "mse", nan: str = "propagate", *,
             prefix: bool = False) -> Losses:
        """As of `srjit.Engine`: one loss per expression."""
        return self.submit_loss(program, data, parameters, loss, nan, prefix=prefix).result()

    def submit_loss(self, program: Any, data: Dataset, parameters: Any = None, loss: str = "mse", nan: str = "propagate",
                    *, prefix: bool = False) -> Pending:
        """`loss` without waiting for it: a `Pending`, without ``stop``.

        Returns when each rank has taken its share, which it does when it has ended the call before. Arguments are copied
        then.
        """
        if _engine._is_token_arrays(program):
            if parameters is not None and np.size(parameters):
                program = self.compile(program, prefix=prefix)
            else:
                command = {"prefix": prefix, "data": self._data_number(data, program), "options": (loss, nan)}
                return self._pending(self._call("loss_of_arrays", command, checked(program, prefix)),
                                     lambda arrays, failures, _: _engine._losses((*arrays, failures), None))
        return self._submit("loss", program, data, parameters, (loss, nan), lambda arrays, failures, _, vectors:
                            _engine._losses((*arrays, failures), vectors))

    def predict(self, program: Program, data: Dataset, parameters: Any = None, out: np.ndarray | None = None) -> np.ndarray:
        """As of `srjit.Engine`: predictions, in memory of the root's host."""
        return self.submit_predict(program, data, parameters, out).result()

    def submit_predict(self, program: Program, data: Dataset, parameters: Any = None,
                       out: np.ndarray | None = None) -> Pending:
        """`predict` without waiting for it: as of `submit_loss`."""
        return self._submit_matrix("predict", program, data, parameters, (), out,
                                   lambda: (len(program), data.shape[0]))

    def gradient(self, program: Program, data: Dataset, parameters: Any = None, loss: str = "mse",
                 nan: str = "propagate", by: str = "parameters") -> Gradients:
        """As of `srjit.Engine`: one loss per expression and its derivatives."""
        return self.submit_gradient(program, data, parameters, loss, nan, by).result()

    def submit_gradient(self, program: Program, data: Dataset, parameters: Any = None, loss: str = "mse",
                        nan: str = "propagate", by: str = "parameters") -> Pending:
        """`gradient` without waiting for it: as of `submit_loss`."""
        return self._submit("gradient", program, data, parameters, (loss, nan, by), lambda arrays, failures, _, vectors:
                            _engine._gradients(((*arrays[:2], failures), arrays[2]), vectors, program, data, by), by=by)

    def jacobian(self, program: Program, data: Dataset, parameters: Any = None, by: str = "parameters",
                 out: np.ndarray | None = None) -> np.ndarray:
        """As of `srjit.Engine`: derivatives of predictions, in memory of the root's host."""
        return self.submit_jacobian(program, data, parameters, by, out).result()

    def submit_jacobian(self, program: Program, data: Dataset, parameters: Any = None, by: str = "parameters",
                        out: np.ndarray | None = None) -> Pending:
        """`jacobian` without waiting for it: as of `submit_loss`."""
        return self._submit_matrix("jacobian", program, data, parameters, (by,), out,
                                   lambda: (*_engine._derivative_shape(program, data, by), data.shape[0]), by)

    def fit(self, program: Program, data: Dataset, starts: Any = None, iterations: int = FIT_ITERATIONS, *,
            loss: str = "mse", nan: str = "propagate", loss_tolerance: float = _core.LOSS_TOLERANCE,
            step_tolerance: float = _core.STEP_TOLERANCE) -> Fits:
        """As of `srjit.Engine`: fits the parameters of every expression to the target."""
        return self.submit_fit(program, data, starts, iterations, loss=loss, nan=nan, loss_tolerance=loss_tolerance,
                               step_tolerance=step_tolerance).result()

    def submit_fit(self, program: Program, data: Dataset, starts: Any = None, iterations: int = FIT_ITERATIONS, *,
                   loss: str = "mse", nan: str = "propagate", loss_tolerance: float = _core.LOSS_TOLERANCE,
                   step_tolerance: float = _core.STEP_TOLERANCE) -> Pending:
        """`fit` without waiting for it: as of `submit_loss`."""
        if starts is None and isinstance(program, Program):
            starts = np.ones(program.parameter_count)
        options = (loss, nan, _engine._count_of(iterations, "iterations"), loss_tolerance, step_tolerance)

        def convert(arrays: list[np.ndarray], failures: FailuresOfRanks, names: dict[int, list[str]], _: Any) -> Fits:
            parameters, values, valid_rows, iterations, codes, start, errors = arrays
            parts = enumerate(np.split(codes, program.bounds[1:-1]))
            status = [names[rank][code] for rank, part in parts for code in part.tolist()]
            return _engine._fits((parameters, (values, valid_rows, failures), iterations, status, start, errors))

        return self._submit("fit", program, data, starts, options, convert)

    def _submit(self, kind: str, program: Any, data: Any, parameters: Any, options: tuple, convert: Callable[..., Any], *,
                by: str = "parameters", out: np.ndarray | None = None) -> Pending:
        """Evaluates a program: `convert` makes the result of arrays, failures, the status names and number of vectors."""
        numbers, vectors = _engine._parameters_of(program, parameters)
        if getattr(program, "_owner", None) is not self:
            raise ValueError("the program is of another engine: call compile() of this one")
        bounds = {"expressions": program.bounds, "parameters": program.parameter_offsets[program.bounds]}
        command = {"kind": kind, "program": program._number, "data": self._data_number(data, program), "options": options}
        results = results_of(kind, by, *data.shape, self._local._dtype)
        count = vectors or 1
        shares = by_rank(numbers.reshape(count, program.parameter_count), bounds["parameters"])
        call = self._call("evaluate", command, [(shares, bounds["parameters"] * count)], bounds, results,
                          1 if kind == "fit" else count, out)
        return self._pending(call, lambda arrays, failures, more: convert(arrays, program._explained(failures), more, vectors))

    def _submit_matrix(self, kind: str, program: Any, data: Any, parameters: Any, options: tuple, out: Any,
                       shape_of: Callable[[], tuple[int, ...]], by: str = "parameters") -> Pending:
        vectors = _engine._parameters_of(program, parameters)[1]
        self._data_number(data, program)
        out = self._local._output(_engine._shape_by_vector(shape_of(), vectors), out)

        def convert(_: Any, failures: FailuresOfRanks, *__: Any) -> np.ndarray:
            _engine._check_some(program, failures)
            return out

        return self._submit(kind, program, data, parameters, options, convert, by=by, out=out)

    def _made(self, what: str, command: dict[str, Any], arrays: Any = ()) -> Dataset:
        call = self._call(what, {**command, "number": self._number()}, arrays)
        shapes = self._result(call)[2]
        number = call.command["number"]
        made = self._tracked(Dataset(self._held[number], number, self))
        for rank, shape in sorted(shapes.items()):
            if shape != made.shape:
                raise InvalidError("rank {} read {} rows and {} columns, but the root {} and {}".format(rank, *shape, *made.shape))
        return made

    def _derived(self, data: Dataset, method: str, *arguments: Any, arrays: Any = ()) -> Dataset:
        return self._made("derive", {"data": self._data_number(data), "method": method, "arguments": arguments}, arrays)

    def _call(self, what: str, command: dict[str, Any], arrays: Any, bounds: dict[str, np.ndarray] | None = None,
              results: Any = (), vectors: int = 1, out: np.ndarray | None = None) -> _Call:
        """Sends a call, and begins the root's share. Exceptions of that are those of `_result`."""
        if not self._open or not self.is_root:
            raise ValueError("the engine is closed" if self.is_root else "calls are made by the root alone")
        for earlier in [earlier for earlier in self._calls if earlier.ready()]:
            earlier.finish()
        if what in ("compile", "loss_of_arrays"):
            codes, constants, offsets = arrays
            by_cost = bounds_by_cost(offsets, self.size)
            bounds = {"expressions": by_cost}
            results = [("expressions", 1, np.int64)] if what == "compile" else LOSSES
            arrays = [(codes, offsets[by_cost]), (constants, offsets[by_cost]), (offsets[:-1], by_cost)]
        if any(share[-1] * vectors >= 2**31 for share in (bounds or {}).values()) or any(
                share is not None and share[-1] >= 2**31 for _, share in arrays):
            raise ValueError("a call of 2^31 tokens, parameters or results: divide the population")
        # Not copied and cleared: the collector may append meanwhile.
        dropped = [self._dropped.pop() for _ in range(len(self._dropped))]
        command = {**command, "what": what, "dropped": dropped, "bounds": bounds, "results": results, "vectors": vectors}
        parts = self._channel.send(command, arrays)
        return _Call(self, command, parts, out)

    def _answer(self, command: dict[str, Any], parts: list[np.ndarray]) -> None:
        """One call, on a rank that serves."""
        if command["what"] == "close":
            self._channel.finish_replies()
            self._leave()
            return
        for number in command["dropped"]:
            self._held.pop(number, None)
        shares, sizes = [], [size for _, size, _ in command["results"]]
        for per, size, dtype in command["results"]:
            begin, end = command["bounds"][per][self.rank:self.rank + 2]
            shares.append(np.zeros((end - begin) * command["vectors"] * size, dtype))
        failures: list[tuple[int, Error]] = []
        more = error = None
        try:
            pending, store = self._start(command, parts, shares)
            failures, more = store(pending.result() if pending else None)
        except Exception as problem:
            error = portable(problem)
        words = (error, failures, more) if error or failures or more is not None else None
        self._channel.reply(list(zip(shares, sizes)), words)

    def _start(self, command: dict[str, Any], parts: list[np.ndarray], shares: list[np.ndarray]) -> tuple[Any, Callable]:
        """A rank's part of a call: what is pending, and what stores its result in `shares` and gives failures and more."""
        what, engine, held = command["what"], self._local, self._held
        if what == "compile":
            data = None if command["data"] is None else held[command["data"]]._data
            made = _core.compile_arrays(engine._engine, *arrays_of(parts), command["prefix"], *command["options"], data)
            held[command["number"]] = program = _engine.Program(made, command["names"])
            shares[0][:] = np.diff(program.parameter_offsets)
            return None, lambda _: (made.failures.list(), None)
        if what == "loss_of_arrays":
            return (_core.submit_loss_of_arrays(engine._engine, *arrays_of(parts), command["prefix"],
                                                held[command["data"]]._data, np.empty(0), *command["options"]),
                    lambda result: stored("loss", result, shares))
        if what == "evaluate":
            kind = command["kind"]
            if command["vectors"] > 1 and not len(parts[0]):
                return self._start_once(command, parts, shares)
            outs = shares if kind in ("predict", "jacobian") else []
            submit = getattr(_core, f"submit_{kind}")
            return (submit(engine._engine, held[command["program"]]._program, held[command["data"]]._data, parts[0],
                           *command["options"], *outs), lambda result: stored(kind, result, shares))
        if what == "upload":
            vectors = iter(parts[command["columns"]:])
            target, weights = (next(vectors) if has else None for has in command["has"])
            made = _engine.Dataset(_core.upload(engine._engine, parts[:command["columns"]], target, weights, command["names"]),
                                   engine, command["names"])
        elif what == "load":
            made = engine.upload(*command["load"](*command["arguments"]), names=command["names"])
        else:
            made = getattr(held[command["data"]], command["method"])(*command["arguments"], *parts)
        held[command["number"]] = made
        return None, lambda _: ([], made.shape)

    def _start_once(self, command: dict[str, Any], parts: list[np.ndarray], shares: list[np.ndarray]) -> tuple[Any, Callable]:
        """For several vectors of parameters, a share that has none: every vector has the results of the first."""
        by_vector = [share.reshape(command["vectors"], -1) for share in shares]
        pending, store = self._start({**command, "vectors": 1}, parts, [numbers[0] for numbers in by_vector])

        def store_for_all(result: Any) -> Any:
            said = store(result)
            for numbers in by_vector:
                numbers[1:] = numbers[0]
            return said

        return pending, store_for_all

    def _result(self, call: _Call) -> tuple[list[np.ndarray], list[Failure], dict[int, Any]]:
        """Waits for a call that makes something; drops what has been made if a rank failed."""
        try:
            return call.result()
        except BaseException:
            self._drop(call.command["number"])
            raise

    def _pending(self, call: _Call, convert: Callable[..., Any]) -> Pending:
        if call.error is not None:
            call.result()
        return Pending(call, lambda taken: convert(*taken))

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _drop(self, number: int) -> None:
        self._held.pop(number, None)
        self._dropped.append(number)

    def _tracked(self, made: Any) -> Any:
        """What the other ranks hold until `made` is collected."""
        weakref.finalize(made, self._drop, made._number).atexit = False
        return made

    def _data_number(self, data: Any, program: Any = None) -> int:
        self._local._data_of(data, program)
        if getattr(data, "_owner", None) is not self:
            raise ValueError("the data are of another engine: call upload() of this one")
        return data._number

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
        channel = self._channel
        print(f"srjit.mpi: rank {channel.rank} on {channel.host} {why}, which ends the job", file=sys.stderr, flush=True)
        channel.comm.Abort(1)


# The open engines that this rank serves.
_serving: list[Engine] = []


class _Call:
    """A call on its way, on the root: what `srjit.Pending` waits for."""

    def __init__(self, engine: Engine, command: dict[str, Any], parts: list[np.ndarray], out: np.ndarray | None):
        self.command = command
        self.error: Exception | None = None
        self._engine = engine
        self._out = out
        self._wholes = []
        shares = []
        for per, size, dtype in command["results"]:
            bounds = command["bounds"][per] * command["vectors"]
            is_in_order = out is not None and command["vectors"] == 1
            whole = out.reshape(-1) if is_in_order else np.empty(bounds[-1] * size, dtype)
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
                failures, more = self._store(self._pending.result() if self._pending else None)
                words[self._engine.rank] = (None, failures, more)
            except Exception as problem:
                self.error = problem
        words.update(self._replies.words())
        failures, more = [], {}
        for rank, (error, failed, what) in sorted(words.items()):
            if error is not None and self.error is None:
                self.error = error_of_rank(rank, self._engine._hosts[rank], error)
            failures += [Failure(int(self.command["bounds"]["expressions"][rank]) + number, why) for number, why in failed]
            if what is not None:
                more[rank] = what
        vectors = self.command["vectors"]
        arrays = [in_order(whole, bounds // vectors * size, vectors) for whole, size, bounds in self._wholes]
        if self._out is not None and vectors > 1:
            self._out.reshape(-1)[:] = arrays[0]
        self._outcome = arrays, FailuresOfRanks(failures), more
        self._engine._calls.remove(self)

    def result(self) -> Any:
        self.finish()
        if self.error is not None:
            raise self.error
        return self._outcome

    def stop(self) -> None:
        raise Error("what several ranks compute cannot be stopped", "unsupported")
