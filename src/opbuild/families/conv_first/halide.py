"""Convolution of a plain value with few channels into a blocked one.

``x (W, H, C)`` is the whole image, of any strides; ``w (16 out, kx, ky, C in, C1 out)``; ``bias (16, C1 out)``;
``out (16, OW, OH, C1 out)``. The padding is made in a staged copy of the rows that a task reads.

Each task is one range of the output's rows. It takes ``rows`` of them at a time: it copies the rows that they read,
padding included, and then accumulates tiles of ``width`` positions by ``blocks`` channel blocks in registers. Copying
the inside of a row without a look at its edges is a loop of its own (3 x 3, 24 channels, 112 x 112: 161 us on two cores
against 262).
"""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.division import divide
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


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


UNROLLED_TAPS = 3
"""Taps of a row that are unrolled: more code is not worth the time to compile it."""


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``, ``blocks`` and ``rows``."""
    width, blocks, rows = desc.variant["width"], desc.variant["blocks"], desc.variant["rows"]
    out, acc, staged = definition.outputs[0], definition.functions["acc"], definition.functions["staged"]
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi, bo, bi, yo, yi = (hl.Var(name) for name in ("xo", "xi", "bo", "bi", "yo", "yi"))
    shift = hl.TailStrategy.ShiftInwards
    out.split(ox, xo, xi, width, shift).split(block, bo, bi, blocks, shift)
    out.reorder(lane, bi, xi, xo, bo, oy).vectorize(lane).unroll(bi).unroll(xi).never_partition_all()
    divide(out, oy, out.output_buffer().dim(2).extent(), definition.tasks)
    out.split(oy, yo, yi, rows, hl.TailStrategy.GuardWithIf)
    staged.compute_at(out, yo).vectorize(definition.variables["column"], 16)
    r = definition.domains["r"]
    acc.compute_at(out, xo).vectorize(lane).unroll(block).unroll(ox).bound_extent(ox, width).bound_extent(block, blocks)
    update = acc.update().reorder(lane, block, ox, *(r[axis] for axis in range(3)))
    update.vectorize(lane).unroll(block).unroll(ox)
    if desc.attrs["kernel"][0] <= UNROLLED_TAPS:
        update.unroll(r[0])
