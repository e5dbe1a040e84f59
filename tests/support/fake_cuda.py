"""A CUDA driver in memory: device memory is the host's, and a launch does by numpy what the kernel would.

It knows a kernel's parameters from its binary alone, reads them as the driver would, refuses addresses that were not
allocated, and notes the order of calls.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
if str(GPU) not in sys.path:
    sys.path.append(str(GPU))

import references  # noqa: E402
from arrays import STORED, numbers, stored  # noqa: E402
from calls import ITEM_BYTES  # noqa: E402
from cases import CASES, Case  # noqa: E402
from cubin import parameter_places, sections  # noqa: E402
from numpy.lib.stride_tricks import as_strided  # noqa: E402

Array = np.ndarray[Any, Any]

INVALID, NO_MEMORY, NOT_FOUND, ILLEGAL_ADDRESS = 1, 2, 500, 700
NAMES = {INVALID: b"CUDA_ERROR_INVALID_VALUE", NO_MEMORY: b"CUDA_ERROR_OUT_OF_MEMORY",
         NOT_FOUND: b"CUDA_ERROR_NOT_FOUND", ILLEGAL_ADDRESS: b"CUDA_ERROR_ILLEGAL_ADDRESS"}  # fmt: skip
MOST_SHARED = 232448
"""Bytes of shared memory that a program of an H100 may ask for."""


class IllegalError(Exception):
    """A kernel reached memory that is not allocated."""


class Library:
    """What ``ctypes.CDLL("libcuda.so.1")`` gives, as far as it is used.

    Args:
        faults: Results that functions return instead of doing anything.
        after: Called after each launch with the arguments, for kernels that go wrong.
    """

    def __init__(
        self, faults: dict[str, int] | None = None, after: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self.faults, self.after = faults or {}, after
        self.called: list[str] = []
        self.memory: dict[int, Array] = {}
        self.functions: dict[int, dict[str, Any]] = {}
        self._modules: dict[int, bytes] = {}
        self._maps: dict[bytes, dict[str, Any]] = {}
        self._graphs: dict[int, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
        self._captured: list[tuple[dict[str, Any], dict[str, Any]]] | None = None
        self._failed = 0
        self._next = 1000
        self._index = json.loads((GPU / "cubins" / "index.json").read_text())["cubins"]

    def __getattribute__(self, name: str) -> Any:
        """Return a function that notes that it was called, or fails as it is told."""
        found = super().__getattribute__(name)
        if not name.startswith("cu"):
            return found

        def noted(*arguments: Any) -> int:
            self.called.append(name)
            result: int = self.faults.get(name) or found(*arguments)
            return result

        return noted

    def _handle(self) -> int:
        self._next += 8
        return self._next

    def cuInit(self, flags: int) -> int:
        return 0

    def cuGetErrorName(self, result: int, text: Any) -> int:
        text[0] = NAMES.get(result, b"CUDA_ERROR_UNKNOWN")
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version[0] = 13000
        return 0

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:
        device[0] = ordinal
        return 0

    def cuDeviceGetName(self, text: Any, size: int, device: int) -> int:
        text.value = b"a stand-in for a GPU"
        return 0

    def cuDevicePrimaryCtxRetain(self, context: Any, device: int) -> int:
        context[0] = self._handle()
        return 0

    def cuCtxSetCurrent(self, context: Any) -> int:
        return 0

    def cuStreamCreate(self, stream: Any, flags: int) -> int:
        stream[0] = self._handle()
        return 0

    def cuStreamSynchronize(self, stream: Any) -> int:
        return self._failed

    def cuMemAlloc_v2(self, pointer: Any, size: Any) -> int:
        memory = np.full(size.value + 512, 0xAB, np.uint8)
        pointer[0] = -(-memory.ctypes.data // 256) * 256
        self.memory[pointer[0]] = memory[pointer[0] - memory.ctypes.data :][: size.value]
        return 0

    def cuMemFree_v2(self, pointer: Any) -> int:
        return 0 if self.memory.pop(pointer.value, None) is not None else INVALID

    def _bytes(self, pointer: int, size: int) -> Array:
        for memory in self.memory.values():
            start = pointer - memory.ctypes.data
            if start >= 0 and start + size <= memory.nbytes:
                return memory[start : start + size]
        raise IllegalError(f"{size} bytes at {pointer:#x}")

    def cuMemsetD8_v2(self, pointer: Any, byte: Any, size: Any) -> int:
        self._bytes(pointer.value, size.value)[...] = byte.value
        return 0

    def cuMemcpyHtoD_v2(self, pointer: Any, source: Any, size: Any) -> int:
        ctypes.memmove(self._bytes(pointer.value, size.value).ctypes.data, source.value, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, pointer: Any, size: Any) -> int:
        ctypes.memmove(target.value, self._bytes(pointer.value, size.value).ctypes.data, size.value)
        return self._failed

    def cuMemcpyDtoDAsync_v2(self, target: Any, pointer: Any, size: Any, stream: Any) -> int:
        self._bytes(target.value, size.value)[...] = self._bytes(pointer.value, size.value)
        return 0

    def cuModuleLoadData(self, module: Any, binary: Any) -> int:
        module[0] = self._handle()
        self._modules[module[0]] = bytes(binary.raw[:-1])
        return 0

    def cuModuleGetFunction(self, function: Any, module: Any, symbol: bytes) -> int:
        binary, name = self._modules[module.value], symbol.decode()
        if f".nv.info.{name}" not in sections(binary):
            return NOT_FOUND
        function[0] = self._handle()
        self.functions[function[0]] = {"name": name, "places": parameter_places(binary), "shared": 48 * 1024}
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        if attribute != 8 or value > MOST_SHARED:
            return INVALID
        self.functions[function.value]["shared"] = value
        return 0

    def cuTensorMapEncodeTiled(
        self, encoded: Any, element: int, rank: int, pointer: Any, shape: Any, strides: Any, box: Any, steps: Any,
        interleave: int, swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        aligned = ctypes.addressof(encoded) % 64 == 0 and pointer.value % 16 == 0 and strides[0] % 16 == 0
        if not aligned or not all(extent > 0 for extent in shape) or not all(0 < side <= 256 for side in box):
            return INVALID
        number = self._handle()
        ctypes.memmove(encoded, number.to_bytes(8, "little") * 16, 128)
        self._maps[bytes(encoded)] = {"pointer": pointer.value, "shape": tuple(shape)[::-1], "stride": strides[0] // 2}
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        grid, block, (shared, _stream, parameters, _extra) = rest[:3], rest[3:6], rest[6:]
        known = self.functions[function.value]
        record = self._index[known["name"]]
        if (
            min(grid) < 1
            or max(grid[1:]) > 65535
            or shared > known["shared"]
            or len(parameters) != len(known["places"])
        ):
            return INVALID
        if block != (32 * record["warps"], 1, 1) or shared != record["shared"]:
            return INVALID
        read = (ctypes.string_at(at, size) for at, (_, size) in zip(parameters, known["places"], strict=True))
        arguments = {p["name"]: self._value(p, data) for p, data in zip(record["parameters"], read, strict=True)}
        launch = ({**known, "grid": grid}, arguments)
        if self._captured is not None:
            self._captured.append(launch)
            return 0
        self._execute(*launch)
        return 0

    def _value(self, parameter: dict[str, Any], data: bytes) -> Any:
        if parameter["type"] == "tensormap":
            return self._maps[data]
        kind = {"pointer": np.uint64, "i32": np.int32, "i64": np.int64, "fp32": np.float32}[parameter["type"]]
        return np.frombuffer(data, kind)[0].item()

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:
        self._captured = []
        return 0

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:
        graph[0] = self._handle()
        self._graphs[graph[0]], self._captured = self._captured or [], None
        return 0

    def cuGraphInstantiateWithFlags(self, instance: Any, graph: Any, flags: Any) -> int:
        instance[0] = self._handle()
        self._graphs[instance[0]] = self._graphs[graph.value]
        return 0

    def cuGraphLaunch(self, instance: Any, stream: Any) -> int:
        for launch in self._graphs[instance.value]:
            self._execute(*launch)
        return 0

    def cuEventCreate(self, event: Any, flags: int) -> int:
        event[0] = self._handle()
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        return 0

    def cuEventSynchronize(self, event: Any) -> int:
        return self._failed

    def cuEventElapsedTime(self, took: Any, first: Any, second: Any) -> int:
        took[0] = 1.0
        return 0

    def cuEventDestroy_v2(self, event: Any) -> int:
        return 0

    # What kernels do.

    def _execute(self, known: dict[str, Any], arguments: dict[str, Any]) -> None:
        case = CASES[known["name"]]
        try:
            getattr(self, f"_{case.kernel}")(case, {**arguments, "grid": known["grid"]})
        except IllegalError:
            self._failed = ILLEGAL_ADDRESS
        if self.after:
            self.after({"library": self, "case": case, **arguments})

    def view(
        self, case: Case, arguments: dict[str, Any], name: str, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Array:
        """Return an argument's memory as an array, with strides in elements."""
        element = case.types[name].removeprefix("*").removeprefix("tensordesc<").partition("[")[0]
        last = (
            sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1 if min(shape) else 0
        )
        data = self._bytes(arguments[name], last * ITEM_BYTES[element]).view(STORED[element])
        return as_strided(data, shape, [stride * ITEM_BYTES[element] for stride in strides])

    def _numbers(self, case: Case, arguments: dict[str, Any], name: str, *shape_and_strides: Any) -> Array:
        kind = case.types[name].removeprefix("*")
        return numbers(self.view(case, arguments, name, *shape_and_strides), kind)

    def _store(
        self, case: Case, arguments: dict[str, Any], values: Array, strides: tuple[int, ...], name: str = "out"
    ) -> None:
        self.view(case, arguments, name, values.shape, strides)[...] = stored(
            values, case.types[name].removeprefix("*")
        )

    def _matmul(self, case: Case, p: dict[str, Any]) -> None:
        m, n, k = p["m"], p["n"], p["k"]
        a = self._numbers(case, p, "a", (m, k), (p["a_stride"], 1))
        b = self._numbers(case, p, "b", (k, n), (p["b_stride"], 1))
        bias = self._numbers(case, p, "bias", (n,), (1,))
        result = references.matmul(a, b, bias, case.constants["ACTIVATION"])
        self._store(case, p, result, (p["out_stride"], 1))

    def _matmul_tma(self, case: Case, p: dict[str, Any]) -> None:
        maps = {name: p[name] for name in ("a", "b", "out")}
        for name, each in maps.items():
            stated = tuple(p[f"{name}.shape.{axis}"] for axis in (0, 1)), p[f"{name}.stride.0"]
            assert stated == (each["shape"], each["stride"])
        plain = {**p, **{name: each["pointer"] for name, each in maps.items()}}
        types = {name: "*" + kind.removeprefix("tensordesc<").partition("[")[0] for name, kind in case.types.items()}
        case = Case(case.kernel, {**types, "bias": case.types["bias"]}, case.constants, ())
        a, b = (self._numbers(case, plain, name, maps[name]["shape"], (maps[name]["stride"], 1)) for name in "ab")
        bias = self._numbers(case, plain, "bias", (p["n"],), (1,))
        self._store(case, plain, references.matmul(a, b.T, bias), (maps["out"]["stride"], 1))

    def _softmax(self, case: Case, p: dict[str, Any]) -> None:
        x = self._numbers(case, p, "x", (p["grid"][0], p["columns"]), (p["x_stride"], 1))
        self._store(case, p, references.softmax(x), (p["out_stride"], 1))

    def _add_layer_norm(self, case: Case, p: dict[str, Any]) -> None:
        shape = p["grid"][0], p["columns"]
        x, other = (self._numbers(case, p, name, shape, (p[f"{name}_stride"], 1)) for name in ("x", "other"))
        scale, bias = (self._numbers(case, p, name, shape[1:], (1,)) for name in ("scale", "bias"))
        self._store(case, p, references.add_layer_norm(x, other, scale, bias, p["epsilon"]), (p["out_stride"], 1))

    def _multiply_add(self, case: Case, p: dict[str, Any]) -> None:
        shape = (p["size"] // (p["d1"] * p["d2"]), p["d1"], p["d2"])
        a, b, c = (self._numbers(case, p, x, shape, tuple(p[f"{x}{axis}"] for axis in range(3))) for x in "abc")
        self._store(case, p, a * b + c, tuple(p[f"out{axis}"] for axis in range(3)))

    def _reduce_sum(self, case: Case, p: dict[str, Any]) -> None:
        x = self._numbers(case, p, "x", (p["grid"][0], p["columns"]), (p["x_stride"], 1))
        self._store(case, p, x.sum(-1), (1,))

    def _attention(self, case: Case, p: dict[str, Any]) -> None:
        batch, heads, width = p["grid"][1] // p["heads"], p["heads"], case.constants["WIDTH"]
        rows = {"q": p["queries"], "k": p["keys"], "v": p["keys"], "out": p["queries"]}
        strides = {x: (*tuple(p[f"{x}_{axis}"] for axis in ("batch", "head", "row")), 1) for x in rows}
        q, k, v = (self._numbers(case, p, x, (batch, heads, rows[x], width), strides[x]) for x in "qkv")
        result = references.attention(q, k, v, p["scale"], case.constants["CAUSAL"])
        self._store(case, p, result, strides["out"])

    def _gather(self, case: Case, p: dict[str, Any]) -> None:
        table = self._numbers(case, p, "table", (p["rows"], p["columns"]), (p["table_stride"], 1))
        indices = self._numbers(case, p, "indices", (p["grid"][0],), (1,))
        found, missed = references.gather(table, indices)
        self._store(case, p, found, (p["out_stride"], 1))
        if missed:
            self._store(case, p, np.ones(1), (1,), "fault")
