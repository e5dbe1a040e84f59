"""Division by a constant that is 0: floats give infinities and NaN as IEEE 754 has them, integers 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import opbuild

pytestmark = pytest.mark.usefixtures("kept_objects")

NUMBERS = [-2.0, -0.0, 0.0, 3.0, np.inf, -np.inf, np.nan]


def divided(x: Any, divisors: dict[str, Any], folder: Path, **attrs: Any) -> dict[str, Any]:
    """Build and run a network of quotients and remainders of its input; one quotient is fused with an addition."""
    nodes = [
        *(helper.make_node("Div", ["x", name], [f"div {name}"]) for name in divisors),
        *(helper.make_node("Mod", ["x", name], [f"mod {name}"], **attrs) for name in divisors),
        helper.make_node("Add", ["x", "x"], ["sum"]),
        helper.make_node("Div", ["sum", next(iter(divisors))], ["fused"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
        [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes if node.output[0] != "sum"],
        [numpy_helper.from_array(value, name) for name, value in divisors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return opbuild.compile(model, cache_path=folder, num_threads=1).run({"x": x})


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_a_float_divided_by_a_constant_zero_is_infinite_or_nan(dtype: str, tmp_path: Path) -> None:
    """Halide refused to compile the division, alone and in a chain; a remainder is NaN."""
    x = np.asarray(NUMBERS, dtype)
    zeros = {"plus": np.asarray(0.0, dtype), "minus": np.full(1, -0.0, dtype)}
    results = divided(x, zeros, tmp_path, fmod=1)
    with np.errstate(all="ignore"):
        wanted = {"fused": (x + x) / zeros["plus"]}
        for name, zero in zeros.items():
            wanted |= {f"div {name}": x / zero, f"mod {name}": np.full_like(x, np.nan)}
    for name, values in wanted.items():
        np.testing.assert_array_equal(results[name], values, name)


@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_an_integer_divided_by_a_constant_zero_is_zero(dtype: str, tmp_path: Path) -> None:
    """As its remainder is; ONNX leaves both open, and a machine traps."""
    x = np.asarray([0, 1, 7, 100, np.iinfo(dtype).max, np.iinfo(dtype).min]).astype(dtype)
    for values in divided(x, {"zero": np.zeros((), dtype)}, tmp_path).values():
        np.testing.assert_array_equal(values, np.zeros_like(x))


def test_celu_of_alpha_zero_follows_its_formula(tmp_path: Path) -> None:
    """``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`` with alpha 0 is NaN from 0 on."""
    x = np.float32([-2, 0, 3])
    number = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [helper.make_node("Celu", ["x"], ["y"], alpha=0.0)],
        "g",
        [helper.make_tensor_value_info("x", number, x.shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    network = opbuild.compile(model, cache_path=tmp_path, num_threads=1)
    np.testing.assert_array_equal(network(x), np.float32([0, np.nan, np.nan]))
