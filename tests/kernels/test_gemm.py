"""Gemm with any of its attributes is numpy's formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.combinations import crossed
from kernels.lowered import program_of, random, run_node, variants
from opbuild.graph.types import Node
from opbuild.operations.expression import ACC, arg


@pytest.mark.parametrize(
    ("trans_a", "trans_b", "constant", "shape"),
    crossed(2, (0, 1), (0, 1), (True, False), ((13, 21, 35), (1, 40, 30), (20, 17, 1), (1, 3, 2))),
)
def test_transposed_and_scaled_products_with_an_addend(
    trans_a: int, trans_b: int, constant: bool, shape: tuple[int, int, int]
) -> None:
    """Y = alpha * A' * B' + beta * C, weights packed or read where they lie."""
    m, k, n = shape
    a, b, c = random(m, k), random(k, n, seed=1), random(n, seed=2)
    expected = 0.5 * (a.astype(np.float64) @ b) + 2.0 * c
    attrs = {"transA": trans_a, "transB": trans_b, "alpha": 0.5, "beta": 2.0}
    inputs = {"a": np.ascontiguousarray(a.T) if trans_a else a}
    weights = {"b": np.ascontiguousarray(b.T) if trans_b else b, "c": c}
    node = Node("Gemm", ("a", "b", "c"), ("y",), attrs, "gemm")
    known = weights if constant else {}
    actual = run_node(node, inputs if constant else {**inputs, **weights}, "float32", (m, n), known)
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(), (1,), (35,), (1, 35), (13, 1), (13, 35)])
def test_every_shape_of_the_addend_that_broadcasts(shape: tuple[int, ...]) -> None:
    """A scalar, a row, a column and a whole matrix."""
    a, b, c = random(13, 21), random(21, 35, seed=1), random(*shape, seed=2)
    node = Node("Gemm", ("a", "b", "c"), ("y",), {}, "gemm")
    actual = run_node(node, {"a": a}, "float32", (13, 35), {"b": b, "c": c})
    np.testing.assert_allclose(actual, a.astype(np.float64) @ b + c, rtol=2e-5, atol=2e-5)


def test_the_addend_comes_before_the_fused_epilogue_and_may_be_absent() -> None:
    """Operands of the epilogue follow the three inputs, of which the third may be missing."""
    a, b, c, r = random(13, 21), random(21, 35, seed=1), random(35, seed=2), random(13, 35, seed=3)
    epilogue: Any = ("add", ("relu", ACC), arg(0))
    for name, addend in (("c", c), ("", np.zeros(35, np.float32))):
        node = Node("Gemm", ("a", "b", name, "r"), ("y",), {"epilogue": epilogue, "own_inputs": 3}, "gemm")
        actual = run_node(node, {"a": a, "r": r}, "float32", (13, 35), {"b": b, "c": c})
        expected = np.maximum(a.astype(np.float64) @ b + addend, 0) + r
        np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


def test_gemm_with_a_bias_is_the_kernel_of_a_product_with_a_bias() -> None:
    """A Gemm and a MatMul whose epilogue adds a row need one object file, not two."""
    a, b, c = random(13, 21), random(21, 35, seed=1), random(35, seed=2)
    gemm = Node("Gemm", ("a", "b", "c"), ("y",), {"transB": 1}, "gemm")
    matmul = Node("MatMul", ("a", "b", "c"), ("y",), {"epilogue": ("add", ACC, arg(0)), "own_inputs": 2}, "matmul")
    outputs = {"y": ("float32", (13, 35))}
    first = program_of([gemm], {"a": a}, outputs, {"b": np.ascontiguousarray(b.T), "c": c})
    second = program_of([matmul], {"a": a}, outputs, {"b": b, "c": c})
    assert list(first.descriptors()) == list(second.descriptors())
    assert [family for family, _ in variants(first)] == ["matmul"]
