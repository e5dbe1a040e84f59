"""Operators of ``ai.onnx.ml`` on text, maps (dictionaries of Python) and trees, in numpy.

``frontend.learned`` has those on numbers. Probabilities of classes from those of pairs of classes are found by the
iteration of Wu, Lin and Weng (2004). It is computed in float64 by the same operations for one row, with Python's
numbers, as for many, with columns: what becomes of a row does not depend on the rows beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, repeat
from operator import mul
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.strings import as_text, text_array
from opbuild.families.tree_ensemble.layout import BELOW, LEAF
from opbuild.graph.tables import MAPPED, as_texts, label_table
from opbuild.graph.types import Array, Node

ML = "ai.onnx.ml"


_NAN = object()
"""What stands for every NaN among the keys of a dictionary, where none equals another."""


@implements("LabelEncoder", domain=ML)
def _encode(node: Node, inputs: Any) -> Sequence[Array]:
    x = inputs[0]
    keys, table = label_table(node, x.dtype.name)
    if object not in (x.dtype, keys.dtype):
        return (table[_places(x, keys)].reshape(x.shape),)
    known = {key: place for place, key in enumerate(map(_key, keys), 1)}
    return (table[[known.get(_key(each), 0) for each in x.flat]].reshape(x.shape),)


def _places(x: Array, keys: Array) -> Array:
    """Return the place behind the last key that each number equals, 0 if there is none."""
    order = np.argsort(keys, kind="stable")
    place = np.searchsorted(keys, x, "right", sorter=order) - 1
    found = keys[order][place]
    is_known = (place >= 0) & ((found == x) | (np.isnan(found) & np.isnan(x)))
    return np.where(is_known, order[place] + 1, 0)


def _key(value: Any) -> Any:
    return _NAN if not isinstance(value, str) and np.isnan(value) else value


@implements("OneHotEncoder", domain=ML)
def _one_hot(node: Node, inputs: Any) -> Sequence[Array]:
    """Tell of each element which category it is; of equal categories the last counts."""
    x, attrs = inputs[0], node.attrs
    if x.dtype == object:
        categories = as_texts(attrs.get("cats_strings", ()))
        place_of = {each: place for place, each in enumerate(categories)}
        places = np.array([place_of.get(each, -1) for each in x.flat], np.int64).reshape(x.shape)
        found = places[..., None] == np.arange(len(categories))
    else:
        categories = np.array(attrs.get("cats_int64s", ()), np.int64)
        found = x.astype(np.int64)[..., None] == categories
        if len(np.unique(categories)) < len(categories):
            found &= [each not in categories[place + 1 :] for place, each in enumerate(categories)]
    if not attrs.get("zeros", 1) and not (known := found.any(-1)).all():
        raise ValueError(f"{x[~known].tolist()[0]!r} is none of its categories")
    return (found.astype(np.float32),)


@implements("CategoryMapper", domain=ML)
def _map(node: Node, inputs: Any) -> Sequence[Array]:
    """Turn names to numbers, or numbers to names."""
    x, attrs = inputs[0], node.attrs
    names, numbers = [*map(as_text, attrs["cats_strings"])], [int(each) for each in attrs["cats_int64s"]]
    if x.dtype == object:
        known = dict(zip(names, numbers, strict=True))
        other = int(attrs.get("default_int64", -1))
        return (np.array([known.get(each, other) for each in x.flat], np.int64).reshape(x.shape),)
    named, unknown = dict(zip(numbers, names, strict=True)), as_text(attrs.get("default_string", "_Unused"))
    return (text_array([named.get(int(each), unknown) for each in x.flat], x.shape),)


@implements("ZipMap", domain=ML)
def _zip(node: Node, inputs: Any) -> Sequence[Any]:
    """Make a dictionary of each row, from labels in order to the row's numbers."""
    x, attrs = inputs[0], node.attrs
    texts = tuple(attrs.get("classlabels_strings", ()))
    keys, order = _ordered(texts or tuple(map(int, attrs["classlabels_int64s"])))
    if x.ndim not in (1, 2) or x.shape[-1] != len(keys):
        raise ValueError(f"{len(keys)} labels name rows of {x.shape[-1] if x.ndim else 1} numbers")
    x = x.reshape(-1, len(keys))
    return (_dictionaries(keys, x if order is None else x[:, order]),)


@lru_cache(maxsize=64)
def _ordered(given: tuple[Any, ...]) -> tuple[list[Any], list[int] | None]:
    """Return labels in order, and where each stands among those given; None: there, too, they are in order."""
    labels: list[Any] = list(given) if isinstance(given[0], int) else as_texts(given).tolist()
    order = sorted(range(len(labels)), key=labels.__getitem__)
    keys = [labels[index] for index in order]
    return keys, None if keys == labels else order


def _dictionaries(keys: Sequence[Any], rows: Array) -> list[dict[Any, float]]:
    """Return the dictionary of each row; of two and three keys they are made in half the time when these are spelt."""
    if len(keys) == 2:
        a, b = keys
        return [{a: one, b: two} for one, two in zip(*rows.T.tolist(), strict=True)]
    if len(keys) == 3:
        a, b, c = keys
        return [{a: one, b: two, c: three} for one, two, three in zip(*rows.T.tolist(), strict=True)]
    return list(map(dict, map(zip, repeat(keys), rows.tolist())))


@implements("DictVectorizer", domain=ML)
def _vectorize(node: Node, inputs: Any) -> Sequence[Array]:
    """Give the values of the keys of a vocabulary; keys that a map lacks are 0, or an empty text."""
    given, attrs = _as_map(inputs[0]), node.attrs
    texts = attrs.get("string_vocabulary", ())
    keys: list[Any] = as_texts(texts).tolist() if len(texts) else [int(e) for e in attrs.get("int64_vocabulary", ())]
    dtype = attrs.get(MAPPED) or ("object" if any(isinstance(each, str) for each in given.values()) else "float32")
    if dtype == "object":
        return (text_array([str(given.get(key, "")) for key in keys], (1, len(keys))),)
    return (np.array([[given.get(key, 0) for key in keys]], dtype),)


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, str) and value.strip().lstrip("+-").isdecimal() else int(float(value))


_FILLS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "TO_FLOAT": (np.float32, float),
    "TO_INT64": (np.int64, _integer),
    "TO_STRING": (object, lambda value: value if isinstance(value, str) else f"{np.float32(value):f}"),
}
"""By what values become: their element type, and how."""

NO_TEXT = "0.f"
"""What ONNX Runtime puts in the place of a text that a sparse map lacks."""


@implements("CastMap", domain=ML)
def _cast_map(node: Node, inputs: Any) -> Sequence[Array]:
    """Give the values of a map in the order of its keys; of a sparse one those of all keys up to a greatest one."""
    given = _as_map(inputs[0])
    dtype, convert = _FILLS[node.text("cast_to", "TO_FLOAT")]
    values = {int(key): convert(value) for key, value in given.items()}
    if node.text("map_form", "DENSE") == "DENSE":
        row = [values[key] for key in sorted(values)]
    else:
        if min(values, default=0) < 0:
            raise ValueError(f"the key {min(values)} is negative")
        row = [values.get(key, NO_TEXT if dtype is object else 0) for key in range(int(node.attrs.get("max_map", 1)))]
    return (text_array(row, (1, len(row))) if dtype is object else np.array([row], dtype),)


def _as_map(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"its input is a {type(value).__name__}, not a dictionary")
    return value


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
def _class_names(node: Node, inputs: Any) -> Sequence[Array]:
    """Name classes by their places."""
    return (_name_table(node.attrs["names"]).take(inputs[0]),)


@lru_cache(maxsize=64)
def _name_table(names: Sequence[str]) -> Array:
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


SWEEPS = 100
"""Sweeps at most."""

TOLERANCE = 0.005
"""How far the condition of the minimum may be off, by the number of classes."""

FEW = 16
"""Rows up to which Python's numbers are faster than columns."""

Column = Any
"""A number of one row, or an array of those of many."""


@implements("PairwiseCoupling", domain="opbuild")
def _couple(node: Node, inputs: Any) -> Sequence[Array]:
    pairs, classes = inputs[0], int(node.attrs["classes"])
    if len(pairs) <= FEW:
        found = np.array([_of_row(_system(row, classes)) for row in pairs.tolist()])
    else:
        found = _of_columns(np.array(_system(list(pairs.T.astype(np.float64)), classes)))
    return (found.reshape(-1, classes).astype(pairs.dtype),)


def _system(pairs: Sequence[Column], classes: int) -> list[list[Column]]:
    """Return the matrix whose quadratic form is least for the probabilities wanted."""
    system: list[list[Column]] = [[0.0] * classes for _ in range(classes)]
    for (first, second), wins in zip(combinations(range(classes), 2), pairs, strict=True):
        loses = 1 - wins
        system[first][second] = system[second][first] = -wins * loses
        system[first][first] = system[first][first] + loses * loses
        system[second][second] = system[second][second] + wins * wins
    return system


def _of_row(system: list[list[float]]) -> list[float]:
    """Return the probabilities of one row; a value that is not a number is near enough."""
    found, bound = [1 / len(system)] * len(system), TOLERANCE / len(system)
    for _ in range(SWEEPS):
        slopes, mean = _slopes(system, found)
        if not any(abs(slope - mean) >= bound for slope in slopes):
            break
        _sweep(system, found, slopes, mean)
    return found


def _of_columns(system: Array) -> Array:
    """Return the probabilities of many rows; those that are near enough are left out of further sweeps."""
    classes, _, rows = system.shape
    found, bound, left = np.full((classes, rows), 1 / classes), TOLERANCE / classes, np.arange(rows)
    results = np.empty((classes, rows))
    for _ in range(SWEEPS):
        slopes = sum(system[:, index] * found[index] for index in range(classes))
        mean = sum(found[index] * slopes[index] for index in range(classes))
        far = (np.abs(slopes - mean) >= bound).any(0)
        if not far.all():
            results[:, left[~far]] = found[:, ~far]
            left, mean = left[far], mean[far]
            found, slopes, system = (each.compress(far, -1) for each in (found, slopes, system))
        if not len(left):
            return results.T
        for index, row in enumerate(system):
            change = (mean - slopes[index]) / row[index]
            found[index] += change
            scale = 1 / (1 + change)
            mean = (mean + change * (change * row[index] + 2 * slopes[index])) * scale * scale
            slopes = (slopes + change * row) * scale
            found *= scale
    results[:, left] = found
    return results.T


def _slopes(system: list[list[float]], found: list[float]) -> tuple[list[float], float]:
    """Return half the slope along each probability, and the mean of them."""
    slopes = [_dot(row, found) for row in system]
    return slopes, _dot(found, slopes)


def _dot(one: list[float], other: list[float]) -> float:
    """Return a sum of products, each added as it is: ``sum`` keeps the rounding errors, from Python 3.12 on."""
    total = 0.0
    for each in map(mul, one, other):
        total += each
    return total


def _sweep(system: list[list[float]], found: list[float], slopes: list[float], mean: float) -> None:
    """Change one probability after the other to where the slope along it is the mean, and divide all by their sum."""
    for index, row in enumerate(system):
        change = (mean - slopes[index]) / row[index]
        found[index] = found[index] + change
        scale = 1 / (1 + change)
        mean = (mean + change * (change * row[index] + 2 * slopes[index])) * scale * scale
        slopes[:] = [(slope + change * own) * scale for slope, own in zip(slopes, row, strict=True)]
        found[:] = [each * scale for each in found]
