"""Random networks whose batch and length are open, as exporters write them: shapes worked out from shapes."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]

WIDTH = 12
"""Elements of the innermost dimension."""
MOST_STEPS = 6
EXTENTS = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33)


class OpenMaker:
    """Makes one network of values of shape (batch, length, ``WIDTH``)."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: str = "int64") -> str:
        """Return the name of a constant."""
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        """Return the name of random weights."""
        return self.constant(self._rng.uniform(-0.5, 0.5, shape), "float32")

    def node(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Add a node of one output and return that."""
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(op_type, inputs, [name], name=f"n{len(self._nodes)}", **attrs))
        return name

    def extent(self, value: str, axis: int) -> str:
        """Return an extent of a value, as a list of one."""
        if self.random.random() < 0.5:
            return self.node("Shape", value, start=axis, end=axis + 1)
        number = self.node("Gather", self.node("Shape", value), self.constant(axis), axis=0)
        return self.node("Unsqueeze", number, self.constant([0]))

    def model(self) -> onnx.ModelProto:
        """Return a model from ``x`` to ``y``."""
        value = "x"
        for _ in range(self.random.randint(1, MOST_STEPS)):
            value = self.random.choice(STEPS)(self, value)
        self._nodes.append(helper.make_node("Identity", [value], ["y"], name="last"))
        graph = helper.make_graph(
            self._nodes,
            "open",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", WIDTH])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            self._constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def dense(m: OpenMaker, x: str) -> str:
    """A layer with bias and activation."""
    product = m.node("MatMul", x, m.weights(WIDTH, WIDTH))
    return m.node(m.random.choice(("Relu", "Tanh", "Sigmoid")), m.node("Add", product, m.weights(WIDTH)))


def attention(m: OpenMaker, x: str) -> str:
    """Heads of products of a value with itself, perhaps masked."""
    shape = m.node("Concat", m.extent(x, 0), m.extent(x, 1), m.constant([3]), m.constant([-1]), axis=0)
    heads = m.node("Transpose", m.node("Reshape", x, shape), perm=[0, 2, 1, 3])
    scores = m.node("MatMul", heads, m.node("Transpose", heads, perm=[0, 1, 3, 2]))
    if m.random.random() < 0.5:
        length = m.node("Squeeze", m.extent(x, 1))
        places = m.node("Range", m.constant(0), length, m.constant(1))
        seen = m.node("LessOrEqual", places, m.node("Unsqueeze", places, m.constant([1])))
        scores = m.node("Where", seen, scores, m.constant(-1e4, "float32"))
    mixed = m.node("MatMul", m.node("Softmax", scores, axis=-1), heads)
    joined = m.node("Transpose", mixed, perm=[0, 2, 1, 3])
    back = m.node("Concat", m.extent(x, 0), m.extent(x, 1), m.constant([WIDTH]), axis=0)
    return m.node("Reshape", joined, back)


def normalized(m: OpenMaker, x: str) -> str:
    """A normalisation of rows, and of all of a batch."""
    if m.random.random() < 0.5:
        return m.node("LayerNormalization", x, m.weights(WIDTH), m.weights(WIDTH), axis=-1)
    mean = m.node("ReduceMean", x, m.constant([m.random.choice((1, 2))]), keepdims=1)
    return m.node("Sub", x, mean)


def cut(m: OpenMaker, x: str) -> str:
    """A part of the length, whose bounds follow from it."""
    axis = m.constant([1])
    half = m.node("Div", m.extent(x, 1), m.constant([m.random.choice((2, 3))]))
    kind = m.random.randrange(4)
    if kind == 0:
        return m.node("Slice", x, half, m.constant([2**62]), axis)
    if kind == 1:
        return m.node("Slice", x, m.constant([0]), half, axis)
    if kind == 2:
        return m.node("Slice", x, m.constant([-1]), m.constant([-(2**62)]), axis, m.constant([-1]))
    return m.node("Slice", x, m.constant([0]), m.constant([m.random.randint(1, 40)]), axis, m.constant([2]))


def joined(m: OpenMaker, x: str) -> str:
    """A value behind itself, or padded."""
    if m.random.random() < 0.5:
        return m.node("Concat", x, m.node("Neg", x), axis=m.random.choice((0, 1)))
    return m.node("Pad", x, m.constant([0, 1, 0, 0, 2, 0]), m.constant(0.5, "float32"))


def filled(m: OpenMaker, x: str) -> str:
    """A value plus one of its shape that is made of nothing else."""
    shape = m.node("Shape", x)
    value = numpy_helper.from_array(np.array([0.25], np.float32))
    made = m.node("ConstantOfShape", shape, value=value)
    row = m.node("Expand", m.weights(1, 1, WIDTH), shape)
    return m.node("Add", m.node("Mul", made, row), x)


def positions(m: OpenMaker, x: str) -> str:
    """A table of positions, read up to the length, added."""
    ids = m.node("Slice", m.constant(np.arange(128)[None]), m.constant([0]), m.extent(x, 1), m.constant([1]))
    return m.node("Add", x, m.node("Gather", m.weights(128, WIDTH), ids, axis=0))


def flattened(m: OpenMaker, x: str) -> str:
    """Rows of all batches as one matrix, and back."""
    rows = m.node("Reshape", x, m.constant([-1, WIDTH]))
    product = m.node("Gemm", rows, m.weights(WIDTH, WIDTH), m.weights(WIDTH))
    shape = m.node("Concat", m.extent(x, 0), m.constant([-1, WIDTH]), axis=0)
    return m.node("Reshape", product, shape)


def convolved(m: OpenMaker, x: str) -> str:
    """A convolution along the length, or a pool."""
    planes = m.node("Transpose", x, perm=[0, 2, 1])
    if m.random.random() < 0.5:
        made = m.node("Conv", planes, m.weights(WIDTH, WIDTH, 3), kernel_shape=[3], pads=[1, 1])
    else:
        made = m.node("MaxPool", planes, kernel_shape=[2], strides=[2], pads=[1, 1])
    return m.node("Transpose", made, perm=[0, 2, 1])


def scaled(m: OpenMaker, x: str) -> str:
    """A value divided by its length."""
    length = m.node("Cast", m.node("Squeeze", m.extent(x, 1)), to=TensorProto.FLOAT)
    return m.node("Div", x, m.node("Add", length, m.constant(1.0, "float32")))


STEPS: tuple[Callable[[OpenMaker, str], str], ...] = (
    dense, attention, normalized, cut, joined, filled, positions, flattened, convolved, scaled,
)  # fmt: skip
"""What networks are made of."""


def make_open_model(seed: int) -> onnx.ModelProto:
    """Return the random network of a seed."""
    return OpenMaker(seed).model()


def sizes(seed: int, count: int) -> list[tuple[int, int]]:
    """Return random batches and lengths."""
    chosen = random.Random(seed)
    return [(chosen.choice(EXTENTS[:9]), chosen.choice(EXTENTS)) for _ in range(count)]
