"""Random attentions to caches that have room for more keys, behind which lies what nobody may read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

Array = npt.NDArray[Any]
MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class CachedAttention:
    """An attention whose cache is given and returned.

    Attributes:
        model: Its network; extents of batches, tokens and rooms are open.
        groups: Heads of keys.
        heads: Heads of queries.
        size: Elements of a head.
        counts_batches: Whether each batch has a number of keys of its own.
        grows_by_one: Whether it takes one token at a time.
        is_flat: Whether the heads of a cache are beside each other, places first.
        mask: The element type of a mask; empty: none. ONNX's Attention alone has one here.
        window: How many keys a query sees; 0: all.
    """

    model: onnx.ModelProto
    groups: int
    heads: int
    size: int
    counts_batches: bool
    grows_by_one: bool
    is_flat: bool = False
    mask: str = ""
    window: int = 0

    @property
    def is_onnx(self) -> bool:
        """Whether it is ONNX's own, which has a number of new tokens for each batch, however many they are."""
        return self.model.graph.node[-1].op_type == "Attention"

    def feeds(self, rng: np.random.Generator) -> tuple[dict[str, Array], list[int]]:
        """Return inputs, and how many keys each batch has then; behind those the cache holds NaN and infinities."""
        batch, room = int(rng.integers(1, 4)), int(rng.integers(1, 90))
        most = 1 if self.grows_by_one else room
        length = int(rng.choice([1, 1, min(most, 3), rng.integers(1, most + 1)]))
        before = [0] * batch if length > 1 and batch > 1 else [int(rng.integers(0, room - length + 1))] * batch
        if self.is_onnx or (self.counts_batches and length == 1):
            before = rng.integers(0, room - length + 1, batch).tolist()
        there = [each + length for each in before]
        feeds = {
            name: rng.standard_normal((batch, length, count * self.size)).astype(np.float32)
            for name, count in (("q", self.heads), ("k", self.groups), ("v", self.groups))
        }
        for name in ("past_key", "past_value"):
            cache = rng.standard_normal((batch, self.groups, room, self.size)).astype(np.float32)
            for number, count in enumerate(before):
                unread = [cache[number, :, count:]]
                if self.window and length == 1:
                    unread.append(cache[number, :, : max(0, count + 1 - self.window)])
                for each in unread:
                    each[:] = rng.choice([np.nan, np.inf, -np.inf], each.shape)
            feeds[name] = cache
        if self.is_onnx:
            feeds |= self._of_onnx(rng, feeds, before, length)
        elif self.counts_batches:
            feeds |= {"last": np.array(there, np.int32) - 1, "total": np.array([max(there)], np.int32)}
        else:
            feeds["before"] = np.array(before[:1], np.int32)
        return feeds, there

    def _of_onnx(
        self, rng: np.random.Generator, feeds: dict[str, Array], before: Sequence[int], length: int
    ) -> dict[str, Array]:
        """Return the inputs of ONNX's Attention: its layout of the inputs, their places, and a mask that shows keys."""
        batch, groups, room, size = feeds["past_key"].shape
        found: dict[str, Array] = {"before": np.array(before), "there": np.array(before) + length}
        for name, each in feeds.items():
            if self.is_flat and each.ndim == 4:
                found[name] = each.transpose(0, 2, 1, 3).reshape(batch, room, groups * size)
            elif not self.is_flat and each.ndim == 3:
                found[name] = np.ascontiguousarray(each.reshape(batch, length, -1, size).transpose(0, 2, 1, 3))
        if self.mask:
            mask = rng.random((batch, 1, length, room)) < 0.7
            mask[..., 0] = True  # a query that sees no key is another matter
            found["mask"] = mask if self.mask == "bool" else np.where(mask, rng.random(mask.shape), -9).astype("f")
        return found

    def by_places(self, cache: Array) -> Array:
        """Return a cache, or what is like one, with the places of keys as the second axis."""
        return cache if self.is_flat else cache.transpose(0, 2, 1, 3)

    def finite(self, feeds: dict[str, Array]) -> dict[str, Array]:
        """Return the inputs with zeros where the cache holds no numbers."""
        return {name: np.where(np.isfinite(each), each, 0).astype(each.dtype) for name, each in feeds.items()}


def random_attention(rng: np.random.Generator) -> CachedAttention:
    """Return a random attention of one of the operators that write into a cache."""
    op_type = str(rng.choice(["Attention", "Attention", "GroupQueryAttention", "MultiHeadAttention", DECODER]))
    if op_type == "Attention":
        return _onnx_attention(rng)
    groups, size = int(rng.integers(1, 4)), int(rng.choice([16, 32, 48, 64, 80]))
    heads = groups * (int(rng.choice([1, 2, 5, 8])) if op_type == "GroupQueryAttention" else 1)
    inputs, more, constants, attrs = ["q", "k", "v"], list[str](), dict[str, Array](), {"num_heads": heads}
    if op_type == "GroupQueryAttention":
        attrs |= {"kv_num_heads": groups}
        attrs |= {"local_window_size": int(rng.integers(1, 30))} if rng.random() < 0.3 else {}
        attrs |= {"softcap": 3.0} if rng.random() < 0.3 else {}
        more = ["past_key", "past_value", "last", "total"]
        if rng.random() < 0.5:
            angles = rng.standard_normal((128, size // 2)).astype(np.float32)
            constants, attrs = {"cosine": np.cos(angles), "sine": np.sin(angles)}, attrs | {"do_rotary": 1}
    elif op_type == "MultiHeadAttention":
        attrs |= {"unidirectional": int(rng.integers(0, 2))}
        more = ["", "", "", "past_key", "past_value", "before"]
    else:
        attrs |= {"past_present_share_buffer": 1}
        more = ["", "", "past_key", "past_value", "before"]
    names = [*inputs, *more, *constants]
    node = helper.make_node(op_type, names, ["y", "key", "value"], "node", domain=MICROSOFT, **attrs)
    cache = ["batch", groups, "room", size]
    counts = {"last": ["batch"], "total": [1], "before": [1]}
    ports = [
        *_ports({"q": ["batch", "length", heads * size], **{n: ["batch", "length", groups * size] for n in "kv"}}),
        *_ports({"past_key": cache, "past_value": cache}),
        *_ports({name: shape for name, shape in counts.items() if name in names}, TensorProto.INT32),
    ]
    results = _ports({"y": ["batch", "length", heads * size], "key": cache, "value": cache})
    known = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "cached", ports, results, known)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    counts_batches, window = op_type == "GroupQueryAttention", int(attrs.get("local_window_size", 0))
    return CachedAttention(model, groups, heads, size, counts_batches, op_type == DECODER, window=window)


DECODER = "DecoderMaskedMultiHeadAttention"


def _onnx_attention(rng: np.random.Generator) -> CachedAttention:
    """Return a random attention of ONNX's own, to caches that TensorScatter writes into."""
    groups, size = int(rng.integers(1, 4)), int(rng.choice([16, 32, 48, 64, 80]))
    heads, is_flat = groups * int(rng.choice([1, 2, 5, 8])), bool(rng.random() < 0.5)
    mask = str(rng.choice(["", "", "bool", "float32"]))
    attrs: dict[str, Any] = {"is_causal": int(rng.integers(0, 2)), **({"softcap": 3.0} if rng.random() < 0.3 else {})}
    attrs |= {"scale": 0.2} if rng.random() < 0.3 else {}
    attrs |= {"q_num_heads": heads, "kv_num_heads": groups} if is_flat else {}
    axis = 1 if is_flat else 2
    nodes = [
        helper.make_node("TensorScatter", [f"past_{name}", name[0], "before"], [name], axis=axis)
        for name in ("key", "value")
    ]
    names = ["q", "key", "value", "mask" if mask else "", "", "", "there"]
    nodes.append(helper.make_node("Attention", names, ["y"], "node", **attrs))
    many, few = ("batch", "length"), ("batch", "room")

    def shape(extents: tuple[str, str], count: int) -> list[Any]:
        return [*extents, count * size] if is_flat else [extents[0], count, extents[1], size]

    cache = shape(few, groups)
    ports = [
        *_ports({"q": shape(many, heads), "k": shape(many, groups), "v": shape(many, groups)}),
        *_ports({"past_key": cache, "past_value": cache}),
        *_ports({"before": ["batch"], "there": ["batch"]}, TensorProto.INT64),
    ]
    kind = TensorProto.BOOL if mask == "bool" else TensorProto.FLOAT
    ports += _ports({"mask": ["batch", 1, "length", "room"]} if mask else {}, kind)
    results = _ports({"y": shape(many, heads), "key": cache, "value": cache})
    graph = helper.make_graph(nodes, "cached", ports, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    return CachedAttention(model, groups, heads, size, True, False, is_flat, mask)


def _ports(shapes: dict[str, list[Any]], dtype: int = TensorProto.FLOAT) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, dtype, shape) for name, shape in shapes.items()]
