"""Instance and group normalisation are numpy's formula in float64, rounded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from kernels.lowered import random, run_node
from opbuild.graph.types import Node
from support.tiers import halved


@pytest.mark.parametrize(
    "shape", [(2, 3, 5, 7), (1, 4, 64), (3, 1, 1, 1), (2, 17, 8, 16), (1, 2, 3, 4, 5), (2, 40, 40, 40)]
)
def test_each_channel_of_each_image_is_normalised_alone(shape: Sequence[int]) -> None:
    """Any rank, any number of positions, one included."""
    x, scale, bias = random(*shape) + 2, random(shape[1], seed=1), random(shape[1], seed=2)
    node = Node("InstanceNormalization", ("x", "s", "b"), ("y",), {"epsilon": 1e-2}, "norm")
    actual = run_node(node, {"x": x}, "float32", shape, {"s": scale, "b": bias})
    axes, column = tuple(range(2, len(shape))), (-1, *(1,) * (len(shape) - 2))
    wide = x.astype(np.float64)
    normal = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-2)
    np.testing.assert_allclose(actual, normal * scale.reshape(column) + bias.reshape(column), rtol=1e-4, atol=1e-5)


@halved
@pytest.mark.parametrize("groups", [1, 2, 4, 12])
@pytest.mark.parametrize("each", [True, False])
def test_groups_of_channels_are_normalised_together(groups: int, each: bool) -> None:
    """The scale is one a channel, or one a group as before opset 21."""
    x = random(2, 12, 5, 7)
    scale, bias = random(12 if each else groups, seed=1), random(12 if each else groups, seed=2)
    node = Node("GroupNormalization", ("x", "s", "b"), ("y",), {"num_groups": groups}, "norm")
    actual = run_node(node, {"x": x}, "float32", x.shape, {"s": scale, "b": bias})
    wide = x.astype(np.float64).reshape(2, groups, -1)
    normal = (wide - wide.mean(2, keepdims=True)) / np.sqrt(wide.var(2, keepdims=True) + 1e-5)
    repeat = 1 if each else 12 // groups
    factors = [np.repeat(v, repeat).reshape(1, 12, 1, 1) for v in (scale, bias)]
    np.testing.assert_allclose(actual, normal.reshape(x.shape) * factors[0] + factors[1], rtol=1e-4, atol=1e-5)
