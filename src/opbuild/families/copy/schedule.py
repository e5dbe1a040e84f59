"""How copies run."""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.rows import rows
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, _target: Any) -> None:
    """Vectorise rows, or square blocks that are loaded along one dimension and stored along the other."""
    (out,) = definition.outputs
    index = list(definition.variables.values())
    width, parallel = int(desc.variant["width"]), bool(desc.variant["parallel"])
    if desc.variant["kind"] == "rows":
        rows(out, index, width, parallel)
        return
    x, y = index[:2]
    xi, yi, xo, yo = (hl.Var(name) for name in ("xi", "yi", "xo", "yo"))
    tail = hl.TailStrategy.ShiftInwards
    out.split(x, xo, xi, width, tail).split(y, yo, yi, width, tail).reorder(xi, yi, xo, yo, *index[2:])
    out.vectorize(xi).unroll(yi)
    block = definition.functions["block"]
    block.compute_at(out, xo).bound_extent(x, width).bound_extent(y, width).reorder_storage(y, x)
    block.reorder(y, x, *index[2:]).vectorize(y).unroll(x)
    if parallel:
        out.parallel(index[-1] if len(index) > 2 else yo)
