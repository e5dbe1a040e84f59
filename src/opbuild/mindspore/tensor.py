"""``Tensor``: data, or while a cell is traced a symbolic value.

The operators and methods that compute (``+``, ``reshape``, ``sum``, ...) are attached by ``methods``, from the
functions of ``ops``: a tensor itself only holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any
from urllib.parse import quote

import numpy as np

from opbuild.dtypes import is_float, itemsize
from opbuild.errors import InvalidModelError
from opbuild.frontend.cell import Symbol, location
from opbuild.graph.types import Array, TensorType
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.dtype import Kind, Type, to_type
from opbuild.mindspore.names import Named, missing_method

_DIGITS = {"float16": 4, "float32": 8, "float64": 8, "bfloat16": 4}
_LINE = 208  # MindSpore breaks a row after this many characters
_ROW_THRESHOLD = 1000


def tensor_repr(array: Array, label: str) -> str:
    """Return ``Tensor(shape=[2], dtype=Float32, value= [ 1.0e+00, ...])`` for an array."""
    shape = "[" + ", ".join(map(str, array.shape)) + "]"
    head = f"Tensor(shape={shape}, dtype={label}, value="
    if array.ndim == 0:
        return f"{head} {f'{float(array):g}' if is_float(array.dtype.name) else array.item()})"
    if array.size == 0:
        return f"{head} )" if array.ndim == 1 else f"{head}\n)"
    body = np.array2string(
        array.astype(np.float32) if array.dtype.name == "bfloat16" else array,  # it is no float to numpy
        separator=", ",
        max_line_width=_LINE if array.ndim == 1 else 10**6,
        threshold=_ROW_THRESHOLD,
        formatter=_formatter(array),  # type: ignore[arg-type]
    ).replace("\n\n", "\n")
    return f"{head} {body})" if array.ndim == 1 else f"{head}\n{body})"


def _formatter(array: Array) -> dict[str, object] | None:
    digits = _DIGITS.get(array.dtype.name)
    if digits is None:
        return None
    width = digits + 7

    def element(value: float) -> str:
        text = f"{value:.{digits}e}" if np.isfinite(value) else str(float(value))
        return text.rjust(width)

    return {"float_kind": element}


class Tensor(metaclass=Named):
    """A multi-dimensional array.

    Args:
        input_data: A tensor, numpy array, number, or nested list of numbers. Copied; ``from_numpy`` shares instead.
        dtype: Element type; by default that of the data (Python floats give float32, Python integers int64).
        shape: With ``init``: the shape to fill.
        init: An initializer, instead of ``input_data``.
    """

    _value: Array | Symbol

    def __init__(self, input_data: Any = None, dtype: Any = None, shape: int | Sequence[int] | None = None,
                 init: Any = None) -> None:  # fmt: skip
        if isinstance(dtype, Kind):
            hint = f"it is a kind of types: give {to_type(dtype)!r} or another"
            raise ArgumentTypeError(f"Tensor was given {dtype!r}", hint)
        if init is not None:
            if shape is None:
                raise ArgumentValueError("a Tensor with 'init' has no shape", "give shape= as well")
            input_data = init.make(shape, to_type(dtype or np.float32).name)
        self._value = _data(input_data, None if dtype is None else to_type(dtype).name)

    @classmethod
    def of(cls, value: Array | Symbol) -> Tensor:
        """Wrap a value without a copy."""
        tensor = Tensor.__new__(Tensor)
        tensor._value = value
        return tensor

    @staticmethod
    def from_numpy(array: Array) -> Tensor:
        """Return a tensor that shares the memory of ``array``."""
        if not isinstance(array, np.ndarray):
            raise ArgumentTypeError(f"from_numpy was given a {type(array).__name__}", "give a numpy array")
        to_type(array.dtype)
        return Tensor.of(np.ascontiguousarray(array) if array.ndim else array)

    @property
    def symbol(self) -> Symbol | None:
        """The symbolic value, or None for a tensor that holds data."""
        return self._value if isinstance(self._value, Symbol) else None

    @property
    def type(self) -> TensorType:
        """Element type and shape."""
        value = self._value
        return value.type if isinstance(value, Symbol) else TensorType(value.dtype.name, value.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, outermost first."""
        return self.type.shape

    @property
    def dtype(self) -> Type:
        """Element type."""
        return to_type(self.type.dtype)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.type.size

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return itemsize(self.type.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.type.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes between neighbours in each dimension, dense."""
        steps = [self.itemsize]
        for extent in reversed(self.shape[1:]):
            steps.append(steps[-1] * extent)
        return tuple(reversed(steps)) if self.shape else ()

    def asnumpy(self) -> Array:
        """Return the data as a numpy array that shares the tensor's memory.

        Raises:
            InvalidModelError: While a cell is traced, when there are no data yet.
        """
        value = self._value
        if isinstance(value, Symbol):
            raise InvalidModelError(
                f"construct needs the data of a tensor{location()}, but a network is traced before it runs",
                "compute with opbuild.mindspore.ops and select with ops.where instead of Python's if, while and "
                "numpy; or use set_context(mode=PYNATIVE_MODE), which runs each operator at once",
            )
        return value

    def numpy(self) -> Array:
        """Return ``asnumpy()``."""
        return self.asnumpy()

    def item(self, index: int | tuple[int, ...] | None = None) -> Any:
        """Return one element as a Python number."""
        array = self.asnumpy()
        if index is None and array.size != 1:
            raise ArgumentValueError(f"item() of a tensor of shape {array.shape}", "give the index of an element")
        return array.item() if index is None else array.item(index)

    def tolist(self) -> Any:
        """Return the data as nested Python lists."""
        return self.asnumpy().tolist()

    def copy(self) -> Tensor:
        """Return a tensor with its own copy of the data."""
        return self if self.symbol else Tensor.of(self.asnumpy().copy())

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self.ndim

    def numel(self) -> int:
        """Return the number of elements."""
        return self.size

    def is_contiguous(self) -> bool:
        """Return True: tensors are always dense."""
        return True

    def contiguous(self) -> Tensor:
        """Return the tensor: it is always dense."""
        return self

    def is_floating_point(self) -> bool:
        """Return whether the element type is a float."""
        return is_float(self.type.dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.asnumpy()
        return array.astype(dtype) if dtype is not None and array.dtype != dtype else array

    def __getattr__(self, name: str) -> Any:
        raise missing_method(name, lambda: dir(type(self)))

    def __len__(self) -> int:
        if not self.shape:
            raise ArgumentTypeError("a tensor without dimensions has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(self._one("the truth"))

    def __int__(self) -> int:
        return int(self._one("an integer"))

    def __float__(self) -> float:
        return float(self._one("a float"))

    def __index__(self) -> int:
        value = self._one("an index")
        if not isinstance(value, int):
            raise ArgumentTypeError(f"a tensor of {self.dtype} is no index", "use an integer tensor")
        return value

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))  # type: ignore[index]

    def __hash__(self) -> int:
        return id(self)

    def __repr__(self) -> str:
        if self.symbol:
            return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, value= {self})"
        return tensor_repr(self.asnumpy(), str(self.dtype))

    def __str__(self) -> str:
        symbol = self.symbol
        return f"<traced {symbol.name}>" if symbol else str(self.asnumpy())  # printing puts the value there

    def __format__(self, spec: str) -> str:
        if not spec:
            return str(self)
        if not self.symbol:
            return format(self.item(), spec)
        if prod(self.shape) != 1:
            raise _one_only("format()", self.shape)
        format(np.zeros((), self.symbol.type.dtype).item(), spec)  # what is wrong with it is said while it is traced
        return f"<traced {self.symbol.name}:{quote(spec, safe='')}>"

    def __copy__(self) -> Tensor:
        return self.copy()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self.copy()

    def _one(self, what: str) -> Any:
        array = self.asnumpy()
        if array.size != 1:
            raise _one_only(what, array.shape)
        return array.item()


def _one_only(what: str, shape: tuple[int, ...]) -> ArgumentValueError:
    return ArgumentValueError(f"{what} of a tensor of shape {shape} is not defined", "reduce it to one element first")


def tensor(input_data: Any = None, dtype: Any = None) -> Tensor:
    """Return ``Tensor(input_data, dtype)``."""
    return Tensor(input_data, dtype)


def frombuffer(buffer: Any, dtype: Any, count: int = -1, offset: int = 0) -> Tensor:
    """Return a tensor of the bytes of a buffer: ``count`` elements (all if -1) from byte ``offset`` on."""
    try:
        return Tensor.of(np.frombuffer(buffer, to_type(dtype).name, count, offset))
    except (TypeError, ValueError) as error:
        raise ArgumentValueError(f"frombuffer cannot take this buffer: {error}") from None


def is_tensor(obj: object) -> bool:
    """Return whether ``obj`` is a tensor."""
    return isinstance(obj, Tensor)


def _data(data: Any, dtype: str | None) -> Array | Symbol:
    if isinstance(data, Tensor):
        if data.symbol is not None:
            if dtype not in (None, data.type.dtype):
                raise ArgumentTypeError("Tensor() cannot convert a traced tensor", "use .astype()")
            return data.symbol
        data = data.asnumpy()
    if isinstance(data, (list, tuple)):
        data = [item.asnumpy() if isinstance(item, Tensor) else item for item in data]
    elif not isinstance(data, (np.ndarray, np.generic, bool, int, float)):
        raise ArgumentTypeError(
            f"a {type(data).__name__} cannot become a Tensor", "give a tensor, a numpy array, numbers or lists of them"
        )
    try:
        array = np.array(data)
    except ValueError as error:
        raise ArgumentValueError("the nested lists given to Tensor are not rectangular") from error
    if dtype is None:
        python_float = array.dtype == np.float64 and not isinstance(data, (np.ndarray, np.generic))
        dtype = "float32" if python_float else to_type(array.dtype).name
    elif array.dtype.kind not in "biuf":
        to_type(array.dtype)
    return np.ascontiguousarray(array.astype(dtype, copy=False)).reshape(array.shape)
