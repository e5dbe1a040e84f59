"""Decision trees in numpy: rows walk down the records of each tree, all rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import text_array
from opbuild.families.tree_ensemble.layout import BELOW, LEAF
from opbuild.graph.types import Array, Node


@implements("TreeEnsemble", domain="opbuild")
def _ensemble(node: Node, inputs: Any) -> Sequence[Array]:
    """Put the weights of the leaves of each target together, in the order of the trees."""
    x, base, records, trees, _, weights = inputs[:6]
    aggregate = node.text("aggregate", "sum")
    limits = np.finfo(weights.dtype)
    neutral = {"sum": 0, "min": limits.max, "max": limits.min}[aggregate]
    combine: Any = {"sum": np.add, "min": np.minimum, "max": np.maximum}[aggregate]
    keys = _keys(x, bool(node.attrs.get("sides", 0)))
    found = np.full((len(x), *base.shape), neutral, weights.dtype)
    for root, depth, target, *_ in trees.tolist():
        leaf = _leaves(records, keys, root, depth) - LEAF[x.dtype.name]
        found[:, target] = combine(found[:, target], weights[leaf])
    found = found if aggregate == "sum" else np.where(found == neutral, 0, found).astype(weights.dtype)
    return ((found + base).reshape(len(x), base.size),)


@implements("ClassNames", domain="opbuild")
def _names(node: Node, inputs: Any) -> Sequence[Array]:
    """Name classes by their places."""
    return (_table(node.attrs["names"]).take(inputs[0]),)


@lru_cache(maxsize=64)
def _table(names: Sequence[str]) -> Array:
    return text_array(names, (len(names),))


def _keys(x: Array, sides: bool) -> Array:
    """Return integers that sort as rows do; with two columns for a feature, NaN is above all and below all in turn."""
    dtype = x.dtype.name
    kind: Any = np.int32 if dtype == "float32" else np.int64
    bits: Array = np.ascontiguousarray(x).view(kind)
    size = bits & np.iinfo(kind).max
    keys = np.where(bits < 0, -size, size)
    above = np.where(np.isnan(x), kind(LEAF[dtype] - 1), keys)
    if not sides:
        return above
    below = np.where(np.isnan(x), kind(BELOW[dtype]), keys)
    return np.stack([above, below], -1).reshape(len(x), 2 * x.shape[1])


def _leaves(records: Array, keys: Array, root: int, depth: int) -> Array:
    """Return the keys of the leaves that rows reach in a tree."""
    place, rows = np.full(len(keys), root), np.arange(len(keys))
    for _ in range(depth):
        key, *links = records[place].T
        column, left = links if len(links) == 2 else (links[0] & 0xFFFFFFFF, links[0] >> 32)
        place = left + (keys[rows, column] > key)
    return np.asarray(records[place, 0])
