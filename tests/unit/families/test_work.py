"""What calls of products and of rows take on one core: enough to tell those that are worth a second thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernels.lowered import program_of
from opbuild.families.catalogue import find
from opbuild.graph.types import Node
from opbuild.operations.expression import ACC
from opbuild.program import KernelCall
from opbuild.target.level import BY_NAME
from opbuild.target.machine import Machine

PRODUCT = Node("MatMul", ("x", "w"), ("y",), {}, "node")
SOFTMAX = Node("Softmax", ("x",), ("y",), {"axis": -1}, "node")
COLUMNS = Node("Softmax", ("x",), ("y",), {"axis": 1}, "node")
LAYER = Node("LayerNormalization", ("x", "w"), ("y",), {"axis": -1}, "node")


def work(node: Node, shape: Sequence[int], weights: Sequence[int] = (), level: str = "x86-64-v4") -> float:
    """Return the work of the call that computes a node, on ``shape`` and constant weights."""
    inputs, known = {"x": np.zeros(shape, np.float32)}, {"w": np.zeros(weights, np.float32)}
    out = (*shape[:-1], weights[-1]) if node.op_type == "MatMul" else shape
    (call,) = program_of([node], inputs, {"y": ("float32", out)}, known, level=BY_NAME[level]).calls
    assert isinstance(call, KernelCall)
    return find(call.desc.family).work(call.desc, [view.dims for view in call.views], Machine.of(BY_NAME[level]))


CASES = [
    (PRODUCT, (128, 768), (768, 768), 880e3), (PRODUCT, (32, 384), (384, 384), 54e3),
    (PRODUCT, (16, 128), (128, 128), 2.9e3), (PRODUCT, (12, 32), (32, 64), 0.33e3),
    (PRODUCT, (1, 256), (256, 256), 2.8e3), (PRODUCT, (600, 40), (40, 20), 8.4e3),
    (PRODUCT, (256, 256), (256, 1), 4.6e3), (SOFTMAX, (32, 128), (), 2.4e3), (SOFTMAX, (1536, 128), (), 116e3),
    (COLUMNS, (4, 300, 16), (), 8.9e3), (LAYER, (32, 384), (384,), 2.2e3), (LAYER, (300, 32), (32,), 4.1e3),
]  # fmt: skip
"""Nodes, shapes of what they read, and the nanoseconds that one core at 3 GHz took."""


@pytest.mark.parametrize(("node", "shape", "weights", "measured"), CASES)
def test_the_estimate_is_near_what_was_measured(
    node: Node, shape: Sequence[int], weights: Sequence[int], measured: float
) -> None:
    """Within a factor of 1.6: a call far above or far below the cost of waking a thread is told as such."""
    assert measured / 1.6 <= work(node, shape, weights) <= measured * 1.6


@pytest.mark.parametrize(("node", "shape", "weights", "measured"), CASES)
def test_narrower_vectors_take_no_less(
    node: Node, shape: Sequence[int], weights: Sequence[int], measured: float
) -> None:
    """A machine of 8 or 4 lanes is not estimated to be faster than one of 16."""
    times = [work(node, shape, weights, level) for level in ("x86-64-v4", "x86-64-v3", "x86-64-v2")]
    assert times == sorted(times)


def test_an_exponential_in_an_epilogue_is_work() -> None:
    """A product with a sigmoid takes longer than one with a rectifier."""

    def with_(value: Any) -> Node:
        return replace(PRODUCT, attrs={"epilogue": value, "own_inputs": 2})

    plain, relu, sigmoid = (work(with_(value), (64, 8), (8, 64)) for value in (ACC, ("relu", ACC), ("sigmoid", ACC)))
    assert plain == relu < sigmoid
