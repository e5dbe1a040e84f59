"""Random nodes of com.microsoft's fused products, activations and normalizations."""

from __future__ import annotations

from math import erf
from typing import Any

import numpy as np

from generated.microsoft_cases import Array, Case, Draw, draws

PARAMETERS = {
    **dict.fromkeys(("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Elu", "LeakyRelu", "ThresholdedRelu", "Celu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
    "ScaledTanh": ("alpha", "beta"),
    "ParametricSoftplus": ("alpha", "beta"),
}


def sigmoid(x: Array) -> Array:
    """Return the logistic function."""
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> Array:
    """Return GELU by the error function."""
    return x * 0.5 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


@draws("FusedConv")
def fused_conv(draw: Draw) -> Case:
    """An activation, a sum, groups, strides and pads."""
    attrs, rank = convolution(draw)
    groups, inputs, outputs = attrs["group"], draw.int(1, 4), draw.int(1, 4)
    x = draw.f(draw.int(1, 2), inputs * groups, *(draw.int(6, 9) for _ in range(rank)))
    w = draw.f(outputs * groups, inputs, *attrs["kernel_shape"])
    activate(draw, attrs)
    given: list[Any] = [x, w, draw.maybe(lambda: draw.f(outputs * groups))]
    if draw.yes(0.4):
        extents = [
            (extent + attrs["pads"][i] + attrs["pads"][i + rank] - attrs["dilations"][i] * (size - 1) - 1)
            // attrs["strides"][i]
            + 1
            for i, (extent, size) in enumerate(zip(x.shape[2:], attrs["kernel_shape"], strict=True))
        ]
        given.append(draw.f(x.shape[0], outputs * groups, *extents))
    return Case(given, attrs, known=(1, 2))


def convolution(draw: Draw, rank: int = 2) -> tuple[dict[str, Any], int]:
    """Return attributes of a convolution."""
    return {
        "kernel_shape": [draw.int(1, 3) for _ in range(rank)],
        "strides": [draw.int(1, 2) for _ in range(rank)],
        "pads": [draw.int(0, 1) for _ in range(2 * rank)],
        "dilations": [draw.int(1, 2) for _ in range(rank)],
        "group": draw.one(1, 1, 2),
    }, rank


def activate(draw: Draw, attrs: dict[str, Any]) -> None:
    """Add an activation that convolutions have, or none."""
    kind = draw.one("", "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid")
    if kind:
        attrs["activation"] = kind
    if kind in ("LeakyRelu", "Clip", "HardSigmoid"):
        values = {"LeakyRelu": [0.3], "Clip": [-0.4, 0.7], "HardSigmoid": [0.3, 0.4]}[kind]
        attrs["activation_params"] = values


@draws("NhwcConv", "NhwcFusedConv")
def nhwc_conv(draw: Draw) -> Case:
    """A convolution of one window that reads channels last."""
    x, w, b = draw.f(2, 5, 6, 3), draw.f(4, 3, 2, 3), draw.maybe(lambda: draw.f(4))
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3), (1, 2))
    y = np.einsum("nhwcij,ocij->nhwo", windows, w)
    return Case((x, w, b), {"kernel_shape": [2, 3]}, known=(1, 2), expected=(y if b is None else y + b,))


@draws("FusedGemm")
def fused_gemm(draw: Draw) -> Case:
    """Every activation with its parameters."""
    m, n, k, attrs = draw.int(1, 5), draw.int(1, 9), draw.int(1, 9), dict[str, Any]()
    attrs |= {name: draw.int(0, 1) for name in ("transA", "transB") if draw.yes()}
    attrs |= {name: draw.one(0.5, 2.0) for name in ("alpha", "beta") if draw.yes()}
    kind = draw.one(*PARAMETERS)
    attrs["activation"] = kind
    attrs |= {f"activation_{name}": float(draw.positive()) for name in PARAMETERS[kind]}
    a = draw.f(*((k, m) if attrs.get("transA") else (m, k)))
    b = draw.f(*((n, k) if attrs.get("transB") else (k, n)))
    return Case((a, b, draw.maybe(lambda: draw.f(n))), attrs, known=(1,) if draw.yes() else ())


@draws("FusedMatMul")
def fused_matmul(draw: Draw) -> Case:
    """Transposed matrices, also with their batch."""
    attrs, sides = dict[str, Any](), []
    batch, m, n, k = draw.shape(1, 2, 3), draw.int(1, 5), draw.int(1, 5), draw.int(1, 5)
    for side, (rows, columns) in (("A", (m, k)), ("B", (k, n))):
        turned, moved = draw.yes(), draw.yes(0.3)
        attrs |= {f"trans{side}": int(turned), f"transBatch{side}": int(moved)}
        inner = [columns, rows] if turned else [rows, columns]
        sides.append(draw.f(*((*batch[1:], inner[0], batch[0], inner[1]) if moved else (*batch, *inner))))
        if moved:  # the first of the matrix stands in front of the batch
            sides[-1] = draw.f(inner[0], *batch, inner[1])
    if draw.yes():
        attrs["alpha"] = 0.25
    return Case(sides, attrs)


@draws("TransposeMatMul")
def transpose_matmul(draw: Draw) -> Case:
    """The older form of FusedMatMul."""
    case = fused_matmul(draw)
    attrs = {name: value for name, value in case.attrs.items() if not name.startswith("transBatch")}
    a, b = (3, 4), (4, 5)
    shapes = [each[::-1] if attrs[f"trans{side}"] else each for each, side in ((a, "A"), (b, "B"))]
    return Case([draw.f(2, *shape) for shape in shapes], attrs)


@draws("Gelu")
def _gelu(draw: Draw) -> Case:
    return Case((3 * draw.f(*draw.shape(1, 4)),))


@draws("BiasGelu")
def _bias_gelu(draw: Draw) -> Case:
    x = draw.f(*draw.shape(2, 3))
    return Case((x, draw.f(x.shape[-1])))


@draws("FastGelu")
def _fast_gelu(draw: Draw) -> Case:
    x = draw.f(*draw.shape(2, 3))
    return Case((x, draw.maybe(lambda: draw.f(x.shape[-1]))), tolerance=1e-4)


@draws("QuickGelu")
def _quick_gelu(draw: Draw) -> Case:
    return Case((draw.f(*draw.shape(1, 4)),), {"alpha": draw.one(1.0, 1.702, -0.5)} if draw.yes(0.8) else {})


@draws("GemmFastGelu")
def _gemm_gelu(draw: Draw) -> Case:
    x, w, b = draw.f(2, 3, 4), draw.f(4, 5), draw.f(5)
    y = x @ w + b
    return Case((x, w, b), expected=(0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3))),))


@draws("BiasSplitGelu")
def _split_gelu(draw: Draw) -> Case:
    x, b = draw.f(2, 3, 8), draw.f(8)
    return Case((x, b), expected=((x + b)[..., :4] * gelu((x + b)[..., 4:]),))


@draws("BiasAdd")
def _bias_add(draw: Draw) -> Case:
    x, b, skip = draw.f(2, 3, 8), draw.f(8), draw.f(2, 3, 8)
    return Case((x, b, skip), expected=(x + b + skip,))


@draws("BiasSoftmax")
def _bias_softmax(draw: Draw) -> Case:
    inner, x = draw.yes(), draw.f(2, 3, 4, 5)
    b = draw.f(2, 1, 4, 5) if inner else draw.f(3, 4, 5)
    total = (x + b).reshape(6, 20)
    e = np.exp(total - total.max(-1, keepdims=True))
    y = (e / e.sum(-1, keepdims=True)).reshape(x.shape)
    return Case((x, b), {"axis": 2, "is_inner_broadcast": int(inner)}, expected=(y,))


@draws("SkipLayerNormalization")
def _skip_norm(draw: Draw) -> Case:
    x = draw.f(2, draw.int(1, 5), draw.int(2, 20))
    c = x.shape[-1]
    skip = draw.one(lambda: draw.f(*x.shape), lambda: draw.f(*x.shape[1:]), lambda: draw.f(1, *x.shape[1:]))()
    given = (x, skip, draw.f(c), draw.maybe(lambda: draw.f(c)), draw.maybe(lambda: draw.f(c)))
    return Case(given, {"epsilon": draw.one(1e-12, 1e-3)}, (True, False, False, draw.yes()), tolerance=1e-4)


@draws("SkipSimplifiedLayerNormalization")
def _skip_rms(draw: Draw) -> Case:
    case = _skip_norm(draw)
    x, skip, scale, _, bias = case.inputs
    return case._replace(inputs=(x, skip, scale, bias))


@draws("SimplifiedLayerNormalization")
@draws("SimplifiedLayerNormalization", domain="")
def _rms(draw: Draw) -> Case:
    x, epsilon = draw.f(*draw.shape(2, 4)), draw.one(1e-5, 1e-2)
    scale = draw.f(x.shape[-1])
    y = x / np.sqrt((x.astype("f8") ** 2).mean(-1, keepdims=True) + epsilon) * scale
    return Case((x, scale), {"axis": -1, "epsilon": epsilon}, expected=(y,))


@draws("LayerNormalization")
def _norm(draw: Draw) -> Case:
    x, epsilon = draw.f(*draw.shape(2, 4)), draw.one(1e-5, 1e-2)
    scale, bias = draw.f(x.shape[-1]), draw.f(x.shape[-1])
    wide = x.astype("f8")
    y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + epsilon) * scale + bias
    return Case((x, scale, bias), {"axis": -1, "epsilon": epsilon}, expected=(y,))


@draws("GroupNorm")
def _group_norm(draw: Draw) -> Case:
    return _groups(draw, skips=False)


@draws("SkipGroupNorm")
def _skip_group_norm(draw: Draw) -> Case:
    return _groups(draw, skips=True)


def _groups(draw: Draw, *, skips: bool) -> Case:
    groups, last = draw.int(1, 3), draw.yes(0.7)
    channels, epsilon, silu = groups * draw.int(1, 3), draw.one(1e-5, 1e-2), draw.int(0, 1)
    image = draw.f(2, 3, 4, channels)
    given, total = [image, draw.f(channels), draw.f(channels)], image
    attrs = {"groups": groups, "epsilon": epsilon, "activation": silu, "channels_last": int(last)}
    if skips:
        skip = draw.f(*draw.one((2, 3, 4, channels), (2, 1, 1, channels), (2, channels)))
        bias = draw.maybe(lambda: draw.f(channels))
        given += [skip, *(() if bias is None else (bias,))]
        total = image + (skip if skip.ndim == 4 else skip[:, None, None]) + (0 if bias is None else bias)
    x = total.astype("f8").reshape(2, 12, groups, -1)
    y = (x - x.mean((1, 3), keepdims=True)) / np.sqrt(x.var((1, 3), keepdims=True) + epsilon)
    y = y.reshape(image.shape) * given[1] + given[2]
    y = y * sigmoid(y) if silu else y
    if not last:
        given, y, total = [_front(each) for each in given], _front(y), _front(total)
    return Case(given, attrs, (True, True) if skips else (True,), expected=(y, total) if skips else (y,))


def _front(image: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(image, -1, 1)) if image.ndim == 4 else image


@draws("EmbedLayerNormalization")
def _embed(draw: Draw) -> Case:
    batch, length, hidden = 2, draw.int(1, 5), draw.int(2, 12)
    segments, kind = draw.yes(), draw.one(np.int32)
    ids = draw.ints(0, 8, batch, length, dtype=kind)
    given = [
        *(ids, draw.ints(0, 1, batch, length, dtype=kind) if segments else None, draw.f(9, hidden), draw.f(7, hidden)),
        *(draw.f(2, hidden) if segments else None, draw.f(hidden), draw.f(hidden)),
        *(
            draw.maybe(lambda: _mask(draw, batch, length)),
            draw.maybe(lambda: draw.ints(0, 6, batch, length, dtype=kind)),
        ),
    ]
    return Case(given, {"epsilon": 1e-5}, (True, True, draw.yes()), tolerance=1e-4)


def _mask(draw: Draw, batch: int, length: int) -> Array:
    return (np.arange(length) < draw.ints(1, length, batch, 1)).astype(np.int32)


@draws("QEmbedLayerNormalization")
def _quantized_embed(draw: Draw) -> Case:
    batch, length, hidden, kind = 2, draw.int(1, 5), draw.int(2, 12), draw.one(np.uint8, np.int8)
    segments = draw.yes()
    tables: list[Array | None] = [draw.bytes(kind, *shape) for shape in ((9, hidden), (7, hidden), (2, hidden))]
    tables += [draw.bytes(kind, hidden), draw.bytes(kind, hidden)]
    scales: list[Array | None] = [np.float32(draw.positive() / 20) for _ in range(5)]
    zeros: list[Array | None] = [draw.bytes(kind) for _ in range(5)]
    if not segments:
        tables[2] = scales[2] = zeros[2] = None
    ids = draw.ints(0, 8, batch, length, dtype=np.int32)
    types = draw.ints(0, 1, batch, length, dtype=np.int32) if segments else None
    given = [ids, types, *tables, _mask(draw, batch, length) if draw.yes() else None, *scales, *zeros]
    return Case([None if each is None else np.asarray(each) for each in given], {"epsilon": 1e-5}, (True, True),
                known=range(2, 18), tolerance=1e-4)  # fmt: skip
