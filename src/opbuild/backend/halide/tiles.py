"""Register tiles of channel blocks: in which order their products are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.families.blocked import BLOCK
from opbuild.families.matmul.layouts import registers
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def accumulate(update: Any, loops: tuple[Any, Any, Any], sums: Sequence[Any], desc: OpDesc, machine: Machine) -> None:
    """Keep a tile of sums in registers while inputs pass.

    Positions pass one by one by the weights of one input channel; or, where these do not fit beside the sums, vectors
    of weights pass by the inputs of all positions.

    Args:
        update: The accumulating definition.
        loops: Its loops over lanes, positions and channel blocks.
        sums: Its loops over what is added up, the innermost first.
        desc: The operator, whose variant has ``width`` and ``blocks``.
        machine: What runs it.
    """
    lane, position, block = loops
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    if registers(width, blocks * machine.vectors(BLOCK)) <= machine.registers:
        update.reorder(lane, block, position, *sums).vectorize(lane)
    else:
        vector = hl.Var("vector")
        update.split(lane, vector, lane, machine.lanes).reorder(lane, position, vector, block, *sums)
        update.vectorize(lane).unroll(vector)
    update.unroll(block).unroll(position)
