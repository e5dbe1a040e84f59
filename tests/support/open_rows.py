"""A small network on any number of rows, what it must give, and how tests see what binds its sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.programs import Programs

WEIGHTS = np.linspace(-1, 1, 24 * 8, dtype=np.float32).reshape(24, 8)


def model() -> onnx.ModelProto:
    """``softmax(x @ w + rows)``, where ``rows`` counts them, on any number of rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Shape", ["x"], ["rows"], start=0, end=1),
        helper.make_node("Squeeze", ["rows"], ["row"]),
        helper.make_node("Range", ["zero", "row", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["numbers", "last"], ["column"]),
        helper.make_node("Mul", ["product", "column"], ["sum"]),
        helper.make_node("Softmax", ["sum"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "one": np.int64(1), "last": np.array([1])}
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {**constants, "w": WEIGHTS}.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def check(network: opbuild.Network, rows: int) -> None:
    """Call a network and compare."""
    x = np.random.default_rng(rows).uniform(-1, 1, (rows, 24)).astype(np.float32)
    sums = (x @ WEIGHTS).astype(np.float64) * np.arange(rows)[:, None]
    powers = np.exp(sums - sums.max(axis=1, keepdims=True))
    np.testing.assert_allclose(network(x), powers / powers.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-5)


def is_by_numbers(network: opbuild.Network, rows: int) -> bool:
    """Whether a size was bound by numbers, not built for itself."""
    return bool(network._bindings[((rows, 24),)].executor.runners[0].is_filled)


@contextmanager
def noted_programs() -> Iterator[list[Programs]]:
    """Note the programs of the networks that are called first meanwhile."""
    found: list[Programs] = []
    bind = Programs.bind

    def noted(self: Programs, *arguments: Any) -> Any:
        if self not in found:
            found.append(self)
        return bind(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Programs, "bind", noted)
        yield found
