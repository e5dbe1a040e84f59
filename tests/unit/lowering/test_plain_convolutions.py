"""Convolutions of plain values, as a device's kernels have them: layouts, types, and what is copied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from kernels.vision import mobilenet_v2, resnet
from opbuild.backend.evaluate import evaluate
from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.fitting import fit
from opbuild.lowering.lower import lower
from opbuild.lowering.placement import place_lowered
from opbuild.pipeline.steps import optimize_graph
from opbuild.platform.records import replace
from opbuild.program import KernelCall, Program
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from opbuild.target.host import parse_level
from opbuild.target.level import CPU
from support.device_models import mobile, residual
from support.narrow_models import in_sixteen_bits

LEVEL = parse_level("x86-64-v4")


@pytest.fixture
def _cheap_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device has kernels for goes there, however little it is."""
    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())


def on_cuda(graph: Graph) -> Program:
    """Return the program of an optimized graph."""
    options = Options(device="cuda")
    return fit(
        place_lowered(lambda nodes: lower(graph, LEVEL, replace(options, on_cpu=nodes)), "cuda"), "cuda"
    )  # fmt: skip


def program(model: onnx.ModelProto) -> Program:
    """Return the program of a model."""
    loaded = load_model(model)
    return on_cuda(optimize_graph(loaded.bind({n: each.shape or () for n, each in loaded.inputs.items()}, evaluate)))


def kernels(program: Program, *families: str) -> list[KernelCall]:
    """Return the calls of the device, of some families or of all."""
    calls = (call for call in program.calls if isinstance(call, KernelCall) and call.desc.device != CPU)
    return [call for call in calls if not families or call.desc.family in families]


def convolution(shape: Sequence[int], weights: Sequence[int], **attrs: Any) -> Program:
    """Return the program of one convolution between two functions of all elements."""
    kernel, stride = weights[2:], attrs.get("strides", (1, 1))
    out = [(n - k) // s + 1 for n, k, s in zip(shape[2:], kernel, stride, strict=True)]
    shapes = {
        "x": shape,
        "e": shape,
        "w": weights,
        "c": (shape[0], weights[0], *out),
        "y": (shape[0], weights[0], *out),
    }
    types = {name: TensorType("float32", tuple(each)) for name, each in shapes.items()}
    nodes = (Node("Exp", ("x",), ("e",), {}, "e"), Node("Conv", ("e", "w"), ("c",), attrs, "c"))
    constants = {"w": np.zeros(weights, np.float32)}
    return on_cuda(Graph("test", (*nodes, Node("Exp", ("c",), ("y",), {}, "y")), ("x",), ("y",), types, constants, 21))


@pytest.mark.parametrize(
    ("model", "copies", "families"),
    [
        (resnet((8, 224, 224)), 2, {"conv", "copy", "matmul", "reduce", "window"}),
        (mobilenet_v2((8, 224, 224)), 0, {"conv", "matmul", "reduce"}),
    ],
    ids=["ResNet-50", "MobileNet-v2"],
)
def test_networks_of_convolutions_copy_nothing_on_the_device(
    model: onnx.ModelProto, copies: int, families: set[str]
) -> None:
    """But the padding of a pool; all that follows the first convolution lies with its channels last."""
    found = program(model)
    assert not found.stayed
    assert {call.desc.family for call in kernels(found)} == families
    assert len(kernels(found, "copy")) == copies
    first, *others = kernels(found, "conv")
    assert first.desc.inputs[0].dims[0].stride != 1
    channel = {True: 1, False: 0}
    for call in others:
        assert call.desc.inputs[0].dims[channel[bool(call.desc.attrs["is_depthwise"])]].stride == 1
    outs = [call.desc.outputs[0].dims for call in (first, *others)]
    assert all(1 in (dims[0].stride, dims[1].stride) for dims in outs)
    products = [call.desc for call in kernels(found, "matmul") if call.desc.attrs["rhs"] != "parts"]
    assert all(desc.inputs[0].dims[0].stride == 1 for desc in products)


@pytest.mark.usefixtures("_cheap_copies")
@pytest.mark.parametrize("dtype", NARROW_FLOATS)
@pytest.mark.parametrize("write", [residual, mobile])
def test_all_that_convolutions_multiply_has_sixteen_bits(write: Any, dtype: str) -> None:
    """Weights too, whether the norm behind them is a factor of their sums or a step of its own."""
    found = program(in_sixteen_bits(write(), dtype))
    products = kernels(found, "conv", "matmul", "gemv", "window")
    assert len(products) >= 8
    for call in products[:-1]:
        number = 1 if call.desc.family == "window" else 2
        assert {each.dtype for each in call.desc.inputs[:number]} == {dtype}, call.nodes


def test_what_reads_few_channels_reads_them_where_they_lie() -> None:
    """From 16 channels on they are copied to lie last, once for all who read them."""
    assert not kernels(convolution((4, 3, 64, 64), (32, 3, 3, 3)), "copy")
    assert len(kernels(convolution((4, 16, 64, 64), (32, 16, 3, 3)), "copy")) == 1


def test_a_kernel_of_one_tap_is_a_product_where_images_are_rows() -> None:
    """At every second position, or in groups, it is not."""
    x = (4, 32, 64, 64)
    assert len(kernels(convolution(x, (64, 32, 1, 1)), "matmul")) == 1
    assert len(kernels(convolution(x, (64, 32, 1, 1), strides=(2, 2)), "conv")) == 1
    assert len(kernels(convolution(x, (64, 16, 1, 1), group=2), "conv")) == 1


def test_what_kernels_have_no_form_for_is_a_product_of_a_copy() -> None:
    """Three dimensions."""
    found = convolution((2, 16, 16, 16, 16), (32, 16, 3, 3, 3), strides=(1, 1, 1))
    assert {call.desc.family for call in kernels(found)} >= {"copy", "matmul"}
    assert not kernels(found, "conv")
