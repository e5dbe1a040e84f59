"""OrtValue: a value of a network in memory, as programs pass it round; and element types by ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.frontend.wire import DeclaredType
from opbuild.graph.shape_rules import ONNX_DTYPES, ONNX_NUMBERS

STRING = 8
_OTHER_NAMES = {"float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "object": "string",
                "float8_e4m3fnuz": "float8e4m3fnuz", "float8_e5m2": "float8e5m2",
                "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1"}  # fmt: skip
_DTYPES = ONNX_DTYPES | {STRING: "object"}
_NUMBERS = ONNX_NUMBERS | {"object": STRING}


def element_name(dtype: str) -> str:
    """Return ONNX Runtime's name of an element type that numpy names."""
    return _OTHER_NAMES.get(dtype, dtype)


def tensor_name(dtype: np.dtype[Any]) -> str:
    """Return ONNX Runtime's name of an array's type."""
    return f"tensor({element_name('object' if dtype.kind in 'OSUV' and not _is_added(dtype) else dtype.name)})"


def type_name(declared: DeclaredType) -> str:
    """Return ONNX Runtime's name of a declared type."""
    if declared.kind in ("tensor", "sparse_tensor"):
        return f"{declared.kind}({element_name(_DTYPES.get(declared.elem, 'undefined'))})"
    inside = type_name(declared.inner) if declared.inner else ""
    if declared.kind == "map":
        return f"map({element_name(_DTYPES.get(declared.elem, 'undefined'))},{inside})"
    return f"{declared.kind}({inside})"


def array_dtype(element_type: Any) -> np.dtype[Any]:
    """Return numpy's type for a program's word for an element type: ONNX's number, or numpy's type or name.

    Raises:
        ValueError: If opbuild has no such type.
    """
    if not isinstance(element_type, int):
        dtype: np.dtype[Any] = np.dtype(element_type)
        return dtype
    if element_type not in _DTYPES:
        raise ValueError(f"ONNX's element type {element_type} is not supported")
    return numpy_dtype(_DTYPES[element_type])


def type_number(dtype: np.dtype[Any]) -> int:
    """Return ONNX's number of an array's element type; 0 if it has none."""
    return _NUMBERS.get(dtype.name, STRING if dtype.kind in "OSU" else 0)


def _is_added(dtype: np.dtype[Any]) -> bool:
    return dtype.name in _NUMBERS


def _no_sparse_tensors() -> Exception:
    from opbuild.onnxruntime.unserved import refusal  # a start needs none

    return refusal("SparseTensor")


Array = np.ndarray[Any, Any]

CPU, CUDA = "cpu", "cuda"
_DEVICES = ("cpu", "cuda", "cann", "dml", "webgpu", "gpu", "npu")


class OrtDevice:
    """A device: the processor, or the GPU on which networks can run.

    Args:
        device_type: Its name.
    """

    def __init__(self, device_type: str = CPU) -> None:
        self._type = device_type

    @staticmethod
    def cpu() -> int:
        """Return the number of the kind of device that a processor is."""
        return 0

    @staticmethod
    def cuda() -> int:
        """Return the number of the kind of device that a GPU is."""
        return 1

    @staticmethod
    def dml() -> int:
        """Return the number of another kind of device, to compare with."""
        return 4

    @staticmethod
    def default_memory() -> int:
        """Return the number of ordinary memory."""
        return 0

    @staticmethod
    def make(device_type: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """Return a device.

        Raises:
            RuntimeError: If there is no such device.
        """
        return OrtDevice(device_named(device_type, device_id))

    def device_type(self) -> int:
        """Return the kind of device."""
        return self.cuda() if self._type == CUDA else self.cpu()

    def device_id(self) -> int:
        """Return the number of the device among those of its kind."""
        return 0

    def device_mem_type(self) -> int:
        """Return the kind of memory."""
        return self.default_memory()

    def device_vendor_id(self) -> int:
        """Return 0: a processor has no maker's number here."""
        return 0

    def _get_c_device(self) -> OrtDevice:
        """Return the device that ONNX Runtime's own code would get: here there is but one class."""
        return self


def device_named(device_type: str, device_id: int = 0) -> str:
    """Return the device that a program names: the processor, or the GPU where networks can run on it.

    Raises:
        RuntimeError: If there is no such device.
    """
    name = device_type.lower()
    if name == CPU:
        return name
    if name not in _DEVICES:
        raise RuntimeError(f"Unsupported device type: {device_type}")
    if name == CUDA and _has_gpu():
        if device_id:
            raise RuntimeError(f"networks run on the first GPU, and device_id is {device_id}")
        return name
    raise RuntimeError(
        "Can't allocate memory on the device using this package of OnnxRuntime. Please use the appropriate package of "
        "OnnxRuntime for your hardware to use this feature."
    )


def _has_gpu() -> bool:
    from opbuild.target.devices import device_problem

    return device_problem(CUDA) is None


class OrtValue:
    """A tensor in the processor's memory or a GPU's, or a sequence of tensors or maps, or no value.

    Args:
        value: An array, which is shared; a list of arrays; None; or another ``OrtValue``.
    """

    def __init__(self, value: Any) -> None:
        self.value: Any = value.value if isinstance(value, OrtValue) else value

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, /, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value that shares an array's memory, if that is dense; on the GPU it is a copy.

        Raises:
            RuntimeError: If there is no such device, or the array is one of text.
        """
        device = device_named(device_type, device_id)
        if numpy_obj.dtype.kind in "OSU":
            raise RuntimeError("Creation of OrtValues is currently only supported from non-string numpy arrays")
        return cls(_gpu().uploaded(numpy_obj) if device == CUDA else np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, /, onnx_element_type: int) -> OrtValue:
        """Return a value that reads an array's memory as another type of the same size.

        Raises:
            ValueError: If the sizes differ, or opbuild has no such type.
        """
        dtype = array_dtype(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise ValueError(f"elements of {data.dtype} have another size than those of {dtype}")
        return cls(np.asarray(data, order="C").view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """Return a tensor whose contents are not set.

        Raises:
            RuntimeError: If there is no such device.
            ValueError: If opbuild has no such type.
        """
        dtype = array_dtype(element_type)
        on_gpu = device_named(device_type, device_id) == CUDA
        return cls(_gpu().made(shape, dtype) if on_gpu else np.empty(shape, dtype))

    @classmethod
    def from_dlpack(cls, data: Any, /) -> OrtValue:
        """Return a value that shares the memory of what speaks DLPack.

        Raises:
            TypeError: If it does not.
        """
        if not hasattr(data, "__dlpack__"):
            raise TypeError(f"{type(data).__name__} does not speak DLPack")
        return cls(np.from_dlpack(data))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """Refuse a sparse tensor.

        Raises:
            NotImplemented: Always.
        """
        raise _no_sparse_tensors()

    def as_sparse_tensor(self) -> Any:
        """Refuse to be a sparse tensor.

        Raises:
            NotImplemented: Always.
        """
        raise _no_sparse_tensors()

    def data_ptr(self) -> int:
        """Return the address of the first element."""
        return int(self.value.address if self.is_on_gpu else self._tensor().ctypes.data)

    def device_name(self) -> str:
        """Return ``cpu`` or ``cuda``."""
        return CUDA if self.is_on_gpu else CPU

    @property
    def is_on_gpu(self) -> bool:
        """Whether it is a tensor on the GPU."""
        return not isinstance(self.value, (np.ndarray, list, dict)) and self.value is not None and self._is_gpus

    def shape(self) -> list[int]:
        """Return the extents."""
        return list(self._tensor().shape)

    def data_type(self) -> str:
        """Return the type, such as ``tensor(float)``."""
        if isinstance(self.value, list):
            return f"seq({_name(self.value[0]) if self.value else 'tensor(undefined)'})"
        if isinstance(self.value, dict):
            return _name(self.value)
        return tensor_name(self._tensor().dtype)

    def element_type(self) -> int:
        """Return ONNX's number of the element type."""
        return type_number(self._tensor().dtype)

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes of the elements."""
        return int(self._tensor().nbytes)

    def has_value(self) -> bool:
        """Return whether there is a value."""
        return self.value is not None

    def is_tensor(self) -> bool:
        """Return whether it is a tensor."""
        return isinstance(self.value, np.ndarray) or self.is_on_gpu

    def is_sparse_tensor(self) -> bool:
        """Return whether it is a sparse tensor, which opbuild does not have."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return whether it is a sequence of tensors."""
        return isinstance(self.value, list) and not any(isinstance(each, dict) for each in self.value[:1])

    def numpy(self) -> Array:
        """Return the tensor as an array that shares its memory; of one on the GPU a copy.

        Raises:
            RuntimeError: If it is no tensor.
        """
        return np.asarray(self._tensor())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy() if dtype is None else self.numpy().astype(dtype, copy=False)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        kind, number = self._tensor().__dlpack_device__()
        return int(kind), number

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copy an array or another tensor over the tensor.

        Raises:
            TypeError: If it is neither.
            RuntimeError: If it has another shape or element type.
        """
        np_arr: Any = data._tensor() if isinstance(data, OrtValue) else data
        if not isinstance(np_arr, np.ndarray) and not OrtValue(np_arr).is_on_gpu:
            raise TypeError("data must be a numpy.ndarray or an OrtValue.")
        target = self._tensor()
        if target.shape != np_arr.shape or target.dtype != np_arr.dtype:
            raise RuntimeError(
                f"a tensor of {target.dtype} {list(target.shape)} cannot be updated with an array of {np_arr.dtype} "
                f"{list(np_arr.shape)}"
            )
        if self.is_on_gpu:
            _gpu().copy_over(target, np_arr)
        else:
            np.copyto(target, np.asarray(np_arr))

    @property
    def _is_webgpu_buffer(self) -> bool:
        return False

    def _get_c_value(self) -> OrtValue:
        """Return the value that ONNX Runtime's own code would get: here there is but one class."""
        return self

    @property
    def _ortvalue(self) -> OrtValue:
        return self

    @property
    def _is_gpus(self) -> bool:
        return hasattr(self.value, "__cuda_array_interface__") and bool(_gpu().is_there(self.value))

    def _tensor(self) -> Any:
        if not self.is_tensor():
            raise RuntimeError("Only OrtValues that are Tensors are supported; this one holds something else.")
        return self.value


def _gpu() -> Any:
    from opbuild.onnxruntime import gpu  # few programs name one

    return gpu


def _name(value: Any) -> str:
    """Return the type of a tensor, or of a map by its first key and value."""
    if not isinstance(value, dict):
        return tensor_name(value.dtype)
    key, content = next(iter(value.items()), (0, 0.0))
    kinds = {str: "string", int: "int64", float: "float"}
    return f"map({kinds.get(type(key), 'int64')},tensor({kinds.get(type(content), 'float')}))"


class OrtValueVector(list[OrtValue]):
    """Values in order."""

    push_back = list.append
