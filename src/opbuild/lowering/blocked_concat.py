"""Concatenation along channels of blocked values, without a copy where channels are whole blocks."""

from __future__ import annotations

from opbuild.families.blocked import BLOCK, blocks
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering


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
