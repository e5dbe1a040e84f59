"""Layer and root mean square normalisation are numpy's formula in float64, rounded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.lowered import program_of, random, run_node
from opbuild.graph.types import Node
from opbuild.program import HostCall
from support.tiers import halved

Array = npt.NDArray[Any]


def reference(x: Array, axes: tuple[int, ...], epsilon: float, centered: bool) -> Array:
    """Return the normalisation in float64."""
    wide = x.astype(np.float64)
    shifted = wide - wide.mean(axes, keepdims=True) if centered else wide
    return np.asarray(shifted / np.sqrt((shifted**2).mean(axes, keepdims=True) + epsilon))


@halved
@pytest.mark.parametrize("shape", [(3, 15), (4, 64), (2, 3, 65), (129, 768)])
@pytest.mark.parametrize("bias", [True, False])
def test_rows_of_any_length(shape: Sequence[int], bias: bool) -> None:
    """Below a vector, at its multiples and beyond; with a bias and without."""
    x, scale, shift = random(*shape) + 3, random(shape[-1], seed=1), random(shape[-1], seed=2)
    node = Node("LayerNormalization", ("x", "s", "b") if bias else ("x", "s"), ("y",), {"epsilon": 1e-3}, "norm")
    actual = run_node(node, {"x": x}, "float32", shape, {"s": scale, "b": shift})
    expected = reference(x, (len(shape) - 1,), 1e-3, True) * scale + (shift if bias else 0)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


@halved
@pytest.mark.parametrize("op_type", ["LayerNormalization", "RMSNormalization"])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_several_axes_are_one_row(op_type: str, axis: int) -> None:
    """All axes from ``axis`` on are normalised together, each element with its own scale."""
    x = random(3, 4, 5, 6)
    scale = random(*x.shape[axis:], seed=1)
    node = Node(op_type, ("x", "s"), ("y",), {"axis": axis}, "norm")
    actual = run_node(node, {"x": x}, "float32", x.shape, {"s": scale})
    axes = tuple(range(axis % 4, 4))
    expected = reference(x, axes, 1e-5, op_type == "LayerNormalization") * scale
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)


def test_epsilon_and_the_source_of_the_scale_are_no_part_of_the_key() -> None:
    """Epsilon travels as an operand, and scales given at run time need no other kernel than constants."""
    x, s = random(4, 30), random(30, seed=1)
    descs = set()
    for epsilon, constant in ((1e-5, True), (1e-3, True), (1e-5, False)):
        node = Node("LayerNormalization", ("x", "s"), ("y",), {"epsilon": epsilon}, "norm")
        inputs, known = ({"x": x}, {"s": s}) if constant else ({"x": x, "s": s}, {})
        descs |= set(program_of([node], inputs, {"y": ("float32", x.shape)}, known).descriptors())
    assert len(descs) == 1


def test_special_values_stay_in_their_row() -> None:
    """NaN and infinity make their row NaN and leave others alone."""
    x = random(4, 70)
    x[1, 69], x[2, 0] = np.nan, np.inf
    node = Node("LayerNormalization", ("x", "s"), ("y",), {}, "norm")
    actual = run_node(node, {"x": x}, "float32", x.shape, {"s": np.ones(70, np.float32)})
    assert np.isnan(actual[1:3]).all()
    assert np.isfinite(actual[[0, 3]]).all()


def test_a_mean_that_somebody_reads_goes_to_the_host() -> None:
    """Further outputs have no kernel; the host computes them."""
    node = Node("LayerNormalization", ("x", "s"), ("y", "mean"), {}, "norm")
    outputs = {"mean": ("float32", (4, 1)), "y": ("float32", (4, 30))}
    program = program_of([node], {"x": random(4, 30)}, outputs, {"s": random(30)})
    assert [type(call) for call in program.calls] == [HostCall]
