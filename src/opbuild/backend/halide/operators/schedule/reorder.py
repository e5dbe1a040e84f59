"""The way into channel blocks and out of them: the schedules.

Into blocks, a vector is the 16 lanes of one position; out of them, a vector runs along a row. A task is one plane.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, target: Any) -> None:
    """Schedule by ``variant``: ``parallel``, and ``width``, the positions of a vector, where rows are written."""
    out, names = definition.outputs[0], definition.variables
    if desc.family == "to_blocked":
        out.vectorize(names["lane"])
        task = names["block"]
    else:
        if desc.variant["width"] > 1:
            out.vectorize(names["ox"], desc.variant["width"], hl.TailStrategy.ShiftInwards)
        task = names["channel"]
    if desc.variant["parallel"]:
        out.parallel(task)
