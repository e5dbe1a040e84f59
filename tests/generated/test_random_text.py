"""Random networks in which text stands between numbers, against ONNX Runtime: what the host computes comes late.

Labels become numbers and numbers labels, branches and sizes depend on data, and nothing stands in a certain order.
``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from support.fuzzing import check_seeds
from support.tiers import spans
from support.walk_runner import WalkRunner

ML = "ai.onnx.ml"
ROWS = (3, 5)
NAMES = [f"n{index}" for index in range(7)]


class TextBetween:
    """Makes one network of numbers in ``n`` rows and of names of numbers.

    Args:
        seed: Which.
    """

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._numbers, self._texts, self._nodes = ["x", "y"], ["t"], list[onnx.NodeProto]()
        steps: list[Callable[[], None]] = [
            self._joined,
            self._named,
            self._counted,
            self._moved,
            self._sized,
            self._chosen,
        ]
        for step in self._draw.choices(steps, weights=(6, 4, 4, 2, 1, 1), k=self._draw.randint(3, 12)):
            step()
        made = [name for node in self._nodes for name in node.output if name in (*self._numbers, *self._texts)]
        results = self._draw.sample(made, self._draw.randint(1, len(made)))
        given = [self._input("x", TensorProto.INT64), self._input("y", TensorProto.INT64), self._input("t", 8)]
        graph = helper.make_graph(
            self._nodes, "g", given, [helper.make_empty_tensor_value_info(name) for name in results],
            [helper.make_tensor("all", TensorProto.INT64, [1], [-1]), helper.make_tensor("zero", 7, [], [0])],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(ML, 3)]
        self.model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=opsets, ir_version=10))

    def feeds(self, rows: int) -> dict[str, Any]:
        """Return inputs of so many rows."""
        numbers = [[self._draw.randint(-3, 9) for _ in range(rows)] for _ in range(2)]
        texts = np.array([self._draw.choice([*NAMES, "?"]) for _ in range(rows)], object)
        return {"x": np.array(numbers[0]), "y": np.array(numbers[1]), "t": texts}

    def _input(self, name: str, kind: int) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, ["n"])

    def _add(self, op_type: str, *inputs: str, domain: str = "", **attrs: Any) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, list(inputs), [name], name, domain=domain, **attrs))
        return name

    def _joined(self) -> None:
        op_type = self._draw.choice(("Add", "Sub", "Max", "Min"))
        self._numbers.append(self._add(op_type, *self._draw.choices(self._numbers, k=2)))

    def _named(self) -> None:
        attrs = {"keys_int64s": list(range(-1, 6)), "values_strings": NAMES, "default_string": "other"}
        self._texts.append(self._add("LabelEncoder", self._draw.choice(self._numbers), domain=ML, **attrs))

    def _counted(self) -> None:
        attrs = {"keys_strings": NAMES[:5], "values_int64s": [4, 0, 3, 1, 2], "default_int64": -1}
        self._numbers.append(self._add("LabelEncoder", self._draw.choice(self._texts), domain=ML, **attrs))

    def _moved(self) -> None:
        op_type, others = self._draw.choice((("Identity", ()), ("Reshape", ("all",))))
        kind = self._draw.choice((self._texts, self._numbers))
        kind.append(self._add(op_type, self._draw.choice(kind), *others))

    def _sized(self) -> None:
        """Stop for a size that data decide, though it is always one."""
        one = self._add("ReduceMax", self._add("Sub", *[self._draw.choice(self._numbers)] * 2), keepdims=1)
        size = self._add("Add", one, self._add("Shape", "x"))
        self._numbers.append(self._add("Expand", self._draw.choice(self._numbers), size))

    def _chosen(self) -> None:
        """Go into a branch, in which a number may become text and a number again."""
        name, chosen = f"v{len(self._nodes)}", self._draw.choice(self._numbers)
        condition = self._add("Greater", self._add("ReduceSum", self._draw.choice(self._numbers), keepdims=0), "zero")
        branches = {}
        for branch in ("then_branch", "else_branch"):
            text = helper.make_node(
                "LabelEncoder",
                [chosen],
                [f"{name}.{branch}.t"],
                domain=ML,
                keys_int64s=[0, 1, 2],
                values_strings=NAMES[:3],
            )
            back = helper.make_node(
                "LabelEncoder", [f"{name}.{branch}.t"], [f"{name}.{branch}"], domain=ML,
                keys_strings=NAMES[:3], values_int64s=[5, 6, 7],
            )  # fmt: skip
            plain = helper.make_node("Neg", [chosen], [f"{name}.{branch}"])
            nodes = [text, back] if self._draw.random() < 0.5 else [plain]
            output = helper.make_tensor_value_info(f"{name}.{branch}", TensorProto.INT64, None)
            branches[branch] = helper.make_graph(nodes, branch, [], [output])
        self._numbers.append(self._add("If", condition, **branches))


@pytest.mark.parametrize("seeds", spans(40, 15))
def test_text_between_numbers_is_right(seeds: range) -> None:
    """Numbers and names equal those of ONNX Runtime, in whatever order their nodes stand."""

    def one(seed: int) -> None:
        made = TextBetween(seed)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(made.model.SerializeToString(), options, ["CPUExecutionProvider"])
        runner = WalkRunner(made.model)
        for rows in ROWS:
            feeds = made.feeds(rows)
            for found, wanted in zip(runner(**feeds), session.run(None, feeds), strict=True):
                np.testing.assert_array_equal(found, wanted, f"{rows} rows")

    check_seeds("text between numbers", one, seeds)
