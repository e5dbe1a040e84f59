"""A network of two operators, built once, that other builds replay: every kind of file of a cache belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.events import Event, Warned
from opbuild.report import Report
from support.replayed import replayed_compiles
from support.until import settle

SHAPE = (64, 256)


def small_model() -> onnx.ModelProto:
    """``softmax(x @ w)``; the weights are large enough for a file of their own."""
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
            helper.make_node("Softmax", ["h"], ["y"], name="scores"),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ("rows", 256))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@dataclass(frozen=True)
class Built:
    """The result of a build: its report and its warnings."""

    report: Report
    warnings: list[str]


@dataclass(frozen=True)
class SmallNetwork:
    """The network's file, the cache in which it was built, an input, and the output that is right."""

    path: Path
    cache: Path
    x: Any
    y: Any

    @property
    def replayed_from(self) -> Path:
        """The cache in which it was built for any size."""
        return self.cache.with_name("for_any_size")

    def build(self, cache: Any, **options: Any) -> Built:
        """Build into a cache, run, and compare with the expected output."""
        warnings: list[str] = []

        def observe(event: Event) -> None:
            if isinstance(event, Warned):
                warnings.append(event.message)

        shapes = {"x": SHAPE}
        network = opbuild.compile(self.path, cache_path=cache, input_shapes=shapes, observer=observe, **options)
        np.testing.assert_array_equal(network(self.x), self.y)
        return Built(network.report, warnings)

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """Answer compiles from a cache in which it was built for this size, and for any."""
        with replayed_compiles(self.replayed_from / "rank_0"):
            yield


def make_small_network(folder: Path) -> SmallNetwork:
    """Write the model into a folder and build it there, with the real compiler."""
    path = folder / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    path.chmod(0o444)  # so that its digest is remembered on every file system
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    network = opbuild.compile(path, cache_path=folder / "built", input_shapes={"x": SHAPE})
    opbuild.compile(path, cache_path=folder / "for_any_size", input_shapes={"x": (-1, -1)})(x)
    settle(path)
    return SmallNetwork(path, folder / "built", x, network(x))
