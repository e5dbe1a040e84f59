"""Random nodes of ONNX's Attention, of operator sets 23 to 25, with what they give in float64.

ONNX Runtime 1.32 cannot be the judge: what lies behind ``nonpad_kv_seqlen`` shows in its results, it refuses masks that
repeat along queries or heads, and has -3.4e38 where scores are -inf.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from opbuild.dtypes import numpy_dtype
from opbuild.graph.shape_rules import ONNX_NUMBERS

Array = npt.NDArray[Any]
NAMES = ("q", "k", "v", "mask", "past_key", "past_value", "lengths")
OUTPUTS = ("y", "present_key", "present_value", "scores")


@dataclass(frozen=True)
class RandomAttention:
    """A node with its inputs and results.

    Attributes:
        model: Its network.
        feeds: Its inputs by name; keys and values behind those that are there are no numbers.
        expected: Its results by name, in float64; NaN where anything may be.
        tolerance: By how much results may differ.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    expected: dict[str, Array]
    tolerance: float


@dataclass(frozen=True)
class _Form:
    """What is drawn: heads, extents, attributes, and which inputs there are."""

    batch: int
    groups: int
    shared: int
    queries: int
    keys: int
    past: int
    sizes: tuple[int, int]
    is_flat: bool
    attrs: dict[str, Any]
    has_lengths: bool
    has_past: bool
    mask: str
    dtype: str

    @property
    def heads(self) -> int:
        return self.groups * self.shared

    @property
    def total(self) -> int:
        return self.keys + self.past


def random_attention(rng: np.random.Generator) -> RandomAttention:
    """Return a random node."""
    form = _form(rng)
    feeds = _feeds(rng, form)
    outputs = ["y"]
    if form.has_past or rng.random() < 0.2:
        outputs += ["present_key", "present_value"]
    if rng.random() < 0.2:
        outputs += [*[""] * (3 - len(outputs)), "scores"]
    expected = _expected(form, feeds)
    if form.is_flat:
        for name in ("q", "k", "v"):
            feeds[name] = _flat(feeds[name])
        expected["y"] = _flat(expected["y"])
    wanted = {name: expected[name] for name in outputs if name}
    narrow = {form.dtype, form.attrs.get("softmax_precision", 1)}
    tolerance = 0.1 if 16 in narrow else 0.03 if narrow & {"float16", 10} else 1e-4  # bfloat16 has 8 bits
    return RandomAttention(_model(form, feeds, outputs), feeds, wanted, tolerance)


def _form(rng: np.random.Generator) -> _Form:
    def some(**choices: tuple[Any, ...]) -> dict[str, Any]:
        return {name: rng.choice(each).item() for name, each in choices.items() if rng.random() < 0.4}

    groups, shared, is_flat = (int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 4])), bool(rng.random() < 0.5))
    attrs = some(is_causal=(0, 1, 1), scale=(0.5, 1.0), softcap=(0.0, 2.0), softmax_precision=(1, 10, 11, 16))
    attrs |= some(qk_matmul_output_mode=(0, 1, 2, 3))
    if rng.random() < 0.2:
        attrs |= some(left_window_size=(-1, 0, 3, 20), right_window_size=(-1, 0, 2))
    attrs |= {"q_num_heads": groups * shared, "kv_num_heads": groups} if is_flat else {}
    cache = str(rng.choice(["lengths", "lengths", "past", "none"]))
    queries = int(rng.choice([1, 1, 2, 5, 33]))
    keys = queries if cache == "past" or rng.random() < 0.3 else int(rng.integers(1, 60))
    return _Form(
        batch=int(rng.integers(1, 4)),
        groups=groups,
        shared=shared,
        queries=queries,
        keys=keys,
        past=int(rng.integers(0, 40)) if cache == "past" else 0,
        sizes=(int(rng.choice([4, 16, 40, 64])), int(rng.choice([4, 32, 64]))),
        is_flat=is_flat,
        attrs=attrs,
        has_lengths=cache == "lengths",
        has_past=cache == "past",
        mask=str(rng.choice(["", "", "bool", "float"])),
        dtype=str(rng.choice(["float32", "float32", "float32", "float16", "float64"])),
    )


def _feeds(rng: np.random.Generator, form: _Form) -> dict[str, Array]:
    dtype, (size, value_size) = numpy_dtype(form.dtype), form.sizes

    def heads(count: int, length: int, size: int) -> Array:
        return rng.standard_normal((form.batch, count, length, size)).astype(dtype)

    feeds = {
        "q": heads(form.heads, form.queries, size),
        "k": heads(form.groups, form.keys, size),
        "v": heads(form.groups, form.keys, value_size),
    }
    least = form.total
    if form.has_lengths:
        feeds["lengths"] = rng.integers(0, form.keys + 1, form.batch)
        least = int(feeds["lengths"].max())
        for name in "kv":
            for cache, is_there in zip(feeds[name], _there(form, feeds["lengths"]), strict=True):
                cache[:, ~is_there] = rng.choice([np.nan, np.inf, -np.inf], cache[:, ~is_there].shape)
    if form.has_past:
        feeds |= {"past_key": heads(form.groups, form.past, size)}
        feeds |= {"past_value": heads(form.groups, form.past, value_size)}
    if form.mask:
        shape = [form.batch, form.heads, form.queries, int(rng.integers(least, form.total + 1)) or form.total]
        shape = [*(each if rng.random() < 0.6 else 1 for each in shape[:-1]), shape[-1]][int(rng.integers(0, 4)) :]
        shown = rng.random(shape) < 0.8
        added = np.where(shown, rng.standard_normal(shape), -np.inf).astype(dtype)
        feeds["mask"] = shown if form.mask == "bool" else added
    return feeds


def _model(form: _Form, feeds: dict[str, Array], outputs: list[str]) -> onnx.ModelProto:
    """Return the network of a node; extents are those of its inputs."""
    names = [name if name in feeds else "" for name in NAMES]
    while not names[-1]:
        names.pop()
    node = helper.make_node("Attention", names, outputs, "node", **form.attrs)
    ports = [
        helper.make_tensor_value_info(name, ONNX_NUMBERS[str(feeds[name].dtype)], feeds[name].shape)
        for name in names
        if name
    ]
    results = [helper.make_tensor_value_info(name, ONNX_NUMBERS[form.dtype], None) for name in outputs if name]
    opset = 25 if any("window" in name for name in form.attrs) else 24 if form.has_lengths else 23
    graph = helper.make_graph([node], "attention", ports, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _flat(heads: Array) -> Array:
    """Return heads beside each other."""
    batch, _, length, _ = heads.shape
    return np.ascontiguousarray(heads.transpose(0, 2, 1, 3)).reshape(batch, length, -1)


def _expected(form: _Form, feeds: dict[str, Array]) -> dict[str, Array]:
    """Return the results as ONNX's documentation has them; NaN: products of keys that are not there."""
    present = {}
    for name, past in (("k", "past_key"), ("v", "past_value")):
        present[name] = np.concatenate([feeds[past], feeds[name]], 2) if form.has_past else feeds[name]
    key, value = (np.repeat(present[name].astype(np.float64), form.shared, 1) for name in "kv")
    shown, added = _shown(form, feeds)
    if form.has_lengths:
        there = _there(form, feeds["lengths"])[:, None, :, None]
        key, value = np.where(there, key, np.nan), np.where(there, value, 0)
    scale = form.attrs.get("scale", 1 / np.sqrt(form.sizes[0]))
    stages = [feeds["q"].astype(np.float64) @ key.swapaxes(2, 3) * scale]
    cap = form.attrs.get("softcap", 0.0)
    stages.append(np.tanh(stages[0] / cap) * cap if cap else stages[0])
    stages.append(np.where(shown, stages[1] + added, -np.inf))
    greatest = stages[2].max(-1, keepdims=True)
    powers = np.exp(stages[2] - np.where(np.isfinite(greatest), greatest, 0))
    stages.append(powers / np.maximum(powers.sum(-1, keepdims=True), 1e-300))
    y = stages[3] @ value
    scores = stages[form.attrs.get("qk_matmul_output_mode", 0)]
    return {"y": y, "present_key": present["k"], "present_value": present["v"], "scores": scores}


def _there(form: _Form, lengths: Array) -> Array:
    """Return which keys of each batch are there, and not before the window of the first query."""
    keys, left = np.arange(form.total), form.attrs.get("left_window_size", -1)
    first = lengths - form.queries - left if left >= 0 else np.zeros_like(lengths)
    return np.asarray((keys < lengths[:, None]) & (keys >= first[:, None]))


def _shown(form: _Form, feeds: dict[str, Array]) -> tuple[Array, Array]:
    """Return which keys each query sees, and what is added to their scores."""
    keys, added = np.arange(form.total), np.zeros((1, 1, 1, 1))
    shown = np.ones((form.batch, 1, form.queries, form.total), bool)
    before = np.full(form.batch, form.past)
    if form.has_lengths:
        shown &= keys < feeds["lengths"].reshape(-1, 1, 1, 1)
        before = feeds["lengths"] - form.queries
    away = keys - (before.reshape(-1, 1, 1, 1) + np.arange(form.queries)[:, None])
    if form.attrs.get("is_causal", 0):
        shown &= away <= 0
    left, right = (form.attrs.get(f"{side}_window_size", -1) for side in ("left", "right"))
    shown &= (left < 0) | (away >= -left)
    shown &= (right < 0) | (away <= right)
    if not form.mask:
        return shown, added
    mask = feeds["mask"]
    missing = [*[(0, 0)] * (mask.ndim - 1), (0, form.total - mask.shape[-1])]
    if form.mask == "bool":
        return shown & np.pad(mask, missing), added
    return shown, np.pad(mask.astype(np.float64), missing, constant_values=-np.inf)
