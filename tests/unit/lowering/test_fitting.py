"""Kernels of a device's calls once their views are known: strides and multiples that hold at every size, and tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.lowering.context import Options
from opbuild.lowering.fitting import fit
from opbuild.lowering.lower import lower
from opbuild.lowering.placement import place
from opbuild.program import KernelCall, Program
from opbuild.runtime.binding import Shapes
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from opbuild.target.host import parse_level
from opbuild.target.level import CPU
from support.lowered import lower_open

LEVEL = parse_level("x86-64-v4")


@pytest.fixture(autouse=True)
def _cheap_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device has kernels for goes there, however little it is."""
    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())


def product(m: Any, n: int, k: int) -> Graph:
    """Return a product with a constant and a bias."""
    shapes = {"x": (m, k), "w": (k, n), "b": (n,), "y": (m, n)}
    types = {name: TensorType("float32", shape) for name, shape in shapes.items()}
    constants = {name: np.zeros(shapes[name], np.float32) for name in "wb"}
    return Graph("test", (Node("Gemm", ("x", "w", "b"), ("y",), {}, "n"),), ("x",), ("y",), types, constants, 21)


def on_device(program: Program) -> KernelCall:
    """Return the only call of a program on the device."""
    fitted = fit(place(program, "cuda"), "cuda")
    (call,) = [each for each in fitted.calls if isinstance(each, KernelCall) and each.desc.device != CPU]
    return call


def only_call(m: int, n: int, k: int) -> KernelCall:
    """Return the call of a product."""
    return on_device(lower(product(m, n, k), LEVEL, Options(device="cuda")))


def test_operands_whose_rows_are_multiples_of_16_are_aligned() -> None:
    """The descriptor says multiples, and that the weights lie along K; the bias is one row for all."""
    call = only_call(64, 48, 32)
    lhs, rhs, bias = call.desc.inputs
    assert call.desc.variant["aligned"] == "lhs rhs e0 out"
    assert (lhs.dims[0].multiple, rhs.dims[0].multiple, call.desc.outputs[0].dims[0].multiple) == (16, 16, 16)
    assert (rhs.format, rhs.dims[0].stride, bias.dims[1].stride) == ("turned", 1, 0)
    assert lhs.dims[1].stride == FREE


@pytest.mark.parametrize(("size", "aligned"), [((64, 50, 32), "lhs rhs"), ((64, 48, 30), "e0 out"), ((3, 5, 7), "")])
def test_others_are_not(size: tuple[int, int, int], aligned: str) -> None:
    """Operand by operand: rows of the result may be a multiple where those that are multiplied are none."""
    assert only_call(*size).desc.variant["aligned"] == aligned


def test_tiles_are_chosen_by_extents() -> None:
    """One row has no tiles, many rows large ones."""
    rows = [only_call(m, 768, 768).desc.variant["rows"] for m in (1, 8, 128, 8192)]
    assert rows == sorted(rows)
    assert (rows[0], rows[1]) == (1, 16)
    assert rows[-1] >= 64


def test_what_holds_at_every_size_is_known_of_open_extents() -> None:
    """Rows are any number, so that nothing is said of them; what lies along K and N is as ever."""

    def graph(shapes: Shapes) -> Graph:
        return product(shapes[0][0], 48, 32)

    program = lower_open(graph, [(-1, 32)], ((64, 32),), LEVEL, Options(device="cuda"))
    call = on_device(program)
    assert call.desc.variant["aligned"] == "lhs rhs e0 out"
    assert [dim.multiple for dim in call.desc.outputs[0].dims] == [16, 1]
    assert call.desc.variant["rows"] > 1


def test_long_sums_of_few_tiles_are_divided_and_added_up_by_another_call() -> None:
    """Parts of K are batches, written to memory of their own; the epilogue is the second call's."""
    placed = place(lower(product(24, 64, 4096), LEVEL, Options(device="cuda")), "cuda")
    program = fit(placed, "cuda")
    one, other = [each for each in program.calls if isinstance(each, KernelCall)]
    assert (one.desc.attrs["rhs"], other.desc.attrs["rhs"]) == ("plain", "parts")
    assert one.views[2].buffer == other.views[0].buffer == len(placed.buffers)
    assert program.buffers[-1].size == 8 * 24 * 64
    assert one.views[2].dims == ((64, 1), (24, 64), (8, 24 * 64))
    assert one.views[0].dims == ((512, 1), (24, 4096), (8, 512))
    for call in (one, other):
        assert call.desc.problem([view.dims for view in call.views]) is None
        assert "lhs" in call.desc.variant["aligned"] or call is other


def test_a_class_that_says_nothing_keeps_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the descriptor is that of ``kernel``."""
    monkeypatch.setattr(CLASS, "fit", lambda desc, _: desc)
    assert only_call(64, 48, 32).desc.variant["aligned"] == ""
