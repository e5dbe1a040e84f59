"""Sixteen bits on a device: what has only numbers of a type of 16 bits is read and written in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from kernels.transformer import FORMS, Sizes, bert, gpt2
from opbuild.backend.evaluate import evaluate
from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.onnx_model import load_model
from opbuild.kernel.opdesc import OpDesc, Operand
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.placement import place
from opbuild.lowering.sixteen_bits import in_sixteen_bits, narrow_contents
from opbuild.operations.expression import ACC, arg, const, from_json
from opbuild.pipeline.steps import optimize_graph
from opbuild.program import KernelCall, Program
from opbuild.target import devices
from opbuild.target.devices import DeviceClass
from opbuild.target.host import parse_level
from support.narrow_models import in_sixteen_bits as model_in

NAME = "sixteen-bits-on"
LEVEL = parse_level("x86-64-v4")


class Class(DeviceClass):
    """Has kernels for what a function of descriptors says."""

    def __init__(self, serves: Callable[[OpDesc], bool]) -> None:
        self._serves = serves

    def kernel(self, desc: OpDesc, /) -> OpDesc | None:
        """Return the same, for the device."""
        return replace(desc, target=f"{NAME}:1") if self._serves(desc) else None

    def layouts(self, family: str, /) -> tuple[str, ...] | None:
        """Return none beside plain ones, in which pools are of another family."""
        return None if family == "pool" else ()


def types_of(desc: OpDesc) -> set[str]:
    """Return the types of a descriptor's operands."""
    return {each.dtype for each in desc.operands}


def programs(monkeypatch: pytest.MonkeyPatch, model: Any, dtype: str, serves: Any) -> tuple[Program, Program]:
    """Return a network of 16 bits as it is lowered for the class, and placed."""
    monkeypatch.setitem(devices._PATHS, NAME, "")
    monkeypatch.setitem(devices._LOADED, NAME, Class(serves))
    loaded = load_model(model_in(model, dtype))
    graph = optimize_graph(loaded.bind({name: each.shape or () for name, each in loaded.inputs.items()}, evaluate))
    program = lower(graph, LEVEL, Options(device=NAME))
    return program, place(program, NAME)


def kernels(program: Program, device: str = NAME) -> list[KernelCall]:
    """Return the calls of a device."""
    return [call for call in program.calls if isinstance(call, KernelCall) and call.desc.device == device]


def check_types(program: Program) -> None:
    """Require that kernels read and write what lies where they read and write, or as many bits that they move."""
    for call in kernels(program) + kernels(program, "cpu"):
        for operand, view in zip(call.desc.operands, call.views, strict=True):
            own = program.buffers[view.buffer].dtype
            moved = {"float32": "uint32", "int64": "uint64", "bool": "uint8"} | dict.fromkeys(NARROW_FLOATS, "uint16")
            assert operand.dtype in (own, moved.get(own)), (call.desc, own)


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
@pytest.mark.parametrize(
    "model", [bert(Sizes(1, 128), FORMS[0]), gpt2(Sizes(1, 1, 64), FORMS[0])], ids=["bert", "gpt2"]
)
def test_products_norms_and_softmax_take_and_give_sixteen_bits(
    model: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever one call hands to another lies in 16 bits; float32 are sums, and numbers that were never rounded."""
    lowered, placed = programs(monkeypatch, model, dtype, lambda _: True)
    check_types(placed)
    assert not kernels(placed, "cpu")
    products = [call for call in kernels(placed) if call.desc.family in ("attention", "matmul")]
    assert len(products) >= 10
    for call in products:
        narrow = [each for each in call.desc.inputs if each.name in ("lhs", "rhs", "q", "k", "v")]
        assert {each.dtype for each in narrow} == {dtype}
    wide = [call for call in kernels(placed) if call.desc.family == "layer_norm"]
    assert [call.desc.inputs[0].dtype for call in wide] == [dtype] * len(wide)
    rounded = [call.desc for call in kernels(placed) if "rounds" in call.desc.attrs]
    assert not rounded
    assert sum("rounds" in call.desc.attrs for call in kernels(lowered, "cpu")) > 2


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
def test_the_number_that_padding_is_filled_with_is_stored_in_sixteen_bits(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So what pools read lies in 16 bits, the padding around it too; the CPU's constant is as it was."""
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 2, 5, 5)) for name in "xy"]
    graph = helper.make_graph([node], "pool", ports[:1], ports[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    lowered, placed = programs(monkeypatch, model, dtype, lambda _: True)
    check_types(placed)
    (fill,) = [each for each in placed.buffers if each.kind == "constant"]
    assert (fill.dtype, fill.pack().tolist()) == (dtype, -np.inf)
    assert {each.dtype for each in lowered.buffers if each.kind == "constant"} == {"float32"}
    (pool,) = [call.desc for call in kernels(placed) if call.desc.family == "window"]
    assert types_of(pool) == {dtype}


def without(*families: str, dtype: str) -> Callable[[OpDesc], bool]:
    """Return a class of kernels that are not there for families in a type."""
    return lambda desc: desc.family not in families or dtype not in types_of(desc)


@pytest.mark.parametrize("families", [("layer_norm",), ("matmul",), ("attention", "softmax"), ("copy", "elementwise")])
def test_what_no_kernel_takes_in_sixteen_bits_stays_as_it_was(
    families: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its operands are float32, and their other readers read them so; what is not touched by it is in 16 bits."""
    is_taken = without(*families, dtype="float16")
    _, placed = programs(monkeypatch, bert(Sizes(1, 128), FORMS[3]), "float16", is_taken)
    check_types(placed)
    assert all(is_taken(call.desc) for call in kernels(placed))
    assert any("float16" in {each.dtype for each in call.desc.outputs} for call in kernels(placed))


def test_kernels_of_sixteen_bits_alone_run_where_their_neighbours_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm that is there in 16 bits alone is the CPU's where what it reads or makes has to be float32."""

    def serves(desc: OpDesc) -> bool:
        return desc.family != "layer_norm" or "rounds" not in desc.attrs

    _, placed = programs(monkeypatch, bert(Sizes(1, 128), FORMS[0]), "float16", serves)
    assert not kernels(placed, "cpu")
    serves_few = {"layer_norm", "copy", "gather", "elementwise"}
    _, placed = programs(
        monkeypatch, bert(Sizes(1, 128), FORMS[0]), "float16", lambda desc: desc.family in serves_few and serves(desc)
    )
    check_types(placed)
    assert any(call.desc.family == "layer_norm" for call in kernels(placed, "cpu"))
    assert all(serves(call.desc) for call in kernels(placed))


def test_networks_of_float32_are_placed_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has fewer bits that had not before."""
    loaded = load_model(bert(Sizes(1, 128), FORMS[0]))
    graph = optimize_graph(loaded.bind({name: each.shape or () for name, each in loaded.inputs.items()}, evaluate))
    program = lower(graph, LEVEL, Options())
    assert not narrow_contents(program)


ROUNDED = ("cast", "float32", ("cast", "float16", ACC))


@pytest.mark.parametrize(
    ("expression", "narrow", "wanted"),
    [
        (ROUNDED, "out", ("cast", "float16", ACC)),
        (("relu", ROUNDED), "out", ("cast", "float16", ("relu", ROUNDED))),
        (("add", ROUNDED, arg(0)), "e0", ("add", ROUNDED, ("cast", "float32", arg(0)))),
        (("cast", "float16", arg(0)), "e0", arg(0)),
        (("cast", "float32", ("cast", "float16", arg(0))), "e0 out", arg(0)),
        (("where", arg(0), const(0.0), const(1.0)), "", None),
    ],
)
def test_expressions_read_and_give_what_is_stored(expression: Any, narrow: str, wanted: Any) -> None:
    """Operands are converted where they are read, results where they are stored, and nothing there and back."""
    types = ["float16" if name in narrow.split() else "" for name in ("lhs", "rhs", "e0", "out")]
    found = in_sixteen_bits(_product(expression), types)
    assert found is not None
    assert from_json(found.attrs["epilogue"]) == (wanted or expression)
    assert [each.dtype for each in found.operands] == [each or "float32" for each in types]


def _product(expression: Any) -> OpDesc:
    inputs = tuple(Operand(name, "float32", ()) for name in ("lhs", "rhs", "e0"))
    return OpDesc(("MatMul",), "matmul", inputs, (Operand("out", "float32", ()),), {"epilogue": expression})
