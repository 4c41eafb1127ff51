"""The functions of the extension module that `srjit.Engine` calls, for an engine on many ranks (`srjit.mpi`)."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from . import _core, _engine
from ._errors import Error
from ._expressions import Population
from ._ranks import Channel, Pause, error_of_rank, portable
from ._results import Failure, Pending


class Failures(list):
    """Failures of all ranks, with the interface of the extension module's."""

    def list(self) -> list[Failure]:
        return self


class Held:
    """Data that every rank holds. Attributes that are not here are those of the root's."""

    def __init__(self, owner: Calls, number: int):
        self.owner, self.number = owner, number
        weakref.finalize(self, owner.drop, number).atexit = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.owner.held[self.number], name)


class HeldProgram(Held):
    """A program whose expressions ``bounds[r]`` to ``bounds[r + 1] - 1`` rank r holds."""

    def __init__(self, owner: Calls, number: int, bounds: np.ndarray, parameters: np.ndarray, failures: Failures, unread: Any):
        super().__init__(owner, number)
        self.parameter_offsets = np.concatenate([[0], np.cumsum(parameters)])
        self.bounds = bounds
        # Ranks get token arrays, so only the root knows why a text is no expression.
        self.unread = {number: Failure(number, why) for number, why in unread}
        self.failures = Failures(self.unread.get(failure.expression, failure) for failure in failures)

    def __len__(self) -> int:
        return len(self.parameter_offsets) - 1


class Calls:
    """Calls of the root, which all ranks execute: each its share of the expressions.

    A rank replies with the results of the extension module, which the root joins.
    """

    def __init__(self, channel: Channel, local: _engine.Engine):
        self.channel, self.local = channel, local
        self.is_open = True
        self.held: dict[int, Any] = {}  # programs and data of this rank, by number
        self.in_flight: list[Call] = []
        self._dropped: list[int] = []
        self._next_number = 0
        for kind in ("loss", "predict", "gradient", "jacobian", "fit"):
            setattr(self, f"submit_{kind}", partial(self._evaluate, kind))
            setattr(self, kind, lambda *arguments, submit=getattr(self, f"submit_{kind}"): submit(*arguments).result())

    def loss_of_arrays(self, *arguments: Any) -> Any:
        return self.submit_loss_of_arrays(*arguments).result()

    def submit_loss_of_arrays(self, engine: Any, codes: Any, constants: Any, offsets: Any, prefix: bool, data: Any,
                              numbers: np.ndarray, *options: str) -> Pending:
        if numbers.size:
            program = self.compile_arrays(engine, codes, constants, offsets, prefix, None, None, 1.0, 0, False, False, None)
            numbers, _ = _engine._parameters_of(_engine.Program(program, []), numbers)
            return self.submit_loss(engine, program, data, numbers, *options)
        bounds, shares = divided(codes, constants, offsets, prefix, self.channel.size)
        return self._pending(self._call("loss_of_arrays", shares, prefix=prefix, data=self._number_of(data), options=options),
                             lambda parts: joined(parts, bounds))

    def compile_arrays(self, _: Any, codes: Any, constants: Any, offsets: Any, prefix: bool, *options: Any,
                       unread: Any = ()) -> HeldProgram:
        *options, data = options
        bounds, shares = divided(codes, constants, offsets, prefix, self.channel.size)
        number, parts = self._made("compile", shares, prefix=prefix, options=options,
                                   data=None if data is None else self._number_of(data))
        return HeldProgram(self, number, bounds, *joined(parts, bounds), unread)

    def compile_tokens(self, engine: Any, tokens: Any, *options: Any) -> HeldProgram:
        return self.compile_arrays(engine, tokens.codes, tokens.constants, tokens.offsets, False, *options, unread=tokens.failures)

    def upload(self, _: Any, columns: list, target: Any, weights: Any, names: list[str]) -> Held:
        vectors = [vector for vector in (target, weights) if vector is not None]
        return Held(self, self._made("upload", everyone=[*columns, *vectors], columns=len(columns), names=names,
                                     has=[target is not None, weights is not None])[0])

    def load(self, load: Callable[..., tuple], arguments: tuple, names: Any) -> tuple[Held, list[tuple]]:
        """Data that each rank reads; the rows, columns and names that each found."""
        number, parts = self._made("load", load=load, arguments=arguments, names=names)
        return Held(self, number), parts

    def rows(self, _: Any, data: Any, *arguments: int) -> Held:
        return self._derived("rows", data, arguments)

    def sample(self, _: Any, data: Any, *arguments: int) -> Held:
        return self._derived("sample", data, arguments)

    def with_weights(self, _: Any, data: Any, weights: np.ndarray) -> Held:
        return self._derived("with_weights", data, (), [weights])

    def prepare(self, engine: Any, program: Any, data: Any, *options: Any) -> None:
        self._evaluate("prepare", engine, program, data, np.empty(0), *options).result()

    def adopt(self, *_: Any) -> Any:
        raise ValueError("an array of a GPU cannot be sent to other ranks: hand over numbers of the host")

    with_device_weights = predict_on_device = jacobian_on_device = adopt

    def close(self) -> None:
        for call in list(self.in_flight):
            call.finish()
        self.channel.send({"what": "close"}, [None] * self.channel.size, [])

    def drop(self, number: int) -> None:
        """Ranks forget this program or data set with the next call."""
        self.held.pop(number, None)
        self._dropped.append(number)

    def _evaluate(self, kind: str, _: Any, program: Any, data: Any, numbers: np.ndarray, *options: Any) -> Pending:
        if getattr(program, "owner", None) is not self:
            raise ValueError("the program is of another engine: call compile() of this one")
        *options, out = options if kind in ("predict", "jacobian") else (*options, None)
        offsets = program.parameter_offsets[program.bounds]
        vectors = max(1, numbers.size // max(1, int(offsets[-1])))
        by_vector = numbers.reshape(vectors, -1)
        shares = [by_vector[:, begin:end].reshape(-1) for begin, end in zip(offsets, offsets[1:])]
        call = self._call("evaluate", shares, kind=kind, program=program.number, data=self._number_of(data), options=options)
        return self._pending(call, lambda parts: joined(parts, program.bounds, 1 if kind == "fit" else vectors,
                                                        np.diff(offsets) > 0, out, program.unread))

    def _pending(self, call: Call, convert: Callable[[list], Any]) -> Pending:
        if call.error is not None:
            call.result()
        return Pending(call, convert)

    def _made(self, what: str, shares: Any = None, everyone: Any = (), **command: Any) -> tuple[int, list[Any]]:
        """The number of something that all ranks hold, and their replies; drops it if a rank failed."""
        self._next_number += 1
        number = self._next_number
        call = self._call(what, shares, everyone, number=number, **command)
        try:
            return number, call.result()
        except BaseException:
            self.drop(number)
            raise

    def _derived(self, method: str, data: Any, arguments: tuple, arrays: Any = ()) -> Held:
        return Held(self, self._made("derive", everyone=arrays, data=self._number_of(data), method=method, arguments=arguments)[0])

    def _call(self, what: str, shares: Any = None, everyone: Any = (), **command: Any) -> Call:
        """Sends a call, and begins the root's share. Exceptions of that are those of `Call.result`."""
        if not self.is_open or not self.channel.is_root:
            raise ValueError("the engine is closed" if self.channel.is_root else "only the root makes calls")
        for earlier in [earlier for earlier in self.in_flight if earlier.ready()]:
            earlier.finish()
        # Not copied and cleared: the collector may append meanwhile.
        command |= {"what": what, "dropped": [self._dropped.pop() for _ in range(len(self._dropped))]}
        shares = [[]] * self.channel.size if shares is None else shares
        return Call(self, command, self.channel.send(command, shares, list(everyone)), everyone or shares[self.channel.rank])

    def answer(self, command: dict[str, Any], parts: Any) -> None:
        """One call, on a rank that serves."""
        if command["what"] == "close":
            self.channel.finish_replies()
            self.is_open = False
            return
        for number in command["dropped"]:
            self.held.pop(number, None)
        try:
            pending, store = self.start(command, parts)
            reply = None, store(pending.result() if pending else None)
        except Exception as problem:
            reply = portable(problem), None
        self.channel.reply(reply, command.get("kind") in ("predict", "jacobian"))

    def start(self, command: dict[str, Any], parts: Any) -> tuple[Any, Callable[[Any], Any]]:
        """A rank's part of a call: what is pending, and what makes the reply of its result."""
        what, engine, held = command["what"], self.local._engine, self.held
        data = held.get(command.get("data"))
        if what == "compile":
            held[command["number"]] = made = _core.compile_arrays(engine, *parts, command["prefix"], *command["options"], data)
            return None, lambda _: (np.diff(made.parameter_offsets), sendable(made.failures))
        if what == "loss_of_arrays":
            return _core.submit_loss_of_arrays(engine, *parts, command["prefix"], data, np.empty(0), *command["options"]), sendable
        if what == "evaluate":
            kind, program, options = command["kind"], held[command["program"]], command["options"]
            if kind == "prepare":
                return _core.prepare(engine, program, data, *options), lambda _: ()
            if kind not in ("predict", "jacobian"):
                return getattr(_core, f"submit_{kind}")(engine, program, data, parts, *options), sendable
            counts = {"parameters": int(program.parameter_offsets[-1]), "variables": len(program) * data.columns}
            vectors = max(1, len(parts) // max(1, counts["parameters"]))
            out = np.empty(vectors * data.rows * (len(program) if kind == "predict" else counts[options[0]]), self.local._dtype)
            submit = getattr(_core, f"submit_{kind}")
            return submit(engine, program, data, parts, *options, out), lambda failures: (out, sendable(failures))
        if what == "upload":
            vectors = iter(parts[command["columns"]:])
            target, weights = (next(vectors) if has else None for has in command["has"])
            made, names = _core.upload(engine, parts[:command["columns"]], target, weights, command["names"]), None
        elif what == "load":
            loaded = self.local.upload(*command["load"](*command["arguments"]), names=command["names"])
            made, names = loaded._data, loaded.names
        else:
            made, names = getattr(_core, command["method"])(engine, data, *command["arguments"], *parts), None
        held[command["number"]] = made
        return None, lambda _: (made.rows, made.columns, names)

    def _number_of(self, data: Any) -> int:
        if getattr(data, "owner", None) is not self:
            raise ValueError("the data are of another engine: call upload() of this one")
        return data.number


class Call:
    """A call on its way, on the root: what `srjit.Pending` waits for."""

    def __init__(self, calls: Calls, command: dict[str, Any], tag: int, parts: Any):
        self.error: Exception | None = None
        self._calls, self._tag = calls, tag
        self._replies: dict[int, Any] = {}
        self._is_done = False
        self._pending = self._store = None
        calls.in_flight.append(self)
        try:
            self._pending, self._store = calls.start(command, parts)
        except Exception as problem:
            self.error = problem

    def _all_replied(self) -> bool:
        channel = self._calls.channel
        for rank in set(range(channel.size)) - {channel.rank, *self._replies}:
            if message := channel.comm.improbe(rank, self._tag):
                self._replies[rank] = message.recv()
        return len(self._replies) >= channel.size - 1

    def ready(self) -> bool:
        return self._is_done or ((self._pending is None or self._pending.ready()) and self._all_replied())

    def finish(self) -> None:
        """Waits for all ranks."""
        if self._is_done:
            return
        channel, own, pause = self._calls.channel, None, Pause()
        if self.error is None:
            try:
                own = self._store(self._pending.result() if self._pending else None)
            except Exception as problem:
                self.error = problem
        while not self._all_replied():
            pause.after(False)
        for rank, (error, _) in sorted(self._replies.items()):
            if error is not None and self.error is None:
                self.error = error_of_rank(rank, channel.hosts[rank], error)
        self._replies[channel.rank] = None, own
        self._is_done = True
        self._calls.in_flight.remove(self)

    def result(self) -> list[Any]:
        """The replies of the ranks, in order."""
        self.finish()
        if self.error is not None:
            raise self.error
        return [self._replies[rank][1] for rank in range(self._calls.channel.size)]

    def stop(self) -> None:
        raise Error("what several ranks compute cannot be stopped", "unsupported")


def divided(codes: Any, constants: Any, offsets: Any, prefix: bool, ranks: int) -> tuple[Any, Any]:
    """Where each rank's expressions begin (`bounds_by_cost`), and the token arrays of each: as many as there are ranks."""
    fit = len(codes) == len(constants) and len(offsets) and offsets[0] == 0 and offsets[-1] == len(codes)
    if not fit or np.any(np.diff(offsets) < 0):
        # Its exception says what is wrong; what is not wrong (no arrays at all) becomes offsets.
        population = Population.from_arrays(codes, constants, offsets, prefix=prefix)
        codes, constants, offsets = population.codes, population.constants, population.offsets
    bounds = bounds_by_cost(offsets, ranks)
    shares = []
    for begin, end in zip(bounds, bounds[1:]):
        tokens = slice(offsets[begin], offsets[end])
        shares.append((codes[tokens], constants[tokens], offsets[begin:end + 1] - offsets[begin]))
    return bounds, shares


def bounds_by_cost(offsets: np.ndarray, ranks: int) -> np.ndarray:
    """Where each rank's expressions begin, shape (ranks + 1,): adjacent ones of about equal cost, tokens and one each."""
    costs = offsets + np.arange(len(offsets))
    goals = costs[-1] * np.arange(1, ranks) / ranks
    after = np.searchsorted(costs, goals)
    before = np.maximum(after - 1, 0)
    cuts = np.where(goals - costs[before] < costs[after] - goals, before, after)
    return np.concatenate([[0], cuts, [len(offsets) - 1]]).astype(np.int64)


def sendable(result: Any) -> Any:
    """A result of the extension module, whose failures cannot be pickled."""
    if isinstance(result, tuple):
        return tuple(map(sendable, result))
    return result if isinstance(result, (list, np.ndarray)) else Failures(Failure(*failure) for failure in result.list())


def joined(parts: list[Any], bounds: np.ndarray, vectors: int = 1, has_parameters: Any = None, out: np.ndarray | None = None,
           unread: dict[int, Failure] | None = None) -> Any:
    """The results of ranks, of expressions from `bounds` on, as one, written to `out` if given.

    A rank without parameters has the results of one vector, which are those of every one.
    """
    first = parts[0]
    if isinstance(first, tuple):
        made = tuple(joined(list(each), bounds, vectors, has_parameters, out, unread) for each in zip(*parts))
        if out is None:
            return made
        _engine._check_some(range(bounds[-1]), made[1])
        return made[1]
    if isinstance(first, Failures):
        failures = [Failure(int(begin) + number, why) for begin, part in zip(bounds, parts) for number, why in part]
        return Failures((unread or {}).get(failure.expression, failure) for failure in failures)
    if isinstance(first, list):
        return sum(parts, [])
    counts = [1] * len(parts) if has_parameters is None else np.where(has_parameters, vectors, 1).tolist()
    rows = [part.reshape(count, part.size // count) for part, count in zip(parts, counts)]
    whole = np.empty((vectors, sum(each.shape[1] for each in rows)), first.dtype) if out is None else out.reshape(vectors, -1)
    begin = 0
    for each in rows:
        whole[:, begin:begin + each.shape[1]] = each
        begin += each.shape[1]
    return whole.reshape(-1)
