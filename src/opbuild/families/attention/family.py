"""Attention: softmax of products of queries and keys, times values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from typing import Any

from opbuild.families.family import (
    Dims,
    Family,
    Variant,
    VariantPart,
    elements,
    moved_bytes,
    rounded,
    without_multiples,
    zeroed,
)
from opbuild.families.matmul.family import RATE
from opbuild.families.softmax.family import VECTOR_TIME
from opbuild.families.tiles import round_up
from opbuild.graph.extents import is_at_least
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import Expression, arg, operations, substitute
from opbuild.target.machine import Machine

BATCH_RANK = 3
"""Batch dimensions: groups of heads, heads of a group, batches."""

_TILES = {16: (32, 8, 8, 32), 8: (16, 6, 4, 16), 4: (16, 2, 2, 16)}
"""By a vector's lanes: queries of a block, keys whose scores are summed up at once, and the tile of the output."""

_HALVES = {16: (1.05, 1.0)}
"""By a vector's lanes, what a query costs in blocks of half as many: fewer sums at once; and where keys are left out,
since such a block sees fewer that are hidden from some of its queries. With 8 lanes it is 1.2."""


_FEW = {16: (4, 64), 8: (2, 32), 4: (2, 16)}
"""By a vector's lanes, the tile of the output where there are fewer queries than lanes: each value is read once."""


def fits_few(keys: int, columns: int, hidden: int, machine: Machine) -> Any:
    """Return 1 where an attention of few queries to the keys of a cache has a kernel, else 0.

    The extents may be open; the arguments are those of ``choose``.
    """
    together = _TILES[machine.lanes][1]
    is_wide = is_at_least(columns, _FEW[machine.lanes][1])
    return is_at_least(keys, together) * is_wide * is_at_least(hidden, machine.lanes)


def of_few(machine: Machine) -> Variant:
    """Return the variant for few queries, whatever their number, to the keys of a cache that has room for more.

    Time is that of reading keys and values, which is where the kernel's lanes have work for one query as for many.
    """
    tall, wide = _FEW[machine.lanes]
    block = min(machine.lanes, 8)  # with 16 lanes 16 queries take 1.27 of the time of 8
    return {
        "block": block,
        "keys": _TILES[machine.lanes][1],
        "rows": tall,
        "columns": wide,
        "chunk": machine.lanes,
    }


def fits(rows: int, keys: int, columns: int, machine: Machine) -> Any:
    """Return 1 where an attention is faster than the two products and the softmax one by one, else 0.

    The extents may be open; the arguments are those of ``choose``.
    """
    block, together, _, wide = _TILES[machine.lanes]
    fills = is_at_least(4 * rows - 3 * round_up(rows, block), 0)
    return is_at_least(keys, together) * is_at_least(columns, wide) * fills


def choose(rows: int, keys: int, columns: int, hidden: int, machine: Machine) -> Variant | None:
    """Return the variant; None where the two products and the softmax are faster one by one.

    Args:
        rows: Queries of a batch.
        keys: Keys of a batch.
        columns: Elements of a value.
        hidden: Elements of a key, if keys may be left out; else 0.
        machine: What runs it.
    """
    block, together, tall, wide = _TILES[machine.lanes]
    if not fits(rows, keys, columns, machine):
        return None
    chunk, half = machine.lanes if hidden >= machine.lanes else 0, block // 2
    slower = _HALVES.get(machine.lanes, (inf, inf))[chunk > 0]
    if slower * round_up(rows, half) <= round_up(rows, block):
        block = half
    return {"block": block, "keys": together, "rows": tall, "columns": wide, "chunk": chunk}


def candidates(rows: int, keys: int, columns: int, hidden: int, machine: Machine) -> list[Variant | None]:
    """Return the answers among which tuning searches: that of ``choose``, and one by one."""
    own = choose(rows, keys, columns, hidden, machine)
    return [own] if own is None else [own, None]


def counted(expression: Expression, comparison: Expression, is_seen: bool, operands: int) -> Expression:
    """Return an epilogue that compares a key's place with the number of keys that a query sees.

    Args:
        expression: The epilogue.
        comparison: The part of it that says whether a key is seen, or is not.
        is_seen: Which of both.
        operands: How many operands it reads; two more follow them: the place, and the number.
    """
    places = (arg(operands), arg(operands + 1))
    compared = ("less", *places) if is_seen else ("greater_equal", *places)
    return substitute(expression, lambda e: compared if e == comparison else None)


def describe(
    expression: Expression,
    epilogue: tuple[Operand, ...],
    rounds: str,
    zeros: str,
    variant: Variant,
    numbers: Mapping[str, Expression],
) -> OpDesc:
    """Return the descriptor.

    Operands, innermost dimension first; three dimensions of batches follow each:

    * ``q`` ``(D, I)``, ``k`` ``(J, D)``, ``v`` ``(E, J)``;
    * ``epilogue`` ``(J, I)``: what the expression reads;
    * ``out`` ``(E, I)``.

    Of ``numbers``: ``seen``, how many keys, the first ones, a query sees, ``since``, how many of those it does not, and
    ``bound`` and ``start``, behind and before which values are zeros. Then keys lie with their elements beside each
    other.
    """
    batch = (Dim(),) * BATCH_RANK
    q = Operand("q", "float32", (Dim(), Dim(), *batch))
    element = Dim(stride=1, min=variant["chunk"]) if numbers else Dim()
    k = Operand("k", "float32", (Dim(min=variant["keys"]), element, *batch))
    v = Operand("v", "float32", (Dim(stride=1, min=variant["columns"]), Dim(), *batch))
    out = Operand("out", "float32", (Dim(stride=1), Dim(), *batch))
    types, rounding = rounded(rounds)
    attrs = {"epilogue": expression, **rounding, **zeroed(zeros), **numbers}
    return FAMILY.desc(("Attention", *operations(expression), *types), (q, k, v, *epilogue), (out,), attrs, variant)


def work(desc: OpDesc, shapes: Sequence[Dims], machine: Machine) -> float:
    """Return the nanoseconds that an attention takes on one core."""
    (size, _), (rows, _), *batch = shapes[0]
    keys, columns = shapes[1][0][0], shapes[2][0][0]
    scores = rows * keys * prod(extent for extent, _ in batch)
    arithmetic = scores * ((size + columns) / RATE + VECTOR_TIME) / machine.lanes
    return max(arithmetic, moved_bytes(desc, shapes, machine))


def _products(dims: Sequence[Dims], _out: Dims) -> int:
    (size, _stride), (rows, _stride), *batch = dims[0]
    return rows * dims[1][0][0] * elements(batch) * (size + dims[2][0][0])


FAMILY = Family(
    "attention",
    choose,
    attributes=("epilogue", "rounds", "zeros", "seen", "since", "bound", "start"),
    variant={
        "block": VariantPart(),
        "keys": VariantPart(least=1),
        "rows": VariantPart(),
        "columns": VariantPart(least=1),
        "chunk": VariantPart(least=1),
    },
    types=("float32",),
    milliseconds=200,
    least_extent=1,
    opened=without_multiples,
    work=work,
    candidates=candidates,
    products=_products,
)
