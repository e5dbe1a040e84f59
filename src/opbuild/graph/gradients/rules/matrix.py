"""Gradients of products of matrices, and of collectives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.graph.gradients.broadcasting import is_empty, summed_to
from opbuild.graph.gradients.registry import Backward, gradient
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.types import COLLECTIVES


def turned(of: GraphBuilder, x: Value) -> Value:
    """Return matrices with rows and columns exchanged."""
    rank = len(x.shape)
    return of.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


@gradient("MatMul")
def product(of: Backward) -> Sequence[Value | None]:
    """Differentiate products of matrices or vectors, which may be broadcast."""
    a, b = of.input(0), of.input(1)
    if is_empty(a, b):
        return tuple(of.filled(0.0, each.dtype, each.shape) for each in (a, b))
    left = a if len(a.shape) > 1 else of.reshape(a, (1, *a.shape))
    right = b if len(b.shape) > 1 else of.reshape(b, (*b.shape, 1))
    batch = _batch(of, a, b)
    dy = of.reshape(of.gradient(), (*batch, left.shape[-2], right.shape[-1]))
    first = second = None
    if of.wants(0):
        first = of.reshape(summed_to(of, of("MatMul", dy, turned(of, right)), left.shape), a.shape)
    if of.wants(1):
        if len(right.shape) == 2 and len(left.shape) > 2:  # one product instead of a sum of many
            left = of.reshape(left, (prod(left.shape[:-1]), left.shape[-1]))
            dy = of.reshape(dy, (left.shape[0], right.shape[-1]))
        second = of.reshape(summed_to(of, of("MatMul", turned(of, left), dy), right.shape), b.shape)
    return first, second


def _batch(of: Backward, a: Value, b: Value) -> tuple[int, ...]:
    """Return the extents of the output that matrices are counted by."""
    shape = of.gradient().shape
    return shape[: len(shape) - (len(a.shape) > 1) - (len(b.shape) > 1)]


@gradient("Gemm")
def gemm(of: Backward) -> Sequence[Value | None]:
    """Differentiate ``alpha * a @ b + beta * c``."""
    a, b, c = of.input(0), of.input(1), of.optional(2)
    dy = of.gradient()
    if is_empty(a, b):
        parts: list[Value | None] = [of.filled(0.0, each.dtype, each.shape) for each in (a, b)]
    else:
        turns = of.flag("transA"), of.flag("transB")
        scaled = _times(of, dy, of.number("alpha", 1.0))
        left, right = (turned(of, each) if turn else each for each, turn in zip((a, b), turns, strict=True))
        parts = [None, None]
        if of.wants(0):
            first = of("MatMul", scaled, turned(of, right))
            parts[0] = turned(of, first) if turns[0] else first
        if of.wants(1):
            second = of("MatMul", turned(of, left), scaled)
            parts[1] = turned(of, second) if turns[1] else second
    if c is not None and of.wants(2):
        parts.append(summed_to(of, _times(of, dy, of.number("beta", 1.0)), c.shape))
    return parts


def _times(of: GraphBuilder, x: Value, factor: float) -> Value:
    return x if factor == 1.0 else of("Mul", x, of.constant(factor, x.dtype))


@gradient("AllReduce", "AllGather", "ReduceScatter", domain=COLLECTIVES)
def together(of: Backward) -> Sequence[Value | None]:
    """Give each rank the gradients of all ranks' results for its elements: the operator with both turned."""
    op_type, attrs = of.node.op_type, {**of.node.attrs, "reduction": "sum"}
    if op_type != "AllGather" and of.node.attrs.get("reduction") != "sum":
        of.refuse(f"its reduction is {of.node.attrs.get('reduction')}, not sum")
    if op_type == "ReduceScatter":
        del attrs["reduction"]
    back = {"AllGather": "ReduceScatter", "ReduceScatter": "AllGather"}.get(op_type, op_type)
    return (of(back, of.gradient(), domain=COLLECTIVES, **attrs),)
