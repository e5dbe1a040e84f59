"""Pools of plain values: three dimensions, other types, places, norms, and windows that lie in the padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.combinations import crossed
from kernels.hostile import Case
from kernels.one_operator import Array, assert_same, check, model_of, on_kernels, outputs_of, random
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.types import Node
from support.tiers import halved

HOSTILE = {
    "window": Case(
        "MaxPool",
        lambda n: (1, 2, 3, n + 1, n),
        attrs={"kernel_shape": [2, 2, 1], "strides": [1, 1, 1], "pads": [1, 0, 0, 0, 1, 0]},
        least=1,
    ),
    "window norm": Case("LpPool", lambda n: (1, 2, n), attrs={"kernel_shape": [3], "pads": [1, 1]}, least=1),
}
"""For ``test_every_family``."""

WINDOWS: tuple[tuple[Sequence[int], dict[str, Any]], ...] = (
    ((2, 3, 17), {"kernel_shape": [3], "strides": [2]}),
    ((1, 2, 9, 20), {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "dilations": [2, 1]}),
    ((1, 2, 5, 6, 7), {"kernel_shape": [2, 2, 2]}),
    ((1, 2, 5, 6, 40), {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1, 1, 1, 1, 1, 1]}),
    ((1, 2, 6, 6, 7), {"kernel_shape": [3, 2, 2], "strides": [2, 1, 3], "ceil_mode": 1}),
    ((1, 1, 7, 8, 19), {"kernel_shape": [2, 3, 2], "dilations": [2, 1, 3], "auto_pad": "VALID"}),
)


def by_the_host(op_type: str, x: Array, outputs: int = 1, **attrs: Any) -> tuple[Array, ...]:
    """Return the output of the host backend."""
    names = tuple(f"y{number}" for number in range(outputs))
    return tuple(evaluate(Node(op_type, ("x",), names, attrs, "node"), [x], 21))


@halved
@pytest.mark.parametrize(("shape", "attrs"), WINDOWS)
@pytest.mark.parametrize("op_type", ["MaxPool", "AveragePool", "LpPool"])
def test_pools_in_up_to_three_dimensions(op_type: str, shape: Sequence[int], attrs: dict[str, Any]) -> None:
    """With strides, padding, dilations, windows that hang over."""
    x = random(*shape)
    more: list[dict[str, Any]] = [{}]
    more = {"AveragePool": [{"count_include_pad": 1}, *more], "LpPool": [{"p": 1}, {"p": 3}]}.get(op_type, more)
    for each in more:
        (found,) = outputs_of(op_type, [x], opset=22, **attrs, **each)
        assert_same(found, by_the_host(op_type, x, **attrs, **each)[0])


@pytest.mark.parametrize(("window", "dtype"), crossed(2, WINDOWS, ("float64", "uint8", "int8")))
def test_maxima_of_other_types(window: tuple[Sequence[int], dict[str, Any]], dtype: str) -> None:
    """What lies in the padding is less than every integer."""
    shape, attrs = window
    x = random(*shape, dtype=dtype)
    (found,) = outputs_of("MaxPool", [x], **attrs)
    np.testing.assert_array_equal(found, by_the_host("MaxPool", x, **attrs)[0])


@halved
@pytest.mark.parametrize(("shape", "attrs"), WINDOWS)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_where_maxima_stand(shape: Sequence[int], attrs: dict[str, Any], storage_order: int) -> None:
    """The first of equal ones, counted over all of the input, by rows or by columns; values are the same as alone."""
    x = np.round(random(2, *shape[1:]))
    found = outputs_of("MaxPool", [x], outputs=2, storage_order=storage_order, **attrs)
    for mine, expected in zip(found, by_the_host("MaxPool", x, 2, storage_order=storage_order, **attrs), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_nan_is_the_greatest_and_infinities_are_numbers() -> None:
    """A window of infinities has a place too."""
    x = random(1, 1, 4, 4, 20)
    x[..., 3], x[..., 9:13] = np.nan, -np.inf
    attrs: dict[str, Any] = {"kernel_shape": [2, 2, 2], "pads": [1, 1, 1, 0, 0, 0]}
    model, feeds = model_of("MaxPool", [x], outputs=2, **attrs)
    for mine, expected in zip(on_kernels(model, feeds), by_the_host("MaxPool", x, 2, **attrs), strict=True):
        np.testing.assert_array_equal(mine, expected)


def test_the_average_of_a_window_in_the_padding_is_0() -> None:
    """Nothing of it counts."""
    x = random(1, 1, 2, 2, 2)
    attrs = {"kernel_shape": [1, 1, 1], "pads": [1, 1, 1, 1, 1, 1]}
    (found,) = outputs_of("AveragePool", [x], **attrs)
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1), (1, 1))))


def test_a_pool_of_many_taps() -> None:
    """More than blocked values are pooled over."""
    check("MaxPool", [random(1, 2, 20, 22)], kernel_shape=[15, 16])
