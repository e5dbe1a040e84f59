"""Random networks whose numbers follow from extents: starts, ends, steps, indices, repeats, pads, sizes, conditions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 4
"""Elements of a row."""
MOST_STEPS = 3
DEPTH = 3
ROWS = 48
"""Rows of what positions choose from."""

INPUTS = (("x", ("n", WIDTH)), ("past", ("p", "q", 2)))


class ValueMaker:
    """Makes one network of values of shape (rows, ``WIDTH``); all numbers follow from the extents n, p and q.

    Args:
        seed: Decides which.
        steps: What it is made of; all steps by default.
    """

    def __init__(self, seed: int, steps: Sequence[Step] = ()) -> None:
        self._steps = steps or STEPS
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
        return self.nodes(op_type, 1, *inputs, **attrs)[0]

    def nodes(self, op_type: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """Add a node and return its outputs."""
        names = [f"v{len(self._nodes)}_{index}" for index in range(count)]
        self._nodes.append(helper.make_node(op_type, inputs, names, name=f"{op_type}{len(self._nodes)}", **attrs))
        return names

    def pick(self, *choices: Callable[[], str]) -> str:
        """Return the result of one of some functions."""
        return self.random.choice(choices)()

    # -- numbers, as lists of one -------------------------------------------------------------------------------------

    def extent(self) -> str:
        """Return an open extent."""
        value, axis = self.random.choice((("x", 0), ("past", 0), ("past", 1)))
        if self.random.random() < 0.5:
            return self.node("Shape", value, start=axis, end=axis + 1)
        return self.node("Gather", self.node("Shape", value), self.constant([axis]), axis=0)

    def number(self, depth: int = DEPTH) -> str:
        """Return an integer expression of extents."""
        if depth == 0 or self.random.random() < 0.2:
            return self.pick(self.extent, self.extent, lambda: self.constant([self.random.randint(-3, 9)]))
        return self.random.choice(EXPRESSIONS)(self, lambda: self.number(depth - 1))

    def within(self, count: int) -> str:
        """Return a number from 0 to less than ``count``."""
        return self.node("Mod", self.node("Abs", self.number()), self.constant([count]))

    def small(self, least: int, most: int) -> str:
        """Return a number between two, both included."""
        number = self.number()
        if self.random.random() < 0.5:
            return self.node("Clip", number, self.scalar(self.constant([least])), self.scalar(self.constant([most])))
        bounded = self.node("Mod", self.node("Abs", number), self.constant([most - least + 1]))
        return self.node("Add", bounded, self.constant([least]))

    def truth(self, number: Callable[[], str]) -> str:
        """Return whether something holds of extents."""
        compare = self.random.choice(("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual"))
        found = self.node(compare, number(), number())
        if self.random.random() < 0.3:
            found = self.node("Not", found)
        if self.random.random() < 0.3:
            parity = self.node("Cast", self.node("Mod", number(), self.constant([2])), to=TensorProto.BOOL)
            found = self.node(self.random.choice(("And", "Or", "Xor")), found, parity)
        return found

    def scalar(self, number: str) -> str:
        """Return a list of one as a number."""
        return self.node("Squeeze", number, self.constant([0]))

    def list_of(self, *numbers: str) -> str:
        """Return numbers behind each other."""
        return self.node("Concat", *numbers, axis=0)

    def positive(self) -> str:
        """Return a number that may be a divisor or a step."""
        return self.small(1, 5)

    # -- the network --------------------------------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        """Return a model with one output for each step."""
        value, results = "x", []
        for _ in range(self.random.randint(1, MOST_STEPS)):
            made = self.random.choice(self._steps)(self, value)
            results.append(made)
            value = made if self.random.random() < 0.5 else value
        return self.written(dict(INPUTS), results)

    def written(self, inputs: Mapping[str, Sequence[int | str]], results: Sequence[str]) -> onnx.ModelProto:
        """Return the model of the nodes so far; extents that are names, or negative, are open."""
        names = [f"y{index}" for index in range(len(results))]
        self._nodes += [helper.make_node("Identity", [a], [b], name=b) for a, b in zip(results, names, strict=True)]
        shapes = {n: [each if isinstance(each, str) or each >= 0 else None for each in s] for n, s in inputs.items()}
        graph = helper.make_graph(
            self._nodes,
            "values",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names],
            self._constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)

    def value(self, index: int) -> Any:
        """Return a constant, by its number."""
        return numpy_helper.to_array(self._constants[index])


Number = Callable[[], str]
Step = Callable[[ValueMaker, str], str]


def _binary(op_type: str) -> Callable[[ValueMaker, Number], str]:
    return lambda m, number: m.node(op_type, number(), number())


def _divided(m: ValueMaker, number: Number) -> str:
    divisor = m.pick(m.positive, lambda: m.constant([m.random.choice((1, 2, 3, 7, -2))]))
    return m.node(m.random.choice(("Div", "Mod")), number(), divisor)


def _chosen(m: ValueMaker, number: Number) -> str:
    return m.node("Where", m.truth(number), number(), number())


def _scaled(m: ValueMaker, number: Number) -> str:
    """A number worked out with floating-point ones, as exporters of images do."""
    kind = m.random.choice(("float32", "float64"))
    onto = getattr(TensorProto, "FLOAT" if kind == "float32" else "DOUBLE")
    value = m.node("Cast", number(), to=onto)
    factor = m.constant([m.random.choice((0.5, 1.5, 2.0, 0.3, 0.1))], kind)
    value = m.node(m.random.choice(("Mul", "Div", "Add", "Sub")), value, factor)
    if m.random.random() < 0.3:
        value = m.node("Sqrt", m.node("Abs", value))
    if m.random.random() < 0.7:
        value = m.node(m.random.choice(("Floor", "Ceil", "Round")), value)
    return m.node("Cast", value, to=TensorProto.INT64)


def _joined(m: ValueMaker, number: Number) -> str:
    """One of several numbers, or what they make together."""
    several = m.list_of(number(), number(), number())
    if m.random.random() < 0.5:
        return m.node("Gather", several, m.constant([m.random.randrange(3)]), axis=0)
    return m.node(m.random.choice(("ReduceSum", "ReduceMax", "ReduceMin")), several, m.constant([0]), keepdims=1)


def _narrow(m: ValueMaker, number: Number) -> str:
    return m.node("Cast", m.node("Cast", number(), to=TensorProto.INT32), to=TensorProto.INT64)


def _looked_up(m: ValueMaker, number: Number) -> str:
    """A number of a constant table: which one it is decides, where it is an extent."""
    return m.node("Gather", m.constant([2, 3, 5, 7]), m.node("Mod", m.node("Abs", number()), m.constant([4])), axis=0)


EXPRESSIONS: tuple[Callable[[ValueMaker, Number], str], ...] = (
    *map(_binary, ("Add", "Add", "Sub", "Mul", "Min", "Max")), _divided, _divided, _chosen, _scaled, _joined, _narrow,
)  # fmt: skip
"""What numbers are made of."""


def cut(m: ValueMaker, x: str) -> str:
    """A part of rows: of a constant, or of a value."""
    data = m.random.choice((x, m.weights(ROWS, WIDTH)))
    kind = m.random.randrange(4)
    if kind == 0:  # a window of known length, as a decoder's positions
        start = m.within(ROWS // 2)
        end = m.node("Add", start, m.constant([m.random.randint(1, 5)]))
        return m.node("Slice", m.weights(ROWS, WIDTH), start, end, m.constant([0]))
    if kind == 1:
        return m.node("Slice", data, m.constant([0]), m.number(), m.constant([0]), m.positive())
    if kind == 2:
        return m.node("Slice", data, m.number(), m.constant([-(2**62)]), m.constant([0]), m.constant([-1]))
    return m.node("Slice", data, m.number(), m.number(), m.constant([0]))


def row(m: ValueMaker, x: str) -> str:
    """Single rows of a constant, or the last one of a value."""
    data, place = m.weights(ROWS, WIDTH), m.within(ROWS)
    kind = m.random.randrange(4)
    if kind == 0:
        found = m.node("Gather", data, m.scalar(place), axis=0)
        return m.node("Unsqueeze", found, m.constant([0]))
    if kind == 1:
        others = m.list_of(place, m.within(ROWS), m.node("Neg", m.small(1, ROWS)))
        return m.node("Gather", data, others, axis=0)
    if kind == 2:
        last = m.node("Sub", m.node("Shape", x, start=0, end=1), m.constant([1]))
        return m.node("Gather", x, last, axis=0)
    return m.node("GatherND", data, m.node("Unsqueeze", place, m.constant([1])))


def counted(m: ValueMaker, x: str) -> str:
    """Rows by a range of positions; up or down, of open or known length."""
    start = m.within(ROWS // 2)
    kind = m.random.randrange(4)
    if kind == 0:
        limit, step = m.node("Add", start, m.constant([m.random.randint(1, 4)])), m.constant([1])
    elif kind == 1:
        limit, step = m.node("Add", start, m.small(0, ROWS // 2)), m.positive()
    elif kind == 2:
        limit, step = m.constant([-1]), m.constant([-m.random.randint(1, 2)])
    else:
        start, limit, step = m.constant([0]), m.small(0, ROWS), m.positive()
    places = m.node("Range", *map(m.scalar, (start, limit, step)))
    return m.node("Gather", m.weights(ROWS, WIDTH), places, axis=0)


def measured(m: ValueMaker, x: str) -> str:
    """A range of floating-point numbers, added to rows of one element."""
    start, limit = (m.node("Cast", m.scalar(m.small(0, 9)), to=TensorProto.FLOAT) for _ in range(2))
    values = m.node("Range", start, limit, m.constant(m.random.choice((1.0, 0.5, 0.3)), "float32"))
    return m.node("Mul", m.node("Unsqueeze", values, m.constant([1])), m.weights(WIDTH))


def spread(m: ValueMaker, x: str) -> str:
    """A row repeated: expanded, filled, tiled."""
    count = m.small(0, 20)
    shape = m.list_of(count, m.constant([WIDTH]))
    kind = m.random.randrange(3)
    if kind == 0:
        return m.node("Expand", m.weights(1, WIDTH), shape)
    if kind == 1:
        value = numpy_helper.from_array(np.array([m.random.random()], np.float32))
        return m.node("ConstantOfShape", shape, value=value)
    return m.node("Tile", m.weights(2, WIDTH), m.list_of(count, m.constant([1])))


def padded(m: ValueMaker, x: str) -> str:
    """Rows with others around them; up to a multiple, as windows need."""
    before, after = m.small(0, 3), m.small(0, 3)
    if m.random.random() < 0.3:
        rows = m.node("Shape", x, start=0, end=1)
        over = m.node("Mod", rows, m.constant([8]))
        after = m.node("Mod", m.node("Sub", m.constant([8]), over), m.constant([8]))
    return m.node("Pad", x, m.list_of(before, m.constant([0]), after, m.constant([0])))


def mirrored(m: ValueMaker, x: str) -> str:
    """Rows with some of them around."""
    pads = m.list_of(m.small(0, 3), m.constant([0]), m.small(0, 3), m.constant([0]))
    return m.node("Pad", m.weights(9, WIDTH), pads, mode=m.random.choice(("edge", "reflect", "wrap")))


def centred(m: ValueMaker, x: str) -> str:
    """Rows of which those at both ends are cut away, or that have others there: as many as a number says."""
    if m.random.random() < 0.3:
        return m.node("Pad", x, m.list_of(m.constant([-1]), m.constant([0]), m.small(1, 3), m.constant([0])))
    return m.node("CenterCropPad", x, m.small(1, 20), axes=[0])


def slid(m: ValueMaker, x: str) -> str:
    """Windows over rows whose padding makes as many as the stride says, whatever is left over."""
    planes, taps, stride = m.node("Unsqueeze", x, m.constant([0, 1])), m.random.randint(1, 5), m.random.randint(1, 4)
    window: dict[str, Any] = {"kernel_shape": [taps, 1], "strides": [stride, 1]}
    window["auto_pad"] = m.random.choice(("SAME_UPPER", "SAME_LOWER"))
    if m.random.random() < 0.5:
        made = m.node("Conv", planes, m.weights(8, 1, taps, 1), **window)
        made = m.node("Conv", made, m.weights(1, 8, taps, 1), **window)
    else:
        made = m.node(m.random.choice(("MaxPool", "AveragePool")), planes, **window)
    return m.node("Squeeze", made, m.constant([0, 1]))


def resized(m: ValueMaker, x: str) -> str:
    """Rows resampled to a size, or by a scale."""
    data = m.node("Unsqueeze", m.weights(5, WIDTH), m.constant([0, 1]))
    mode = m.random.choice(("nearest", "linear"))
    if m.random.random() < 0.5:
        sizes = m.list_of(m.constant([1, 1]), m.small(1, 20), m.constant([WIDTH]))
        found = m.node("Resize", data, "", "", sizes, mode=mode)
    else:
        scale = m.node("Div", m.node("Cast", m.small(1, 20), to=TensorProto.FLOAT), m.constant([5.0], "float32"))
        scales = m.list_of(m.constant([1.0, 1.0], "float32"), scale, m.constant([1.0], "float32"))
        found = m.node("Resize", data, "", scales, mode=mode)
    return m.node("Squeeze", found, m.constant([0, 1]))


def branched(m: ValueMaker, x: str) -> str:
    """One of two branches."""

    def branch(name: str, op_type: str) -> onnx.GraphProto:
        output = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op_type, [x], [name], name=f"{name}/node")], name, [], [output])

    name = f"b{m.random.randrange(10**9)}"
    truth = m.scalar(m.truth(m.number))
    return m.node("If", truth, then_branch=branch(f"{name}t", "Relu"), else_branch=branch(f"{name}e", "Neg"))


def factor(m: ValueMaker, x: str) -> str:
    """A value times, or by, what follows from extents."""
    number = m.node("Cast", m.node("Add", m.small(0, 30), m.constant([1])), to=TensorProto.FLOAT)
    if m.random.random() < 0.5:
        number = m.node(m.random.choice(("Sqrt", "Log", "Reciprocal")), number)
    return m.node(m.random.choice(("Mul", "Div")), x, number)


def masked(m: ValueMaker, x: str) -> str:
    """A row of a constant mask, or a triangle at an open diagonal."""
    if m.random.random() < 0.5:
        mask = np.triu(np.full((ROWS, ROWS), -1e4), 1)
        first = m.within(ROWS)
        last = m.node("Add", first, m.constant([1]))
        taken = m.node("Slice", m.constant(mask, "float32"), first, last, m.constant([0]))
        return m.node("Slice", taken, m.constant([0]), m.constant([WIDTH]), m.constant([1]))
    return m.node("Trilu", m.weights(9, WIDTH), m.scalar(m.small(-3, 3)), upper=m.random.randrange(2))


def divided(m: ValueMaker, x: str) -> str:
    """A part of rows by Split, or the greatest ones."""
    count = m.small(1, ROWS - 1)
    data = m.weights(ROWS, WIDTH)
    if m.random.random() < 0.5:
        sizes = m.list_of(count, m.node("Sub", m.constant([ROWS]), count))
        return m.nodes("Split", 2, data, sizes, axis=0)[m.random.randrange(2)]
    return m.nodes("TopK", 2, data, count, axis=0)[0]


def written(m: ValueMaker, x: str) -> str:
    """Rows written at a position."""
    place = m.node("Unsqueeze", m.within(ROWS), m.constant([1]))
    return m.node("ScatterND", m.weights(ROWS, WIDTH), place, m.weights(1, WIDTH))


def folded(m: ValueMaker, x: str) -> str:
    """Rows in another shape, as many as there are."""
    rows = m.node("Shape", x, start=0, end=1)
    shape = m.list_of(m.node("Mul", rows, m.constant([2])), m.constant([2]))
    halves = m.node("Reshape", x, shape)
    return m.node("Reshape", halves, m.list_of(rows, m.constant([WIDTH])))


def looked_up(m: ValueMaker, x: str) -> str:
    """As many rows as a table of constants says."""
    count = _looked_up(m, m.number)
    return m.node("Expand", m.weights(1, WIDTH), m.list_of(count, m.constant([WIDTH])))


STEPS: tuple[Step, ...] = (
    cut, cut, row, row, counted, counted, measured, spread, padded, resized, branched, factor, masked, divided, written,
    folded, looked_up, mirrored, centred, slid,
)  # fmt: skip
"""What networks are made of."""

ONCE: tuple[Step, ...] = (row, factor, masked, written, folded, padded, centred, slid)
"""Steps whose structure is the same at each size; the others' depends on what is empty, or is one, or on a branch."""


def sizes(seed: int, count: int) -> list[tuple[int, int, int]]:
    """Return random extents n, p and q, in random order; n and p are never equal, which would be taken as one."""
    chosen = random.Random(seed)
    return [(chosen.randrange(3, 34, 2), chosen.randrange(2, 18, 2), chosen.randint(2, 21)) for _ in range(count)]
