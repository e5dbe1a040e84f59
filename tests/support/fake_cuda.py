"""The benchmarks' kernels for a GPU on a driver in memory: a launch does by numpy what the kernel would."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from support.fake_driver import (
    GPU,
    ILLEGAL_ADDRESS,
    INVALID,
    NO_MEMORY,
    FakeDriver,
    Grid,
    Kernel,
    Parameters,
    RefusedError,
)

import references  # isort: skip
from arrays import STORED, numbers, stored  # isort: skip
from calls import ITEM_BYTES  # isort: skip
from cases import CASES, Case  # isort: skip

__all__ = ["GPU", "ILLEGAL_ADDRESS", "NO_MEMORY", "Library"]

Array = np.ndarray[Any, Any]


class Library(FakeDriver):
    """The driver with the benchmarks' kernels; what is asked for is done at once.

    Args:
        faults: Results that functions return instead of doing anything.
        after: Called after each launch with the arguments, for kernels that go wrong.
    """

    def __init__(
        self, faults: dict[str, int] | None = None, after: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        super().__init__(self._kernel)
        self.patience, self.after = 0, after
        for name, code in (faults or {}).items():
            self.fail(name, code, at=0)
        self._index = json.loads((GPU / "cubins" / "index.json").read_text())["cubins"]

    def _kernel(self, name: str, _: bytes) -> Kernel:
        """Return the numpy of a kernel."""
        case, record = CASES[name], self._index[name]

        def run(_: FakeDriver, parameters: Parameters, grid: Grid) -> None:
            given = zip(record["parameters"], parameters, strict=True)
            arguments = {each["name"]: self._value(each, data) for each, data in given}
            getattr(self, f"_{case.kernel}")(case, {**arguments, "grid": grid})
            if self.after:
                self.after({"library": self, "case": case, **arguments})

        return run

    def _cuLaunchKernel(self, function: int, *rest: Any) -> None:
        if rest[6] != self._index[self._of(function)["name"]]["shared"]:
            raise RefusedError(INVALID)
        super()._cuLaunchKernel(function, *rest)

    def _value(self, parameter: dict[str, Any], data: bytes) -> Any:
        if parameter["type"] == "tensormap":
            pointer, stride, *extents = struct.unpack_from("<QQQQ", data)
            return {"pointer": pointer, "shape": tuple(extents[::-1]), "stride": stride // 2}
        kind = {"pointer": np.uint64, "i32": np.int32, "i64": np.int64, "fp32": np.float32}[parameter["type"]]
        return np.frombuffer(data, kind)[0].item()

    # What kernels do.

    def view(
        self, case: Case, arguments: dict[str, Any], name: str, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> Array:
        """Return an argument's memory as an array, with strides in elements."""
        element = case.types[name].removeprefix("*").removeprefix("tensordesc<").partition("[")[0]
        last = (
            sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)) + 1 if min(shape) else 0
        )
        data = self.bytes_at(arguments[name], last * ITEM_BYTES[element]).view(STORED[element])
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
