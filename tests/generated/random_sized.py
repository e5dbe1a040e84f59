"""Random networks with open extents whose inner numbers follow from shapes and from data, and sizes to call them with.

Values have the shape (batch, length, ``WIDTH``). Besides ``x`` there is ``z``, whose length follows from that of ``x``,
and ``d``, whole numbers of which some decide shapes, branches and loops. What decides is exact: whole numbers, so that
no rounding decides another shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from generated.random_open import STEPS, WIDTH, OpenMaker

Array = npt.NDArray[Any]

TABLE = 128
"""Rows of tables that are read at a number; more are never read."""
FOREVER = 2**62

BATCHES = (1, 1, 2, 3, 4, 0)
LENGTHS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 33, 40, 0)
RELATIONS: tuple[Callable[[int], int], ...] = (lambda s: 2 * s, lambda s: s + 1, lambda s: 3 * s + 2, lambda s: s)


class Size(NamedTuple):
    """Extents of the inputs, and what decides the numbers in them."""

    batch: int
    length: int
    numbers: int
    seed: int


class SizedMaker(OpenMaker):
    """Makes one network.

    Args:
        seed: Which.

    Attributes:
        decisions: Outputs of the network that say which branches are taken.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.decisions: list[str] = []
        self.relation = self.random.choice(RELATIONS)

    def number(self, x: str, *, most: int = TABLE - 1) -> str:
        """Return a list of one number that follows from extents, or from data, at most so large."""
        kind = self.random.randrange(6)
        if kind == 0:
            n = self.from_data()
        elif kind == 1:
            n = self.node("Add", self.extent(x, 1), self.extent("z", 1))
        elif kind == 2:
            n = self.node("Mul", self.extent(x, 0), self.extent(x, 1))
        elif kind == 3:
            n = self.node("Div", self.extent("z", 1), self.constant([self.random.choice((2, 3))]))
        elif kind == 4:
            n = self.node("Mod", self.extent(x, 1), self.constant([self.random.choice((3, 8))]))
        else:
            n = self.extent(x, 1)
        return self.node("Min", n, self.constant([most]))

    def from_data(self) -> str:
        """Return a list of one number that data decide: their sum, how many are above one, or the first."""
        kind = self.random.randrange(3)
        if kind == 0:
            return self.node("ReduceSum", "d", self.constant([0]), keepdims=1)
        if kind == 1:
            places = self.node("NonZero", self.node("Greater", "d", self.constant(1)))
            return self.extent(places, 1)
        return self.node("Gather", "d", self.constant([0]), axis=0)

    def decided(self, condition: str) -> str:
        """Return a condition, which the network returns too."""
        self.decisions.append(condition)
        return condition

    def model(self) -> onnx.ModelProto:
        """Return a model of the inputs ``x``, ``z`` and ``d``; its first output is ``y``."""
        value = self.random.choice(BEGINNINGS)(self, "x")
        for _ in range(self.random.randint(1, 5)):
            kinds = self.random.choices((SHAPED, DATA, STEPS), (4, 2, 3))[0]
            value = self.random.choice(kinds)(self, value)
        self._nodes.append(helper.make_node("Identity", [value], ["y"], name="last"))
        for place, each in enumerate(self.decisions):
            self._nodes.append(helper.make_node("Identity", [each], [f"decision{place}"], name=f"decision{place}"))
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self._nodes,
            "sized",
            [
                info("x", TensorProto.FLOAT, ["b", "s", WIDTH]),
                info("z", TensorProto.FLOAT, ["b2", "t", WIDTH]),
                info("d", TensorProto.INT64, ["k"]),
            ],
            [
                info("y", TensorProto.FLOAT, None),
                *(info(f"decision{place}", TensorProto.BOOL, None) for place in range(len(self.decisions))),
            ],
            self._constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def feeds(self, size: Size) -> dict[str, Array]:
        """Return inputs in a size: halves, of which sums are exact."""
        rng = np.random.default_rng(size.seed)
        shapes = {"x": (size.batch, size.length, WIDTH), "z": (size.batch, self.relation(size.length), WIDTH)}
        halves = {name: (rng.integers(-4, 5, shape) / 2).astype(np.float32) for name, shape in shapes.items()}
        return {**halves, "d": rng.integers(0, 4, size.numbers)}


Step = Callable[[SizedMaker, str], str]


def add_one(m: SizedMaker, n: str) -> str:
    """Return the number behind another."""
    return m.node("Add", n, m.constant([1]))


# -- from two inputs ---------------------------------------------------------------------------------------------------


def crossed(m: SizedMaker, x: str) -> str:
    """Attention of one input to the other."""
    scores = m.node("MatMul", x, m.node("Transpose", "z", perm=[0, 2, 1]))
    return m.node("Add", x, m.node("MatMul", m.node("Softmax", scores, axis=-1), "z"))


def cut_alike(m: SizedMaker, x: str) -> str:
    """As much of the other input as there is of this one, which may be less."""
    there = m.node("Slice", "z", m.constant([0]), m.extent(x, 1), m.constant([1]))
    rest = m.node("Slice", x, m.constant([0]), m.extent(there, 1), m.constant([1]))
    return m.node("Mul", rest, there)


def both(m: SizedMaker, x: str) -> str:
    """One behind the other."""
    return m.node("Concat", x, m.node("Tanh", "z"), axis=1)


def alone(m: SizedMaker, x: str) -> str:
    """The first input, and of the other one only its length."""
    return x


BEGINNINGS: tuple[Step, ...] = (crossed, cut_alike, both, alone)


# -- numbers from shapes -----------------------------------------------------------------------------------------------


def row_at(m: SizedMaker, x: str) -> str:
    """A row of a table at a number, by a slice or by its index."""
    n, table = m.number(x), m.weights(TABLE, WIDTH)
    if m.random.random() < 0.5:
        return m.node("Add", x, m.node("Slice", table, n, add_one(m, n), m.constant([0])))
    return m.node("Add", x, m.node("Gather", table, n, axis=0))


def rows_from(m: SizedMaker, x: str) -> str:
    """Rows of a table from a number on, as many as there are of the value, by a range."""
    n = m.node("Squeeze", m.node("Min", m.number(x), m.constant([40])))
    end = m.node("Add", n, m.node("Squeeze", m.extent(x, 1)))
    places = m.node("Range", n, end, m.constant(1))
    places = m.node("Mod", places, m.constant(TABLE))
    return m.node("Add", x, m.node("Gather", m.weights(TABLE, WIDTH), places, axis=0))


def row_of_mask(m: SizedMaker, x: str) -> str:
    """The last rows of a constant mask, as decoders cut them."""
    length = m.node("Min", m.extent(x, 1), m.constant([TABLE - 8]))
    kept = m.node("Slice", x, m.constant([0]), length, m.constant([1]))
    last = m.node("Slice", kept, m.constant([-1]), m.constant([FOREVER]), m.constant([1]))
    seen = m.constant(np.tril(np.ones((TABLE, TABLE))), "bool")
    start = m.node("Max", m.node("Sub", length, m.constant([1])), m.constant([0]))
    row = m.node(
        "Slice", m.node("Slice", seen, start, length, m.constant([0])), m.constant([0]), length, m.constant([1])
    )
    scores = m.node("MatMul", last, m.node("Transpose", kept, perm=[0, 2, 1]))
    shown = m.node("Where", row, scores, m.constant(-1e4, "float32"))
    return m.node("Add", x, m.node("MatMul", m.node("Softmax", shown, axis=-1), kept))


def expanded(m: SizedMaker, x: str) -> str:
    """A row as often as a number says, in front of the value."""
    shape = m.node("Concat", m.extent(x, 0), m.number(x, most=20), m.constant([WIDTH]), axis=0)
    return m.node("Concat", m.node("Expand", m.weights(1, 1, WIDTH), shape), x, axis=1)


def made(m: SizedMaker, x: str) -> str:
    """As many ones as a number says, behind the value."""
    shape = m.node("Concat", m.extent(x, 0), m.number(x, most=20), m.constant([WIDTH]), axis=0)
    ones = m.node("ConstantOfShape", shape, value=numpy_helper.from_array(np.float32([0.5])))
    return m.node("Concat", x, ones, axis=1)


def padded(m: SizedMaker, x: str) -> str:
    """Padding of a number."""
    n = m.number(x, most=9)
    pads = m.node("Concat", m.constant([0]), n, m.constant([0, 0]), m.constant([1, 0]), axis=0)
    return m.node("Pad", x, pads, m.constant(0.25, "float32"))


def tiled(m: SizedMaker, x: str) -> str:
    """The value once, twice or three times."""
    n = add_one(m, m.node("Mod", m.number(x), m.constant([3])))
    return m.node("Tile", x, m.node("Concat", m.constant([1]), n, m.constant([1]), axis=0))


def resized(m: SizedMaker, x: str) -> str:
    """The length changed to a number."""
    how = {"mode": "nearest"} if m.random.random() < 0.5 else {"mode": "linear"}
    return m.node("Resize", x, "", "", m.node("Max", m.number(x, most=30), m.constant([1])), axes=[1], **how)


def cut_at(m: SizedMaker, x: str) -> str:
    """What is behind a number, or in front of it."""
    n = m.number(x, most=20)
    start, end = (n, m.constant([FOREVER])) if m.random.random() < 0.5 else (m.constant([0]), n)
    return m.node("Slice", x, start, end, m.constant([1]))


def chosen(m: SizedMaker, x: str) -> str:
    """One of two branches, by a number."""
    n = m.node("Squeeze", m.number(x))
    condition = m.decided(m.node("Greater", n, m.constant(m.random.choice((2, 8, 20)))))
    return m.node("If", condition, then_branch=branch("Tanh", x), else_branch=branch("Neg", x))


def branch(op_type: str, x: str) -> onnx.GraphProto:
    """Return a branch that computes something of a value."""
    node = helper.make_node(op_type, [x], [f"{op_type}_of_{x}"], name=f"{op_type}_of_{x}")
    return helper.make_graph(
        [node], op_type, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
    )


SHAPED: tuple[Step, ...] = (
    row_at, row_at, rows_from, row_of_mask, expanded, made, padded, tiled, resized, cut_at, chosen,
)  # fmt: skip
"""Steps whose numbers follow from extents; some of them from data."""


# -- numbers from data -------------------------------------------------------------------------------------------------


def picked(m: SizedMaker, x: str) -> str:
    """Rows at the places of numbers that are not zero."""
    places = m.node("Squeeze", m.node("NonZero", "d"), m.constant([0]))
    places = m.node("Mod", places, m.node("Max", m.node("Squeeze", m.extent(x, 1)), m.constant(1)))
    return m.node("Gather", x, places, axis=1)


def compressed(m: SizedMaker, x: str) -> str:
    """Rows where a number is above one."""
    condition = m.node("Slice", m.node("Greater", "d", m.constant(1)), m.constant([0]), m.extent(x, 1))
    return m.node("Compress", x, condition, axis=1)


def best(m: SizedMaker, x: str) -> str:
    """As many of the greatest as a number says, or as there are."""
    count = m.node("Min", add_one(m, m.from_data()), m.extent(x, 1))
    name = m.node("TopK", x, count, axis=1)
    m._nodes[-1].output.append(f"{name}_places")
    return name


def reshaped(m: SizedMaker, x: str) -> str:
    """Parts of rows, as many as a number says, normalised."""
    n = m.node("Gather", m.constant([1, 2, 3, 4, 6]), m.node("Mod", m.from_data(), m.constant([5])), axis=0)
    shape = m.node("Concat", m.extent(x, 0), m.extent(x, 1), n, m.node("Div", m.constant([WIDTH]), n), axis=0)
    parts = m.node("Softmax", m.node("Reshape", x, shape, allowzero=1), axis=-1)
    back = m.node("Concat", m.extent(x, 0), m.extent(x, 1), m.constant([WIDTH]), axis=0)
    return m.node("Reshape", parts, back, allowzero=1)


def looped(m: SizedMaker, x: str) -> str:
    """A row put in front of a value as many times as a number says, or the value changed so often."""
    turns = m.node("Squeeze", m.node("Mod", m.from_data(), m.constant([4])))
    name = f"loop{len(m._nodes)}"
    first, more, carried = (f"{name}_{each}" for each in ("turn", "more", "carried"))
    nodes = [helper.make_node("Identity", [more], [f"{name}_still"], name=f"{name}_still")]
    if m.random.random() < 0.5:
        nodes.append(helper.make_node("Tanh", [carried], [f"{name}_next"], name=f"{name}_next"))
    else:
        row = m.weights(1, 1, WIDTH)
        joined = [f"{name}_row", carried]
        shape = m.node("Concat", m.extent(x, 0), m.constant([1, WIDTH]), axis=0)
        nodes.append(helper.make_node("Expand", [row, shape], [joined[0]], name=joined[0]))
        nodes.append(helper.make_node("Concat", joined, [f"{name}_next"], name=f"{name}_next", axis=1))
    info = helper.make_tensor_value_info
    inputs = [
        info(first, TensorProto.INT64, []),
        info(more, TensorProto.BOOL, []),
        info(carried, TensorProto.FLOAT, None),
    ]
    outputs = [info(f"{name}_still", TensorProto.BOOL, []), info(f"{name}_next", TensorProto.FLOAT, None)]
    return m.node("Loop", turns, "", x, body=helper.make_graph(nodes, name, inputs, outputs))


def suppressed(m: SizedMaker, x: str) -> str:
    """Rows of a value at boxes that overlap no better one; boxes and their order are of whole numbers."""
    boxes = m.node("Slice", "x", m.constant([0, 0]), m.constant([1, 4]), m.constant([0, 2]))
    boxes = m.node("Add", m.node("Abs", boxes), m.constant([0, 0, 1, 1], "float32"))
    total = m.node(
        "ReduceSum", m.node("Slice", "x", m.constant([0]), m.constant([1]), m.constant([0])), m.constant([2])
    )
    total = m.node("Transpose", total, perm=[0, 2, 1])
    places = m.node("Range", m.constant(0), m.node("Squeeze", m.extent("x", 1)), m.constant(1))
    order = m.node("Mul", m.node("Cast", places, to=TensorProto.FLOAT), m.constant(2.0**-9, "float32"))
    limits = [m.constant([6]), m.constant(0.37, "float32"), m.constant(-1.0, "float32")]
    kept = m.node("NonMaxSuppression", boxes, m.node("Add", total, order), *limits, center_point_box=1)
    found = m.node("Gather", kept, m.constant(2), axis=1)
    found = m.node("Mod", found, m.node("Max", m.node("Squeeze", m.extent(x, 1)), m.constant(1)))
    return m.node("Gather", x, found, axis=1)


def by_data(m: SizedMaker, x: str) -> str:
    """One of two branches, by data."""
    condition = m.decided(m.node("Greater", m.node("Squeeze", m.from_data()), m.constant(2)))
    return m.node("If", condition, then_branch=branch("Sigmoid", x), else_branch=branch("Abs", x))


DATA: tuple[Step, ...] = (picked, compressed, best, reshaped, looped, suppressed, by_data)
"""Steps that end what can be known of shapes."""


def sizes(seed: int, count: int) -> list[Size]:
    """Return random sizes, the first of them neither empty nor of one."""
    chosen = random.Random(seed)
    found = [Size(2, 12, 5, seed)]
    while len(found) < count:
        size = Size(chosen.choice(BATCHES), chosen.choice(LENGTHS), chosen.randint(1, 7), chosen.randrange(2**31))
        if size[:2] != (0, 0):
            found.append(size)
    return found
