"""Losses of expressions that are in a GPU's memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from . import _core
from ._arrays import device_memory, is_on_device, stream_of
from ._errors import InvalidError
from ._results import Failure

#: Tokens of an expression on a device at most.
MOST_TOKENS: int = _core.MOST_DEVICE_TOKENS

_PRECISIONS = {"float32": "f32", "float64": "f64"}


@dataclass(frozen=True, eq=False)
class DeviceLosses:
    """Losses in a GPU's memory: there after the work of the stream that they were asked for in.

    Attributes:
        values: float32 or float64, shape (expressions,): an array of the library that the codes are of, or the ``out`` of
            the call. NaN where an expression is not valid.
        valid_rows: int64 of the same shape: as of `Losses`; -1 where an expression is not valid.
        faults: uint8 of the same shape: 0 of valid expressions.
    """

    values: Any
    valid_rows: Any
    faults: Any
    _owners: tuple = field(default=(), repr=False)  # of memory that kernels may still read

    @property
    def failures(self) -> list[Failure]:
        """The expressions that are not valid, and why. Waits for the device, and copies the faults."""
        faults = self.faults.get() if hasattr(self.faults, "get") else self.faults.cpu().numpy()
        return [Failure(int(e), InvalidError(str(_core.text_of_fault(int(faults[e]))))) for e in np.flatnonzero(faults)]


class DeviceLoss:
    """The losses of generations that a system breeds in a GPU's memory; `Engine.device_loss` makes one.

    A call puts kernels on the current stream of the library that the codes are of (torch or CuPy; of others on the
    default stream) and returns: nothing is copied to the host, nothing is waited for. So a CUDA graph may capture calls of
    the same shapes, as long as this object lives. Expressions are evaluated as they are written: the bits are those of
    `Engine.loss` with ``simplify=False``.

    Its memory is used by one call at a time, so its calls belong in one stream, or in streams that wait for each other.

    Attributes:
        expressions: Those of a call, at most.
    """

    def __init__(self, work: Any, data: Any, expressions: int, ordinal: int):
        self._work = work
        self._data = data  # has the owners of columns that are used in place
        self._ordinal = ordinal
        self._lock = threading.Lock()
        self.expressions = expressions

    def __call__(self, codes: Any, constants: Any = None, offsets: Any = None, *, prefix: bool = False,
                 out: Any = None) -> DeviceLosses:
        """Losses of expressions.

        Args:
            codes: int32: as of token arrays, shape (tokens,); or one row for each expression, shape (expressions, tokens).
            constants: float32 or float64 of the same shape: the numbers of constants and of parameters; what others have
                does not matter. None: there are none.
            offsets: Of codes of shape (tokens,): int64, where expressions begin, as of token arrays. Of rows: int32, how
                many tokens each has; None: the whole row, or in prefix as many as it takes.
            prefix: Whether operators stand before their operands.
            out: Where the losses are written: float32 or float64, shape (expressions,). By default a new array of float32
                of torch or CuPy.

        An expression that is not valid has the loss NaN; `DeviceLosses.failures` says why.

        Raises:
            ValueError: Shapes that do not fit, more expressions than announced.
            TypeError: Arrays of another type, or not in a GPU's memory.
        """
        tokens = self._memory(codes, "codes", ("int32",), (1, 2))
        stream = stream_of(codes)
        for array, what in ((constants, "constants"), (offsets, "offsets"), (out, "out")):
            if array is not None and is_on_device(array) and stream_of(array) != stream:
                raise ValueError(f"codes and {what} are of different streams")
        shape = tokens.shape
        values = _NONE if constants is None else self._memory(constants, "constants", tuple(_PRECISIONS), (len(shape),))
        if values.pointer and values.shape != shape:
            raise ValueError(f"constants have the shape {values.shape}, but codes {shape}")
        is_matrix = len(shape) == 2
        places = _NONE
        if offsets is not None:
            places = self._memory(offsets, "lengths of rows" if is_matrix else "offsets", ("int32" if is_matrix else "int64",), (1,))
        elif not is_matrix:
            raise ValueError("codes have one dimension, so offsets are needed")
        count = shape[0] if is_matrix else max(places.shape[0] - 1, 0)
        if is_matrix and places.pointer and places.shape[0] != count:
            raise ValueError(f"{places.shape[0]} lengths for {count} rows")
        values_out = out if out is not None else _empty_like(codes, count, "float32")
        losses = self._memory(values_out, "out", tuple(_PRECISIONS), (1,))
        if losses.shape[0] != count:
            raise ValueError(f"out has the shape {losses.shape}, expected ({count},)")
        valid_rows, faults = _empty_like(values_out, count, "int64"), _empty_like(values_out, count, "uint8")
        with self._lock:
            self._work.submit(tokens.pointer, (values.pointer, _PRECISIONS[values.type]), int(np.prod(shape)), count,
                              0 if is_matrix else places.pointer, shape[1] if is_matrix else 0,
                              places.pointer if is_matrix else 0, prefix, (losses.pointer, _PRECISIONS[losses.type]),
                              _pointer(valid_rows), _pointer(faults), stream)
        return DeviceLosses(values_out, valid_rows, faults, (tokens.owner, values.owner, places.owner))

    def _memory(self, array: Any, what: str, types: Sequence[str], dimensions: Sequence[int]) -> _Memory:
        pointer, shape, name, is_adjacent, ordinal, owner = device_memory(array, what)
        if name not in types:
            raise TypeError(f"{what} are of type {name}, expected {' or '.join(types)}")
        if len(shape) not in dimensions:
            raise ValueError(f"{what} have {len(shape)} dimensions, expected {' or '.join(map(str, dimensions))}")
        if not is_adjacent:
            raise ValueError(f"{what} are not in C's order")
        if ordinal is not None and ordinal != self._ordinal:
            raise ValueError(f"{what} are of cuda:{ordinal}, but the data of cuda:{self._ordinal}")
        return _Memory(pointer, shape, name, owner)

    def __repr__(self) -> str:
        return f"<srjit.DeviceLoss of up to {self.expressions} expressions on cuda:{self._ordinal}>"


class _Memory(NamedTuple):
    pointer: int
    shape: tuple[int, ...]
    type: str
    owner: Any = None


_NONE = _Memory(0, (), "float32")


def _pointer(array: Any) -> int:
    return device_memory(array, "an array")[0]


def _empty_like(array: Any, count: int, name: str) -> Any:
    """A new array of the library and the device that `array` is of."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.empty(count, dtype=getattr(torch, name), device=array.device)
    if cupy is not None and isinstance(array, cupy.ndarray):
        with array.device:
            return cupy.empty(count, dtype=name)
    raise ValueError(f"losses cannot be written to arrays such as {type(array).__name__}: give out, an array of torch or CuPy")
