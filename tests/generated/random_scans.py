"""Random Scan nodes: any number of states, inputs and outputs, axes, directions, in each operator set that has one.

All numbers are whole, so that what is computed is exact. Extents of inputs along which is scanned are open.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Array = npt.NDArray[Any]

OPSETS = (8, 9, 10, 11, 16, 21)
BATCHES = 8
"""The operator set in which Scan takes a batch of sequences, each along its second dimension."""

STATE = (2, 3)
SLICES = ((2, 3), (3,), (2, 1), ())
"""Shapes of the slices, which a state can be added to."""


class RandomScan:
    """Makes one network of a Scan, whose body reads a value from outside, too.

    Args:
        seed: Which.

    Attributes:
        model: The network.
        opset: The operator set that it speaks.
    """

    def __init__(self, seed: int) -> None:
        self._random = draw = random.Random(seed)
        self.opset = draw.choice(OPSETS)
        self._batched = self.opset == BATCHES
        self._states = [f"s{index}" for index in range(draw.randint(0, 2))]
        self._slices = {f"x{index}": draw.choice(SLICES) for index in range(draw.randint(1, 3))}
        self._axes = [0 if self._batched else self._axis(len(shape)) for shape in self._slices.values()]
        self._with_lengths = self._batched and bool(draw.randrange(2))
        body, ranks = self._body()
        attrs: dict[str, Any] = {"body": body, "num_scan_inputs": len(self._slices)}
        if self._batched:
            attrs["directions"] = self._directions(len(self._slices))
        else:
            attrs["scan_input_axes"] = self._axes
            attrs["scan_input_directions"] = self._directions(len(self._slices))
            attrs["scan_output_axes"] = [self._axis(rank) for rank in ranks]
            attrs["scan_output_directions"] = self._directions(len(ranks))
        self._results = [f"y{index}" for index in range(len(self._states) + len(ranks))]
        inputs = [*self._states, *self._slices]
        first = (["lengths" if self._with_lengths else ""]) if self._batched else []
        attrs = {name: value for name, value in attrs.items() if value != []}
        node = helper.make_node("Scan", [*first, *inputs], self._results, name="scan", **attrs)
        kept = [helper.make_node("Neg", [name], [f"r{name}"]) for name in self._results]
        given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self._declared(name)) for name in inputs]
        given.append(helper.make_tensor_value_info("outer", TensorProto.FLOAT, STATE))
        if self._with_lengths:
            given.append(helper.make_tensor_value_info("lengths", TensorProto.INT64, ["batch"]))
        results = [helper.make_tensor_value_info(f"r{name}", TensorProto.FLOAT, None) for name in self._results]
        graph = helper.make_graph([node, *kept], "scans", given, results)
        version = 4 if self.opset < 11 else 8
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=version)

    def feeds(self, seed: int, length: int) -> dict[str, Array]:
        """Return inputs with so many slices."""
        rng = np.random.default_rng(seed)
        batch = int(rng.integers(1, 4)) if self._batched else 0
        found = {}
        for name in (*self._states, *self._slices, "outer"):
            extents = {"length": length, "batch": batch}
            shape = [extents[each] if isinstance(each, str) else each for each in self._declared(name)]
            found[name] = rng.integers(-3, 4, shape).astype(np.float32)
        if self._with_lengths:
            found["lengths"] = rng.integers(1, length + 1, batch)
        return found

    def _declared(self, name: str) -> list[Any]:
        """Return the shape of an input, names for extents that are open."""
        if name == "outer":
            return [*STATE]
        batch = ["batch"] if self._batched else []
        if name in self._states:
            return [*batch, *STATE]
        shape: list[Any] = [*self._slices[name]]
        axis = self._axes[list(self._slices).index(name)]
        shape.insert(axis if axis >= 0 else axis + len(shape) + 1, "length")
        return [*batch, *shape]

    def _axis(self, rank: int) -> int:
        """Return where a new dimension may lie; counted from behind in newer operator sets, too."""
        return self._random.randint(-rank - 1 if self.opset > 10 else 0, rank)

    def _directions(self, count: int) -> list[int]:
        return [self._random.randrange(2) for _ in range(count)]

    def _body(self) -> tuple[onnx.GraphProto, list[int]]:
        """Return the body and the ranks of what it collects."""
        draw, nodes = self._random, list[onnx.NodeProto]()
        ranks = {f"p{name}": len(shape) for name, shape in self._slices.items()}
        ranks |= {f"p{name}": len(STATE) for name in self._states} | {"outer": len(STATE)}
        states = [f"p{name}" for name in self._states]

        def add(op_type: str, inputs: list[str], rank: int, **attrs: Any) -> str:
            name = f"v{len(nodes)}"
            nodes.append(helper.make_node(op_type, inputs, [name], **attrs))
            ranks[name] = rank
            return name

        changed = [add("Add", [name, draw.choice([*self._slices_in_body(), "outer"])], len(STATE)) for name in states]
        collected, known = [], [*ranks]
        for _ in range(draw.randint(0 if states else 1, 2)):
            value = draw.choice(known)
            kind = draw.choice(["Neg", "Abs", "Transpose", "Concat", "Sub"])
            if kind == "Transpose" and ranks[value] == 2:
                collected.append(add("Transpose", [value], 2, perm=[1, 0]))
            elif kind == "Concat" and ranks[value]:
                collected.append(add("Concat", [value, value], ranks[value], axis=0))
            elif kind == "Sub":
                collected.append(add("Sub", [value, "outer"], len(STATE)))
            else:
                collected.append(add("Abs" if kind == "Abs" else "Neg", [value], ranks[value]))
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, STATE) for name in states]
        inputs += [
            helper.make_tensor_value_info(f"p{name}", TensorProto.FLOAT, shape) for name, shape in self._slices.items()
        ]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * ranks[name])
            for name in (*changed, *collected)
        ]
        return helper.make_graph(nodes, "body", inputs, outputs), [ranks[name] for name in collected]

    def _slices_in_body(self) -> list[str]:
        return [f"p{name}" for name in self._slices]
