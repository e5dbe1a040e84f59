"""Lowering of attention: one kernel where that is faster than the two products and the softmax one by one."""

from __future__ import annotations

from opbuild.families.attention import family as attentions
from opbuild.families.attention.family import BATCH_RANK
from opbuild.graph.attention import Hiding
from opbuild.graph.extents import always_equal, is_one, same_shape
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import FREE, HIGH_PERFORMANCE, Dim, Operand
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, merge, padded, transposed, viewed_as, with_inner_stride
from opbuild.operations.expression import from_json

LONG = 1024
"""Keys from which on rows of one head are copied together first: apart, they share few of a cache's sets. At 2048 keys
of 12 heads beside each other it halves the time."""


@rule("Attention", domain="opbuild")
def attention(lowering: Lowering, node: Node) -> None:
    """Lower an attention."""
    if lowering.impl_mode(node) != HIGH_PERFORMANCE:
        raise NotServedError("precise attention is computed one by one")
    *batch, rows, columns = lowering.type(node.outputs[0]).shape
    size, keys = lowering.type(node.inputs[1]).shape[-2:]
    query, key, value = (lowering.plain(name) for name in node.inputs[:3])
    if 0 in (*batch, rows, columns, size, keys) or not (is_one(columns) or is_one(value.strides[-1])):
        raise NotServedError("attention to nothing, or to values that are not adjacent, has no kernel")
    own, copies = int(node.attrs["own_inputs"]), list[tuple[Plain, Plain]]()
    if keys >= LONG:
        key, value = _turned(_gathered(lowering, _turned(key), copies)), _gathered(lowering, value, copies)
    seen = [broadcast(each, (*batch, *each.shape[-2:])) for each in (query, key, value)]
    seen += [broadcast(lowering.plain(name), (*batch, rows, keys)) for name in node.inputs[own:]]
    out = _output(lowering, node.outputs[0])
    extents, strides = merge(batch, [each.strides[:-2] for each in (*seen, out)])
    if len(extents) > BATCH_RANK:
        raise NotServedError("batches of attention lie in too many ways")
    hiding: Hiding | None = node.attrs["hiding"] if is_one(key.strides[-2]) else None
    variant = lowering.choose(attentions.choose, rows, keys, columns, size if hiding else 0)
    if variant is None:
        raise NotServedError("small attention is computed one by one")
    views = [_with_batch(each, extents, steps) for each, steps in zip(seen, strides, strict=False)]
    views[2] = with_inner_stride(views[2], 1)
    operands = tuple(
        Operand(f"e{number}", each.storage.dtype, (Dim(), _rows(each), *(Dim(),) * BATCH_RANK))
        for number, each in enumerate(views[3:])
    )
    expression, rounds = from_json(node.attrs["epilogue"]), str(node.attrs.get("rounds", ""))
    number = None
    if hiding is not None and variant["chunk"]:
        number = hiding.number
        expression = attentions.counted(expression, hiding.comparison, hiding.is_seen, len(operands))
    desc = attentions.describe(expression, operands, rounds, str(node.attrs.get("zeros", "")), variant, number)
    kernels = lowering.options.kernels
    if kernels is not None and not kernels.has(desc):
        raise NotServedError("of attention there is no kernel that has no limits")
    for source, target in copies:
        lowering.copy(source, target, node.name)
    lowering.emit(desc, [*views, with_inner_stride(_with_batch(out, extents, strides[-1]), 1)], node)


def _output(lowering: Lowering, name: str) -> Plain:
    """Return where an attention is written: as its only reader has it, if that is a Transpose which keeps rows."""
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
