"""Gradients of operators that had none in forward passes' kernels: compiled in float32, all of it, and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.api import compile_graph
from opbuild.config import Config
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.types import Array
from support.gradient_checks import draw, ints, one_node
from support.graph_runner import run_graph

pytestmark = pytest.mark.usefixtures("with_pack", "kept_objects")


def _floats(*shape: int, seed: int = 0) -> Array:
    return draw(*shape, seed=seed).astype(np.float32)


REGIONS = np.array([[0.3, 0.7, 3.1, 2.9], [-2.0, 1.1, 5.5, 7.3]], np.float32)

LSTM = (_floats(5, 2, 3), _floats(2, 16, 3), _floats(2, 16, 4), _floats(2, 32), np.array([5, 2], np.int32),
        _floats(2, 2, 4), _floats(2, 2, 4), _floats(2, 12))  # fmt: skip
GRU = (_floats(5, 2, 3), _floats(1, 12, 3), _floats(1, 12, 4), _floats(1, 24))

CASES: dict[str, tuple[str, tuple[Array | None, ...], dict[str, Any]]] = {
    "lstm": ("LSTM", LSTM, {"hidden_size": 4, "direction": "bidirectional", "clip": 3.0}),
    "gru": ("GRU", GRU, {"hidden_size": 4, "direction": "reverse"}),
    "grid": ("GridSample", (_floats(2, 3, 4, 5), _floats(2, 3, 2, 2)), {"padding_mode": "reflection"}),
    "grid_cubic": ("GridSample", (_floats(1, 3, 4, 5), _floats(1, 3, 2, 2)), {"mode": "cubic"}),
    "grid_of_volumes": ("GridSample", (_floats(1, 2, 3, 2, 4), _floats(1, 2, 2, 1, 3)), {"padding_mode": "border"}),
    "regions": ("RoiAlign", (_floats(2, 3, 8, 8), REGIONS, ints(1, 0)), {"sampling_ratio": 2, "output_height": 2}),
    "greatest_of_regions": ("RoiAlign", (_floats(2, 3, 8, 8), REGIONS, ints(1, 0)),
                            {"sampling_ratio": 2, "mode": "max"}),
    "deformed": ("DeformConv", (_floats(1, 2, 5, 5), _floats(2, 2, 2, 2), _floats(1, 8, 4, 4)),
                 {"kernel_shape": (2, 2)}),
    "reflect": ("Pad", (_floats(2, 3, 5, 4), ints(0, 0, 2, 1, 0, 0, 1, 3)), {"mode": "reflect"}),
    "edge": ("Pad", (_floats(2, 3, 5, 4), ints(0, 0, 2, 1, 0, 0, 1, 3)), {"mode": "edge"}),
    "wrap": ("Pad", (_floats(2, 3, 5, 4), ints(0, 0, 2, 1, 0, 0, 1, 3)), {"mode": "wrap"}),
    "number": ("Pad", (_floats(2, 3), ints(0, 2, 1, 1), _floats()), {}),
    "running": ("CumProd", (_floats(3, 9), np.array(1)), {}),
    "norms": ("LpPool", (_floats(2, 3, 5, 4),), {"kernel_shape": (3, 2), "strides": (2, 1)}),
    "written_twice": ("ScatterElements", (_floats(3, 4), np.array([[1, 1], [1, 2]]), _floats(2, 2)), {}),
    "rows_written_twice": ("ScatterND", (_floats(3, 4), np.array([[2], [0], [-1]]), _floats(3, 4)), {}),
    "multiplied": ("ScatterElements", (_floats(3, 4), np.array([[1, 1], [1, 2]]), _floats(2, 2)), {"reduction": "mul"}),
    "sequences": ("ReverseSequence", (_floats(4, 3, 2), ints(3, 1, 4)), {}),
    "scales": ("DequantizeLinear", (np.arange(12, dtype="u1").reshape(3, 4), _floats(3)), {"axis": 0}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_gradient_is_the_hosts(name: str, shared_store: Path) -> None:
    """And nothing of it runs on the host."""
    op_type, arrays, attrs = CASES[name]
    graph, feeds = one_node(op_type, arrays, attrs)
    both = differentiate(graph, tuple(feeds))
    network = compile_graph(both, config=Config(cache_path=shared_store, num_threads=1))
    assert not network.report.host
    found = network(*(feeds[each] for each in both.inputs))
    for own, wanted in zip(found, run_graph(both, feeds), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=2e-4, atol=2e-5)
