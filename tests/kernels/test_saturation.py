"""Rounding to small integers in few instructions gives what the operations one by one give, for every float32."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.harness import run_program
from opbuild.backend.halide.conversions import saturation
from opbuild.graph.quantization import limits, quantized
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.lower import lower
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import arg, canonical, const
from opbuild.target.host import host_level

_STEPS = np.arange(-70000, 70000, dtype=np.float32) / 2
VALUES = np.concatenate(
    [
        _STEPS,  # every tie
        np.nextafter(_STEPS[::7], np.float32(np.inf)),
        np.float32([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38]),
        np.float32([2**22 + 0.5, 2**23 + 1, 2**24 + 2, 2**31, -(2**31), 2**32, 2**63]),
    ]
)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
def test_ties_bounds_and_special_values_are_rounded_as_the_operations_one_by_one(dtype: str) -> None:
    """With zero points, even and odd, at both ends of the type, and without."""
    low, high = limits(dtype)
    for number in (None, low, low + 1, (low + high) // 2, high):
        zero = np.full(len(VALUES), 0 if number is None else number, dtype)
        expression, order = canonical(quantized(arg(0), None if number is None else arg(1), dtype))
        assert saturation(expression) is not None
        arrays = [(VALUES, zero)[index] for index in order]
        expected = evaluate_expression(expression, arrays)
        types = {f"x{i}": TensorType(str(each.dtype), each.shape) for i, each in enumerate(arrays)}
        types["y"] = TensorType(dtype, VALUES.shape)
        inputs = tuple(types)[: len(arrays)]
        node = Node("Elementwise", inputs, ("y",), {"expression": expression}, "node", "opbuild")
        program = lower(Graph("one", (node,), inputs, ("y",), types, {}), host_level())
        found = run_program(program, dict(zip(inputs, arrays, strict=True)))["y"]
        np.testing.assert_array_equal(found, expected)


def test_what_only_looks_alike_is_left_to_the_operations() -> None:
    """A bound beyond the type, another type, a number that was not rounded."""
    rounded = ("round", arg(0))

    def limited(value: object, low: float, high: float, dtype: str = "uint8") -> tuple[object, ...]:
        return ("cast", dtype, ("saturate", value, const(low), const(high)))

    assert saturation(limited(rounded, 0.0, 255.0)) is not None
    assert saturation(limited(rounded, -1.0, 255.0)) is None
    assert saturation(limited(rounded, 0.0, 256.0)) is None
    assert saturation(limited(rounded, 0.0, 1.5)) is None
    assert saturation(limited(rounded, 0.0, 255.0, "int32")) is None
    assert saturation(limited(arg(0), 0.0, 255.0)) is None
    assert saturation(limited(("add", rounded, arg(1)), 0.0, 255.0)) is None
