"""Convolution of a plain value with few channels into a blocked one: the definition.

``x (W, H, C)`` is the whole image, of any strides; ``w (16 out, kx, ky, C in, C1 out)``; ``bias (16, C1 out)``;
``out (16, OW, OH, C1 out)``. The padding is made in a staged copy of the rows that a task reads.
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``kernel``, ``stride``, ``dilation`` and ``before`` (padding) are (x, y); and ``epilogue``."""
    kernel, stride, dilation, before = (desc.attrs[name] for name in ("kernel", "stride", "dilation", "before"))
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias = params["x"], params["w"], params["bias"]
    lane, ox, oy, block, column, row, channel = variables("lane ox oy block column row channel")
    width, height = x.dim(0).extent(), x.dim(1).extent()
    source_x, source_y = column - before[0], row - before[1]
    inside = (source_x >= 0) & (source_x < width) & (source_y >= 0) & (source_y < height)
    staged = hl.Func("staged")
    staged[column, row, channel] = hl.select(
        hl.likely(inside),
        x[hl.clamp(hl.likely(source_x), 0, width - 1), hl.clamp(source_y, 0, height - 1), channel],
        hl.f32(0),
    )
    r = hl.RDom([(0, kernel[0]), (0, kernel[1]), (0, x.dim(2).extent())], "r")
    acc = hl.Func("acc")
    acc[lane, ox, oy, block] = bias[lane, block]
    acc[lane, ox, oy, block] += (
        w[lane, r[0], r[1], r[2], block]
        * staged[ox * stride[0] + r[0] * dilation[0], oy * stride[1] + r[1] * dilation[1], r[2]]
    )
    definition = stored(desc, params, [lane, ox, oy, block], {"acc": acc, "staged": staged}, r)
    definition.variables["column"] = column
    return definition
