"""Makers of cases for operators that move and count elements, multiply matrices, and have results of unknown size."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import numpy_helper

from generated.host_cases import Case, Draw, makes

TYPES = ("float32", "int64", "bool", "uint8", "float64", "int32", "float16")


def _any(d: Draw, least: int = 0, most: int = 4) -> Any:
    """Return a tensor of any type and rank, perhaps empty."""
    return d.array(d.shape(d.integer(least, most), 4, d.one_of(1, 1, 1, 0)), d.one_of(*TYPES))


def _ints(*values: int) -> Any:
    return np.array(values, np.int64)


@makes("Identity", "Shape", "Size")
def _whole(d: Draw, op_type: str) -> Case:
    attrs = {"start": d.one_of(None, -2, 1), "end": d.one_of(None, -1, 2)} if op_type == "Shape" else {}
    return Case(op_type, [_any(d)], attrs)


@makes("Flatten", "Transpose")
def _ordered(d: Draw, op_type: str) -> Case:
    x = _any(d, 1)
    if op_type == "Flatten":
        return Case(op_type, [x], {"axis": d.one_of(None, d.integer(-x.ndim, x.ndim)) if x.ndim > 1 else None})
    perm = [axis for _, axis in sorted((d.integer(0, 99), axis) for axis in range(x.ndim))]
    return Case(op_type, [x], {"perm": d.one_of(None, perm)})


@makes("Squeeze", "Unsqueeze")
def _dimensions(d: Draw, op_type: str) -> Case:
    x = _any(d, 0, 3)
    if op_type == "Unsqueeze":
        rank = x.ndim + d.integer(1, 2)
        axes = d.subset(range(rank))[: rank - x.ndim]
        rank = x.ndim + len(axes)
        chosen = [axis % rank for axis in axes]
        if len(set(chosen)) < len(chosen):
            return Case(op_type, [x, _ints(0)], known=[1])
        return Case(op_type, [x, _ints(*(d.one_of(axis, axis - rank) for axis in chosen))], known=[1])
    axes = [axis for axis, extent in enumerate(x.shape) if extent == 1 and d.flag()]
    return Case(op_type, [x, d.maybe(_ints(*axes)) if axes else None], known=[1])


@makes("Concat")
def _concat(d: Draw, op_type: str) -> Case:
    x = _any(d, 1)
    axis = d.axis(x.ndim)
    others = []
    for _ in range(d.integer(0, 3)):
        shape = list(x.shape)
        shape[axis] = d.integer(0, 3)
        others.append(d.array(shape, str(x.dtype)))
    return Case(op_type, [x, *others], {"axis": axis})


@makes("Split")
def _split(d: Draw, op_type: str) -> Case:
    x = _any(d, 1)
    axis, count = d.axis(x.ndim), d.integer(1, 3)
    if d.flag() or x.shape[axis] < count:
        bounds = sorted(d.integer(0, x.shape[axis]) for _ in range(count - 1))
        sizes = np.diff([0, *bounds, x.shape[axis]]).astype(np.int64)
        return Case(op_type, [x, sizes], {"axis": axis}, count, known=[1])
    whole = -(-x.shape[axis] // count)
    if whole * (count - 1) >= x.shape[axis]:  # the last one would be empty
        count = 1
    return Case(op_type, [x], {"axis": axis, "num_outputs": count}, count)


@makes("Slice")
def _slice(d: Draw, op_type: str) -> Case:
    x = _any(d, 1)
    axes = d.subset(range(x.ndim))
    starts, ends = (_ints(*(d.one_of(d.integer(-6, 6), 2**31, -(2**62)) for _ in axes)) for _ in range(2))
    steps = d.maybe(_ints(*(d.one_of(1, 2, -1, -3) for _ in axes)))
    named = _ints(*(d.one_of(axis, axis - x.ndim) for axis in axes))
    return Case(op_type, [x, starts, ends, named, steps], known=[1, 2, 3, 4])


@makes("Expand", "Tile", "Reshape")
def _reshaped(d: Draw, op_type: str) -> Case:
    x = _any(d, 1, 3)
    if op_type == "Tile":
        return Case(op_type, [x, _ints(*(d.integer(0, 3) for _ in x.shape))], known=[1])
    if op_type == "Expand":
        shape = [extent if extent != 1 else d.one_of(1, 3) for extent in x.shape]
        return Case(op_type, [x, _ints(*d.one_of((), (2,)), *(d.one_of(extent, 1) for extent in shape))], known=[1])
    left = d.integer(0, x.ndim)
    shape = (int(np.prod(x.shape[:left])), int(np.prod(x.shape[left:])))
    if x.size:
        shape = d.one_of(shape, (-1, shape[1]), (shape[0], -1), (-1,), (*x.shape[:-1], 0)[-x.ndim :])
    return Case(op_type, [x, _ints(*shape)], {"allowzero": None if x.size else 1}, known=[1])


@makes("Gather")
def _gather(d: Draw, op_type: str) -> Case:
    shape = d.shape(d.integer(1, 3), 4)
    axis = d.axis(len(shape))
    indices = d.below(
        d.shape(d.integer(0, 2), 3, d.one_of(1, 0)), shape[axis], d.one_of("int64", "int32"), -shape[axis]
    )
    return Case(op_type, [d.array(shape, d.one_of(*TYPES)), indices], {"axis": axis})


@makes("Pad")
def _pad(d: Draw, op_type: str) -> Case:
    x = d.array(d.shape(d.integer(1, 3), 5, 2), d.one_of("float32", "int64", "int32", "float64", "uint8"))
    mode = d.one_of(None, "reflect", "edge", "wrap")
    axes = d.maybe(d.subset(range(x.ndim)))
    within = range(x.ndim) if axes is None else axes
    least = -1 if mode is None else 0
    pads = _ints(*(d.integer(least, min(x.shape[axis] - 1, 3)) for axis in (*within, *within)))
    value = d.maybe(d.array((), str(x.dtype))) if mode is None else None
    return Case(op_type, [x, pads, value, None if axes is None else _ints(*axes)], {"mode": mode}, known=[1, 3])


@makes("ConstantOfShape")
def _filled(d: Draw, op_type: str) -> Case:
    value = d.maybe(numpy_helper.from_array(d.array((1,), d.one_of(*TYPES))))
    return Case(op_type, [_ints(*d.shape(d.integer(0, 3), 4, 0))], {"value": value}, known=[0])


@makes("Range")
def _range(d: Draw, op_type: str) -> Case:
    dtype = d.one_of("float32", "int64", "int32", "float64", "int16")
    step = d.one_of(1, 2, 3, -1, -2)
    low, high = d.integer(-9, 9), d.integer(-9, 9)
    return Case(op_type, [np.array(each, dtype) for each in (low, high, step)], known=[0, 1, 2])


@makes("OneHot")
def _one_hot(d: Draw, op_type: str) -> Case:
    depth, kind = d.integer(1, 5), d.one_of("int64", "int32", "float32")
    indices = d.below(d.shape(d.integer(0, 2), 3), depth + 2, kind, -depth - 2)
    values = d.array((2,), d.one_of("float32", "int64", "int32"))
    return Case(op_type, [indices, np.array(depth, np.int64), values], {"axis": d.axis(indices.ndim + 1)}, known=[1])


@makes("MatMul", "Gemm")
def _product(d: Draw, op_type: str) -> Case:
    m, k, n = d.shape(3, 5, d.one_of(1, 1, 0))
    dtype = d.one_of("float32", "float64", "int32", "int64") if op_type == "MatMul" else d.one_of("float32", "float64")
    if op_type == "MatMul":
        outer = d.shape(d.integer(0, 2), 3)
        a = d.one_of((*outer, m, k), (k,))
        b = d.one_of((*outer, k, n), (k, n), (k,))
        return Case(op_type, [d.array(a, dtype), d.array(b, dtype)])
    flags = {"transA": d.maybe(1), "transB": d.maybe(1), "alpha": d.one_of(None, 0.5), "beta": d.one_of(None, 2.0)}
    a = (k, m) if flags["transA"] else (m, k)
    b = (n, k) if flags["transB"] else (k, n)
    c = d.maybe(d.array(d.one_of((m, n), (n,), (m, 1), (1, n), ()), dtype))
    return Case(op_type, [d.array(a, dtype), d.array(b, dtype), c], flags)


@makes("Compress", "NonZero", "Unique")
def _counted(d: Draw, op_type: str) -> Case:
    """Operators whose results are as large as their data say."""
    least = 1 if op_type == "Unique" else d.one_of(1, 1, 0)  # of nothing, ONNX Runtime ends the process
    x = d.array(d.shape(d.integer(1, 3), 4, least), d.one_of("float32", "int64"))
    x = np.round(x) if op_type != "Compress" else x
    axis = d.one_of(None, d.axis(x.ndim))
    if op_type == "NonZero":
        return Case(op_type, [x])
    if op_type == "Unique":
        return Case(op_type, [x], {"axis": axis, "sorted": d.one_of(None, 0)}, d.integer(1, 4))
    extent = x.size if axis is None else x.shape[axis]
    return Case(op_type, [x, d.array((d.integer(0, extent),), "bool")], {"axis": axis})


@makes("NonMaxSuppression")
def _suppress(d: Draw, op_type: str) -> Case:
    batches, classes, boxes = d.shape(3, 4)
    corner, extent = d.positive((batches, boxes, 2)), d.positive((batches, boxes, 2))
    centred = d.maybe(1)
    given = np.concatenate([corner, extent if centred else corner + extent], -1)
    scores = d.chosen(batches * classes * boxes, 64)[: batches * classes * boxes] / np.float32(64)
    inputs = [
        given, scores.reshape(batches, classes, boxes).astype("f"), d.maybe(_ints(d.integer(0, 3))),
        d.maybe(d.positive((1,))), d.maybe(d.positive((1,))),
    ]  # fmt: skip
    if inputs[2] is None:  # nothing is chosen then
        inputs[2] = _ints(2)
    return Case(op_type, inputs, {"center_point_box": centred})


@makes("MelWeightMatrix")
def _mel(d: Draw, op_type: str) -> Case:
    sizes = [np.array(each, np.int64) for each in (d.integer(1, 6), d.integer(8, 20), 8000)]
    edges = [np.array(each, np.float32) for each in (d.one_of(0.0, 100.0), d.one_of(4000.0, 3000.0))]
    return Case(op_type, [*sizes, *edges], known=[0, 1, 2, 3, 4])


@makes("DeformConv")
def _deformed(d: Draw, op_type: str) -> Case:
    n, groups, c, kernel, size = d.integer(1, 2), d.integer(1, 2), d.integer(1, 2), d.integer(1, 2), d.integer(3, 5)
    out = size - kernel + 1
    x, w = d.array((n, groups * c, size, size)), d.array((groups * 2, c, kernel, kernel))
    offset = d.array((n, 2 * kernel * kernel, out, out)) * 0.3
    mask = d.maybe(d.positive((n, kernel * kernel, out, out)))
    return Case(op_type, [x, w, offset, d.maybe(d.array((groups * 2,))), mask], {"group": groups}, opset=19)


@makes("TensorScatter")
def _cached(d: Draw, op_type: str) -> Case:
    batch, heads, most, width = d.shape(4, 4)
    steps, circular = d.integer(1, most), d.flag()
    places = d.below((batch,), most if circular else most - steps + 1)
    attrs = {"mode": "circular" if circular else None, "axis": d.one_of(None, -2, 2)}
    inputs = [d.array((batch, heads, most, width)), d.array((batch, heads, steps, width)), d.maybe(places)]
    return Case(op_type, inputs, attrs, opset=24)


@makes("TfIdfVectorizer")
def _terms(d: Draw, op_type: str) -> Case:
    shape = d.one_of((6,), (2, 5))
    attrs = {
        "mode": d.one_of("TF", "IDF", "TFIDF"), "min_gram_length": d.integer(1, 2), "max_gram_length": 2,
        "max_skip_count": d.integer(0, 2), "ngram_counts": [0, 4], "ngram_indexes": [0, 1, 2, 3, 4, 5, 6],
        "pool_int64s": [2, 3, 5, 4, 5, 6, 7, 8, 6, 7], "weights": d.maybe([1.0, 0.5, 2.0, 3.0, 0.25, 1.5, 4.0]),
    }  # fmt: skip
    return Case(op_type, [d.below(shape, 9, d.one_of("int64", "int32"), 2)], attrs)
