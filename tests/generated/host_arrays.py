"""Makers of cases for operators that reduce, move, quantise and sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from generated.host_cases import Case, Draw, makes

REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


@makes(*REDUCTIONS)
def _reduction(d: Draw, op_type: str) -> Case:
    rank = d.integer(0, 4)
    x = d.array(d.shape(rank, least=d.integer(0, 1)), d.one_of("float32", "float64", "int32", "int64"))
    if op_type.startswith("ReduceLog"):  # of integers ONNX Runtime rounds as it comes, and newer texts have none
        x = np.abs(x).astype(d.one_of("float32", "float64"))
    elif op_type == "ReduceProd":  # what integers do that overflow is open
        x = np.sign(x)
    axes = np.array([d.one_of(axis, axis - rank) for axis in d.subset(range(rank))], np.int64) if rank else None
    attrs = {"keepdims": d.one_of(None, 0, 1), "noop_with_empty_axes": d.maybe(1)}
    return Case(op_type, [x, d.maybe(axes)], attrs, known=[1])


@makes("ArgMax", "ArgMin")
def _arg_extreme(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 4)
    x = np.round(d.array(d.shape(rank)))
    return Case(op_type, [x], {"axis": d.axis(rank), "keepdims": d.one_of(None, 0), "select_last_index": d.maybe(1)})


@makes("TopK")
def _top_k(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    shape, axis = d.shape(rank), d.axis(rank)
    x = d.array(shape, d.one_of("float32", "int64", "float64"))
    count = np.array([d.integer(0, shape[axis])], np.int64)
    return Case(op_type, [x, count], {"axis": axis, "largest": d.one_of(None, 0), "sorted": 1}, 2, known=[1])


@makes("CumSum")
def _cumulate(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    x = d.array(d.shape(rank), d.one_of("float32", "int32", "int64", "float64"))
    axis = np.array(d.axis(rank), np.int64)
    return Case(op_type, [x, axis], {"exclusive": d.maybe(1), "reverse": d.maybe(1)}, known=[1])


@makes("Softmax", "LogSoftmax", "Hardmax")
def _along_axis(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 4)
    return Case(op_type, [np.round(d.array(d.shape(rank)))], {"axis": d.one_of(None, d.axis(rank))})


@makes("Einsum")
def _einsum(d: Draw, op_type: str) -> Case:
    extents = {letter: d.integer(1, 4) for letter in "abcd"}
    terms = ["".join(dict.fromkeys(d.one_of(*extents) for _ in range(d.integer(1, 3)))) for _ in range(d.integer(1, 3))]
    used = sorted(set("".join(terms)))
    result = "".join(letter for letter in used if d.flag())
    equation = ",".join(terms) + d.one_of(f"->{result}", "")
    return Case(op_type, [d.array([extents[letter] for letter in term]) for term in terms], {"equation": equation})


@makes("DepthToSpace", "SpaceToDepth")
def _depth_space(d: Draw, op_type: str) -> Case:
    block, (n, c, h, w) = d.integer(1, 3), d.shape(4, 3)
    if op_type == "SpaceToDepth":
        return Case(op_type, [d.array((n, c, h * block, w * block))], {"blocksize": block})
    x = d.array((n, c * block * block, h, w))
    return Case(op_type, [x], {"blocksize": block, "mode": d.one_of(None, "DCR", "CRD")})


@makes("GatherND", "ScatterND")
def _by_vectors(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 4)
    shape, width = d.shape(rank, 4), d.integer(1, rank)
    batch = d.integer(0, min(width - 1, 2)) if op_type == "GatherND" else 0
    x = d.array(shape, d.one_of("float32", "int64"))
    width -= batch
    most = int(np.prod(shape[batch : batch + width]))
    if op_type == "GatherND":
        outer = (*shape[:batch], *d.shape(d.integer(1, 2), 3))
        indices = d.below((*outer, width), np.array(shape[batch : batch + width]))
        return Case(op_type, [x, indices], {"batch_dims": batch or None})
    places = d.chosen(d.integer(1, most), most)
    indices = np.stack(np.unravel_index(places, shape[:width]), -1).astype(np.int64)
    updates = d.array((len(places), *shape[width:]), str(x.dtype))
    mode = d.one_of(None, "add", "mul", "max", "min")
    return Case(op_type, [x, indices, updates], {"reduction": mode})


@makes("GatherElements", "ScatterElements")
def _by_elements(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    shape, axis = d.shape(rank), d.axis(rank)
    inner = [d.integer(1, extent) for extent in shape]
    x = d.array(shape, d.one_of("float32", "int64"))
    attrs: dict[str, Any] = {"axis": axis}
    if op_type == "GatherElements":
        return Case(op_type, [x, d.below(inner, shape[axis], least=-shape[axis])], attrs)
    attrs["reduction"] = d.one_of(None, "add", "mul", "max", "min")
    if attrs["reduction"]:
        indices = d.below(inner, shape[axis], least=-shape[axis])
    else:  # which of two writers of one element wins is open
        order = np.argsort(d.array([shape[a] if a == axis % rank else inner[a] for a in range(rank)]), axis)
        indices = order[tuple(slice(extent) for extent in inner)].astype(np.int64)
    return Case(op_type, [x, indices, d.array(inner, str(x.dtype))], attrs)


@makes("ReverseSequence")
def _reverse_sequence(d: Draw, op_type: str) -> Case:
    shape, batch = d.shape(d.integer(2, 3)), d.integer(0, 1)
    lengths = d.below((shape[batch],), shape[1 - batch] + 1, least=1)
    return Case(op_type, [d.array(shape), lengths], {"batch_axis": batch, "time_axis": 1 - batch})


@makes("Trilu")
def _trilu(d: Draw, op_type: str) -> Case:
    x = d.array(d.shape(d.integer(2, 4)), d.one_of("float32", "int64", "bool"))
    return Case(op_type, [x, d.maybe(np.array(d.integer(-5, 5), np.int64))], {"upper": d.one_of(None, 0)})


@makes("EyeLike")
def _eye_like(d: Draw, op_type: str) -> Case:
    return Case(op_type, [d.array(d.shape(2))], {"k": d.integer(-3, 3), "dtype": d.one_of(None, 7, 11)})


@makes("Det")
def _det(d: Draw, op_type: str) -> Case:
    extent = d.integer(1, 4)
    return Case(op_type, [d.array((*d.shape(d.integer(0, 2)), extent, extent))])


@makes("QuantizeLinear", "DequantizeLinear")
def _quantize(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    shape, axis = d.shape(rank), d.axis(rank)
    rows = d.one_of((), (shape[axis],))
    kind = d.one_of("uint8", "int8", "int16", "uint16")
    zero = d.maybe(d.array(rows, kind))
    attrs = {"axis": axis}
    if op_type == "QuantizeLinear":
        return Case(op_type, [d.array(shape) * 40, d.positive(rows), zero], attrs, opset=21)
    x = d.array(shape, kind if zero is not None or d.flag() else "int32")
    return Case(op_type, [x, d.positive(rows), zero], attrs, opset=21)


@makes("DynamicQuantizeLinear")
def _dynamic_quantize(d: Draw, op_type: str) -> Case:
    return Case(op_type, [d.array(d.shape(d.integer(1, 3)))], {}, 3)


@makes("MatMulInteger", "QLinearMatMul")
def _integer_product(d: Draw, op_type: str) -> Case:
    m, k, n = d.shape(3)
    outer = d.shape(d.integer(0, 2), 3)
    kind = d.one_of("uint8", "int8")
    a, b = d.array((*outer, m, k), "uint8"), d.array((*d.one_of((), outer), k, n), kind)
    if op_type == "MatMulInteger":
        zeros = [d.maybe(d.array((), "uint8")), d.maybe(d.array(d.one_of((), (n,)), kind))]
        return Case(op_type, [a, b, *zeros])
    scale, zero = d.positive(()), d.array((), "uint8")
    return Case(op_type, [a, scale, zero, b, d.positive(()), d.array((), kind), d.positive(()), d.array((), "uint8")])


@makes("Resize")
def _resize(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 2)
    x = d.array((*d.shape(2, 2), *d.shape(rank, 6)))
    mode = d.one_of("nearest", "linear", "cubic") if rank == 2 else d.one_of("nearest", "linear")
    modes = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.one_of(None, *modes)}
    if mode == "nearest":
        attrs["nearest_mode"] = d.one_of(None, "floor", "ceil", "round_prefer_ceil")
    else:
        attrs["antialias"] = d.maybe(1)
    if mode == "cubic":
        attrs["exclude_outside"], attrs["cubic_coeff_a"] = d.maybe(1), d.one_of(None, -0.5)
    sizes = [d.integer(1, 9) for _ in range(rank)]
    if mode == "nearest":  # other factors make places between two elements, where rounding decides
        sizes = [extent * d.one_of(1, 2, 4) for extent in x.shape[2:]]
    if d.flag():
        attrs["antialias"] = None
        return Case(op_type, [x, None, None, np.array([*x.shape[:2], *sizes], np.int64)], attrs, known=[3])
    scales = np.array([1, 1, *(d.one_of(2.0, 0.5, 1.5, 0.75, 3.0) for _ in range(rank))], np.float32)
    return Case(op_type, [x, None, scales], attrs, known=[2])


@makes("GridSample")
def _grid_sample(d: Draw, op_type: str) -> Case:
    rank = d.integer(2, 3)
    n, c = d.shape(2, 2)
    x, grid = d.array((n, c, *d.shape(rank, 5))), d.array((n, *d.shape(rank, 4), rank)) * 0.6
    mode = d.one_of("linear", "nearest", "cubic") if rank == 2 else d.one_of("linear", "nearest")
    padding = d.one_of(None, "border", "reflection")
    return Case(op_type, [x, grid], {"mode": mode, "padding_mode": padding, "align_corners": d.maybe(1)})


@makes("AffineGrid")
def _affine_grid(d: Draw, op_type: str) -> Case:
    rank, aligned = d.integer(2, 3), d.maybe(1)
    size = np.array([d.integer(1, 2), d.integer(1, 2), *d.shape(rank, least=2 if aligned else 1)], np.int64)
    return Case(op_type, [d.array((size[0], rank, rank + 1)), size], {"align_corners": aligned}, known=[1])


@makes("RoiAlign")
def _roi_align(d: Draw, op_type: str) -> Case:
    n, c, h, w = d.shape(4, 6)
    count = d.integer(1, 3)
    corner, extent = d.positive((count, 2)) * 3, d.positive((count, 2)) * 3
    inputs = [d.array((n, c, h, w)), np.concatenate([corner, corner + extent], 1), d.below((count,), n)]
    attrs = {
        "mode": d.one_of(None, "max"), "output_height": d.integer(1, 3), "output_width": d.integer(1, 3),
        "sampling_ratio": d.integer(0, 2), "spatial_scale": d.one_of(None, 0.5),
        "coordinate_transformation_mode": d.one_of(None, "output_half_pixel"),
    }  # fmt: skip
    return Case(op_type, inputs, attrs)


@makes("MaxRoiPool")
def _max_roi_pool(d: Draw, op_type: str) -> Case:
    n, c, h, w = d.shape(4, 6)
    count = d.integer(1, 3)
    corner = d.below((count, 2), 3, "float32")
    rois = np.concatenate([d.below((count, 1), n, "float32"), corner, corner + d.below((count, 2), 4, "float32")], 1)
    return Case(op_type, [d.array((n, c, h, w)), rois], {"pooled_shape": d.integers(2, 1, 3)})


@makes("Col2Im")
def _col2im(d: Draw, op_type: str) -> Case:
    rank = 2
    block, image = d.integers(rank, 1, 3), d.integers(rank, 3, 6)
    strides, dilations, pads = d.integers(rank, 1, 2), d.integers(rank, 1, 2), d.integers(2 * rank, 0, 1)
    steps = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    if min(steps) < 1:
        return _col2im(d, op_type)
    x = d.array((d.integer(1, 2), d.integer(1, 2) * int(np.prod(block)), int(np.prod(steps))))
    shapes = [np.array(each, np.int64) for each in (image, block)]
    return Case(op_type, [x, *shapes], {"strides": strides, "dilations": dilations, "pads": pads}, known=[1, 2])


@makes("CenterCropPad")
def _center_crop_pad(d: Draw, op_type: str) -> Case:
    rank = d.integer(1, 3)
    axes = d.maybe(d.subset(range(rank)))
    shape = np.array(d.shape(rank if axes is None else len(axes), 6), np.int64)
    return Case(op_type, [d.array(d.shape(rank)), shape], {"axes": axes}, known=[1])


@makes("DFT")
def _dft(d: Draw, op_type: str) -> Case:
    rank = d.integer(2, 3)
    inverse = d.maybe(1)
    x = d.array((*d.shape(rank), 2 if inverse else d.integer(1, 2)))
    axis = np.array(d.integer(0, rank - 1), np.int64)
    length = d.maybe(np.array(d.integer(1, 7), np.int64))
    onesided = None if inverse or x.shape[-1] == 2 else d.maybe(1)
    return Case(op_type, [x, length, axis], {"inverse": inverse, "onesided": onesided}, known=[1, 2])


@makes("STFT")
def _stft(d: Draw, op_type: str) -> Case:
    frame, step = d.integer(2, 6), d.integer(1, 3)
    x = d.array((d.integer(1, 2), frame + d.integer(0, 8), 1))
    inputs = [x, np.array(step, np.int64), d.positive((frame,)), np.array(frame, np.int64)]
    return Case(op_type, inputs, {"onesided": d.one_of(1, 0)}, known=[1, 3])


@makes("HannWindow", "HammingWindow", "BlackmanWindow")
def _weighting(d: Draw, op_type: str) -> Case:
    attrs = {"periodic": d.one_of(None, 0), "output_datatype": d.one_of(None, 11)}
    return Case(op_type, [np.array(d.integer(1, 9), np.int64)], attrs, known=[0])


@makes("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(d: Draw, op_type: str) -> Case:
    n, c = d.integer(1, 4), d.integer(1, 4)
    rest = d.shape(d.integer(0, 2), 3)
    ignored = d.one_of(None, 0)
    attrs = {"reduction": d.one_of(None, "sum", "none"), "ignore_index": ignored}
    inputs = [d.array((n, c, *rest)), d.below((n, *rest), c), d.maybe(d.positive((c,)))]
    return Case(op_type, inputs, attrs, d.integer(1, 2) if op_type == "SoftmaxCrossEntropyLoss" else 1)


@makes("RotaryEmbedding")
def _rotary_embedding(d: Draw, op_type: str) -> Case:
    batch, steps, heads, half = d.shape(4, 3)
    size = 2 * half
    rotated = d.one_of(0, 2 * d.integer(1, half))
    width = (rotated or size) // 2
    flat = d.flag()
    x = d.array((batch, steps, heads * size) if flat else (batch, heads, steps, size))
    table = d.maybe(d.below((batch, steps), 4))
    shape = (4, width) if table is not None else (batch, steps, width)
    attrs = {
        "interleaved": d.maybe(1), "num_heads": heads if flat else None, "rotary_embedding_dim": rotated or None,
    }  # fmt: skip
    return Case(op_type, [x, d.array(shape), d.array(shape), table], attrs, opset=23)


@makes("Attention")
def _attention(d: Draw, op_type: str) -> Case:
    batch, queries, keys, size = d.shape(4, 4)
    shared = d.integer(1, 2)
    heads = shared * d.integer(1, 2)
    width = d.integer(1, 3)
    shapes = ((batch, heads, queries, size), (batch, shared, keys, size), (batch, shared, keys, width))
    mask = d.maybe(d.array((queries, keys), d.one_of("float32", "bool")))
    attrs = {"is_causal": d.maybe(1), "scale": d.one_of(None, 0.5), "softcap": d.one_of(None, 2.0)}
    return Case(op_type, [*map(d.array, shapes), mask], attrs, opset=23)
