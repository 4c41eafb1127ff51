"""What callers hand over as arrays: numbers in memory of the processor or of a GPU."""

from __future__ import annotations

import contextlib
import numbers
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._errors import InvalidError

#: Types of numbers that engines compute in, by NumPy's names.
_PRECISIONS = {"float32": "f32", "float64": "f64"}


@dataclass
class DeviceArray:
    """A matrix in the memory of a GPU, which `owner` keeps alive."""

    pointer: int
    shape: tuple[int, int]
    strides: tuple[int, int]  #: of rows and columns, in bytes
    precision: str
    device: int | None  #: number of the GPU; None: not known
    stream: int  #: the stream after whose pending work the numbers are there; 0: they are
    owner: Any

    def as_tuple(self) -> tuple[int, int, int, int, int, str]:
        return (self.pointer, *self.shape, *self.strides, self.precision)


def is_on_device(array: Any) -> bool:
    """Whether `array` is in the memory of a GPU."""
    # In this order: a tensor of torch that needs gradients has no __cuda_array_interface__, and an error instead.
    if hasattr(array, "__dlpack_device__"):
        return array.__dlpack_device__()[0] not in (1, 3)  # kDLCPU, kDLCUDAHost: pinned memory of the host
    return hasattr(array, "__cuda_array_interface__")


def device_array(array: Any, what: str, *, one_column: bool = False) -> DeviceArray:
    """The memory of `array`, without a copy.

    DLPack comes first: its producer is asked to make the default stream wait for what computes the numbers. Of the CUDA
    array interface the stream is taken as it is (version 3).
    """
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        made = _of_dlpack(array, what)
    else:
        made = _of_cuda_array_interface(array, what)
    if one_column and made.shape[1] != 1:
        raise ValueError(f"{what} has {made.shape[1]} columns, expected 1")
    return made


def output_array(array: Any, shape: tuple[int, ...], precision: str) -> DeviceArray:
    """The memory of a GPU's array of this shape, to be written."""
    if tuple(array.shape) != shape:
        raise ValueError(f"out has the shape {tuple(array.shape)}, expected {shape}")
    made = device_array(array.reshape(-1), "out")
    if made.precision != precision:
        raise TypeError(f"out is of precision {made.precision}, but the engine computes in {precision}")
    if made.strides[0] != (4 if precision == "f32" else 8) and made.shape[0] > 1:
        raise ValueError("out is not in C's order")
    # A copy would have been made of numbers that are not adjacent.
    if made.pointer != _pointer_of(array):
        raise ValueError("out is not in C's order")
    return DeviceArray(made.pointer, (1, made.shape[0]), (made.shape[0] * made.strides[0], made.strides[0]), precision,
                       made.device, made.stream, array)


def device_memory(array: Any, what: str) -> tuple[int, tuple[int, ...], str, bool, int | None, Any]:
    """Pointer, shape, NumPy's name of the type, whether in C's order, number of the GPU (None: not known) and owner of the
    memory of an array, whose numbers are there after the pending work of `stream_of`.

    Arrays of torch and CuPy are asked for no more than that, so that a CUDA graph may be captured meanwhile.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if not array.is_cuda:
            raise TypeError(f"{what} are not in the memory of a GPU")
        return array.data_ptr(), tuple(array.shape), str(array.dtype)[6:], array.is_contiguous(), array.device.index, array
    if _is_of_cupy(array):
        interface = array.__cuda_array_interface__
        return (interface["data"][0], array.shape, array.dtype.name, array.flags.c_contiguous, array.device.id, array)
    if not is_on_device(array):
        raise TypeError(f"{what} are not in the memory of a GPU")
    if hasattr(array, "__dlpack__"):
        from . import _core

        pointer, shape, strides, name, owner = _core.device_memory(array.__dlpack__(stream=_LEGACY_DEFAULT_STREAM))
        number = array.__dlpack_device__()[1]
    else:
        interface = array.__cuda_array_interface__
        pointer, shape, name = interface["data"][0], tuple(interface["shape"]), np.dtype(interface["typestr"]).name
        strides, number, owner = interface.get("strides"), None, array
    size = np.dtype(name).itemsize if name != "another" else 0
    return pointer, shape, name, strides is None or tuple(strides) == _adjacent_strides(shape, size), number, owner


def stream_of(array: Any) -> int:
    """The stream whose pending work makes the numbers of `array`: the current one of torch or CuPy, or the legacy default
    stream, for which DLPack makes its producer wait."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return torch.cuda.current_stream(array.device).cuda_stream or _LEGACY_DEFAULT_STREAM
    if _is_of_cupy(array):
        with array.device:
            return sys.modules["cupy"].cuda.get_current_stream().ptr or _LEGACY_DEFAULT_STREAM
    if not hasattr(array, "__dlpack__"):
        return array.__cuda_array_interface__.get("stream") or _LEGACY_DEFAULT_STREAM
    return _LEGACY_DEFAULT_STREAM


def _is_of_cupy(array: Any) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def _pointer_of(array: Any) -> int:
    if hasattr(array, "data_ptr"):
        return array.data_ptr()
    return array.__cuda_array_interface__["data"][0]


_LEGACY_DEFAULT_STREAM = 1


def _of_dlpack(array: Any, what: str) -> DeviceArray:
    from . import _core

    kind, number = array.__dlpack_device__()
    if kind not in (2, 13):  # kDLCUDA, kDLCUDAManaged
        raise ValueError(f"{what} is on a device of another kind than CUDA GPUs (DLPack device type {int(kind)})")
    # A tensor that torch is to differentiate through would refuse.
    source = array.detach() if hasattr(array, "detach") else array
    with _current_device(source, number):
        capsule = source.__dlpack__(stream=_LEGACY_DEFAULT_STREAM)
    pointer, shape, strides, name, owner = _core.device_memory(capsule)
    return _matrix(pointer, shape, strides, name, what, number, _LEGACY_DEFAULT_STREAM, owner)


def _current_device(array: Any, number: int) -> Any:
    """Torch exports only tensors of its current device."""
    torch = sys.modules.get("torch")
    return torch.cuda.device(number) if torch and isinstance(array, torch.Tensor) else contextlib.nullcontext()


def _of_cuda_array_interface(array: Any, what: str) -> DeviceArray:
    interface = array.__cuda_array_interface__
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    if strides is None:
        strides = _adjacent_strides(shape, dtype.itemsize)
    stream = interface.get("stream")
    return _matrix(interface["data"][0], shape, tuple(strides), dtype.name, what, None, stream or 0, array)


def _adjacent_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    stride = itemsize
    for size in reversed(shape):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


def _matrix(pointer, shape, strides, dtype_name, what, device, stream, owner) -> DeviceArray:
    precision = _PRECISIONS.get(dtype_name)
    if precision is None:
        raise TypeError(f"{what} has numbers of type {dtype_name}, expected float32 or float64")
    if len(shape) == 1:
        shape = (shape[0], 1)
        strides = (strides[0], strides[0] * shape[0])
    if len(shape) != 2:
        raise ValueError(f"{what} has {len(shape)} dimensions, expected rows x columns")
    return DeviceArray(pointer, tuple(shape), tuple(strides), precision, device, stream, owner)


def text_of(value: Any, what: str) -> str:
    """`value` as a plain str: np.str_, StrEnum and other kinds of str are texts, too.

    Raises:
        TypeError: Something else than a text, named by `what`.
    """
    if not isinstance(value, str):
        raise TypeError(f"{what} is of type {type(value).__name__}, expected str")
    return str.__str__(value)  # str(value) of an enumeration may be "Kind.NAME"


def whole(value: Any, name: str, least: int = 0, most: int = 2**32 - 1) -> int:
    """`value`, which is to be a whole number from `least` to `most`."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected int")
    if not least <= int(value) <= most:
        raise InvalidError(f"{name} is {value}, expected {least} to {most}")
    return int(value)


def name_of(name: Any) -> str:
    """The name of a column, which data frames may have of any type."""
    return text_of(name, "name") if isinstance(name, str) else str(name)


def names_of(table: Any) -> list[str] | None:
    """The names of the columns of a data frame, None of anything else."""
    columns = getattr(table, "columns", None)
    if columns is None or callable(columns):
        return None
    return [name_of(name) for name in columns]


def columns_of(table: Any, what: str = "X") -> list[np.ndarray]:
    """The columns of a matrix or data frame: float32 or float64, of adjacent numbers.

    Columns of a frame and of a matrix in Fortran's order are not copied if they have one of these types. Other types are
    converted to float64.
    """
    if hasattr(table, "iloc") and getattr(table, "ndim", 0) == 2:
        return [column_of(table.iloc[:, c], f"column {name_of(name)!r} of {what}") for c, name in enumerate(table.columns)]
    matrix = np.asarray(_without_gradients(table))
    if matrix.ndim == 1:
        matrix = matrix.reshape(-1, 1)
    if matrix.ndim != 2:
        raise ValueError(f"{what} has {matrix.ndim} dimensions, expected rows x columns")
    matrix = _floats(matrix, what)
    if not matrix.flags.f_contiguous:
        matrix = np.asfortranarray(matrix)
    return [matrix[:, c] for c in range(matrix.shape[1])]


def column_of(values: Any, what: str) -> np.ndarray:
    """A vector of the same; shape (rows, 1) is taken, too."""
    vector = np.asarray(_without_gradients(values))
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.ndim != 1:
        raise ValueError(f"{what} has the shape {vector.shape}, expected (rows,)")
    return np.ascontiguousarray(_floats(vector, what))


def _without_gradients(array: Any) -> Any:
    """A tensor of torch as one that NumPy can read. A masked array is refused: NumPy would drop its mask."""
    if np.ma.is_masked(array):
        raise TypeError("a masked array: fill what is masked, with NaN for example")
    return array.detach() if getattr(array, "requires_grad", False) else array


def float64_of(values: Any, what: str) -> np.ndarray:
    """Numbers of any shape as float64, adjacent. Complex numbers and texts are a TypeError, unlike for NumPy."""
    array = np.asarray(_without_gradients(values))
    if array.size == 0:
        return np.empty(array.shape)
    return np.ascontiguousarray(_floats(array, what), dtype=np.float64).reshape(array.shape)


def _floats(array: np.ndarray, what: str) -> np.ndarray:
    if array.dtype.name in _PRECISIONS and array.dtype.isnative:
        return array
    if array.dtype.kind in "fiub":
        return array.astype(np.float64)
    if array.dtype.kind == "O":
        with contextlib.suppress(TypeError, ValueError):
            return array.astype(np.float64)
    found = first_text(array, what)
    if found is None:
        raise TypeError(f"{what} has numbers of type {array.dtype}, expected real numbers")
    raise TypeError(f"{found}, which is no number: encode such values as numbers, or leave them out")


def first_text(array: np.ndarray, what: str) -> str | None:
    """Words for the first element that is neither a number nor None, and its place, counted from 1; None if there is none.

    An element that no number can be read from, such as ``"red"``, comes before texts such as ``"1.5"``.
    """
    if array.dtype.kind in "fiubc":
        return None
    found = [(place, value) for place, value in np.ndenumerate(array)
             if value is not None and not isinstance(value, (numbers.Number, np.number, np.bool_))]
    if not found:
        return None
    place, value = next((element for element in found if not _is_readable(element[1])), found[0])
    shown = repr(text_of(value, what)) if isinstance(value, str) else str(value)
    column = f", column {place[1] + 1}" if len(place) > 1 else ""
    return f"row {place[0] + 1}{column} of {what} is {shown}" if place else f"{what} is {shown}"


def _is_readable(value: Any) -> bool:
    """Whether a number can be read from `value`."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
