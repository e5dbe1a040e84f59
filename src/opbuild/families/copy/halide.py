"""copy: the elements of one strided tensor, in another."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide import rows
from opbuild.backend.halide.definition import Definition, computed, output_indices, parameter
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define the copy: ``x`` and ``out`` of equal extents and any strides.

    Variant ``kind``: ``rows`` reads along the output's rows; ``transpose`` has the input's contiguous elements in
    dimension 1 and passes square blocks through a staged one, ``block``.
    """
    x = parameter(desc.inputs[0])
    index = output_indices(desc)
    if desc.variant["kind"] != "transpose":
        return computed(desc, [x], index, x[index])
    block = hl.Func("block")
    block[index] = x[index]
    return computed(desc, [x], index, block[index], {"block": block})


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Vectorise rows, or square blocks that are loaded along one dimension and stored along the other."""
    if desc.variant["kind"] == "rows":
        rows.schedule(definition, desc, machine)
        return
    (out,) = definition.outputs
    index, width = list(definition.variables.values()), int(desc.variant["width"])
    x, y = index[:2]
    xi, yi, xo, yo = (hl.Var(name) for name in ("xi", "yi", "xo", "yo"))
    tail = hl.TailStrategy.ShiftInwards
    out.split(x, xo, xi, width, tail).split(y, yo, yi, width, tail).reorder(xi, yi, xo, yo, *index[2:])
    out.vectorize(xi).unroll(yi)
    extents = [out.output_buffer().dim(number).extent() for number in range(len(index))]
    blocks = (yo, (extents[1] + width - 1) // width, 1)
    outer = [(name, extent, 1) for name, extent in zip(index[2:], extents[2:], strict=True)]
    rows.divide_loops(out, [blocks, *outer][-2:], definition.tasks)
    block = definition.functions["block"]
    block.compute_at(out, xo).bound_extent(x, width).bound_extent(y, width).reorder_storage(y, x)
    block.reorder(y, x, *index[2:]).vectorize(y).unroll(x)
