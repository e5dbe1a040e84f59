"""CUDA's driver by ``ctypes``: memory, binaries, launches, graphs and events; no package is needed."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_char_p, c_float, c_int, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from calls import Call, Tensor

FOLDER = Path(__file__).parent / "cubins"
MAXIMUM_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES."""
SHARED_WITHOUT_ASKING = 48 * 1024
NON_BLOCKING = 1
RELAXED_CAPTURE = 2
L2_PROMOTION_128 = 2
TENSOR_MAP_TYPES = {8: 10, 9: 8, 10: 9}
"""Element types of tensor maps where the device's numbers differ from the driver's."""
TYPES: dict[str, Any] = {"pointer": c_uint64, "i32": c_int, "i64": ctypes.c_int64, "fp32": c_float}


class DriverError(RuntimeError):
    """A function of the driver failed."""


class Kernel:
    """A loaded binary and what a launch of it needs."""

    def __init__(self, function: int, record: dict[str, Any]) -> None:
        self.function = function
        self.record = record


class Device:
    """The first GPU.

    Args:
        library: ``libcuda`` as ``ctypes`` loads it, or what behaves so.
    """

    def __init__(self, library: Any = None) -> None:
        self._library = library or ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = (c_int * 1)(), (c_void_p * 1)()
        self._call("cuDeviceGet", device, 0)
        self._device = device[0]
        self._call("cuDevicePrimaryCtxRetain", context, self._device)
        self._call("cuCtxSetCurrent", c_void_p(context[0]))
        stream = (c_void_p * 1)()
        self._call("cuStreamCreate", stream, NON_BLOCKING)
        self.stream = c_void_p(stream[0])
        self._kernels: dict[str, Kernel] = {}
        self._index = json.loads((FOLDER / "index.json").read_text())["cubins"]

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._library, name)(*arguments)
        if result:
            text = (c_char_p * 1)()
            self._library.cuGetErrorName(result, text)
            raise DriverError(f"{name}: {(text[0] or b'unknown error').decode()} ({result})")

    # What the device is.

    def name(self) -> str:
        """Return the card's name."""
        text = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", text, 256, self._device)
        return text.value.decode()

    def driver_version(self) -> str:
        """Return the driver's version of CUDA."""
        version = (c_int * 1)()
        self._call("cuDriverGetVersion", version)
        return f"{version[0] // 1000}.{version[0] % 1000 // 10}"

    # Memory.

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes, at a multiple of 256; they hold anything."""
        pointer = (c_uint64 * 1)()
        self._call("cuMemAlloc_v2", pointer, ctypes.c_size_t(max(size, 1)))
        return int(pointer[0])

    def free(self, pointer: int) -> None:
        """Give memory back."""
        self._call("cuMemFree_v2", c_uint64(pointer))

    def fill(self, pointer: int, size: int, byte: int) -> None:
        """Set bytes."""
        if size:
            self._call("cuMemsetD8_v2", c_uint64(pointer), ctypes.c_ubyte(byte), ctypes.c_size_t(size))

    def write(self, pointer: int, values: np.ndarray) -> None:
        """Copy an array to the device."""
        values = np.ascontiguousarray(values)
        if values.nbytes:
            size = ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyHtoD_v2", c_uint64(pointer), c_void_p(values.ctypes.data), size)

    def read(self, pointer: int, values: np.ndarray) -> None:
        """Copy from the device into an array."""
        if values.nbytes:
            size = ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyDtoH_v2", c_void_p(values.ctypes.data), c_uint64(pointer), size)

    def copy(self, to: int, pointer: int, size: int) -> None:
        """Copy within the device, on the stream."""
        self._call("cuMemcpyDtoDAsync_v2", c_uint64(to), c_uint64(pointer), ctypes.c_size_t(size), self.stream)

    # Launches.

    def kernel(self, name: str) -> Kernel:
        """Return a carried binary, loaded."""
        if name not in self._kernels:
            record = self._index[name]
            binary = ctypes.create_string_buffer((FOLDER / f"{name}.cubin").read_bytes())
            module, function = (c_void_p * 1)(), (c_void_p * 1)()
            self._call("cuModuleLoadData", module, binary)
            self._call("cuModuleGetFunction", function, c_void_p(module[0]), record["symbol"].encode())
            if record["shared"] > SHARED_WITHOUT_ASKING:
                self._call("cuFuncSetAttribute", c_void_p(function[0]), MAXIMUM_SHARED, record["shared"])
            self._kernels[name] = Kernel(function[0], record)
        return self._kernels[name]

    def prepare(self, call: Call) -> Callable[[], None]:
        """Return a function that launches a call on the stream: its arguments are packed once."""
        if not all(call.grid):
            return lambda: None
        kernel = self.kernel(call.name)
        values = self._packed(call, kernel.record["parameters"])
        addresses = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        function, block = c_void_p(kernel.function), 32 * kernel.record["warps"]
        arguments = (function, *call.grid, block, 1, 1, kernel.record["shared"], self.stream, addresses, None)

        def launch(values: Sequence[Any] = values) -> None:  # they live as long as their addresses are used
            self._call("cuLaunchKernel", *arguments)

        return launch

    def launch(self, call: Call) -> None:
        """Launch a call on the stream."""
        self.prepare(call)()

    def _packed(self, call: Call, parameters: Sequence[dict[str, Any]]) -> list[Any]:
        maps = {p["name"]: p for p in parameters if p["type"] == "tensormap"}
        return [self._value(call, parameter, maps) for parameter in parameters]

    def _value(self, call: Call, parameter: dict[str, Any], maps: dict[str, Any]) -> Any:
        name, _, part = parameter["name"].partition(".")
        if parameter["type"] == "tensormap":
            return self._tensor_map(call.arguments[name], parameter)
        if name in maps:
            kind, axis = part.split(".")
            tensor = call.arguments[name]
            return TYPES[parameter["type"]]((tensor.shape if kind == "shape" else tensor.strides)[int(axis)])
        value = call.arguments.get(name, 0)  # scratch memory is none
        value = value.pointer if isinstance(value, Tensor) else value
        packed = TYPES[parameter["type"]](value)
        if isinstance(value, int) and packed.value != value:
            raise ValueError(f"{call.name}: {name} is {value}, too large for {parameter['type']}")
        return packed

    def _tensor_map(self, tensor: Tensor, parameter: dict[str, Any]) -> Any:
        """Return a tensor map: 128 bytes at a multiple of 64, which the driver encodes."""
        rank = len(tensor.shape)
        memory = ctypes.create_string_buffer(256)
        offset = -ctypes.addressof(memory) % 128
        encoded = (ctypes.c_ubyte * 128).from_buffer(memory, offset)
        element = TENSOR_MAP_TYPES.get(parameter["element"], parameter["element"])
        strides = [stride * tensor.item for stride in tensor.strides[:-1]]
        self._call(
            "cuTensorMapEncodeTiled", encoded, element, rank, c_void_p(tensor.pointer),
            (c_uint64 * rank)(*reversed(tensor.shape)), (c_uint64 * max(rank - 1, 1))(*reversed(strides)),
            (c_uint32 * rank)(*reversed(parameter["block"])), (c_uint32 * rank)(*[1] * rank), 0, parameter["swizzle"],
            L2_PROMOTION_128, 0,
        )  # fmt: skip
        return encoded

    # Order and time.

    def synchronize(self) -> None:
        """Wait for the stream, and raise what a kernel did wrong."""
        self._call("cuStreamSynchronize", self.stream)

    @contextmanager
    def capture(self) -> Iterator[list[Callable[[], None]]]:
        """Record launches instead of running them; the list gets what runs them all at once."""
        launches: list[Callable[[], None]] = []
        self._call("cuStreamBeginCapture_v2", self.stream, RELAXED_CAPTURE)
        graph, instance = (c_void_p * 1)(), (c_void_p * 1)()
        try:
            yield launches
        finally:
            self._call("cuStreamEndCapture", self.stream, graph)
        self._call("cuGraphInstantiateWithFlags", instance, c_void_p(graph[0]), c_uint64(0))
        handle = c_void_p(instance[0])
        launches.append(lambda: self._call("cuGraphLaunch", handle, self.stream))

    def seconds(self, work: Callable[[], None]) -> float:
        """Return how long the device is busy with work, between two events on the stream."""
        events = [(c_void_p * 1)() for _ in range(2)]
        for event in events:
            self._call("cuEventCreate", event, 0)
        self._call("cuEventRecord", c_void_p(events[0][0]), self.stream)
        work()
        self._call("cuEventRecord", c_void_p(events[1][0]), self.stream)
        self._call("cuEventSynchronize", c_void_p(events[1][0]))
        took = (c_float * 1)()
        self._call("cuEventElapsedTime", took, c_void_p(events[0][0]), c_void_p(events[1][0]))
        for event in events:
            self._call("cuEventDestroy_v2", c_void_p(event[0]))
        return float(took[0]) / 1e3
