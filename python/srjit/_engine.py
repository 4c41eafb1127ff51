"""Engines, data sets and programs."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _core
from ._arrays import (
    DeviceArray, column_of, columns_of, device_array, float64_of, is_on_device, name_of, names_of, output_array, stream_of,
    text_of, whole,
)
from ._device import MOST_TOKENS, DeviceLoss, DeviceLosses
from ._expressions import Population, ops, population_of, token_arrays
from ._results import Failure, Fits, Gradients, Losses, Pending

# What a 64-bit count of C++ holds.
_MOST = 2**64 - 1

#: Passes over the data of a fit, at most, if nothing else is asked for.
FIT_ITERATIONS = 50

# Evaluations that Ctrl-C left behind end before Python does.
atexit.register(_core.finish_calls)


class Dataset:
    """Rows that an engine holds: made by `Engine.upload`, and by `rows`, `sample` and `with_weights` of another one.

    Immutable, and safe to use from several threads.

    Attributes:
        names: Names of the columns, or an empty list.
    """

    def __init__(self, data: Any, engine: Engine, names: Sequence[str]):
        self._data = data
        self._engine = engine
        self.names = [name_of(name) for name in names]
        self._device_losses: dict[tuple, DeviceLoss] = {}
        self._lock = threading.Lock()

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self._data.rows, self._data.columns

    @property
    def row_groups(self) -> int:
        """Groups of 128 adjacent rows; the last one may have fewer. `sample` draws these."""
        return self._data.row_groups

    def rows(self, first: int, count: int) -> Dataset:
        """A data set of the rows ``first`` to ``first + count - 1``, copied on the device."""
        first, count = whole(first, "first", most=_MOST), whole(count, "count", most=_MOST)
        return self._derived("rows", first, count)

    def sample(self, groups: int, seed: int) -> Dataset:
        """A data set of different groups of 128 adjacent rows, drawn without replacement, in their order.

        The same rows, groups and seed give the same groups on every machine and in every version.
        """
        groups, seed = whole(groups, "groups", most=_MOST), whole(seed, "seed", most=_MOST)
        return self._derived("sample", groups, seed)

    def with_weights(self, weights: Any) -> Dataset:
        """A data set of the same numbers with other weights: as of `Engine.upload`."""
        if is_on_device(weights):
            array = device_array(weights, "weights", one_column=True)
            return self._derived("with_device_weights", array.as_tuple(), array.stream)
        return self._derived("with_weights", column_of(weights, "weights"))

    def subtrees(self) -> dict[str, int]:
        """Figures of the values of recurring subtrees that are kept with the data (``subtree_bytes`` of `Engine`)."""
        return self._data.subtrees()

    def _derived(self, function: str, *arguments: Any) -> Dataset:
        return Dataset(getattr(_core, function)(self._engine._engine, self._data, *arguments), self._engine, self.names)

    def __repr__(self) -> str:
        rows, columns = self.shape
        return f"<srjit.Dataset of {rows} rows and {columns} columns on {self._engine.device}>"


class Program:
    """A batch of expressions that an engine has compiled.

    Immutable, and safe to use from several threads.

    Attributes:
        parameter_offsets: int64, shape (expressions + 1,): the parameters of expression e are those from
            ``parameter_offsets[e]`` to ``parameter_offsets[e + 1] - 1`` of all.
        names: Names of the variables, or an empty list.
    """

    def __init__(self, program: Any, names: Sequence[str]):
        self._program = program
        self.parameter_offsets: np.ndarray = program.parameter_offsets
        self.names = [name_of(name) for name in names]

    @property
    def parameter_count(self) -> int:
        """The number of the parameters of all expressions."""
        return int(self.parameter_offsets[-1])

    @property
    def failures(self) -> list[Failure]:
        """Expressions that could not be compiled, and why. They are failures of every evaluation."""
        return [Failure(*failure) for failure in self._program.failures.list()]

    def split(self, parameters: np.ndarray) -> list[np.ndarray]:
        """The parameters (or their derivatives, or standard errors) of each expression: views of ``parameters``."""
        return np.split(parameters, self.parameter_offsets[1:-1], axis=-1) if len(self) else []

    def draw_starts(self, count: int, seed: int = 0, around: Any = None) -> np.ndarray:
        """Start values for `Engine.fit`: float64, shape (count, parameters).

        The first are those of ``around``; the others have either sign, and 1/16 to 16 times the magnitude (of 1 for a 0).
        They depend only on ``around``, the seed and the numbers of expression and vector, and are the same on every machine.

        Args:
            count: Vectors, at least 1.
            seed: 0 to 2**64 - 1.
            around: Start values, as `Engine.fit` takes them, but one vector. None: 1 for every parameter.
        """
        given = _starts_of(self, around)
        if given.size != self.parameter_count:
            raise ValueError(f"around has several vectors of the {self.parameter_count} parameters, expected one")
        if whole(count, "count") == 0:
            raise ValueError("count is 0, expected at least 1")
        drawn = _core.draw_starts(np.asarray(self.parameter_offsets, np.int64), given, count, whole(seed, "seed", most=_MOST))
        return drawn.reshape(count, self.parameter_count)

    def status(self) -> dict[str, Any]:
        """Which tier serves the program, node counts, seconds: ``ProgramInfo`` and ``ProgramStatus`` of
        runtime/program.h."""
        return self._program.status()

    def __len__(self) -> int:
        return len(self.parameter_offsets) - 1

    def __repr__(self) -> str:
        return f"<srjit.Program of {len(self)} expressions with {self.parameter_count} parameters>"


class Engine:
    """A device and options. Evaluates programs on data sets.

    Safe to use from several threads. Calls run without the GIL, and Ctrl-C ends their waiting. After ``os.fork()`` the
    child process needs engines of its own; calls of inherited ones raise an `Error`.

    The tier, the number of threads and the other expressions of a batch do not change a bit of a result.

    Args:
        device: ``"cpu"``, ``"cuda:N"``, or ``"auto"``: cuda:0 if it can be used, else the CPU. Several GPUs as one:
            ``"cuda:0,2"``, or ``"cuda:all"`` for all that can be used.
        precision: ``"f32"`` or ``"f64"``: the type that expressions are computed in.
        math: ``"strict"`` (operations of IEEE 754 as written), ``"precise"`` (with fused multiply-add) or ``"fast"``
            (approximate instructions and value-changing rewrites; f32 only).
        tier: ``"auto"``, ``"interpret"``, ``"direct"`` or ``"compile"``: how expressions are executed.
        threads: Threads of the host to use at most; 0: all.
        cache_dir: Folder of the disk cache of kernels; ``""``: none; None: ``$SRJIT_CACHE_DIR``, or the user's.
        device_bytes: Device memory for one data set and for the working memory of one evaluation; 0: all that is free.
        subtree_bytes: Device memory per data set for values of recurring subtrees (``data`` of `compile`); 0: none.
        max_nodes: Nodes (tokens) of an expression at most, for untrusted expressions; 0: no limit. More are a
            failure of the expression, with the code ``"limit"``.
        max_call_nodes: Nodes of all expressions of a call at most; 0: no limit. More are an `Error` of the call.
        max_seconds: Seconds that a call may take, looked at between two kernels or blocks of rows; 0: no limit. More
            are an `Error` of the call. The engine stays usable.

    Raises:
        ValueError: An unknown word.
        Error: A device that does not exist.
    """

    def __init__(self, device: str = "auto", precision: str = "f32", math: str = "precise", tier: str = "auto", *,
                 threads: int = 0, cache_dir: str | os.PathLike | None = None, device_bytes: int = 0, subtree_bytes: int = 0,
                 max_nodes: int = 0, max_call_nodes: int = 0, max_seconds: float = 0):
        device, precision = text_of(device, "device"), text_of(precision, "precision")
        math, tier = text_of(math, "math"), text_of(tier, "tier")
        cache_dir = None if cache_dir is None else os.fsdecode(cache_dir)
        self._engine = _core.Engine(device, precision, math, tier, whole(threads, "threads"), cache_dir,
                                    whole(device_bytes, "device_bytes", most=_MOST), whole(subtree_bytes, "subtree_bytes", most=_MOST),
                                    whole(max_nodes, "max_nodes", most=_MOST),
                                    whole(max_call_nodes, "max_call_nodes", most=_MOST), float(max_seconds))
        self._max_nodes = max_nodes
        self.precision = precision
        self.math = math
        self.tier = tier
        self._dtype = np.float32 if precision == "f32" else np.float64

    @property
    def device(self) -> str:
        """``"cpu"``, ``"cuda:N"``, or a list as ``"cuda:0,2"``."""
        return self._engine.device

    @property
    def threads(self) -> int:
        """Threads of the host."""
        return self._engine.threads

    @property
    def notices(self) -> list[str]:
        """What the engine does without, in sentences: why ``"auto"`` did not take a GPU, for example."""
        return self._engine.notices

    def cache_stats(self) -> dict[str, Any]:
        """Figures of the kernel cache."""
        return self._engine.cache_stats()

    def upload(self, X: Any, y: Any = None, weights: Any = None, names: Sequence[str] | None = None) -> Dataset:
        """Makes data resident.

        Args:
            X: Numbers, shape (rows, columns) or (rows,): NumPy, a pandas data frame, nested lists; or an array of a GPU
                that has ``__dlpack__`` or ``__cuda_array_interface__`` (torch, CuPy, JAX), of the engine's precision,
                which is used in place: leave it unchanged as long as the data set. Numbers of the host are copied once,
                and converted to the engine's precision; integers and booleans become float64 first. They may be NaN or
                infinite.
            y: The target, shape (rows,), finite: needed for losses. Of a GPU where X is.
            weights: Weights of the rows, shape (rows,), finite, none negative, not all 0. Of a GPU where X is.
            names: Names of the columns, for text of expressions and for messages. By default those of a data frame.

        Raises:
            ValueError: Unequal lengths, no rows, or a number that target or weights cannot have, with its row.
            TypeError: Something else than numbers.
            Error: Too little memory, or an array of another device.
        """
        if names is None:
            names = names_of(X) or []
        names = [name_of(name) for name in names]
        if is_on_device(X):
            return self._adopt(X, y, weights, names)
        columns = columns_of(X)
        target = None if y is None else column_of(y, "y")
        row_weights = None if weights is None else column_of(weights, "weights")
        return self._uploaded(columns, target, row_weights, names)

    def _uploaded(self, columns: list[np.ndarray], *vectors_and_names: Any) -> Dataset:
        """Of columns, target, weights and names."""
        return Dataset(_core.upload(self._engine, columns, *vectors_and_names), self, vectors_and_names[-1])

    def _adopt(self, X: Any, y: Any, weights: Any, names: list[str]) -> Dataset:
        columns = device_array(X, "X")
        vectors = []
        for values, what in ((y, "y"), (weights, "weights")):
            if values is not None and not is_on_device(values):
                raise ValueError(f"X is on a GPU, but {what} is not")
            vectors.append(None if values is None else device_array(values, what, one_column=True))
        arrays = [columns, *(array for array in vectors if array is not None)]
        for array in arrays:
            self._check_device(array)
        streams = {array.stream for array in arrays if array.stream}
        if len(streams) > 1:
            raise ValueError("X, y and weights are of different streams; synchronise them before")
        tuples = [None if array is None else array.as_tuple() for array in vectors]
        data = _core.adopt(self._engine, columns.as_tuple(), *tuples, streams.pop() if streams else 0, names)
        data.owner = [array.owner for array in arrays]
        return Dataset(data, self, names)

    def compile(self, expressions: Any, *, language: str = "infix", names: Sequence[str] | Dataset = (),
                prefix: bool = False, tier: str | None = None, passes: str | None = None,
                expected_evaluations: float = 1, expected_rows: int = 0, keep_order: bool = False,
                data: Dataset | None = None, deferred: bool = False, simplify: bool = True) -> Program:
        """Compiles a batch of expressions.

        Args:
            expressions: Texts (or one text), SymPy expressions (or one), a `Population`, or token arrays
                ``(codes, constants, offsets)``.
            language: Of texts: ``"infix"``, ``"postfix"``, ``"prefix"`` or ``"json"``.
            names: Names of the variables of texts and SymPy expressions, or a data set that has some.
            prefix: Of token arrays: whether operators stand before their operands.
            tier: Overrides that of the engine.
            passes: Names of passes with commas, as of ``sr-jit passes``, instead of the standard ones.
            expected_evaluations: How often the program will be evaluated; more make compiling pay.
            expected_rows: Rows per evaluation; 0: unknown.
            keep_order: Whether GPU kernels get adjacent expressions rather than those that share subtrees.
            data: Restricts the program to one data set, whose kept values of subtrees it then reads.
            deferred: Whether code is made at the first evaluation instead of at once: for programs that are fitted or
                differentiated, which have their own code. No effect with ``data``.
            simplify: False: expressions are evaluated as they are written, but for constants that are folded and
                multiply-adds. That spares most of the preparation, which pays for expressions that are evaluated once.
                Last digits may differ, and whether a row is finite. Not beside ``passes``.

        Returns:
            A `Program`. Bad expressions among several are its `failures`, and their results are NaN.

        Raises:
            InvalidError: A single text that is no expression, with its place; token arrays that do not fit.
        """
        tier = None if tier is None else text_of(tier, "tier")
        passes = None if passes is None else text_of(passes, "passes")
        options = (tier, passes, float(expected_evaluations), whole(expected_rows, "expected_rows", most=_MOST), keep_order, deferred,
                   bool(simplify))
        if passes is not None and not simplify:
            raise ValueError("simplify is False, but there are passes: expected one of them")
        if isinstance(names, Dataset):
            names = names.names
        if _is_token_arrays(expressions):
            return self._compiled(token_arrays(*expressions), prefix, names, options, data)
        population = population_of(expressions, language, names, self._max_nodes)
        return self._compiled(population, False, population.names, options, data)

    def _compiled(self, source: Any, prefix: bool, names: Sequence[str], options: tuple, data: Dataset | None) -> Program:
        """Of a population, or of token arrays in prefix or postfix."""
        options = (*options, None if data is None else data._data)
        if isinstance(source, Population):
            return Program(_core.compile_tokens(self._engine, source._tokens, *options), names)
        return Program(_core.compile_arrays(self._engine, *source, prefix, *options), names)

    def loss(self, program: Any, data: Dataset, parameters: Any = None, loss: str = "mse",
             nan: str = "propagate", *, prefix: bool = False, simplify: bool = True,
             out: Any = None) -> Losses | DeviceLosses:
        """One loss per expression; no predictions are stored.

        Args:
            program: A `Program`; or token arrays ``(codes, constants, offsets)`` that are evaluated once, which is
                quicker than `compile` and this. Arrays of the engine's GPU stay there, as of `DeviceLoss`: this then
                returns `DeviceLosses` without waiting, expressions have any operators and are evaluated as written, and
                the losses are among those that `device_loss` takes.
            parameters: Those of all expressions, one expression after another (`Program.parameter_offsets`): shape
                (parameters,); or (vectors, parameters) for several vectors, all in one launch; or one array per
                expression. None: there are no parameters.
            loss: A name (`loss_names`), ``"huber:2"`` with its constant, or an expression over the prediction f, the
                target y and the weight w, such as ``"abs(f - y)^1.5"``; the loss is its weighted mean.
            nan: How rows with a non-finite prediction are treated: ``"propagate"``, ``"skip"`` them, or ``"reject"``
                the expression (an infinite loss).
            prefix: Of token arrays: whether operators stand before their operands.
            simplify: Of token arrays: as of `compile`.
            out: Of token arrays of a GPU: as of `DeviceLoss`.

        Raises:
            ValueError: A wrong number of parameters, data without a target, an unknown loss.
            Error: Too little memory, a lost device.
        """
        if _is_token_arrays(program) and is_on_device(program[0]):
            return self._loss_on_device(program, data, parameters, *_words(loss, nan), prefix, out)
        if out is not None:
            raise ValueError("out is given, but the expressions are not in a GPU's memory")
        return self._loss(True, program, data, parameters, loss, nan, prefix, simplify)

    def submit_loss(self, program: Any, data: Dataset, parameters: Any = None, loss: str = "mse",
                    nan: str = "propagate", *, prefix: bool = False, simplify: bool = True) -> Pending:
        """`loss` without waiting: a `Pending`. Arguments are copied before this returns.

        Raises:
            TypeError: The program is token arrays of a GPU. `loss` takes them, and does not wait.
        """
        if _is_token_arrays(program) and is_on_device(program[0]):
            raise TypeError("token arrays of a GPU: expected arrays of the host; loss() of those does not wait, either")
        return self._loss(False, program, data, parameters, loss, nan, prefix, simplify)

    def _loss(self, waits: bool, program: Any, data: Dataset, parameters: Any, loss: str, nan: str, prefix: bool,
              simplify: bool) -> Any:
        if _is_token_arrays(program):
            if np.ndim(parameters) != 2:
                numbers = np.empty(0) if parameters is None else float64_of(parameters, "parameters").reshape(-1)
                words = (*_words(loss, nan), bool(simplify))
                return self._loss_of_arrays(waits, token_arrays(*program), prefix, data, numbers, words)
            program = self.compile(program, prefix=prefix, simplify=simplify)
        elif not simplify:
            raise ValueError("simplify is False, but the program is compiled: expected simplify of compile")
        numbers, vectors = _parameters_of(program, parameters)
        return self._call(waits, "loss", program, data, numbers, _words(loss, nan), lambda result: _losses(result, vectors))

    def _loss_of_arrays(self, waits: bool, arrays: tuple, prefix: bool, data: Dataset, numbers: np.ndarray, words: tuple) -> Any:
        arguments = (self._engine, *arrays, prefix, self._data_of(data, None), numbers, *words)
        return _core_call(waits, "loss_of_arrays", arguments, lambda result: _losses(result, None))

    def device_loss(self, data: Dataset, expressions: int, operators: Iterable[str] | None = None, *,
                    most_tokens: int = 64, loss: str = "mse", nan: str = "propagate", device_bytes: int = 0) -> DeviceLoss:
        """Prepares to evaluate generations that a system breeds in the memory of the engine's GPU.

        Args:
            data: A data set that the GPU holds, with a target.
            expressions: Those of a generation, at most.
            operators: Names of the operators that expressions may have. None: all. Others are a fault.
            most_tokens: Tokens of an expression, at most: 1 to 256.
            loss: A loss of errors that are not scaled, such as ``"mse"``, ``"rmse"``, ``"mae"`` and ``"nmse"``.
            nan: As of `loss`.
            device_bytes: Device memory for programs and sums; 0: 512 MiB. What needs more is evaluated in parts.

        Raises:
            ValueError: An unknown operator or loss, numbers out of range, data without a target.
            Error: A processor or several GPUs, data that are streamed, another loss, too many columns or little memory.
        """
        names = list(ops) if operators is None else [text_of(name, "operator") for name in operators]
        count, tokens = whole(expressions, "expressions", least=1), whole(most_tokens, "most_tokens", 1, MOST_TOKENS)
        work = _core.device_loss(self._engine, self._data_of(data, None), names, count, tokens, *_words(loss, nan),
                                 whole(device_bytes, "device_bytes", most=_MOST))
        return DeviceLoss(work, data._data, count, int(self.device.removeprefix("cuda:")))

    def _loss_on_device(self, arrays: tuple, data: Dataset, parameters: Any, loss: str, nan: str, prefix: bool,
                        out: Any) -> DeviceLosses:
        codes, constants, offsets = arrays
        if parameters is not None:
            raise ValueError("parameters are given, but those of expressions in a GPU's memory stand among their constants")
        self._data_of(data, None)
        is_matrix = len(codes.shape) == 2
        count = codes.shape[0] if is_matrix or offsets is None else offsets.shape[0] - 1
        # Few sizes, since each has memory of its own.
        most_tokens = min(max(1 << max(codes.shape[1] - 1, 1).bit_length(), 32), MOST_TOKENS) if is_matrix else MOST_TOKENS
        # Calls of different streams must not share memory. What a larger one replaces may still be in a graph.
        key = (self._engine, stream_of(codes), loss, nan, most_tokens)
        with data._lock:
            found = data._device_losses.get(key)
            if found is None or found.expressions < count:
                most = max(count, 2 * found.expressions if found else 1)
                made = self.device_loss(data, most, most_tokens=most_tokens, loss=loss, nan=nan)
                if found:
                    data._device_losses[(*key, found.expressions)] = found
                data._device_losses[key] = found = made
        return found(codes, constants, offsets, prefix=prefix, out=out)

    def predict(self, program: Program, data: Dataset, parameters: Any = None, out: Any = None) -> Any:
        """Predictions of all expressions.

        Args:
            parameters: As of `loss`.
            out: Where to write them: a NumPy array of the result's shape and type, in C's order; or such an array of
                the engine's GPU (torch, CuPy), which is written after the pending work of its current stream, and is
                complete when this returns. (Arrays of JAX cannot be written.)

        Returns:
            Shape (expressions, rows), or (vectors, expressions, rows) for several vectors of parameters, of the
            engine's precision: ``out``, if given. Rows of expressions that failed are NaN; `loss` says why. If Ctrl-C
            ends the waiting, ``out`` is still written until the evaluation ends.

        Raises:
            Error: That of the first expression, if all of them failed.
        """
        return self._matrix(True, "predict", program, data, parameters, (), out)

    def submit_predict(self, program: Program, data: Dataset, parameters: Any = None,
                       out: np.ndarray | None = None) -> Pending:
        """`predict` without waiting: a `Pending`."""
        return self._matrix(False, "predict", program, data, parameters, (), out)

    def _matrix(self, waits: bool, kind: str, program: Program, data: Dataset, parameters: Any, by: tuple, out: Any) -> Any:
        """Predictions, or a Jacobian `by` something."""
        numbers, vectors = _parameters_of(program, parameters)
        rows_of = _derivative_shape(program, data, *by) if by else (len(program),)
        shape = _shape_by_vector((*rows_of, data.shape[0]), vectors)
        if waits and out is not None and is_on_device(out):
            array = self._device_output(shape, out)
            _check_some(program, getattr(_core, f"{kind}_on_device")(
                self._engine, program._program, self._data_of(data, program), numbers, *by, array.as_tuple(), array.stream, out))
            return out
        out = self._output(shape, out)

        def convert(failures: Any) -> np.ndarray:
            if waits:
                _check_some(program, failures)
            return out

        return self._call(waits, kind, program, data, numbers, by, convert, out.reshape(-1))

    def gradient(self, program: Program, data: Dataset, parameters: Any = None, loss: str = "mse",
                 nan: str = "propagate", by: str = "parameters") -> Gradients:
        """One loss per expression and its derivatives, in one pass over the data.

        Args:
            parameters, loss, nan: As of `loss`. A derivative that is not finite counts as 0 in a row whose
                prediction is finite.
            by: ``"parameters"`` or ``"variables"`` (all columns of the data).
        """
        return self._gradient(True, program, data, parameters, loss, nan, by)

    def submit_gradient(self, program: Program, data: Dataset, parameters: Any = None, loss: str = "mse",
                        nan: str = "propagate", by: str = "parameters") -> Pending:
        """`gradient` without waiting: a `Pending`."""
        return self._gradient(False, program, data, parameters, loss, nan, by)

    def _gradient(self, waits: bool, program: Program, data: Dataset, parameters: Any, loss: str, nan: str, by: str) -> Any:
        numbers, vectors = _parameters_of(program, parameters)
        return self._call(waits, "gradient", program, data, numbers, (*_words(loss, nan), by),
                          lambda result: _gradients(result, vectors, program, data, by))

    def jacobian(self, program: Program, data: Dataset, parameters: Any = None, by: str = "parameters",
                 out: Any = None) -> Any:
        """Derivatives of predictions.

        Args:
            parameters, by: As of `gradient`.
            out: As of `predict`.

        Returns:
            By parameters: shape (parameters, rows), one expression after another. By variables: shape
            (expressions, columns, rows). Several vectors of parameters give one more dimension in front. Of the
            engine's precision: ``out``, if given.
        """
        return self._matrix(True, "jacobian", program, data, parameters, (by,), out)

    def submit_jacobian(self, program: Program, data: Dataset, parameters: Any = None, by: str = "parameters",
                        out: np.ndarray | None = None) -> Pending:
        """`jacobian` without waiting: a `Pending`."""
        return self._matrix(False, "jacobian", program, data, parameters, (by,), out)

    def fit(self, program: Program, data: Dataset, starts: Any = None, iterations: int = FIT_ITERATIONS, *, loss: str = "mse",
            nan: str = "propagate", loss_tolerance: float = _core.LOSS_TOLERANCE, step_tolerance: float = _core.STEP_TOLERANCE,
            bounds: Any = None) -> Fits:
        """Fits the parameters of every expression to the target, all of them together.

        Each iteration is one pass over the data for all fits that have not ended (Levenberg-Marquardt with variable
        projection; docs/fitting.md).

        Args:
            starts: Values to start from: shape (parameters,); or (starts, parameters): the best result wins; or
                one array per expression. None: 1 for every parameter.
            iterations: Passes over the data, at most.
            loss: What is minimised: any loss but ``"sum"`` and ``"correlation"``.
            nan: As of `loss`.
            loss_tolerance: Converged if the next step would lower the loss by no more than this share of it.
            step_tolerance: Converged if the next step is no longer than this share of the parameters.
            bounds: The least and the largest value of p0, p1, ... in every expression, where None is no bound: a mapping
                such as ``{"p0": (0, None)}``, or a sequence of pairs. A start outside is moved to the bound; a parameter that
                ends there has no standard error.
        """
        return self._fit(True, program, data, starts, iterations, loss, nan, bounds, loss_tolerance, step_tolerance)

    def submit_fit(self, program: Program, data: Dataset, starts: Any = None, iterations: int = FIT_ITERATIONS, *,
                   loss: str = "mse", nan: str = "propagate", loss_tolerance: float = _core.LOSS_TOLERANCE,
                   step_tolerance: float = _core.STEP_TOLERANCE, bounds: Any = None) -> Pending:
        """`fit` without waiting: a `Pending`, whose ``stop()`` ends it early."""
        return self._fit(False, program, data, starts, iterations, loss, nan, bounds, loss_tolerance, step_tolerance)

    def _fit(self, waits: bool, program: Program, data: Dataset, starts: Any, iterations: int, loss: str, nan: str,
             bounds: Any, *tolerances: float) -> Any:
        options = (*_words(loss, nan), whole(iterations, "iterations"), *tolerances, _bounds_of(program, bounds))
        return self._call(waits, "fit", program, data, _starts_of(program, starts), options, _fits)

    def prepare(self, program: Program, data: Dataset, loss: str | None = None, nan: str = "propagate") -> None:
        """Does in advance what the first `predict` (``loss=None``) or `loss` of this kind would do."""
        _core.prepare(self._engine, program._program, self._data_of(data, program),
                      None if loss is None else text_of(loss, "loss"), text_of(nan, "nan"))

    def _call(self, waits: bool, kind: str, program: Program, data: Dataset, numbers: np.ndarray, options: tuple,
              convert: Callable[[Any], Any], *outs: np.ndarray) -> Any:
        """Evaluates a program: its result, or a `Pending`. `convert` makes it of that of the extension module."""
        arguments = (self._engine, program._program, self._data_of(data, program), numbers, *options, *outs)
        return _core_call(waits, kind, arguments, convert)

    def _data_of(self, data: Any, program: Any) -> Any:
        if not isinstance(data, Dataset):
            raise TypeError(f"data is of type {type(data).__name__}, expected srjit.Dataset: call upload() first")
        names = getattr(program, "names", None)
        if names and data.names and names != data.names:
            raise ValueError(f"the program was made for the columns {', '.join(names)}, but the data have "
                             f"{', '.join(data.names)}")
        return data._data

    def _device_output(self, shape: tuple[int, ...], out: Any) -> DeviceArray:
        array = output_array(out, shape, self.precision)
        self._check_device(array)
        return array

    def _check_device(self, array: DeviceArray) -> None:
        if array.device is not None and self.device != f"cuda:{array.device}":
            raise ValueError(f"an array of cuda:{array.device}, but the engine computes on {self.device}")

    def _output(self, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
        if out is None:
            return np.empty(shape, self._dtype)
        if not isinstance(out, np.ndarray) or out.dtype != self._dtype:
            raise TypeError(f"out is no NumPy array of {np.dtype(self._dtype).name}")
        if out.shape != shape:
            raise ValueError(f"out has the shape {out.shape}, expected {shape}")
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise ValueError("out is not in C's order, or cannot be written")
        return out

    def __repr__(self) -> str:
        return f"<srjit.Engine on {self.device}, {self.precision}, {self.math}, tier {self.tier}>"


def _is_token_arrays(expressions: Any) -> bool:
    return (isinstance(expressions, tuple) and len(expressions) == 3
            and not any(isinstance(part, str) for part in expressions)
            and all(hasattr(part, "__len__") or (part is None and is_on_device(expressions[0])) for part in expressions))


def _words(loss: Any, nan: Any) -> tuple[str, str]:
    return text_of(loss, "loss"), text_of(nan, "nan")


def _check_some(program: Program, failures: Any) -> None:
    """Raises the first error if no expression has a result."""
    if len(program) and len(failures) == len(program):
        raise failures.list()[0][1]


def _core_call(waits: bool, kind: str, arguments: tuple, convert: Callable[[Any], Any]) -> Any:
    if waits:
        return convert(getattr(_core, kind)(*arguments))
    return Pending(getattr(_core, f"submit_{kind}")(*arguments), convert)


def _parameters_of(program: Any, parameters: Any) -> tuple[np.ndarray, int | None]:
    """All parameters in a row, and the number of vectors if several were given."""
    if not isinstance(program, Program):
        raise TypeError(f"program is of type {type(program).__name__}, expected srjit.Program: call compile() first")
    if parameters is None:
        if program.parameter_count:
            raise ValueError(f"the program has {program.parameter_count} parameters, but none were given")
        return np.empty(0), None
    numbers = _numbers_of(program, parameters)
    if not program.parameter_count and not numbers.size:
        return np.empty(0), None
    if numbers.shape[-1] != program.parameter_count:
        raise ValueError(f"{numbers.shape[-1]} parameters were given, but the program has {program.parameter_count}")
    return numbers.reshape(-1), numbers.shape[0] if numbers.ndim == 2 else None


def _numbers_of(program: Program, parameters: Any) -> np.ndarray:
    """Parameters as one or two dimensions."""
    is_list = isinstance(parameters, (list, tuple)) and any(np.ndim(part) > 0 for part in parameters)
    if is_list and len(parameters) == len(program):
        # One array per expression. Several vectors as a list of lists look alike where all lengths agree.
        sizes = np.diff(program.parameter_offsets)
        if all(np.size(part) == size for part, size in zip(parameters, sizes)):
            return np.concatenate([float64_of(part, "parameters").reshape(-1) for part in parameters])
    try:
        numbers = float64_of(parameters, "parameters")
    except ValueError:
        raise ValueError("parameters are neither numbers nor one array of the right size per expression") from None
    if numbers.ndim > 2:
        raise ValueError(f"parameters have {numbers.ndim} dimensions, expected 1 or 2")
    return numbers.reshape(-1) if numbers.ndim == 0 else numbers


def _starts_of(program: Program, starts: Any) -> np.ndarray:
    if starts is None and isinstance(program, Program):
        return np.ones(program.parameter_count)
    return _parameters_of(program, starts)[0]


def _bounds_of(program: Any, bounds: Any) -> list[tuple[float, float]]:
    """The bounds of p0, p1, ...; empty if there are none."""
    if bounds is None:
        return []
    if not isinstance(bounds, Mapping):
        bounds = {f"p{p}": pair for p, pair in enumerate(bounds)}
    sides = {f"p{p}": (-np.inf, np.inf) for p in range(np.diff(program.parameter_offsets).max(initial=0))}
    for name, pair in bounds.items():
        if name not in sides:
            raise ValueError(f"bounds are given for {name!r}, but no expression has this parameter")
        if np.shape(pair) != (2,):
            raise ValueError(f"the bounds of {name} are {pair!r}, expected a pair of numbers or None, such as (0, None)")
        sides[name] = tuple(none if side is None else float(side) for side, none in zip(pair, (-np.inf, np.inf)))
    return list(sides.values())


def _derivative_shape(program: Program, data: Dataset, by: str) -> tuple[int, ...]:
    if by == "parameters":
        return (program.parameter_count,)
    if by == "variables":
        return (len(program), data.shape[1])
    raise ValueError(f"by is {by!r}, expected one of 'parameters', 'variables'")


def _shape_by_vector(shape: tuple[int, ...], vectors: int | None) -> tuple[int, ...]:
    return shape if vectors is None else (vectors, *shape)


def _by_vector(array: np.ndarray, vectors: int | None, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return array.reshape(_shape_by_vector(shape, vectors))


def _losses(result: tuple, vectors: int | None) -> Losses:
    values, valid_rows, failures = result
    return Losses(_by_vector(values, vectors), _by_vector(valid_rows, vectors), failures)


def _gradients(result: tuple, vectors: int | None, program: Program, data: Dataset, by: str) -> Gradients:
    (values, valid_rows, failures), derivatives = result
    shape = _derivative_shape(program, data, by)
    return Gradients(_by_vector(values, vectors), _by_vector(valid_rows, vectors),
                     _by_vector(derivatives, vectors, shape), failures)


def _fits(result: tuple) -> Fits:
    parameters, (values, valid_rows, failures), iterations, status, start, standard_errors = result
    return Fits(parameters, values, valid_rows, iterations, status, start, standard_errors, failures)
