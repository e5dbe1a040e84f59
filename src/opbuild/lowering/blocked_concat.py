"""Concatenation and slicing along channels of blocked values, without a copy where channels are whole blocks."""

from __future__ import annotations

from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.operands import BLOCK, Blocked, Storage, blocks


def concat_blocked(lowering: Lowering, node: Node) -> bool:
    """Lower a Concat along channels by letting its inputs lie inside its output; return whether that was possible.

    It is if one input at least lies blocked, every input but the last fills its blocks, and none lies inside another
    value already. Inputs that lie plain are converted into their place.
    """
    shape = lowering.type(node.outputs[0]).shape
    names = list(node.inputs)
    axis = int(node.attrs.get("axis", 1))
    if len(shape) not in (3, 4) or axis not in (1, 1 - len(shape)) or len(set(names)) != len(names):
        return False
    if not any(lowering.has_blocked(name) for name in names) or 0 in shape:
        return False
    channels = [lowering.type(name).shape[1] for name in names]
    if any(count % BLOCK or not count for count in channels[:-1]) or not channels[-1]:
        return False
    if any(lowering.has_blocked(name) and lowering.blocked(name).storage.alias for name in names):
        return False
    parts = [lowering.blocked(name) for name in names]
    whole = lowering.new_blocked(node.outputs[0], parts[-1].padding_value)
    start = 0
    for part, count in zip(parts, channels, strict=True):
        part.storage.alias = (whole.storage, start)
        whole.storage.grow_halo(*part.storage.halo)
        start += blocks(count)
    return True


def slice_blocked(lowering: Lowering, source: str, target: str, first: int) -> bool:
    """Let ``target`` be the channels of ``source`` from ``first`` on; return whether that was possible without a copy.

    It is if ``source`` lies blocked and both its channels before ``first`` and those of ``target`` fill their blocks.
    """
    if not lowering.has_blocked(source):
        return False
    shape = lowering.type(target).shape
    if len(shape) not in (3, 4) or 0 in shape or first % BLOCK or shape[1] % BLOCK:
        return False
    value = lowering.blocked(source)
    n, _, h, w = value.shape
    inside = Storage(
        "temporary",
        value.storage.dtype,
        (n, blocks(shape[1]), h, w),
        blocked=True,
        alias=(value.storage, first // BLOCK),
    )
    lowering.bind(target, Blocked(inside, shape[1]))
    return True
