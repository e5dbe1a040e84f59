"""Random nodes of com.microsoft's operators on whole numbers and on weights of few bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from generated.microsoft_cases import Array, Case, Draw, draws
from support.comparison import exact_weights

BYTES = (np.uint8, np.int8)


def parameters(draw: Draw, kind: Any, *shape: int) -> tuple[Array, Array]:
    """Return a scale and a zero point."""
    return (draw.positive(*shape) / 10).astype(np.float32), draw.bytes(kind, *shape)


@draws("QuantizeLinear")
def _quantize(draw: Draw) -> Case:
    kind = draw.one(np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4)
    x, attrs, shape = 3 * draw.f(2, 3, 8), dict[str, Any](), ()
    if draw.yes():
        attrs["axis"] = draw.one(0, 1, 2, -1)
        shape = (x.shape[attrs["axis"]],)
    scale, zero = parameters(draw, kind, *shape)
    info, spread = ml_dtypes.iinfo(kind), [1, 1, 1]
    if shape:
        spread[attrs["axis"]] = -1
    wide, moved = (each.astype("f8").reshape(spread if shape else ()) for each in (scale, zero))
    y = np.clip(np.rint(x / wide) + moved, int(info.min), int(info.max)).astype(kind)
    small = kind in (ml_dtypes.uint4, ml_dtypes.int4)  # numpy has no such type for ONNX Runtime
    return Case((x, scale, zero), attrs, known=(1, 2), steps=1, expected=(y,) if small else None)


@draws("DequantizeLinear")
def _dequantize(draw: Draw) -> Case:
    kind = draw.one(np.uint8, np.int8, np.uint16, np.int16, np.int32, ml_dtypes.uint4, ml_dtypes.int4)
    attrs, shape, dims = dict[str, Any](), (), (2, 3, 8)
    if draw.yes():
        attrs["axis"] = draw.one(0, 1, 2, -1)
        shape = (dims[attrs["axis"]],)
    scale, zero = parameters(draw, np.int8 if kind is np.int32 else kind, *shape)
    wanted = None if kind is np.int32 else zero
    x = draw.ints(-1000, 1000, *dims, dtype=kind) if kind is np.int32 else draw.bytes(kind, *dims)
    return Case((x, scale, wanted), attrs, known=(0, 1, 2) if kind in (ml_dtypes.uint4, ml_dtypes.int4) else (1, 2))


@draws("MatMulNBits")
def _few_bits(draw: Draw) -> Case:
    bits, block, n, k = draw.one(2, 4, 8), draw.one(16, 32, 64), draw.int(1, 20), draw.int(1, 100)
    blocks = -(-k // block)
    weights = draw.bytes(np.uint8, n, blocks, block * bits // 8)
    zeros = draw.one(
        lambda: None,
        lambda: draw.bytes(np.uint8, n, -(-blocks * bits // 8)),
        lambda: (2.0 ** (bits - 1) + draw.f(n, blocks)).astype(np.float32),
    )()
    if bits == 8 and zeros is not None and zeros.dtype != np.uint8:
        zeros = None
    scale, in_blocks = draw.f(n, blocks), (np.arange(k) // block).astype(np.int32)
    order = draw.one(draw.ints(0, blocks - 1, k, dtype=np.int32), in_blocks[::-1].copy()) if draw.yes(0.2) else None
    bias = draw.maybe(lambda: draw.f(n)) if order is None else None
    known = range(1, 6) if draw.yes(0.8) else (5,)
    x = draw.f(*draw.shape(1, 2, 4), k)
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    attrs |= {"accuracy_level": draw.int(0, 1)} if draw.yes() else {}
    expected = None
    if order is not None:  # ONNX Runtime computes some of these otherwise than it says, and others not at all
        zero = np.full((n, blocks), 2.0 ** (bits - 1)) if zeros is None else zeros
        zero = parts(zero, bits).reshape(n, -1) if zero.dtype == np.uint8 else zero
        whole = parts(weights, bits).reshape(n, -1)[:, :k] - zero[:, order]
        expected = (x @ (whole * scale[:, order]).T,)
    return Case((x, weights, scale, zeros, order, bias), attrs, known=known, tolerance=1e-4, expected=expected)


def parts(packed: Array, bits: int) -> Array:
    """Return the numbers that lie in bytes, the first one in the lowest bits."""
    return ((packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & ((1 << bits) - 1)).astype(np.float64)


@draws("MatMulBnb4")
def _bitsandbytes(draw: Draw) -> Case:
    n, k, block = draw.int(1, 20), draw.int(1, 60), draw.one(16, 32, 64)
    weights, scale = draw.bytes(np.uint8, -(-n * k // 2)), draw.f(-(-n * k // block))
    attrs = {"K": k, "N": n, "block_size": block, "quant_type": draw.int(0, 1)}
    return Case((draw.f(*draw.shape(1, 2, 4), k), weights, scale), attrs, known=(1, 2), tolerance=1e-4)


@draws("GatherBlockQuantized")
def _gather_blocks(draw: Draw) -> Case:
    kind = draw.one(np.uint8, np.uint8, ml_dtypes.uint4, ml_dtypes.int4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    block, bits, rank = draw.one(16, 32), draw.one(2, 4, 8), draw.int(2, 3)
    shape = [draw.int(2, 5) for _ in range(rank)]
    is_byte, is_float = kind is np.uint8, kind not in (np.uint8, ml_dtypes.uint4, ml_dtypes.int4)
    taken = 0 if is_byte else draw.int(0, rank - 1)
    blocked = draw.one(*(axis for axis in range(rank) if axis != taken)) if is_byte else draw.int(0, rank - 1)
    shape[blocked] = draw.int(1, 3) * block if draw.yes() else draw.int(1, 70) // 8 * 8 + 8
    shape[-1] = -(-shape[-1] // 8) * 8
    scales = [-(-extent // block) if axis == blocked else extent for axis, extent in enumerate(shape)]
    extent = shape[taken]
    each = 8 // bits if is_byte else 1
    data = draw.f(*shape).astype(kind) if is_float else draw.bytes(kind, *shape[:-1], shape[-1] // each)
    packed = [*scales[:-1], -(-scales[-1] * bits // 8)] if is_byte else scales
    zeros = None if is_float or draw.yes() else draw.bytes(kind, *packed)
    indices = draw.ints(-extent, extent - 1, *draw.shape(0, 2, 4), dtype=draw.one(np.int32, np.int64))
    if draw.yes(0.3) and indices.size:
        indices.reshape(-1)[0] = draw.one(extent, -extent - 1, 1000)
    if is_float and draw.yes(0.4):  # one block is all of the axis, and a scale may be for all of others
        block = 0
        scales = [1 if axis == blocked or draw.yes(0.3) else own for axis, own in enumerate(shape)]
    attrs = {"block_size": block, "gather_axis": taken, "quantize_axis": blocked, "bits": bits if is_byte else 4}
    return Case((data, indices, draw.f(*scales), zeros), attrs, known=(0, 2, 3))


@draws("QAttention")
def _attention(draw: Draw) -> Case:
    heads, size, length, batch = draw.int(1, 3), draw.int(1, 4), draw.int(1, 5), 2
    hidden, kind = heads * size, draw.one(np.uint8, np.int8)
    past = draw.int(1, 3) if draw.yes(0.3) else 0
    x, w = draw.bytes(np.uint8, batch, length, 6), draw.bytes(kind, 6, 3 * hidden)
    columns = (3 * hidden,) if draw.yes(0.3) else ()
    x_scale, w_scale = np.float32(0.01), np.asarray(draw.positive(*columns) / 50, np.float32)
    w_zero = (
        draw.ints(-5, 5, *columns, dtype=np.int8) if kind is np.int8 else draw.ints(110, 140, *columns, dtype=np.uint8)
    )
    mask = (np.arange(length + past) < draw.ints(1, length + past, batch, 1)).astype(np.int32)
    given = [
        *(x, w, draw.f(3 * hidden), np.asarray(x_scale), w_scale, mask if draw.yes() else None),
        *(
            np.asarray(draw.ints(100, 150, dtype=np.uint8)),
            w_zero,
            draw.f(2, batch, heads, past, size) if past else None,
        ),
    ]
    attrs = {"num_heads": heads, "unidirectional": draw.int(0, 1)}
    return Case(given, attrs, (True, bool(past)), known=(1, 2, 3, 4, 6, 7), tolerance=2e-4)


@draws("QLinearAdd", "QLinearMul")
def _binary(draw: Draw) -> Case:
    kind, shape = draw.one(*BYTES), draw.shape(1, 3)
    other = draw.one(shape, shape[-1:], ())
    given: list[Array] = []
    for each in (shape, other):
        given += [draw.bytes(kind, *each), *parameters(draw, kind)]
    return Case((*given, *parameters(draw, kind)), known=(1, 2, 4, 5, 6, 7), steps=1)


@draws("QLinearSigmoid", "QLinearLeakyRelu")
def _unary(draw: Draw) -> Case:
    kind = draw.one(*BYTES)
    given = (draw.bytes(kind, *draw.shape(1, 3)), *parameters(draw, kind), *parameters(draw, kind))
    return Case(given, known=(1, 2, 3, 4), steps=1)


@draws("QLinearSoftmax")
def _softmax(draw: Draw) -> Case:
    kind, x = draw.one(*BYTES), draw.shape(2, 3)
    zero = np.asarray(np.iinfo(kind).min, kind)
    given = (draw.bytes(kind, *x), *parameters(draw, kind), np.float32(1 / 256), zero)
    return Case([np.asarray(each) for each in given], {"axis": -1, "opset": 13}, known=(1, 2, 3, 4), steps=1)


@draws("QLinearConcat")
def _concat(draw: Draw) -> Case:
    kind, axis, shape = draw.one(*BYTES), draw.int(0, 1), [3, 4]
    given = [*parameters(draw, kind)]
    for _ in range(draw.int(1, 3)):
        shape[axis] = draw.int(1, 5)
        given += [draw.bytes(kind, *shape), *parameters(draw, kind)]
    known = [place for place in range(len(given)) if place < 2 or place % 3 != 2]
    return Case(given, {"axis": axis}, known=known, steps=1)


@draws("QLinearWhere")
def _where(draw: Draw) -> Case:
    kind = draw.one(*BYTES)
    given: list[Array] = [draw.ints(0, 1, 3, 4).astype(bool)]
    for shape in ((3, 4), (4,)):
        given += [draw.bytes(kind, *shape), *parameters(draw, kind)]
    return Case((*given, *parameters(draw, kind)), known=(2, 3, 5, 6, 7, 8), steps=1)


@draws("QLinearReduceMean")
def _mean(draw: Draw) -> Case:
    kind, keeps = draw.one(*BYTES), draw.int(0, 1)
    x, (scale, zero), (out, moved) = draw.bytes(kind, 3, 4, 5), parameters(draw, kind), parameters(draw, kind)
    mean = ((x.astype("f8") - zero) * scale).mean((1, 2), keepdims=bool(keeps))
    info = np.iinfo(kind)
    y = np.clip(np.rint(mean / out) + moved, info.min, info.max).astype(kind)
    given = (x, scale, zero, out, moved)
    return Case(given, {"axes": [1, 2], "keepdims": keeps}, known=(1, 2, 3, 4), steps=1, expected=(y,))


@draws("QLinearAveragePool")
def _average(draw: Draw) -> Case:
    kind, last = draw.one(*BYTES), draw.int(0, 1)
    shape = (1, 8, 9, 4) if last else (1, 4, 8, 9)
    attrs = {
        "kernel_shape": [draw.int(1, 3), draw.int(1, 3)],
        "strides": [draw.int(1, 2), draw.int(1, 2)],
        "channels_last": last,
    }
    attrs |= {"pads": [0, 0, 0, 0], "count_include_pad": draw.int(0, 1)}
    given = (draw.bytes(kind, *shape), *parameters(draw, kind), *parameters(draw, kind))
    return Case(given, attrs, known=(1, 2, 3, 4), steps=1)


@draws("QLinearGlobalAveragePool")
def _global(draw: Draw) -> Case:
    kind, last = draw.one(*BYTES), draw.int(0, 1)
    given = (draw.bytes(kind, 2, 3, 4, 5), *parameters(draw, kind), *parameters(draw, kind))
    return Case(given, {"channels_last": last}, known=(1, 2, 3, 4), steps=1)


@draws("NhwcMaxPool")
def _greatest(draw: Draw) -> Case:
    attrs = {"kernel_shape": [draw.int(1, 3)] * 2, "strides": [draw.int(1, 2)] * 2, "pads": [0, 0, 0, 0]}
    return Case((draw.bytes(draw.one(*BYTES), 1, 8, 9, draw.int(1, 20)),), attrs)


@draws("QLinearConv")
def _conv(draw: Draw) -> Case:
    kind, groups, i, o = draw.one(*BYTES), draw.one(1, 2), draw.int(1, 4), draw.int(1, 4)
    weights = np.int8 if kind is np.int8 else draw.one(*BYTES)
    each = (o * groups,) if draw.yes() else ()
    w = exact_weights(draw.bytes(weights, o * groups, i, 3, 2))
    zero = np.zeros(each, weights) if weights is np.int8 else draw.bytes(weights)
    last = draw.int(0, 1)
    shape = (1, 7, 8, i * groups) if last else (1, i * groups, 7, 8)
    given = [draw.bytes(kind, *shape), *parameters(draw, kind), w, (draw.positive(*each) / 50).astype(np.float32), zero]
    bias = draw.maybe(lambda: draw.ints(-500, 500, o * groups, dtype=np.int32))
    given = [*given, *parameters(draw, kind), *([] if bias is None else [bias])]
    attrs = {"group": groups, "kernel_shape": [3, 2], "pads": [draw.int(0, 1)] * 4, "channels_last": last}
    return Case([np.asarray(each) for each in given], attrs, known=range(1, 9), steps=1)


@draws("QGemm")
def _gemm(draw: Draw) -> Case:
    kind, m, n, k = draw.one(*BYTES), draw.int(1, 5), draw.int(1, 20), draw.int(1, 20)
    attrs = {"transA": draw.int(0, 1), "transB": draw.int(0, 1), "alpha": draw.one(1.0, 0.5)}
    a = draw.bytes(kind, *((k, m) if attrs["transA"] else (m, k)))
    other = np.int8 if kind is np.int8 else draw.one(*BYTES)
    b = draw.bytes(other, *((n, k) if attrs["transB"] else (k, n)))
    c = draw.maybe(lambda: draw.ints(-500, 500, n, dtype=np.int32))
    given: list[Array | None] = [a, *parameters(draw, kind), b, *parameters(draw, other), c]
    if draw.yes():
        given += [*parameters(draw, kind)]
    return Case(given, attrs, known=(1, 2, 3, 4, 5, 6, 7, 8), steps=1)


@draws("MatMulIntegerToFloat")
def _to_float(draw: Draw) -> Case:
    kind, m, n, k = draw.one(*BYTES), draw.int(1, 5), draw.int(1, 20), draw.int(1, 20)
    other = np.int8 if kind is np.int8 else draw.one(*BYTES)
    each = (n,) if draw.yes() else ()
    (a_scale, a_zero), (b_scale, b_zero) = parameters(draw, kind), parameters(draw, other, *each)
    given = (draw.bytes(kind, 2, m, k), draw.bytes(other, k, n), a_scale, b_scale, a_zero, b_zero,
             draw.maybe(lambda: draw.f(n)))  # fmt: skip
    return Case(given, known=(1, 2, 3, 4, 5, 6))


@draws("DynamicQuantizeMatMul")
def _dynamic(draw: Draw) -> Case:
    n, k, kind = draw.int(1, 20), draw.int(1, 20), draw.one(*BYTES)
    scale, zero = parameters(draw, kind, *((n,) if draw.yes() else ()))
    given = (
        draw.f(2, 3, k),
        draw.bytes(kind, k, n),
        scale,
        zero if draw.yes() else None,
        draw.maybe(lambda: draw.f(n)),
    )
    return Case(given, known=(1, 2, 3, 4), tolerance=1e-2)


@draws("QLinearMatMul")
def _qlinear_matmul(draw: Draw) -> Case:
    m, n, k = draw.int(1, 5), draw.int(1, 20), draw.int(1, 20)
    a, b = draw.bytes(np.uint8, m, k), draw.bytes(np.int8, k, n)
    (a_scale, a_zero), (b_scale, b_zero), (scale, zero) = (
        parameters(draw, kind) for kind in (np.uint8, np.int8, np.uint8)
    )
    wide = (a.astype("f8") - a_zero) @ (b.astype("f8") - b_zero) * (a_scale * b_scale)
    y = np.clip(np.rint(wide / scale) + zero, 0, 255).astype(np.uint8)
    given = (a, a_scale, a_zero, b, b_scale, b_zero, scale, zero)
    return Case(given, known=(1, 2, 3, 4, 5, 6, 7), steps=1, expected=(y,))


@draws("MulInteger")
def _multiply(draw: Draw) -> Case:
    kind = draw.one(*BYTES)
    a, b, za, zb = (draw.bytes(kind, *shape) for shape in ((3, 4), (4,), (), ()))
    y = (a.astype(np.int32) - za) * (b.astype(np.int32) - zb)
    return Case((a, za, b, zb), expected=(y.astype(np.int32),))


@draws("ReduceSumInteger")
def _sum(draw: Draw) -> Case:
    kind = draw.one(*BYTES)
    x = draw.bytes(kind, 3, 4, 5)
    y = x.astype(np.int32 if kind is np.int8 else np.uint32).sum((0, 2), dtype=np.int64, keepdims=True)
    return Case((x,), {"axes": [0, 2], "keepdims": 1}, expected=(y.astype(np.int32 if kind is np.int8 else np.uint32),))


@draws("MatMulInteger16")
def _matmul16(draw: Draw) -> Case:
    k = draw.int(1, 9)
    return Case((draw.ints(-900, 900, 2, 3, k, dtype=np.int16), draw.ints(-900, 900, k, 5, dtype=np.int16)))
