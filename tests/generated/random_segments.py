"""Random networks whose shapes depend on values and data, with branches and loops.

All numbers are whole and small, so that what is computed is exact: a sum that is rounded in another order would decide
another shape. Every value is a matrix; how many rows and columns it has is not known here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

OPSET = 21
DEEPEST = 2
"""How deep branches and bodies stand in one another."""


class RandomSegments:
    """Makes one network.

    Args:
        seed: Which.

    Attributes:
        model: The network; its inputs are ``x`` and ``s``.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        block = _Block(self)
        values = [block.add("Identity", ["x"])]
        for _ in range(self._random.randint(2, 8)):
            values.append(self.step(block, values, 0))
        results = self._random.sample(values, self._random.randint(1, len(values)))
        outputs = [block.add("Identity", [each]) for each in dict.fromkeys(results)]
        matrix = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", "columns"])
        numbers = helper.make_tensor_value_info("s", TensorProto.INT64, [4])
        graph = helper.make_graph(
            block.nodes, "segments", [matrix, numbers], [_any(name) for name in outputs], block.tensors
        )
        self.model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)

    def feeds(self, seed: int) -> dict[str, Array]:
        """Return inputs."""
        rng = np.random.default_rng(seed)
        shape = rng.integers(1, 5, 2)
        return {"x": rng.integers(-3, 4, shape).astype(np.float32), "s": rng.integers(0, 4, 4)}

    def name(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"v{self._count}"

    def step(self, block: _Block, values: Sequence[str], depth: int) -> str:
        """Add some nodes that make a matrix of others, and return it."""
        kinds = [_unary, _unary, _reshape, _slice, _top_k, _tile, _pad, _filled, _range, _chosen, _places, _different]
        if depth < DEEPEST:
            kinds += [_branch, _branch, _loop, _loop, _scan]
        return self._random.choice(kinds)(self, block, self._random.choice(values), values, depth)

    def number(self, block: _Block, value: str, least: int, most: int) -> str:
        """Return a list of one integer between two: an input's, one that a value decides, or one of its extents."""
        kind = self._random.randrange(3)
        if kind == 0:
            given = block.add("Slice", ["s", *(block.ints(at) for at in _span(self._random.randrange(4)))])
        elif kind == 1:
            total = block.add("ReduceSum", [block.add("Abs", [value])], keepdims=0)
            given = block.add("Reshape", [block.add("Cast", [total], to=TensorProto.INT64), block.ints(1)])
        else:
            given = block.add("Slice", [block.add("Shape", [value]), *(block.ints(at) for at in _span(0))])
        return block.add("Add", [block.add("Mod", [given, block.ints(most - least + 1)]), block.ints(least)])

    def inside(self, around: _Block, values: Sequence[str], depth: int) -> tuple[_Block, str]:
        """Return a block inside another one, and the matrix that it makes of values inside and outside."""
        block = _Block(self)
        known = list(values)
        for _ in range(self._random.randint(1, 2)):
            known.append(self.step(block, known, depth + 1))
        return block, block.add("Identity", [known[-1]])


class _Block:
    """The nodes of one graph."""

    def __init__(self, owner: RandomSegments) -> None:
        self._owner = owner
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []

    def add(self, op_type: str, inputs: Sequence[str], *, outputs: int = 1, **attrs: Any) -> str:
        """Add a node and return its last output."""
        names = [self._owner.name() for _ in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, **attrs))
        return names[-1]

    def ints(self, *values: int) -> str:
        """Add a list of integers."""
        return self._constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        """Add a number without dimensions."""
        return self._constant(np.array(value, np.float32))

    def scalar(self, name: str) -> str:
        """Return a list of one element as that element."""
        return self.add("Squeeze", [name, self.ints(0)])

    def _constant(self, value: Array) -> str:
        name = self._owner.name()
        self.tensors.append(numpy_helper.from_array(value, name))
        return name

    def graph(self, inputs: Sequence[onnx.ValueInfoProto], outputs: Sequence[str]) -> onnx.GraphProto:
        """Return it as a graph inside a node."""
        return helper.make_graph(self.nodes, "inside", inputs, [_any(name) for name in outputs], self.tensors)


Step = Callable[[RandomSegments, _Block, str, Sequence[str], int], str]


def _any(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _span(start: int) -> tuple[int, int]:
    return start, start + 1


def _unary(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    op_type = net._random.choice(["Neg", "Abs", "Relu", "Sign", "Transpose"])
    found = block.add(op_type, [x])
    return block.add("Clip", [found, block.number(-9), block.number(9)])


def _reshape(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """To a row, a column, or its own shape the other way round, all computed."""
    kind = net._random.randrange(3)
    if kind == 2:
        shape = block.add("Shape", [x])
        turned = block.add("Slice", [shape, block.ints(-1), block.ints(-3), block.ints(0), block.ints(-1)])
        return block.add("Reshape", [x, turned], allowzero=1)
    size = block.add("ReduceProd", [block.add("Shape", [x])], keepdims=1)
    order = [block.ints(1), size] if kind else [size, block.ints(1)]
    return block.add("Reshape", [x, block.add("Concat", order, axis=0)], allowzero=1)


def _slice(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    start, length = net.number(block, x, 0, 1), net.number(block, net._random.choice(values), 0, 3)
    axis = block.ints(net._random.randrange(2))
    return block.add("Slice", [x, start, block.add("Add", [start, length]), axis])


def _top_k(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """As many of each row as there are, or fewer."""
    columns = block.add("Slice", [block.add("Shape", [x]), block.ints(1), block.ints(2)])
    count = block.add("Min", [columns, net.number(block, net._random.choice(values), 1, 3)])
    found = block.add("TopK", [x, count], outputs=2, largest=net._random.randrange(2))
    return block.nodes[-1].output[0] if found else ""


def _tile(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    small = block.add("Slice", [x, block.ints(0, 0), block.ints(2, 2)])
    repeats = block.add("Concat", [net.number(block, x, 1, 2), net.number(block, x, 0, 2)], axis=0)
    return block.add("Tile", [small, repeats])


def _pad(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    small = block.add("Slice", [x, block.ints(0, 0), block.ints(3, 3)])
    pads = [net.number(block, x, 0, 2), block.ints(1), block.ints(0), net.number(block, x, 0, 1)]
    return block.add("Pad", [small, block.add("Concat", pads, axis=0)])


def _filled(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    shape = block.add("Concat", [net.number(block, x, 0, 3), net.number(block, x, 1, 2)], axis=0)
    if net._random.randrange(2):
        return block.add("ConstantOfShape", [shape], value=numpy_helper.from_array(np.float32([2])))
    total = block.add("ReduceMax", [block.add("Pad", [x, block.ints(0, 0, 1, 1)])], keepdims=0)
    return block.add("Expand", [total, shape])


def _range(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    limit = block.scalar(net.number(block, x, 0, 4))
    zero, one = block.scalar(block.ints(0)), block.scalar(block.ints(1))
    numbers = block.add("Cast", [block.add("Range", [zero, limit, one])], to=TensorProto.FLOAT)
    return block.add("Unsqueeze", [numbers, block.ints(0)])


def _chosen(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """The rows, or the columns, with a positive sum."""
    axis = net._random.randrange(2)
    sums = block.add("ReduceSum", [x, block.ints(1 - axis)], keepdims=0)
    return block.add("Compress", [x, block.add("Greater", [sums, block.number(0)])], axis=axis)


def _places(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """The elements that are not zero, or where they are, as a row."""
    places = block.add("NonZero", [x])
    if net._random.randrange(2):
        return block.add("Cast", [places], to=TensorProto.FLOAT)
    found = block.add("GatherND", [x, block.add("Transpose", [places])])
    return block.add("Unsqueeze", [found, block.ints(0)])


def _different(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    return block.add("Unsqueeze", [block.add("Unique", [x]), block.ints(1)])


def _branch(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    total = block.add("ReduceSum", [x], keepdims=0)
    condition = block.add("Greater", [total, block.number(0)])
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner, result = net.inside(block, values, depth)
        branches[name] = inner.graph([], [result])
    return block.add("If", [condition], **branches)


def _loop(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """Carry a matrix, whose shape may change, and collect a number of each turn."""
    turn, condition, carried = net.name(), net.name(), net.name()
    inner, result = net.inside(block, [*values, carried], depth)
    inputs = [
        helper.make_tensor_value_info(turn, TensorProto.INT64, []),
        helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
        _any(carried),
    ]
    more = inner.add("Identity", [condition])
    collected = inner.add("Cast", [turn], to=TensorProto.FLOAT)
    body = inner.graph(inputs, [result, collected])
    body.output.insert(0, helper.make_tensor_value_info(more, TensorProto.BOOL, []))
    turns = block.scalar(net.number(block, x, 0, 3))
    collected = block.add("Loop", [turns, "", x], outputs=2, body=body)
    last = block.nodes[-1].output[0]
    return last if net._random.randrange(2) else block.add("Unsqueeze", [collected, block.ints(0)])


def _scan(net: RandomSegments, block: _Block, x: str, values: Sequence[str], depth: int) -> str:
    """Add up the columns, and collect the sums; ONNX Runtime ends the process where there are none."""
    x = block.add("Pad", [x, block.ints(0, 0, 1, 1)])
    state, row = net.name(), net.name()
    inner = _Block(net)
    total = inner.add("Clip", [inner.add("Add", [state, row]), inner.number(-99), inner.number(99)])
    shown = inner.add("Neg", [total])
    body = inner.graph([_any(state), _any(row)], [total, shown])
    first = block.add("ReduceSum", [x, block.ints(1)], keepdims=0)
    axis = net._random.randrange(-1, 2)
    return block.add(
        "Scan", [first, x], outputs=2, body=body, num_scan_inputs=1, scan_input_axes=[1], scan_output_axes=[axis]
    )
