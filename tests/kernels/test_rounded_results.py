"""Softmax and normalisations round their results to the numbers of 16 bits themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kernels.harness import run_program
from kernels.lowered import random
from opbuild.backend.host.evaluate import evaluate
from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from support.exact_arithmetic import Array
from support.tiers import halved

OPERATORS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "softmax of rows": ("Softmax", (5, 6, 67), {"axis": -1}),
    "softmax of columns": ("Softmax", (5, 6, 67), {"axis": 1}),
    "logarithm": ("LogSoftmax", (5, 6, 67), {"axis": -1}),
    "layer": ("LayerNormalization", (5, 6, 67), {"axis": -1}),
    "root mean square": ("RMSNormalization", (5, 6, 67), {"axis": -1}),
    "instance": ("InstanceNormalization", (5, 6, 67), {}),
    "group": ("GroupNormalization", (5, 6, 67), {"num_groups": 3}),
}


def program(case: str, rounds: str, kept: bool = False) -> Program:
    """Return the program of one operator whose result is rounded; ``kept``: what it is before is an output too."""
    op_type, shape, attrs = OPERATORS[case]
    length = shape[1] if op_type.startswith(("Instance", "Group")) else shape[-1]
    constants = {name: random(length, seed=seed) * 40 for seed, name in enumerate(("scale", "bias"))}
    own = {"Softmax": (), "LogSoftmax": (), "RMSNormalization": ("scale",)}.get(op_type, ("scale", "bias"))
    nodes = (
        Node(op_type, ("x", *own), ("plain",), attrs, "operator"),
        Node("Cast", ("plain",), ("narrow",), {"to": rounds}, "narrow"),
        Node("Cast", ("narrow",), ("y",), {"to": "float32"}, "wide"),
    )
    types = {name: TensorType("float32", shape) for name in ("x", "plain", "y")} | {"narrow": TensorType(rounds, shape)}
    types |= {name: TensorType("float32", constants[name].shape) for name in own}
    outputs = ("plain", "y") if kept else ("y",)
    graph = Graph("rounded", nodes, ("x",), outputs, types, {name: constants[name] for name in own}, 23)
    return lower(optimize(graph, evaluate), host_level(), Options())


def special(shape: tuple[int, ...]) -> Array:
    """Return numbers, some of which make results that 16 bits do not hold."""
    x = random(*shape) * 4
    x[0, 0, 3], x[1, 2, 5], x[2, 3], x[3, :, 60] = np.nan, np.inf, -np.inf, -np.inf
    x[4, 5, 7] = 3e5
    return x


@halved
@pytest.mark.parametrize("rounds", NARROW_FLOATS)
@pytest.mark.parametrize("case", OPERATORS)
def test_one_kernel_computes_and_rounds(case: str, rounds: str) -> None:
    """Results are those that nobody rounds, to the nearest number of the type."""
    found, plain = program(case, rounds), program(case, rounds, kept=True)
    assert len([call for call in found.calls if isinstance(call, KernelCall)]) == 1
    x = {"x": special(OPERATORS[case][1])}
    (actual,), (unrounded, _) = (run_program(each, x).values() for each in (found, plain))
    with np.errstate(over="ignore"):
        expected = unrounded.astype(numpy_dtype(rounds)).astype(np.float32)
    np.testing.assert_array_equal(actual, actual.astype(numpy_dtype(rounds)).astype(np.float32))
    np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))
    # A product and a sum are one instruction in one kernel and two in the other.
    assert np.mean((actual == expected) | np.isnan(actual)) > 0.99
    np.testing.assert_allclose(actual, expected, rtol=2.0 ** (-9 if rounds == "float16" else -6), atol=1e-6)
    assert np.isfinite(actual).any()
