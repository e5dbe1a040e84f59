"""Constants of calls on a device: as the model has them, as the CPU has them, or as the device's kernels take them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.placement import place
from opbuild.program import KernelCall, Program, View
from opbuild.target import devices
from opbuild.target.devices import PACKED, ConstantLayout, DeviceClass
from opbuild.target.host import parse_level

NAME = "constants-on"


class Class(DeviceClass):
    """Has a kernel for all that the CPU has one for, of operands that lie in blocks, too."""

    def __init__(self, *also: str) -> None:
        self._layouts = ("blocked", *also)

    @staticmethod
    def kernel(desc: OpDesc, /) -> OpDesc | None:
        """Return the same, for the device."""
        return replace(desc, target=f"{NAME}:1")

    def layouts(self, _: str, /) -> Collection[str]:
        """Return the same for all families."""
        return self._layouts


class Turning(Class):
    """Has weights in reverse, in 16 bits."""

    @staticmethod
    def kernel(desc: OpDesc, /) -> OpDesc | None:
        """Return a kernel of 16 bits for weights that lie so."""
        inputs = (replace(each, dtype="float16") if each.format == "reversed" else each for each in desc.inputs)
        return replace(desc, inputs=tuple(inputs), target=f"{NAME}:1")

    def constant(self, desc: OpDesc, number: int, /) -> ConstantLayout | None:
        """Return the layout of what the CPU packs."""
        is_weight = number == 1 and desc.family != "elementwise"
        return ConstantLayout("reversed", lambda shape: shape[::-1], lambda array: array.T) if is_weight else None


def convolution(name: str, x: tuple[int, ...], w: tuple[int, ...], **attrs: Any) -> Any:
    """Return a convolution: its node, the shapes of data, weights and result, and the family that computes it."""
    size = x[-1] - w[-1] + 1
    return name, Node("Conv", ("x", "w"), ("y",), attrs, "n"), x, w, (1, w[0], size, size)


CASES = [
    ("matmul", Node("Gemm", ("x", "w"), ("y",), {"transB": 1}, "n"), (3, 7), (10, 7), (3, 10)),
    ("matmul", Node("MatMul", ("x", "w"), ("y",), {}, "n"), (2, 3, 7), (7, 40), (2, 3, 40)),
    convolution("conv", (1, 32, 9, 9), (32, 32, 5, 5)),
    convolution("conv_first", (1, 3, 9, 9), (16, 3, 5, 5)),
    convolution("conv_depthwise", (1, 32, 9, 9), (32, 1, 3, 3), group=32),
    convolution("conv_grouped", (1, 32, 9, 9), (32, 16, 3, 3), group=2),
    convolution("winograd", (1, 64, 34, 34), (64, 64, 3, 3)),
]


def placed(case: Any, served: DeviceClass, patch: pytest.MonkeyPatch) -> tuple[Program, KernelCall, Any]:
    """Return the program of a case on a device, its call of the family, and the weights."""
    family, node, x, w, y = case
    weights = np.random.default_rng(0).standard_normal(w).astype(np.float32)
    types = {name: TensorType("float32", shape) for name, shape in (("x", x), ("w", w), ("y", y))}
    graph = Graph("test", (node,), ("x",), ("y",), types, {"w": weights}, 21)
    patch.setitem(devices._LOADED, NAME, served)
    program = place(lower(graph, parse_level("x86-64-v4"), Options(device=NAME)), NAME)
    (call,) = [each for each in program.calls if isinstance(each, KernelCall) and each.desc.family == family]
    assert call.desc.device == NAME
    return program, call, weights


def contents(program: Program, view: View) -> Any:
    """Return the elements of a view of a constant."""
    buffer = program.buffers[view.buffer]
    assert (buffer.kind, buffer.device) == ("constant", NAME)
    assert buffer.pack is not None
    flat = np.ascontiguousarray(buffer.pack()).reshape(-1)
    assert (flat.size, flat.dtype) == (buffer.size, buffer.dtype)
    shape, steps = zip(*reversed(view.dims), strict=True)
    return as_strided(flat[view.offset :], shape, [step * flat.itemsize for step in steps])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].op_type}")
def test_weights_lie_as_the_model_has_them_where_nothing_else_is_said(
    case: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are a plain operand; what the CPU would read in panels or blocks is not made."""
    program, call, weights = placed(case, Class(), monkeypatch)
    assert call.desc.inputs[1].format == "ND"
    assert call.desc.attrs.get("rhs", "rows") == "rows"
    wanted = weights.T if "transB" in case[1].attrs else weights
    np.testing.assert_array_equal(contents(program, call.views[1]), wanted)
    assert len([each for each in program.buffers if each.size >= weights.size and each.kind == "constant"]) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].op_type}")
def test_a_device_may_take_weights_as_the_cpu_has_them(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is given the CPU's operand, packed as for that."""
    program, call, weights = placed(case, Class(PACKED), monkeypatch)
    assert call.desc.inputs[1].format == "FRACTAL_Z"
    packed = contents(program, call.views[1])
    assert packed.ndim > weights.ndim or packed.shape != weights.shape
    if case[0] != "winograd":
        np.testing.assert_allclose(packed.astype(np.float64).sum(), weights.astype(np.float64).sum(), rtol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1].op_type}")
def test_a_device_may_name_a_layout_of_its_own(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is made of the model's weights, in the kernel's element type; equal ones are known by the same source."""
    program, call, weights = placed(case, Turning(), monkeypatch)
    wanted = weights.T if "transB" in case[1].attrs else weights
    np.testing.assert_array_equal(contents(program, call.views[1]), wanted.T.astype(np.float16))
    again, other, _ = placed(case, Turning(), monkeypatch)
    sources = [each.buffers[own.views[1].buffer].source for each, own in ((program, call), (again, other))]
    assert all(sources)
    assert sources[0]() == sources[1]()
