"""ONNX's own Attention, written by heads: shared keys are not copied, and keys that are not there are not looked at.

Forms that are not written keep their node, whose place ONNX's function takes (``expansion``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.frontend.heads import Heads, split_heads
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.extents import always_equal
from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Node

MASK, PAST_KEY, PAST_VALUE, LENGTHS = 3, 4, 5, 6
"""Places of inputs."""

_WRITTEN = ("float32", "float16", "bfloat16", "float64")
"""Element types of which it is written, and its softmax."""


@writes("Attention", domain="")
def _attention(of: Rewriting) -> Sequence[Node]:
    """Attention: queries, keys and values by heads, or with their heads beside each other."""
    types = [of.input(index).type if of.has(index) else None for index in range(len(of.node.inputs))]
    infer_node(of.node, types, (None,) * len(types))  # an error is to name this node, not one below
    if not _is_written(of):
        return of.itself()
    own, scale = _heads(of), float(of.attr("scale", 1 / sqrt(of.shape(0)[-1] // _queries_of(of))))
    if of.has(PAST_KEY):
        own.append_to(of.input(PAST_KEY), of.input(PAST_VALUE), of.shape(PAST_KEY, 4)[2])
    _hide(own)
    if of.dtype() in NARROW_FLOATS:  # products of 16 bits overflow before they are scaled
        own.query, scale = of("Mul", own.query, of.floats(scale)), 1.0
    softcap, is_flat = float(of.attr("softcap", 0.0)), len(of.shape(0)) == 3
    result = own.attend(scale, softcap) if is_flat else own.weigh(scale, softcap)
    if own.groups and not is_flat:
        result = of.reshape(result, (own.batch, own.count, own.length, own.value_size))
    scores: str = ""
    if any(of.node.outputs[3:]):
        scores = own.stages[int(of.attr("qk_matmul_output_mode", 0))]
        scores = of.reshape(scores, (own.batch, own.count, own.length, own.total))
    return of.finish(result, own.key, own.value, scores)


def _queries_of(of: Rewriting) -> int:
    """Return how many heads of queries are beside each other."""
    return int(of.attr("q_num_heads", 0)) if len(of.shape(0)) == 3 else 1


def _is_written(of: Rewriting) -> bool:
    """Return whether a form of the operator is written with others."""
    kinds, precision = {of.dtype(index) for index in range(3)}, of.attr("softmax_precision", 0)
    return (
        len(kinds) == 1
        and kinds.issubset(_WRITTEN)
        and (not precision or ONNX_DTYPES.get(precision) in _WRITTEN)
        and not any(each == 0 for index in range(3) for each in of.shape(index))
        and of.has(PAST_KEY) == of.has(PAST_VALUE)
        and not (of.has(PAST_KEY) and of.has(LENGTHS))
        and of.attr("qk_matmul_output_mode", 0) in range(4)
        and _is_mask_written(of)
    )


def _is_mask_written(of: Rewriting) -> bool:
    """Return whether a mask hides keys, or is added to scores, for as many keys as there are."""
    if not of.has(MASK):
        return True
    shape, rank = of.shape(MASK), len(of.shape(0))
    total = of.shape(1)[rank - 2] + (of.shape(PAST_KEY, 4)[2] if of.has(PAST_KEY) else 0)
    is_whole = bool(shape) and len(shape) <= 4 and (always_equal(shape[-1], total) or of.has(LENGTHS))
    return is_whole and of.dtype(MASK) in ("bool", of.dtype())


def _heads(of: Rewriting) -> Heads:
    """Return queries, keys and values by heads."""
    shapes, values = [of.shape(index, 3, 4) for index in range(3)], [of.input(index) for index in range(3)]
    if len(shapes[0]) == 3:
        counts = [int(of.attr("q_num_heads", 0)), *(int(of.attr("kv_num_heads", 0)),) * 2]
        whole = zip(shapes, counts, strict=True)
        shapes = [(batch, count, length, size // count) for (batch, length, size), count in whole]
        pairs = zip(values, shapes, strict=True)
        values = [split_heads(of, each, batch, length, heads, size) for each, (batch, heads, length, size) in pairs]
    (batch, count, length, size), (_, groups, total, _), value_size = shapes[0], shapes[1], shapes[2][-1]
    query, key, value = values
    own = Heads(of, query, key, value, batch, count, length, total, size, value_size)
    own.groups = 0 if count == groups else groups
    own.precision = ONNX_DTYPES[of.attr("softmax_precision", 0)] if of.attr("softmax_precision", 0) else ""
    return own


def _hide(own: Heads) -> None:
    """Hide keys that are not there, after a query, outside its window, or hidden by a mask, and add a mask of floats.

    A query that sees no key has zeros.
    """
    of = own.of
    conditions = list[Value]()
    if of.has(LENGTHS):
        own.there = own.of_queries(of.input(LENGTHS), rows=1)
    if of.has(MASK):
        mask = _mask(own)
        if of.dtype(MASK) == "bool":
            conditions.append(mask)
        else:
            own.added.append(mask)
    count, first = _ends(own)
    keys = of.steps(own.total)
    if count:
        conditions.append(of("Less", keys, count))
    if first:
        conditions.append(of("GreaterOrEqual", keys, first))
    for each in conditions:
        own.shown = of("And", own.shown, each) if own.shown else each
    if of.has(MASK) or of.has(LENGTHS) or first:
        own.zeros = "hidden"


def _ends(own: Heads) -> tuple[str, str]:
    """Write how many keys a query may see, and how many of those its window hides, the first; empty: none."""
    of, there = own.of, own.there
    right = 0 if of.attr("is_causal", 0) else int(of.attr("right_window_size", -1))
    left = int(of.attr("left_window_size", -1))
    if right < 0 and left < 0:
        return there, ""
    places = of.steps(own.length, own.past)
    if there:
        first = of("Sub", of.reshape(of.input(LENGTHS), (-1, 1)), of.ints(own.length))
        places = of("Add", first, of.steps(own.length))
    count = there
    if right > 0 or (right == 0 and not (there and own.length == 1)):  # else it is the last key that is there
        count = own.of_queries(of("Add", places, of.ints(right + 1)))
        count = of("Min", count, there) if there and right else count
    if left < 0:
        return count, ""
    if there:
        own.since = of("Sub", there, of.ints(own.length + left))
    if there and own.length == 1:
        return count, own.since
    return count, own.of_queries(of("Sub", places, of.ints(left)))


def _mask(own: Heads) -> Value:
    """Write the mask with the axes of scores, and hidden keys behind those that it has."""
    of = own.of
    mask, shape = of.input(MASK), of.shape(MASK)
    missing = own.total - shape[-1]
    if not always_equal(missing, 0):
        hidden = of.constant(np.array(False)) if mask.dtype == "bool" else of.floats(-np.inf)
        mask = of("Pad", mask, of.ints(*(0,) * (2 * len(shape) - 1), missing), hidden)
    shape = (*(1,) * (4 - len(shape)), *shape[:-1], own.total)
    return own.of_heads(of.reshape(mask, shape) if own.groups and len(of.shape(MASK)) < 4 else mask, shape)
