"""Random nodes of com.microsoft's operators that move elements, of its mathematics, gates, positions and attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from generated.microsoft_cases import Array, Case, Draw, draws

KINDS = (np.float32, np.int64, np.int32, np.uint8, np.float64, np.bool_)


@draws("Pad")
def _pad(draw: Draw) -> Case:
    x, mode = draw.f(*draw.shape(1, 4, 6)), draw.one("constant", "constant", "reflect", "edge", "wrap")
    least = -1 if mode == "constant" else 0
    pads = [draw.int(least if extent > 2 else 0, min(2, extent - 1)) for extent in x.shape * 2]
    given = np.array([pads] if draw.yes(0.3) else pads, np.int64)
    value = draw.maybe(lambda: draw.f(*draw.one((), (1,)))) if mode == "constant" else None
    return Case((x, given, value), {"mode": mode}, known=(1,) if draw.yes(0.8) else ())


@draws("Range")
def _range(draw: Draw) -> Case:
    kind, shape = draw.one(np.int16, np.int32, np.int64, np.float32, np.float64), draw.one((), (1,))
    step = draw.one(1, 2, -1, 3)
    first, last = draw.int(-9, 9), draw.int(-9, 9)
    given = [np.full(shape, each, kind) for each in (first, last, step)]
    return Case(given[: draw.int(2, 3)], known=(0, 1, 2) if draw.yes(0.7) else ())


@draws("Trilu")
def _trilu(draw: Draw) -> Case:
    x = draw.f(*draw.shape(2, 4)).astype(draw.one(np.float32, np.float64, np.int64))
    return Case((x, draw.maybe(lambda: np.full(draw.one((), (1,)), draw.int(-4, 4), np.int64))),
                {"upper": draw.int(0, 1)} if draw.yes() else {}, known=(1,) if draw.yes() else ())  # fmt: skip


@draws("ExpandDims")
def _expand(draw: Draw) -> Case:
    x = draw.f(*draw.shape(0, 3)).astype(draw.one(*KINDS))
    return Case((x, np.array(draw.int(-x.ndim - 1, x.ndim), np.int32)), known=(1,))


@draws("GatherND")
def _gather_nd(draw: Draw) -> Case:
    x = draw.f(4, 5, 3).astype(draw.one(*KINDS))
    depth = draw.int(1, 3)
    indices = np.stack([draw.ints(0, x.shape[axis] - 1, 2, 3) for axis in range(depth)], -1)
    return Case((x, indices.astype(draw.one(np.int32, np.int64))))


@draws("TorchEmbedding")
def _embedding(draw: Draw) -> Case:
    table, indices = draw.f(7, 3), draw.ints(0, 6, 2, 4)
    return Case((table, indices, np.int64(-1)), known=(2,), expected=(table[indices],))


@draws("SampleOp")
def _sample(draw: Draw) -> Case:
    return Case((draw.f(*draw.shape(1, 3)),))


@draws("Unique")
def _unique(draw: Draw) -> Case:
    return Case((draw.ints(0, 5, draw.int(1, 20), dtype=np.float32),), {}, (True, True, True))


@draws("UnfoldTensor")
def _unfold(draw: Draw) -> Case:
    x = draw.f(*draw.shape(1, 4)).astype(draw.one(*KINDS))
    axis = draw.int(-x.ndim, x.ndim - 1)
    return Case((x,), {"dim": axis, "size": draw.int(1, x.shape[axis]), "step": draw.int(1, 3)})


@draws("GridSample")
def _grid_sample(draw: Draw) -> Case:
    attrs = {"mode": draw.one("bilinear", "nearest", "bicubic"), "align_corners": draw.int(0, 1)}
    attrs["padding_mode"] = (
        draw.one("zeros", "reflection") if attrs["mode"] == "bicubic" else draw.one("zeros", "border", "reflection")
    )
    return Case((draw.f(1, 2, 5, 4), 0.8 * draw.f(1, 3, 4, 2)), attrs, tolerance=1e-3)


@draws("NGramRepeatBlock")
def _repeated(draw: Draw) -> Case:
    tokens = draw.ints(0, 2, 2, draw.int(1, 12))
    return Case((tokens, draw.f(2, 4)), {"ngram_size": draw.int(1, 4)})


@draws("CropAndResize")
def _crop(draw: Draw) -> Case:
    x, count = draw.f(2, 2, draw.int(1, 6), draw.int(1, 6)), draw.int(1, 4)
    size = np.array([draw.int(1, 5), draw.int(1, 5)], np.int32)
    boxes = draw.random.uniform(-0.3, 1.3, (count, 4)).astype(np.float32)
    attrs = {"mode": draw.one("bilinear", "nearest"), "extrapolation_value": draw.one(0.0, -7.0)}
    return Case((x, boxes, draw.ints(0, 1, count, dtype=np.int32), size), attrs, known=(3,), tolerance=1e-4)


@draws("CDist")
def _distances(draw: Draw) -> Case:
    k, kind = draw.int(1, 12), draw.one(np.float32, np.float64)
    given = (draw.f(draw.int(1, 9), k, dtype=kind), draw.f(draw.int(1, 9), k, dtype=kind))
    return Case(given, {"metric": draw.one("sqeuclidean", "euclidean")}, tolerance=2e-3)


@draws("ComplexMul")
def _complex_mul(draw: Draw) -> Case:
    a, b = draw.f(3, 4, 2), draw.f(3, 4, 2)
    return Case((a, b), expected=(_parts(_whole(a) * _whole(b)),))


@draws("ComplexMulConj")
def _complex_conjugate(draw: Draw) -> Case:
    a, b = draw.f(3, 4, 2), draw.f(3, 4, 2)
    return Case((a, b), expected=(_parts(_whole(a) * _whole(b).conj()),))


def _whole(x: Array) -> Array:
    return x[..., 0] + 1j * x[..., 1]


def _parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], -1)


@draws("Rfft")
def _rfft(draw: Draw) -> Case:
    x = draw.f(2, 2 * draw.int(1, 9))
    return Case((x,), {"onesided": 1, "normalized": 0, "signal_ndim": 1}, expected=(_parts(np.fft.rfft(x)),))


@draws("Irfft")
def _irfft(draw: Draw) -> Case:
    n = 2 * draw.int(1, 9)
    x = _parts(np.fft.rfft(draw.f(2, n))).astype(np.float32)
    y = np.fft.irfft(_whole(x), n) * n
    return Case((x,), {"onesided": 1, "normalized": 0, "signal_ndim": 1}, expected=(y,), tolerance=1e-4)


@draws("IsAllFinite")
def _finite(draw: Draw) -> Case:
    given = [draw.f(3, 4) for _ in range(draw.int(1, 3))]
    if draw.yes():
        given[-1][0, 0] = draw.one(np.nan, np.inf, -np.inf)
    attrs = draw.one({}, {"isnan_only": 1}, {"isinf_only": 1})
    nan, inf = "isnan_only" in attrs, "isinf_only" in attrs
    wrong = any((np.isnan(x) & (not inf) | np.isinf(x) & (not nan)).any() for x in given)
    return Case(given, attrs, expected=(np.array(not wrong),))


@draws("MurmurHash3")
def _hash(draw: Draw) -> Case:
    kind = draw.one(np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64, object, object)
    if kind is object:
        words = ["".join(draw.one(*"abc, ", "é", "日", "😀") for _ in range(draw.int(0, 9))) for _ in range(12)]
        x = np.array(words, object).reshape(3, 4)
    else:
        x = draw.f(3, 4).astype(kind) if kind in (np.float32, np.float64) else draw.bytes(kind, 3, 4)
    attrs = {"seed": draw.int(0, 2**31 - 1)} if draw.yes() else {}
    return Case((x,), attrs | ({"positive": draw.int(0, 1)} if draw.yes() else {}))


@draws("Inverse")
def _inverse(draw: Draw) -> Case:
    n, kind = draw.int(1, 6), draw.one(np.float32, np.float64)
    x = draw.f(*draw.shape(0, 2, 3), n, n, dtype=kind) + 3 * np.eye(n, dtype=kind)
    return Case((x,), tolerance=1e-3)


@draws("DynamicTimeWarping")
def _warping(draw: Draw) -> Case:
    shape = (draw.int(1, 9), draw.int(1, 9))
    return Case((draw.f(*draw.one(shape, (1, *shape))),))


@draws("BifurcationDetector")
def _bifurcation(draw: Draw) -> Case:
    source, tokens = draw.ints(0, 3, draw.int(1, 9)), draw.ints(0, 3, draw.int(1, 5))
    place = draw.int(0, len(source))
    predicted = np.append(source[place:], draw.int(0, 3))
    if len(predicted) > 1 and draw.yes():
        predicted[draw.int(0, len(predicted) - 2)] = draw.int(0, 3)
    attrs = {"min_ngram_size": draw.int(1, 2), "max_ngram_size": draw.int(2, 4)}
    return Case((source, tokens, np.array(place), draw.maybe(lambda: predicted)), attrs, (True, True))


@draws("ScaledSiLU")
def _silu(draw: Draw) -> Case:
    return Case((draw.f(*draw.shape(1, 3)), draw.maybe(draw.f)), {"alpha": 0.7} if draw.yes() else {})


@draws("GatedAdd")
def _gated_add(draw: Draw) -> Case:
    return Case((draw.f(2, 3, 8), draw.f(2, 3, 8), draw.f(2, 3, 1)))


@draws("GatedRMSNorm")
def _gated_norm(draw: Draw) -> Case:
    c = draw.int(2, 20)
    attrs = {"activation": draw.one("silu", "sigmoid"), "epsilon": draw.one(1e-5, 1e-2)}
    return Case((draw.f(2, 3, c), draw.f(c), draw.f(2, 3, c)), attrs, tolerance=1e-4)


@draws("BranchwiseRMSNorm")
def _branchwise(draw: Draw) -> Case:
    c, h, flat = draw.int(1, 4), draw.int(2, 9), draw.yes()
    scale = draw.one(lambda: None, lambda: draw.f(c * h), lambda: draw.f(c, h), lambda: draw.f(h))()
    x = draw.f(2, c * h) if flat else draw.f(2, c, h)
    return Case((x, scale), {"num_branches": c} if flat else {}, tolerance=1e-4)


@draws("HyperConnectionPreMix")
def _pre_mix(draw: Draw) -> Case:
    c, h, flat = draw.int(2, 4), draw.int(5, 9), draw.yes()
    gates = draw.one((2, 3, c), (2, 3, c, 1), (2, 3, c, h))
    x = draw.f(2, 3, c * h) if flat else draw.f(2, 3, c, h)
    return Case((x, draw.f(*gates)), {"reduction_scale": 0.5} | ({"num_branches": c} if flat else {}))


@draws("HyperConnectionPostMix")
def _post_mix(draw: Draw) -> Case:
    c, h, flat = draw.int(2, 4), draw.int(5, 9), draw.yes()
    gates = draw.one((2, 3, c), (2, 3, c, 1), (2, 3, c, h))
    x = draw.f(2, 3, c * h) if flat else draw.f(2, 3, c, h)
    given = (x, draw.f(2, 3, h), draw.f(*gates), draw.maybe(lambda: draw.f(2, 3, c, c)))
    return Case(given, {"num_branches": c} if flat else {})


@draws("LinearAttentionGate")
def _gate(draw: Draw) -> Case:
    heads, rate = draw.int(1, 6), draw.yes()
    given = (draw.f(2, 3, heads), draw.f(heads), draw.f(heads), draw.f(2, 3, heads) if rate else None)
    return Case(given, {}, (True, True) if rate else (True,))


@draws("LinearAttention")
def _linear_attention(draw: Draw) -> Case:
    heads, length, k, v = draw.int(1, 2), draw.int(1, 4), draw.int(2, 4), draw.int(2, 4)
    rule = draw.one("linear", "gated", "delta", "gated_delta")
    key = draw.f(2, length, heads, k)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    given = [draw.f(2, length, heads * k), key.reshape(2, length, -1), draw.f(2, length, heads * v)]
    decay = -draw.positive(2, length, heads) if "gated" in rule else None
    rate = draw.positive(2, length, heads) if "delta" in rule else None
    given += [draw.maybe(lambda: draw.f(2, heads, k, v)), decay, rate]
    attrs = {"q_num_heads": heads, "kv_num_heads": heads, "update_rule": rule}
    return Case(given, attrs | ({"scale": 0.3} if draw.yes() else {}), (True, True), tolerance=2e-4)


@draws("CausalConvWithState")
def _causal(draw: Draw) -> Case:
    c, taps, length, apart, last = draw.int(1, 6), draw.int(1, 4), draw.int(1, 6), draw.int(1, 2), draw.int(0, 1)
    carried = (taps - 1) * apart
    x = draw.f(2, length, c) if last else draw.f(2, c, length)
    state = draw.maybe(lambda: draw.f(2, carried, c) if last else draw.f(2, c, carried)) if carried else None
    attrs = {"activation": draw.one("none", "silu")}
    attrs |= {"dilation": apart} if apart > 1 else {}
    attrs |= {"channels_last": 1} if last else {}
    return Case((x, draw.f(c, 1, taps), draw.maybe(lambda: draw.f(c)), state), attrs, (True, True), known=(1, 2),
                tolerance=1e-4)  # fmt: skip


@draws("EngramGate")
def _engram(draw: Draw) -> Case:
    c, h, normed = draw.int(1, 3), draw.int(2, 9), draw.yes()
    given = (draw.f(2, 3, c, h), draw.f(2, 3, c, h), draw.f(2, 3, h), draw.f(c, h), draw.f(c, h))
    return Case((*given, draw.f(c, h) if normed else None), {}, (True, normed), tolerance=1e-4)


@draws("RotaryEmbedding")
def _rotary(draw: Draw) -> Case:
    heads, half, length, interleaved = draw.int(1, 3), 8 * draw.int(1, 2), draw.int(1, 5), draw.int(0, 1)
    cos, sin = draw.f(16, half), draw.f(16, half)
    places = draw.one(lambda: draw.ints(0, 15, 2, length), lambda: draw.ints(0, 10, 1))()
    x = draw.f(2, heads, length, 2 * half) if draw.yes() else draw.f(2, length, heads * 2 * half)
    return Case((x, places, cos, sin), {"interleaved": interleaved}, known=(2, 3))


@draws("RelativePositionBias")
def _relative(draw: Draw) -> Case:
    buckets, heads, length, far = draw.one(8, 32), draw.int(1, 4), draw.int(1, 9), draw.one(16, 128)
    table, both = draw.f(buckets, heads), draw.int(0, 1)
    away = np.arange(length) - np.arange(length)[:, None]
    count = buckets // (2 if both else 1)
    offset = (away > 0) * count if both else 0
    away = np.abs(away) if both else -np.minimum(away, 0)
    near = count // 2
    with np.errstate(divide="ignore"):
        wide = near + (np.log(away / near) / np.log(far / near) * (count - near)).clip(-1e6, 1e6).astype(int)
    place = np.where(away < near, away, np.minimum(wide, count - 1)) + offset
    y = np.moveaxis(table[place], -1, 0)[None]
    stored = np.ascontiguousarray(table.T).reshape(table.shape)
    given: list[Any] = [stored, np.int64([length]), np.int64([length])]
    return Case(given, {"max_distance": far, "is_bidirectional": both}, known=(1, 2), expected=(y,))


@draws("MRotaryEmbedding")
def _multiple_rotary(draw: Draw) -> Case:
    half, heads, length = draw.one(3, 6, 8), draw.int(1, 3), draw.int(1, 5)
    first = draw.int(0, half)
    second = draw.int(0, half - first)
    layout = draw.int(0, 1)
    sections = [half - 2 * (half // 3), half // 3, half // 3] if layout else [first, second, half - first - second]
    attrs = {"mrope_section": sections, "mrope_layout": layout, "interleaved": draw.int(0, 1)}
    x = draw.f(2, heads, length, 2 * half)
    if draw.yes():
        x, attrs["num_heads"] = x.reshape(2, length, -1), heads
    return Case((x, draw.ints(0, 15, 3, 2, length), draw.f(16, half), draw.f(16, half)), attrs, known=(2, 3))


@draws("ConvTransposeWithDynamicPads")
def _padded(draw: Draw) -> Case:
    i, o, pads = draw.int(1, 3), draw.int(1, 3), np.array([draw.int(0, 1) for _ in range(4)])
    attrs = {"strides": [draw.int(1, 2)] * 2, "dilations": [draw.int(1, 2)] * 2}
    bias = draw.maybe(lambda: draw.f(o))
    return Case((draw.f(1, i, 5, 6), draw.f(i, o, 3, 3), pads, bias), attrs, known=(1, 2, 3), tolerance=1e-4)


@draws("WordConvEmbedding")
def _words(draw: Draw) -> Case:
    letters, width, size, filters = draw.int(4, 8), draw.int(1, 4), draw.int(1, 5), draw.int(1, 5)
    words = draw.ints(1, 8, 3, letters, dtype=np.int32) * (np.arange(letters) < draw.ints(1, letters, 3, 1))
    given = (words.astype(np.int32), draw.f(filters, 1, width, size), draw.f(filters), draw.f(9, size))
    return Case(given, known=(1, 2, 3), tolerance=1e-4)


@draws("MoEGroupRouter")
def _router(draw: Draw) -> Case:
    groups, each = draw.one(1, 2, 4), draw.int(2, 5)
    experts, taken = groups * each, draw.int(1, groups)
    attrs = {"n_group": groups, "topk_group": taken, "top_k": draw.int(1, taken * each)}
    attrs |= {"group_topk": draw.int(1, 3)} if draw.yes() else {}
    attrs |= {"router_sentinel": -50.0} if draw.yes() else {}
    return Case((draw.f(*draw.one((5,), (2, 3)), experts), draw.f(experts)), attrs, tolerance=1e-4)


def _ngrams(draw: Draw) -> tuple[Any, dict[str, Any], int, int]:
    """Return a type, attributes, how many tokens a run has at most, and how many hashes there are."""
    most, heads = draw.int(2, 4), draw.int(1, 3)
    attrs = {"max_ngram_size": most, "n_head_per_ngram": heads, "pad_id": 7}
    attrs |= {"reset_on_eos": 1} if draw.yes() else {}
    return draw.one(np.int32, np.int64), attrs, most, (most - 1) * heads


@draws("NGramHashMapping")
def _hash_runs(draw: Draw) -> Case:
    (kind, attrs, most, columns), length = _ngrams(draw), draw.int(1, 8)
    given = [
        *(draw.ints(-3, 9, 2, length, dtype=kind), draw.ints(-999, 999, most, dtype=kind)),
        *(draw.ints(1, 97, columns, dtype=kind), draw.maybe(lambda: draw.ints(0, 9, 2, most - 1, dtype=kind))),
        draw.maybe(lambda: draw.ints(0, 999, columns, dtype=kind)),
        draw.maybe(lambda: draw.ints(0, 9, dtype=kind)),
        draw.maybe(lambda: np.sort(draw.ints(0, 2, 2, length, dtype=np.int32))),
    ]
    return Case(given, attrs, (True, True), known=(1, 2))


def _bounds(draw: Draw) -> Array:
    """Return where some sequences begin and end."""
    return np.cumsum([0, *(draw.int(1, 6) for _ in range(draw.int(1, 4)))]).astype(np.int32)


@draws("VarlenNGramHashMapping")
def _hash_packed_runs(draw: Draw) -> Case:
    (kind, attrs, most, columns), bounds = _ngrams(draw), _bounds(draw)
    count, tokens, capacity = len(bounds) - 1, int(bounds[-1]), draw.one(0, 0, 1, 3)
    segments = draw.maybe(lambda: draw.ints(0, 1, tokens, dtype=np.int32))
    given = [
        *(draw.ints(-3, 9, tokens, dtype=kind), draw.ints(-999, 999, most, dtype=kind)),
        *(draw.ints(1, 97, columns, dtype=kind), bounds),
        draw.maybe(lambda: draw.ints(0, 9, count, most - 1, dtype=kind)),
        draw.maybe(lambda: draw.ints(0, 999, columns, dtype=kind)),
        draw.maybe(lambda: draw.ints(0, 9, dtype=kind)),
        segments,
        None if segments is None or draw.yes() else draw.ints(0, 1, count, most - 1, dtype=np.int32),
        draw.ints(-1, 5, count, dtype=np.int32) if capacity else None,
    ]
    attrs |= {"state_update_capacity": capacity} if capacity else {}
    return Case(given, attrs, (True, True, segments is not None, bool(capacity)), known=(1, 2))


@draws("VarlenCausalConvWithState")
def _packed_convolution(draw: Draw) -> Case:
    bounds, channels, taps, apart = _bounds(draw), draw.int(1, 6), draw.int(1, 4), draw.int(1, 2)
    count, capacity = len(bounds) - 1, draw.one(0, 0, 1, 3)
    given = [
        *(draw.f(int(bounds[-1]), channels), draw.f(channels, 1, taps), bounds, draw.maybe(lambda: draw.f(channels))),
        draw.f(count, channels, (taps - 1) * apart),
        draw.ints(-1, 5, count, dtype=np.int32) if capacity else None,
    ]
    attrs: dict[str, Any] = {"activation": draw.one("none", "silu", "swish")}
    attrs |= ({"dilation": apart} if apart > 1 else {}) | ({"state_update_capacity": capacity} if capacity else {})
    given, near = _in_halves(draw, given, (0, 1, 3, 4), 1e-4)
    return Case(given, attrs, (True, True, bool(capacity)), known=draw.one((1, 3), (1, 2, 3)), tolerance=near)


@draws("GatedDeltaNet")
def _gated_delta(draw: Draw) -> Case:
    """Tokens of sequences of one length or of several, side by side or packed, with gates or what becomes of them."""
    heads, shared, k, v = draw.int(1, 2), draw.int(1, 2), draw.int(2, 4), draw.int(2, 4)
    rule, bounds = draw.one("linear", "gated", "delta", "gated_delta"), _bounds(draw)
    is_ragged, batch, length = draw.yes(0.4), 2, draw.int(1, 4)
    batch = len(bounds) - 1 if is_ragged else batch
    lead = (int(bounds[-1]),) if is_ragged else draw.one((batch, length), (batch * length,))
    values, is_joined = heads * shared, draw.yes(0.3)
    parts = [draw.f(*lead, count, size) for count, size in ((heads, k), (heads, k), (values, v))]
    attrs: dict[str, Any] = {"update_rule": rule} | ({"scale": 0.3} if draw.yes() else {})
    if "delta" in rule or draw.yes():
        attrs["qk_l2_norm"] = 1
    if is_joined:
        parts = [np.concatenate([each.reshape(*lead, -1) for each in parts], -1)]
    depth = draw.one((values,), (values, k))
    decay = -draw.positive(*lead, *depth) if "gated" in rule else None
    rate = draw.positive(*lead, values) if "delta" in rule else None
    activation = draw.one("none", "softplus", "qwen", "sigmoid", "kda") if "gated" in rule else "none"
    attrs |= {"gate_activation": activation} if activation != "none" else {}
    attrs |= {"gate_lower_bound": -2.0} if draw.yes() else {}
    attrs |= {"beta_activation": "sigmoid"} if draw.yes() else {}
    has_state = is_joined or len(lead) == 1 or draw.yes()
    bias = draw.f(*draw.one((values,), (values, k), (values * k,)) if len(depth) == 2 else (values,))
    given = [
        *(parts if len(parts) == 3 else (*parts, None, None)),
        *(bounds if is_ragged else None, decay, rate, draw.f(batch, values, v, k) if has_state else None),
        *((draw.f(values), bias) if activation != "none" else (None, None)),
    ]
    given, near = _in_halves(draw, given, (0, 1, 2), 2e-4)
    return Case(given, attrs, (True, True), tolerance=near)


def _in_halves(draw: Draw, given: list[Any], places: Sequence[int], near: float) -> tuple[list[Any], float]:
    """Return inputs, those at some places in float16 now and then, and how near results come."""
    if draw.yes(0.8):
        return given, near
    halves = [each.astype(np.float16) if place in places and each is not None else each
              for place, each in enumerate(given)]  # fmt: skip
    return halves, 4e-3
