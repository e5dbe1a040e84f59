"""Operators that read indices, drawn with indices in range, and one of them changed to be outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = npt.NDArray[Any]
Rng = np.random.Generator

TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32}


@dataclass
class Drawn:
    """An operator and what it is given.

    Attributes:
        op_type: Its type.
        inputs: Its inputs, None for an absent one.
        index: Which of them holds indices.
        least: The least index for each element of that input, to be broadcast.
        most: The greatest.
        attrs: Its attributes.
        domain: Its domain.
        outputs: How many outputs it has; the first one is looked at.
        opset: The operator set.
    """

    op_type: str
    inputs: list[Array | None]
    index: int
    least: Any
    most: Any
    attrs: dict[str, Any] = field(default_factory=dict)
    domain: str = ""
    outputs: int = 1
    opset: int = 24

    def feeds(self, indices: Array | None = None) -> dict[str, Array]:
        """Return the inputs by name, the indices replaced by others."""
        given = [*self.inputs]
        given[self.index] = self.inputs[self.index] if indices is None else indices
        return {f"i{number}": each for number, each in enumerate(given) if each is not None}

    def outside(self, rng: Rng) -> tuple[Array, int]:
        """Return the indices with one that is out of range, and that one."""
        indices = np.array(self.inputs[self.index])
        info, place = np.iinfo(indices.dtype), tuple(rng.integers(0, extent) for extent in indices.shape)
        least, most = (int(np.broadcast_to(each, indices.shape)[place]) for each in (self.least, self.most))
        far = [info.min, info.max, most + 2**31, most + 2**32, least - 2**32, most + 100, least - 100]
        chosen = [most + 1, least - 1] if rng.random() < 0.5 else far
        fitting = [each for each in chosen if info.min <= each <= info.max and not least <= each <= most]
        fitting = [each for each in fitting if each != self.attrs.get("ignore_index")]
        value = int(rng.choice(np.array(fitting, object)))
        indices[place] = value
        return indices, value

    def model(self, *, known: Array | None = None, opened: bool = False, shift: int = 0) -> onnx.ModelProto:
        """Return a model.

        Args:
            known: The indices, if they are a constant.
            opened: Whether the extents of inputs are open.
            shift: A number that the model adds to the indices.
        """
        feeds = self.feeds()
        name = f"i{self.index}"
        constants = {} if known is None else {name: known}
        nodes = []
        names = [f"i{number}" if each is not None else "" for number, each in enumerate(self.inputs)]
        if shift:
            constants["shift"] = np.array(shift, feeds[name].dtype)
            nodes.append(helper.make_node("Add", [name, "shift"], ["shifted"], "adds"))
            names[self.index] = "shifted"
        results = [f"o{number}" for number in range(self.outputs)]
        nodes.append(helper.make_node(self.op_type, names, results, "reads", domain=self.domain, **self.attrs))
        given = {key: each for key, each in feeds.items() if key not in constants}
        inputs = [
            helper.make_tensor_value_info(
                key, TYPES[str(each.dtype)], [f"{key}_{axis}" for axis in range(each.ndim)] if opened else each.shape
            )
            for key, each in given.items()
        ]
        tensors = [numpy_helper.from_array(each, key) for key, each in constants.items()]
        graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("o0")], tensors)
        sets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=sets)
        model.ir_version = 10
        return model


def _floats(rng: Rng, shape: Sequence[int]) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _shape(rng: Rng, least: int, most: int) -> tuple[int, ...]:
    return tuple(int(each) for each in rng.integers(1, 7, int(rng.integers(least, most + 1))))


def _indices(rng: Rng, shape: Sequence[int], count: Any, *, negative: bool = True, dtype: str = "") -> Array:
    low = -np.asarray(count) if negative else np.zeros_like(count)
    return np.asarray(rng.integers(low, count, shape), dtype or str(rng.choice(["int32", "int64"])))


def gather(rng: Rng) -> Drawn:
    """Rows along an axis."""
    x = _shape(rng, 1, 4)
    axis = int(rng.integers(0, len(x)))
    indices = _indices(rng, _shape(rng, 0, 3), x[axis])
    return Drawn("Gather", [_floats(rng, x), indices], 1, -x[axis], x[axis] - 1, {"axis": axis})


def gather_elements(rng: Rng) -> Drawn:
    """Single elements."""
    x = _shape(rng, 1, 3)
    axis = int(rng.integers(0, len(x)))
    shape = [int(rng.integers(1, extent + 1)) for extent in x]
    shape[axis] = int(rng.integers(1, 9))
    return Drawn(
        "GatherElements", [_floats(rng, x), _indices(rng, shape, x[axis])], 1, -x[axis], x[axis] - 1, {"axis": axis}
    )


def gather_nd(rng: Rng) -> Drawn:
    """Slices by vectors of indices."""
    x = _shape(rng, 2, 4)
    batch = int(rng.integers(0, 2)) if len(x) > 1 else 0
    depth = int(rng.integers(1, len(x) - batch + 1))
    counts = np.array(x[batch : batch + depth])
    indices = _indices(rng, (*x[:batch], *_shape(rng, 1, 2), depth), counts, dtype="int64")
    return Drawn("GatherND", [_floats(rng, x), indices], 1, -counts, counts - 1, {"batch_dims": batch})


def scatter_elements(rng: Rng) -> Drawn:
    """Single elements written, sums and products too."""
    made = gather_elements(rng)
    x, indices = made.inputs
    assert x is not None and indices is not None  # noqa: PT018
    axis = made.attrs["axis"]
    indices = np.argsort(rng.random((*indices.shape[:axis], x.shape[axis], *indices.shape[axis + 1 :])), axis)
    indices = indices.astype(str(rng.choice(["int32", "int64"]))) - x.shape[axis] * int(rng.integers(0, 2))
    attrs = {"axis": axis, "reduction": str(rng.choice(["none", "add", "mul", "max", "min"]))}
    updates = _floats(rng, indices.shape)
    return Drawn("ScatterElements", [x, indices, updates], 1, made.least, made.most, attrs)


def scatter_nd(rng: Rng) -> Drawn:
    """Slices written."""
    x = _shape(rng, 1, 3)
    depth = int(rng.integers(1, len(x) + 1))
    counts = np.array(x[:depth])
    places = rng.permutation(int(counts.prod()))[: int(rng.integers(1, 5))]
    indices = np.stack(np.unravel_index(places, x[:depth]), -1).astype(np.int64) - counts * int(rng.integers(0, 2))
    attrs = {"reduction": str(rng.choice(["none", "add", "mul", "max", "min"]))}
    updates = _floats(rng, (len(indices), *x[depth:]))
    return Drawn("ScatterND", [_floats(rng, x), indices, updates], 1, -counts, counts - 1, attrs)


def reverse_sequence(rng: Rng) -> Drawn:
    """As many steps reversed as a length says."""
    x, time = _shape(rng, 2, 4), int(rng.integers(0, 2))
    lengths = rng.integers(0, x[time] + 1, x[1 - time])
    attrs = {"time_axis": time, "batch_axis": 1 - time}
    return Drawn("ReverseSequence", [_floats(rng, x), lengths], 1, 0, x[time], attrs)


def running_sum(rng: Rng) -> Drawn:
    """The axis of a sum."""
    x = _shape(rng, 1, 4)
    axis = _indices(rng, (), len(x))
    return Drawn("CumSum", [_floats(rng, x), axis], 1, -len(x), len(x) - 1)


def tensor_scatter(rng: Rng) -> Drawn:
    """Rows of a cache."""
    batch, heads, room, width = (int(each) for each in rng.integers(1, 6, 4))
    steps = int(rng.integers(1, room + 1))
    first = rng.integers(0, room - steps + 1, batch)
    inputs = [_floats(rng, (batch, heads, room, width)), _floats(rng, (batch, heads, steps, width)), first]
    return Drawn("TensorScatter", inputs, 2, 0, room - steps, {"mode": "linear"})


def loss(rng: Rng) -> Drawn:
    """The class of each sample; one number may stand for none."""
    x = (int(rng.integers(1, 5)), int(rng.integers(1, 6)), *_shape(rng, 0, 2))
    target = _indices(rng, (x[0], *x[2:]), x[1], negative=False)
    attrs: dict[str, Any] = {"reduction": str(rng.choice(["none", "sum"]))}
    if rng.random() < 0.5:
        attrs["ignore_index"] = int(rng.choice([-100, -1, 0, 2]))
        target[rng.random(target.shape) < 0.3] = attrs["ignore_index"]
    name = str(rng.choice(["NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"]))
    return Drawn(name, [_floats(rng, x), target], 1, 0, x[1] - 1, attrs)


def regions(rng: Rng) -> Drawn:
    """The image of a region."""
    images, count = int(rng.integers(1, 4)), int(rng.integers(1, 5))
    corners = np.sort(rng.uniform(0, 6, (count, 2, 2)), 1).reshape(count, 4).astype(np.float32)
    attrs = {"output_height": 2, "output_width": 3, "sampling_ratio": int(rng.integers(0, 3))}
    inputs = [_floats(rng, (images, 2, 7, 6)), corners, rng.integers(0, images, count)]
    return Drawn("RoiAlign", inputs, 2, 0, images - 1, attrs, opset=21)


def unpool(rng: Rng) -> Drawn:
    """Places in the whole of what was pooled."""
    images, channels, rows = (int(each) for each in rng.integers(1, 4, 3))
    size = images * channels * 4 * rows * 4
    indices = rng.permutation(size)[: images * channels * rows * 2].reshape(images, channels, rows, 2)
    attrs = {"kernel_shape": [4, 2], "strides": [4, 2]}
    return Drawn("MaxUnpool", [_floats(rng, indices.shape), indices], 1, 0, size - 1, attrs)


def rotation(rng: Rng) -> Drawn:
    """Positions, in ONNX's operator and in ONNX Runtime's."""
    batch, heads, length, half, rows = (int(each) for each in rng.integers(1, 5, 5))
    rows = max(rows, length)
    tables = [_floats(rng, (rows, half)), _floats(rng, (rows, half))]
    places = rng.integers(0, rows, (batch, length))
    x = _floats(rng, (batch, heads, length, 2 * half))
    if rng.random() < 0.5:
        return Drawn("RotaryEmbedding", [x, *tables, places], 3, 0, rows - 1)
    return Drawn("RotaryEmbedding", [x, places, *tables], 1, 0, rows - 1, {}, "com.microsoft")


def embedding(rng: Rng) -> Drawn:
    """Words."""
    batch, length, words, width = (int(each) for each in rng.integers(1, 6, 4))
    ids = rng.integers(0, words, (batch, length)).astype(np.int32)
    tables = [_floats(rng, (words, width)), _floats(rng, (length, width))]
    inputs = [ids, None, tables[0], tables[1], None, _floats(rng, (width,)), _floats(rng, (width,))]
    return Drawn("EmbedLayerNormalization", inputs, 0, 0, words - 1, {}, "com.microsoft", 2)


OPERATORS: tuple[Callable[[Rng], Drawn], ...] = (
    *(gather, gather_elements, gather_nd, scatter_elements, scatter_nd, reverse_sequence, running_sum, tensor_scatter),
    *(loss, regions, unpool, rotation, embedding),
)
