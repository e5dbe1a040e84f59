"""Weights that are known only at run time, brought into blocks or transformed by a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.blocked import BLOCK
from opbuild.families.weight_blocks import family as weight_blocks
from opbuild.graph.types import TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import dense_as, narrowed


@serves("lowering.WeightBlocks")
def in_blocks(lowering: Lowering, name: str, node: str, *, turned: bool = False, tile: int = 0) -> Plain | None:
    """Emit the kernel of ``run_time_weights.in_blocks``; None if none serves."""
    outer, inner, *kernel = lowering.type(name).shape
    taps, own = prod(kernel), lowering.weight_blocks.get(name)
    if own is None and not _is_whole(lowering.plain(name)):
        return None
    if own is not None and not tile:
        return own
    if turned and taps == 1 and not tile:
        return None  # rows of 16 elements that are copied as they lie
    desc = weight_blocks.describe(taps, turned, tile, blocked=own is not None)
    first, second = (inner, outer) if turned else (outer, inner)
    if tile:
        shape: tuple[int, ...] = ((tile + 2) ** 2, first // BLOCK, second, BLOCK)
        target = written = lowering.temporary(TensorType("float32", shape))
    else:
        target = lowering.temporary(
            TensorType("float32", (first // BLOCK, second // BLOCK, *_two(kernel), BLOCK, BLOCK))
        )
        written = dense_as(target, (*target.shape[:2], taps, BLOCK, BLOCK))
    source = dense_as(lowering.plain(name), (outer, inner * taps)) if own is None else own
    lowering.emit(desc, (source, written), (node,))
    return target


@serves("lowering.TurnedBlocks")
def turned_blocks(
    lowering: Lowering, blocks_: Plain, node: str, down: Sequence[int], across: Sequence[int]
) -> Plain | None:
    """Emit the kernel that changes inputs and outputs of blocks over and takes some of their taps, in any order.

    Args:
        lowering: The lowering.
        blocks_: Weights in blocks.
        node: The node, for reports.
        down: The taps of a column, at one distance from each other.
        across: Those of a row.
    """
    desc = weight_blocks.describe(0, True, blocked=True)
    outer, inner = blocks_.shape[:2]
    target = lowering.temporary(TensorType("float32", (inner, outer, len(down), len(across), BLOCK, BLOCK)))
    source, written = blocks_, target
    for axis, taps in ((2, down), (3, across)):
        step = taps[1] - taps[0] if len(taps) > 1 else 1
        if step < 0:  # written in reverse: memory is read ahead where addresses go up
            written = narrowed(written, axis, len(taps) - 1, len(taps), -1)
        source = narrowed(source, axis, min(taps), len(taps), abs(step))
    lowering.emit(desc, (source, written), (node,))
    return target


def _is_whole(value: Plain) -> bool:
    """Return whether weights are dense, and their channels whole blocks."""
    outer, inner = value.shape[:2]
    whole = not (outer % BLOCK or inner % BLOCK) and prod(value.shape) > 0
    return whole and value.dense and value.storage.dtype == "float32"


def _two(kernel: Sequence[int]) -> tuple[int, int]:
    """Return the taps of one or two dimensions as height and width."""
    return (1, kernel[0]) if len(kernel) == 1 else (kernel[0], kernel[1])
