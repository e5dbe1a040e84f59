"""Paths: trees as records, as kernels that walk down trees read them."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.families.tree_ensemble.layout import BELOW, GROUP, LEAF
from opbuild.frontend.trees.order import Order
from opbuild.frontend.trees.splits import Splits
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass

MOST_LEAVES = 2**31 - 1 - LEAF["float32"]
"""Leaves that keys of 32 bits tell apart."""


@dataclass(frozen=True, eq=False)
class Paths:
    """The operands of a kernel that walks down trees."""

    records: Array
    trees: Array
    depths: Array


def keys_of(values: Array) -> Array:
    """Return integers that sort as numbers do; NaN is below all."""
    dtype = values.dtype.name
    kind: Any = np.int32 if dtype == "float32" else np.int64
    bits: Array = np.ascontiguousarray(values).view(kind)
    size = bits & np.iinfo(kind).max
    return np.where(np.isnan(values), kind(BELOW[dtype]), np.where(bits < 0, -size, size))


def columns_of(trees: Splits, nodes: Array, sides: bool) -> Array:
    """Return the columns of keys that nodes compare."""
    features = trees.features[nodes]
    return np.asarray(2 * features + trees.nan_left[nodes] if sides else features)


def table(keys: Array, columns: Array, others: Array) -> Array:
    """Return records or rules: the key, and two numbers of 32 bits."""
    if keys.dtype == np.int32:
        return np.stack([keys, columns.astype(np.int32), others.astype(np.int32)], 1)
    both = (others.astype(np.int64) << 32) | columns.astype(np.int64)
    return np.stack([keys, both], 1)


def paths_of(trees: Splits, order: Order, sides: bool) -> Paths:
    """Return the records of trees: of each its first, and behind it those of the sides of its nodes, in pairs."""
    count, inner = len(trees.roots), len(order.nodes)
    pairs = np.zeros(len(trees.features) + 1, np.int64)
    pairs[order.nodes] = 2 * np.arange(inner) + order.owners + 1
    roots = np.arange(count) + 2 * np.searchsorted(order.owners, np.arange(count))
    first = pairs[order.nodes]
    places = np.concatenate([roots, first, first + 1])
    targets = np.concatenate([trees.roots, trees.left[order.nodes], trees.right[order.nodes]])
    is_leaf = targets < 0
    node = np.where(is_leaf, 0, targets)
    dtype = trees.splits.dtype.name
    keys = np.where(is_leaf, LEAF[dtype] + ~targets, _at(keys_of(trees.splits), node))
    columns = np.where(is_leaf, 0, _at(columns_of(trees, np.arange(len(trees.features)), sides), node))
    records = table(keys.astype(np.int32 if dtype == "float32" else np.int64), columns,
                    np.where(is_leaf, places, pairs[node]))  # fmt: skip
    found = np.empty_like(records)
    found[places] = records
    return Paths(found, *_trees(roots, order.depths))


def _at(values: Array, places: Array) -> Array:
    return values[places] if len(values) else np.zeros(len(places), values.dtype)


def _trees(roots: Array, depths: Array) -> tuple[Array, Array]:
    """Return the table of trees without their targets, which are 0, and the depths of groups of them."""
    walked = np.argsort(-depths, kind="stable")
    place = np.empty_like(walked)
    place[walked] = np.arange(len(walked))
    groups = depths[walked][::GROUP]  # the deepest is the first
    columns = [roots, depths, np.zeros_like(roots), place, roots[walked]]
    return np.stack(columns, 1).astype(np.int32), groups.astype(np.int32)
