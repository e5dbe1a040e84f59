"""Lowering of attention: one kernel where that is faster than the two products and the softmax one by one."""

from __future__ import annotations

from functools import partial
from typing import Any

from opbuild.families.attention import family as attentions
from opbuild.families.attention.family import BATCH_RANK
from opbuild.families.family import Variant
from opbuild.graph.elementwise import Hiding, split_attention
from opbuild.graph.extents import always_equal, example_value, is_at_least, is_one, is_open, same_shape
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import FREE, HIGH_PERFORMANCE, Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, ask, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, merge, padded, transposed, viewed_as, with_inner_stride
from opbuild.operations.expression import Expression, from_json
from opbuild.platform.records import dataclass, replace

LONG = 1024
"""Keys from which on rows of one head are copied together first: apart, they share few of a cache's sets. At 2048 keys
of 12 heads beside each other it halves the time."""


@dataclass(frozen=True)
class _AttentionCall:
    """An attention to emit; batches of its operands are those of ``out``, or 1.

    Attributes:
        query: ``(..., rows, size)``.
        key: ``(..., size, keys)``.
        value: ``(..., keys, columns)``.
        operands: Values that the epilogue reads, ``(..., rows, keys)``.
        out: ``(..., rows, columns)``.
    """

    query: Plain
    key: Plain
    value: Plain
    operands: tuple[Plain, ...]
    out: Plain

    def broadcast(self) -> list[Plain]:
        """Return all of its operands, and its result, with equal batches."""
        *batch, rows, _ = self.out.shape
        own = [(each, each.shape[-2:]) for each in (self.query, self.key, self.value)]
        own += [(each, (rows, self.key.shape[-1])) for each in self.operands]
        return [*(broadcast(each, (*batch, *matrix)) for each, matrix in own), self.out]

    def gathered(self, lowering: Lowering, copies: list[tuple[Plain, Plain]]) -> _AttentionCall:
        """Return it with rows of each head beside each other; copies that this needs are added to ``copies``."""
        key = _turned(_gathered(lowering, _turned(self.key), copies))
        return replace(self, key=key, value=_gathered(lowering, self.value, copies))


@serves("opbuild.Attention")
def attention(lowering: Lowering, node: Node) -> None:
    """Lower an attention: at each size in the way that is faster."""
    if lowering.impl_mode(node) != HIGH_PERFORMANCE:
        raise NotServedError("precise attention is computed one by one")
    *batch, rows, columns = lowering.type(node.outputs[0]).shape
    size, keys = lowering.type(node.inputs[1]).shape[-2:]
    query, key, value = (lowering.plain(name) for name in node.inputs[:3])
    if 0 in (*batch, rows, columns, size, keys) or not (is_one(columns) or is_one(value.strides[-1])):
        raise NotServedError("attention to nothing, or to values that are not adjacent, has no kernel")
    fits, is_long = attentions.fits(rows, keys, columns, lowering.machine), is_at_least(keys, LONG)
    few: Any = 0
    if "bound" in node.attrs and is_one(key.strides[-2]):  # what lies behind the keys of a cache is not to be copied
        few, is_long = attentions.fits_few(keys, columns, size, lowering.machine), 0
        fits = fits * is_at_least(size, lowering.machine.lanes)
    if lowering.is_for_device(attentions.FAMILY.name):
        fits, is_long, few = 1, 0, 0
    if lowering.is_constant(node.inputs[2]):
        fits = example_value(fits)
    if always_equal(fits, 0) and always_equal(few, 0):
        raise NotServedError("small attention is computed one by one")
    own = int(node.attrs["own_inputs"])
    operands = tuple(lowering.plain(name) for name in node.inputs[own:])
    whole = _AttentionCall(query, key, value, operands, _output(lowering, node.outputs[0]))
    far, near = (partial(_emit, lowering, node, whole, is_gathered=each) for each in (True, False))
    for_few = partial(_emit, lowering, node, whole, is_gathered=False, variant=attentions.of_few(lowering.machine))
    ways = [(fits * is_long, far), (fits, near), (few, for_few)]
    if not is_open((fits, is_long, few)):
        if not next(emit for flag, emit in ways if flag)():
            raise NotServedError("attention in too many batches, or without a kernel, is computed one by one")
        return
    lowering.place(node.outputs[0], whole.out)
    lowering.either([*ways, (1, partial(_emit_parts, lowering, node))])


def _emit_parts(lowering: Lowering, node: Node) -> None:
    for part in split_attention(node) or ():
        ask(lowering, (part.domain, part.op_type), part)


def _emit(
    lowering: Lowering, node: Node, whole: _AttentionCall, *, is_gathered: bool, variant: Variant | None = None
) -> bool:
    """Emit an attention as one kernel, of the variant that is chosen if none is given; return whether there is one."""
    copies = list[tuple[Plain, Plain]]()
    whole = whole.gathered(lowering, copies) if is_gathered else whole
    everything = whole.broadcast()
    extents, strides = merge(whole.out.shape[:-2], [each.strides[:-2] for each in everything])
    if len(extents) > BATCH_RANK:
        return False
    hiding: Hiding | None = node.attrs["hiding"] if is_one(whole.key.strides[-2]) else None
    (rows, columns), (size, keys) = whole.out.shape[-2:], whole.key.shape[-2:]
    variant = variant or lowering.choose(attentions.FAMILY, rows, keys, columns, size if hiding else 0)
    if variant is None and lowering.is_for_device(attentions.FAMILY.name):
        variant = attentions.of_few(lowering.machine)  # any one: a device's kernels have no such tiles
    leaves_out = hiding is not None and variant is not None and variant["chunk"]
    if variant is None or ("bound" in node.attrs and not leaves_out):
        return False
    *views, out = (_with_batch(each, extents, steps) for each, steps in zip(everything, strides, strict=True))
    views[2] = with_inner_stride(views[2], 1)
    operands = tuple(
        Operand(f"e{number}", each.storage.dtype, (Dim(), _rows(each), *(Dim(),) * BATCH_RANK))
        for number, each in enumerate(views[3:])
    )
    expression, rounds = from_json(node.attrs["epilogue"]), str(node.attrs.get("rounds", ""))
    numbers = dict[str, Expression]()
    if hiding is not None and leaves_out:
        found = {"seen": hiding.number, "since": hiding.first, **{n: node.attrs.get(n) for n in ("bound", "start")}}
        numbers = {name: number for name, number in found.items() if number is not None}
        expression = attentions.counted(expression, hiding.comparison, hiding.is_seen, len(operands))
    desc = attentions.describe(expression, operands, rounds, str(node.attrs.get("zeros", "")), variant, numbers)
    for source, target in copies:
        lowering.copy(source, target, node.name)
    lowering.emit(desc, [*views, with_inner_stride(out, 1)], node)
    return True


def _output(lowering: Lowering, name: str) -> Plain:
    """Return the place of an attention's result: as its only reader has it, if that is a Transpose which keeps rows."""
    type_, readers = lowering.type(name), lowering.consumers.get(name, [])
    order = readers[0].attrs.get("perm") if [each.op_type for each in readers] == ["Transpose"] else None
    if not order or order[-1] != len(type_.shape) - 1 or name in lowering.graph.outputs:
        return lowering.new_plain(name)
    memory = lowering.temporary(TensorType(type_.dtype, tuple(type_.shape[axis] for axis in order)))
    value = transposed(memory, sorted(range(len(order)), key=order.__getitem__))
    lowering.bind(name, value)
    return value


def _turned(value: Plain) -> Plain:
    rank = len(value.shape)
    return transposed(value, (*range(rank - 2), rank - 1, rank - 2))


def _gathered(lowering: Lowering, value: Plain, copies: list[tuple[Plain, Plain]]) -> Plain:
    """Return matrices whose rows lie beside each other: the values, or where they are to be copied."""
    if same_shape(value.strides[-2:], (value.shape[-1], 1)):
        return value
    target = lowering.temporary(TensorType(value.storage.dtype, value.shape))
    copies.append((value, target))
    return target


def _with_batch(value: Plain, extents: tuple[int, ...], steps: tuple[int, ...]) -> Plain:
    """Return a value's matrices in merged batches of rank ``BATCH_RANK``."""
    outer = padded(extents, steps, BATCH_RANK)
    return viewed_as(value, (*outer[0], *value.shape[-2:]), (*outer[1], *value.strides[-2:]))


def _rows(value: Plain) -> Dim:
    """Return the dimension along the queries: one element for all of them is a constant of the code."""
    return Dim(stride=0 if always_equal(value.strides[-2], 0) else FREE)
