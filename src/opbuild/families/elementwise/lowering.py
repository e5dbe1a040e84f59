"""Lowering of elementwise operators, fused or not: on plain values with broadcasting, and on blocked values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from opbuild.dtypes import itemsize
from opbuild.families.blocked import BLOCK, BLOCKED, blocks
from opbuild.families.dims import inner_dim
from opbuild.families.elementwise import family
from opbuild.families.family import Choose
from opbuild.graph import user_operators
from opbuild.graph.elementwise import ONNX_OPERATORS, Elementwise, elementwise_of
from opbuild.graph.extents import always_equal, is_one, is_open, is_step, same_shape
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, Dim, OpDesc, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import CHANNEL_FILL, is_per_channel, pack_channels, pack_scalar
from opbuild.lowering.gates import fold_gate_into_weights
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import MakeCall, OperandRef, Plain
from opbuild.lowering.strided import Loops, broadcast, collapse
from opbuild.operations.evaluation import evaluate_scalar
from opbuild.operations.expression import Expression, canonical, is_refined, operations, walk
from opbuild.operations.table import BY_TYPE
from opbuild.program import View
from opbuild.target.level import CPU

BLOCKED_TYPES = ("float32", "int32", "uint8", "int8")
"""Element types of values that lie in channel blocks."""

GATHER_ELEMENTS = 256
"""From here on reading an operand with a stride is slower than copying it first."""


@serves(*ONNX_OPERATORS)
@serves("opbuild.Elementwise", *(f"opbuild.{op_type}" for op_type in BY_TYPE))
def elementwise(lowering: Lowering, node: Node) -> None:
    """Lower an ONNX operator that fusion did not see, a fused chain, or an operation under its own name."""
    found = elementwise_of(node, lowering.graph.types, lowering.graph.constants)
    if found is None:
        raise NotServedError(f"{node.op_type} has no kernel for these types")
    if not fold_gate_into_weights(lowering, node, found):
        lower_elementwise(lowering, node, found)


@serves("lowering.Elementwise")
def lower_elementwise(lowering: Lowering, node: Node, chain: Elementwise) -> None:
    """Emit the call of an elementwise chain."""
    expression, order = canonical(chain.expression)
    names = tuple(chain.inputs[index] for index in order)
    output = node.outputs[0]
    if lowering.type(output).size == 0:
        lowering.new_plain(output)
        return
    padding = _blocked_padding(lowering, names, output, expression)
    if padding is not None:
        value = lowering.new_blocked(output, padding)
        operands: list[OperandRef] = [_blocked_operand(lowering, name, output) for name in names]
        make = _make(lowering, node, expression, names)
        lowering.emit(make, (*operands, value.planes()), node)
        return
    shape = lowering.type(output).shape
    plain = [broadcast(_readable(lowering, name), shape) for name in names]
    target = lowering.new_as(output, plain)
    lowering.emit(_make(lowering, node, expression, names), (*plain, target), node)


def _readable(lowering: Lowering, name: str) -> Plain:
    """Return a value, copied first where its elements lie too far apart to be read as vectors."""
    value = lowering.plain(name)
    if lowering.target != CPU and value.has_channels_last:
        return value
    dims = zip(value.shape[::-1], value.strides[::-1], strict=True)
    inner = next((stride for extent, stride in dims if not is_one(extent)), 1)
    if is_step(inner):
        return value
    size = lowering.type(name).size
    return lowering.dense(name) if is_open((size,)) or size >= GATHER_ELEMENTS else value


# -- blocked values ---------------------------------------------------------------------------------------------------


def _blocked_padding(lowering: Lowering, names: Sequence[str], output: str, expression: Expression) -> float | None:
    """Return the value of unused lanes if the chain is computed on channel blocks, or None if it should not be."""
    type_ = lowering.type(output)
    if not any(lowering.is_blocked(name) and same_shape(lowering.type(name).shape, type_.shape) for name in names):
        return None
    if type_.dtype not in BLOCKED_TYPES or len(type_.shape) not in (3, 4):
        return None
    if not lowering.takes(family.FAMILY.name, BLOCKED):
        return None
    values = []
    for name in names:
        lane = _lane_value(lowering, name, type_.shape)
        if lane is None:
            return None
        values.append(lane)
    if type_.shape[1] % BLOCK == 0:
        return 0.0
    padding = evaluate_scalar(expression, values, [lowering.type(name).dtype for name in names])
    return padding if math.isfinite(padding) else None


def _lane_value(lowering: Lowering, name: str, shape: tuple[int, ...]) -> float | None:
    """Return an operand's value in unused lanes, or None if it cannot be read block by block."""
    type_ = lowering.type(name)
    if type_.dtype not in BLOCKED_TYPES:
        return None
    constant = lowering.constant(name)
    if constant is not None and constant.size == 1:
        return float(constant.reshape(-1)[0])
    if constant is not None and is_per_channel(constant.shape, shape):
        return CHANNEL_FILL
    if constant is None and is_one(type_.size) and not is_one(math.prod(shape)):
        return 1.0 if shape[1] % BLOCK == 0 else None
    if not same_shape(type_.shape, shape) and not _is_repeated(type_.shape, shape):
        return None
    if lowering.has_blocked(name):
        return lowering.blocked(name).padding_value
    return 0.0 if constant is None else None


def _is_repeated(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether images, rows or columns of a value are repeated where it is broadcast, and channels are not."""
    if len(own) != len(shape) or not always_equal(own[1], shape[1]):
        return False
    return all(always_equal(a, b) or is_one(a) for a, b in zip(own, shape, strict=True))


def _blocked_operand(lowering: Lowering, name: str, output: str) -> OperandRef:
    """Return an operand with dims ``(16, W, H, C1, N)``; lanes beyond the channels of a packed constant hold 1."""
    shape = lowering.type(output).shape
    n, c, *spatial = shape
    h, w = spatial if len(spatial) == 2 else (1, spatial[0])
    constant = lowering.constant(name)
    single = is_one(lowering.type(name).size) and (constant is not None or not is_one(math.prod(shape)))
    if not single and (constant is None or not is_per_channel(constant.shape, shape)):
        repeated = None if same_shape(lowering.type(name).shape, shape) else (n, h, w)
        return lowering.blocked(name).planes(repeated)
    full = (n, blocks(c), h, w, BLOCK)
    if single:
        number = lowering.dense(name) if constant is None else pack_scalar(lowering, name)
        return Plain(number.storage, full, (0, 0, 0, 0, 0), number.offset)
    value = pack_channels(lowering, name, c, CHANNEL_FILL)
    return Plain(value.storage, full, (0, BLOCK, 0, 0, 1))


# -- the call ---------------------------------------------------------------------------------------------------------


def _make(lowering: Lowering, node: Node, expression: Expression, names: Sequence[str]) -> MakeCall:
    dtypes = [lowering.type(name).dtype for name in (*names, node.outputs[0])]
    mode = lowering.impl_mode(node, is_refined(expression, dtypes))
    return partial(describe, expression=expression, dtypes=dtypes, choose=lowering.choose, impl_mode=mode)


@serves("lowering.Expression")
def describe(
    views: Sequence[View],
    expression: Expression,
    dtypes: Sequence[str],
    choose: Choose,
    impl_mode: str = HIGH_PERFORMANCE,
) -> tuple[OpDesc, tuple[View, ...]]:
    """Return the descriptor of an expression over strided operands of equal extents, and the views it is called with.

    Args:
        views: The operands and the output.
        expression: Over the operands, in canonical form.
        dtypes: The types of the operands and of the output.
        choose: Chooses the variant.
        impl_mode: As in ``OpDesc``.
    """
    loops = collapse(views)
    loops = loops.filled() if len(loops.extents) > 1 else loops
    size = max(itemsize(dtype) for dtype in dtypes)
    users = [part[1] for part in walk(expression) if part[0] == "user"]
    variant = choose(family.FAMILY, loops.extents[0], size, is_one(loops.strides[-1][0]))
    operands = tuple(
        Operand("out" if index == len(dtypes) - 1 else f"x{index}", dtype, _dims(loops, index, variant["width"]))
        for index, dtype in enumerate(dtypes)
    )
    desc = family.FAMILY.desc(
        operations(expression) or ("Fill",),
        operands[:-1],
        operands[-1:],
        {"expression": expression},
        variant,
        impl_mode,
        source=user_operators.combined_source(users) if users else "",
    )
    return desc, loops.views(views)


def _dims(loops: Loops, index: int, width: int) -> tuple[Dim, ...]:
    inner = inner_dim(loops.strides[index][0], width)
    return (inner, *(Dim() for _ in loops.extents[1:]))
