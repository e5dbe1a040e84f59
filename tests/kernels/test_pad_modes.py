"""Pad in every mode, growing and cutting."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.lowered import random, run_node
from opbuild.graph.types import Node
from support.tiers import halved


@halved
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize("widths", [((0, 0), (1, 2), (3, 0)), ((1, 1), (3, 3), (4, 4)), ((0, 0), (0, 0), (0, 0))])
def test_margins_are_numpys(mode: str, widths: tuple[tuple[int, int], ...]) -> None:
    """Margins of several axes meet in the corners."""
    x = random(2, 4, 5)
    kwargs = {"constant_values": 1.5} if mode == "constant" else {}
    expected = np.pad(x, widths, mode, **kwargs)  # type: ignore[call-overload]
    pads = np.array([before for before, _ in widths] + [after for _, after in widths])
    node = Node("Pad", ("x", "p", "v"), ("y",), {"mode": mode}, "pad")
    found = run_node(node, {"x": x}, "float32", expected.shape, {"p": pads, "v": np.array(1.5, np.float32)})
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["bool", "int64", "float16"])
def test_zero_is_the_default_fill_of_every_type(dtype: str) -> None:
    """Only some axes are named, and one is cut while another grows."""
    x = random(3, 6, dtype="int32").astype(dtype)
    expected = np.pad(x[:, 1:-2], ((2, 0), (0, 0)))
    constants = {"p": np.array([-1, 2, -2, 0]), "a": np.array([1, 0])}
    node = Node("Pad", ("x", "p", "", "a"), ("y",), {}, "pad")
    np.testing.assert_array_equal(run_node(node, {"x": x}, dtype, expected.shape, constants), expected)


def test_a_fill_value_known_only_at_run_time_is_read_then() -> None:
    """The value may be an input of the network."""
    x, v = random(3, 4), np.array(2.5, np.float32)
    node = Node("Pad", ("x", "p", "v"), ("y",), {}, "pad")
    found = run_node(node, {"x": x, "v": v}, "float32", (5, 4), {"p": np.array([1, 0, 1, 0])})
    np.testing.assert_array_equal(found, np.pad(x, ((1, 1), (0, 0)), constant_values=2.5))
