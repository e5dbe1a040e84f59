"""Networks in segments: shapes from data or values, branches, loops; with inputs that lead to different segments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import parser

Feeds = dict[str, Any]

HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'

NETWORKS = {
    "data": """g (float[5,8] x) => (float[] y, int64[] found) <float[8,4] w = {%s}, float half = {0.5}> {
        a = MatMul(x, w)
        m = Greater(a, half)
        found = NonZero(m)
        i = Transpose(found)
        v = GatherND(a, i)
        e = Exp(v)
        y = Mul(e, half)
    }""",
    "count": """g (float[3,4] x, int64 turns) => (float[3,4] y, float[] all) <float[4,4] w = {%s}> {
        h, all = Loop <body = b (int64 k, bool c, float[3,4] u) => (bool d, float[3,4] v, float[3,4] o) {
            d = Identity(c)  t = MatMul(u, w)  v = Tanh(t)  o = Relu(v) }> (turns, , x)
        y = Sub(h, x)
    }""",
    "branches": """g (float[3,4] x, float t) => (float[] y) <float[4,4] w = {%s}> {
        s = ReduceMax <keepdims = 0> (x)
        go = Greater(s, t)
        z = If <then_branch = a () => (float[] p) { q = MatMul(x, w)  p = Relu(q) },
                else_branch = b () => (float[] r) { e = Concat <axis = 1> (x, x)  r = Exp(e) }> (go)
        y = Neg(z)
    }""",
    "top": """g (float[6,9] x) => (float[] y, int64[] at) <float zero = {0}, int64[1] one = {1}> {
        m = Greater(x, zero)
        n = Cast <to = 7> (m)
        k = ReduceMax <keepdims = 0> (n)
        k1 = Reshape(k, one)
        v, at = TopK <axis = 1> (x, k1)
        y = Softmax <axis = 1> (v)
    }""",
    "boxes": """g (float[1,12,4] boxes, float[1,2,12] scores) => (float[] y, int64[] kept) <
        int64 most = {3}, float iou = {0.5}, float least = {0.3}, float scale = {2},
        int64[1] first = {2}, int64[1] end = {3}, int64[1] axis = {1}, int64 zero = {0}, int64[1] flat = {-1}> {
        kept = NonMaxSuppression(boxes, scores, most, iou, least)
        c = Slice(kept, first, end, axis)
        i = Reshape(c, flat)
        b = Gather <axis = 0> (boxes, zero)
        g = Gather <axis = 0> (b, i)
        y = Mul(g, scale)
    }""",
    "sequence": """g (float[6,4] x, int64[2] sizes) => (float[] y) <int64 zero = {0}, int64 one = {1}> {
        s = SplitToSequence <axis = 0> (x, sizes)
        a = SequenceAt(s, zero)
        b = SequenceAt(s, one)
        r = Relu(b)
        y = Concat <axis = 0> (r, a)
    }""",
}
"""Networks, each with the numbers of a matrix left out."""

ON_HOST = {"data": {"NonZero"}, "boxes": {"NonMaxSuppression"}, "sequence": {"SplitToSequence", "SequenceAt"}}
"""What may be evaluated without a kernel: what stands at breaks."""


def network(name: str) -> onnx.ModelProto:
    """Return a network."""
    text = NETWORKS[name]
    if "%s" in text:
        size = 32 if name == "data" else 16
        text %= ", ".join(f"{value:.3f}" for value in np.random.default_rng(5).standard_normal(size))
    return parser.parse_model(HEAD + text)


def feeds(name: str) -> Iterator[Feeds]:
    """Yield inputs that lead to different segments."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        if name == "boxes":
            corner = rng.random((1, 12, 2))
            boxes = np.concatenate([corner, corner + rng.random((1, 12, 2))], axis=2).astype(np.float32)
            yield {"boxes": boxes, "scores": (rng.random((1, 2, 12)) * (seed > 0)).astype(np.float32)}
            continue
        shape = {"data": (5, 8), "top": (6, 9), "sequence": (6, 4)}.get(name, (3, 4))
        given: Feeds = {"x": (rng.standard_normal(shape) - 3 * (seed == 3)).astype(np.float32)}
        if name == "count":
            given["turns"] = np.array([3, 1, 7, 0][seed])
        if name == "branches":
            given["t"] = np.array([-9, 9, 0, 1][seed], np.float32)
        if name == "sequence":
            given["sizes"] = np.array([[2, 4], [4, 2], [1, 5], [3, 3]][seed])
        if name == "top":
            given["x"][:, 0] = 1  # at least one is above zero
        yield given


def same(model: onnx.ModelProto, given: Feeds, got: Mapping[str, Any]) -> None:
    """Compare results with ONNX Runtime's."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for name, wanted in zip(got, session.run(list(got), given), strict=True):
        np.testing.assert_allclose(got[name], wanted, rtol=1e-4, atol=1e-5, strict=True)
