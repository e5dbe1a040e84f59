"""Operators of random networks that select, scatter or run along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from generated.random_networks import EPSILON, Maker, NotPossibleError, Value
from generated.random_products import spatial, window

NUMBERS = ("float32", "float32", "int64", "int32", "float64")


def _outputs(m: Maker, op_type: str, inputs: list[str | Value], made: list[Value], **attrs: Any) -> None:
    """Add a node with several outputs, whose values are ``made`` but for their names."""
    names = m.emit(op_type, inputs, len(made), **attrs)
    for name, like in zip(names, made, strict=True):
        m.values.append(Value(name, like.dtype, like.shape, like.low, like.high, like.noise))


def _filled(m: Maker, ranks: tuple[int, ...], dtypes: tuple[str, ...] = NUMBERS) -> Value:
    """Return an exact value with elements."""
    x = m.tensor(dtypes, ranks=ranks, exact=True)
    if not math.prod(x.shape):
        raise NotPossibleError
    return x


def top_k(m: Maker) -> None:
    """Apply TopK; of equal elements the one with the lower index comes first."""
    x = _filled(m, (1, 2, 3))
    axis = int(m.rng.integers(-x.rank, x.rank))
    k = int(m.rng.integers(1, x.shape[axis] + 1))
    shape = tuple(k if at == axis % x.rank else extent for at, extent in enumerate(x.shape))
    index = Value("", "int64", shape, 0, x.shape[axis])
    values = Value("", x.dtype, shape, x.low, x.high)
    _outputs(m, "TopK", [x, m.constants_of([k])], [values, index], axis=axis, largest=int(m.chance(0.5)), sorted=1)


def scatter_elements(m: Maker) -> None:
    """Apply ScatterElements; an element is written once, or the order in which it is changes nothing."""
    x = _filled(m, (1, 2, 3))
    axis = int(m.rng.integers(0, x.rank))
    count = int(m.rng.integers(1, x.shape[axis] + 1))
    shape = tuple(count if at == axis else int(m.rng.integers(1, extent + 1)) for at, extent in enumerate(x.shape))
    order = np.argsort(m.rng.random((*shape[:axis], x.shape[axis], *shape[axis + 1 :])), axis)
    index = np.take(order, range(count), axis).astype(np.int64)
    if m.chance(0.3):
        index -= x.shape[axis]
    reduction = m.one_of(["none", "add", "max", "min"])
    updates = m.draw(x.dtype, shape)
    low, high = min(x.low, updates.low), max(x.high, updates.high)
    if reduction == "add":
        low, high = x.low + min(updates.low, 0), x.high + max(updates.high, 0)
    m.add("ScatterElements", [x, m.constant(index), updates], x.shape, like=x, low=low, high=high, axis=axis,
          reduction=reduction)  # fmt: skip


def scatter_nd(m: Maker) -> None:
    """Apply ScatterND with different places."""
    x = _filled(m, (1, 2, 3))
    depth = int(m.rng.integers(1, x.rank + 1))
    places = math.prod(x.shape[:depth])
    chosen = m.rng.permutation(places)[: int(m.rng.integers(1, min(places, 9) + 1))]
    index = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1).astype(np.int64)
    updates = m.draw(x.dtype, (len(chosen), *x.shape[depth:]))
    low, high = min(x.low, updates.low), max(x.high, updates.high)
    m.add("ScatterND", [x, m.constant(index), updates], x.shape, like=x, low=low, high=high)


def triangle(m: Maker) -> None:
    """Apply Trilu."""
    x = m.tensor(("float32", "int64", "bool", "float64"), ranks=(2, 3, 4))
    inputs: list[str | Value] = [x]
    if m.chance(0.6):
        inputs.append(m.constant(np.array(int(m.rng.integers(-4, 5)), np.int64)))
    m.add("Trilu", inputs, x.shape, like=x, low=min(x.low, 0), high=max(x.high, 0), upper=int(m.chance(0.5)))


def running_sum(m: Maker) -> None:
    """Apply CumSum."""
    x = m.tensor(("float32", "int32", "int64", "float64"), ranks=(1, 2, 3))
    axis = int(m.rng.integers(-x.rank, x.rank))
    terms = max(x.shape[axis], 1)
    if not x.floating and x.bound * terms > 2**30:
        raise NotPossibleError
    bound, noise = x.bound * terms, x.noise * terms
    if x.floating and (noise or bound > 2**22):
        noise += 16 * bound * EPSILON[x.dtype]
    m.add("CumSum", [x, m.constant(np.array(axis, m.one_of([np.int32, np.int64])))], x.shape, like=x, low=-bound,
          high=bound, noise=noise, exclusive=int(m.chance(0.3)), reverse=int(m.chance(0.3)))  # fmt: skip


EQUATIONS = (
    "ij,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "bhid,bhjd->bhij", "i,j->ij", "ij,ij->", "ij->ji", "ij->i", "ij,j->i",
    "bi,bj->bij", "abc,cd->abd", "ij,kj->ik", "i,i->",
)  # fmt: skip


def einsum(m: Maker) -> None:
    """Apply Einsum: products, outer products, sums, transposes."""
    equation = m.one_of(EQUATIONS)
    terms, _, result = equation.partition("->")
    sizes = {label: int(m.one_of([1, 2, 3, 5, 8, 17])) for label in sorted(set(terms) - {","})}
    inputs: list[str | Value] = [m.draw("float32", [sizes[label] for label in term]) for term in terms.split(",")]
    summed = math.prod(size for label, size in sizes.items() if label not in result)
    bound = 3.0 ** len(inputs) * summed
    m.add("Einsum", inputs, [sizes[label] for label in result], low=-bound, high=bound, equation=equation)


def one_hot(m: Maker) -> None:
    """Apply OneHot; indices may lie outside."""
    shape = m.shape(int(m.rng.integers(1, 4)))
    depth = int(m.rng.integers(1, 7))
    index = m.feed(np.asarray(m.rng.integers(-depth - 1, depth + 2, shape), np.int64), -depth - 1, depth + 1)
    axis = int(m.rng.integers(-len(shape) - 1, len(shape) + 1))
    out = list(shape)
    out.insert(axis % (len(shape) + 1), depth)
    values = m.constant(np.array([-1, 2], m.one_of([np.float32, np.int64])))
    m.add("OneHot", [index, m.constant(np.array(depth, np.int64)), values], out, like=values, axis=axis)


def hard_max(m: Maker) -> None:
    """Apply Hardmax."""
    x = _filled(m, (1, 2, 3, 4), ("float32", "float32", "float64"))
    m.add("Hardmax", [x], x.shape, dtype=x.dtype, low=0, high=1, axis=int(m.rng.integers(-x.rank, x.rank)))


def length_normalization(m: Maker) -> None:
    """Apply LpNormalization to elements that are not near zero."""
    x = m.within(m.tensor(("float32",), ranks=(1, 2, 3)), 0.25, 4)
    noise = 16 * x.noise + 32 * EPSILON["float32"]
    axis, p = int(m.rng.integers(-x.rank, x.rank)), int(m.one_of([1, 2]))
    m.add("LpNormalization", [x], x.shape, low=-1, high=1, noise=noise, axis=axis, p=p)


def length_pool(m: Maker) -> None:
    """Apply LpPool."""
    x = m.within(spatial(m), 0.25, 4)
    kernel, strides, _, pads, out = window(m, x, 3)
    bound = 4.0 * math.prod(kernel)
    out = [(size + pads[i] + pads[i + len(kernel)] - kernel[i]) // strides[i] + 1 for i, size in enumerate(x.shape[2:])]
    if min(out, default=1) < 1:
        raise NotPossibleError
    noise = (x.noise + bound * 32 * EPSILON["float32"]) * math.prod(kernel)
    m.add("LpPool", [x], (*x.shape[:2], *out), low=0, high=bound, noise=noise, kernel_shape=kernel, strides=strides,
          pads=pads, p=int(m.one_of([1, 2])))  # fmt: skip


def indexed_pool(m: Maker) -> None:
    """Apply MaxPool with the places of what it found."""
    x = spatial(m, rank=4)
    if not x.exact or not math.prod(x.shape):
        raise NotPossibleError
    kernel, strides, _, _, _ = window(m, x, 3)
    out = [(size - k) // s + 1 for size, k, s in zip(x.shape[2:], kernel, strides, strict=True)]
    if min(out) < 1:
        raise NotPossibleError
    shape = (*x.shape[:2], *out)
    made = [Value("", "float32", shape, x.low, x.high), Value("", "int64", shape, 0, math.prod(x.shape))]
    _outputs(m, "MaxPool", [x], made, kernel_shape=kernel, strides=strides)


def grid_sample(m: Maker) -> None:
    """Apply GridSample with linear interpolation."""
    x = spatial(m, rank=4)
    if not math.prod(x.shape):
        raise NotPossibleError
    grid = m.rng.uniform(-1.2, 1.2, (x.shape[0], *m.rng.integers(1, 6, 2), 2)).astype(np.float32)
    noise = 4 * x.noise + 64 * max(x.shape[2:]) * max(x.bound, 1) * EPSILON["float32"]
    attrs = {"mode": "linear", "padding_mode": m.one_of(["zeros", "border"]), "align_corners": int(m.chance(0.5))}
    m.add("GridSample", [x, m.constant(grid)], (*x.shape[:2], *grid.shape[1:3]), low=min(x.low, 0),
          high=max(x.high, 0), noise=noise, **attrs)  # fmt: skip


def reversed_rows(m: Maker) -> None:
    """Apply ReverseSequence."""
    x = _filled(m, (2, 3), ("float32", "int64"))
    lengths = m.constant(np.asarray(m.rng.integers(1, x.shape[0] + 1, x.shape[1]), np.int64))
    m.add("ReverseSequence", [x, lengths], x.shape, like=x, time_axis=0, batch_axis=1)
