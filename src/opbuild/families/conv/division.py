"""Convolution of blocked values: how a call is divided among tasks."""

from __future__ import annotations

from math import prod
from typing import Any

import halide as hl

from opbuild.backend.halide.division import balance, either_or_both
from opbuild.families.blocked import BLOCK
from opbuild.kernel.opdesc import OpDesc

LOCALITY = 0.93
"""Time that a task takes where what it reads is in its core's cache, relative to where it is not."""


def task_lengths(desc: OpDesc, x: Any, extents: tuple[Any, Any], outputs: Any, tasks: Any) -> tuple[Any, Any]:
    """Return the lengths of a task's ranges of positions and of tiles of channel blocks; one of them is all there are.

    Positions where activations are larger than weights, so that a core keeps its own from layer to layer; blocks where
    weights are larger, so that one core only reads each; unless cores would wait for each other much longer.

    Args:
        desc: The convolution.
        x: Its input.
        extents: Rows, or tiles along all of them, and tiles of channel blocks; expressions.
        outputs: Channel blocks of the output, an expression.
        tasks: How many tasks are wanted, an expression.
    """
    by_rows, by_blocks = (balance(extent, tasks) for extent in extents)
    worth, inputs = hl.f32(LOCALITY), x.dim(5).extent()
    weights = BLOCK * inputs * outputs * prod(desc.attrs["kernel"])
    activations = (inputs + outputs) * x.dim(1).extent() * x.dim(2).extent()
    rows_first = hl.select(weights > activations, by_blocks <= by_rows * worth, by_blocks * worth <= by_rows)
    return either_or_both(rows_first, extents, tasks)
