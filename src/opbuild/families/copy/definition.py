"""copy: the elements of one strided tensor, in another."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define the copy: ``x`` and ``out`` of equal extents and any strides.

    Variant ``kind``: ``rows`` reads along the output's rows; ``transpose`` has the input's contiguous elements in
    dimension 1 and passes square blocks through a staged one, ``block``.
    """
    x = parameter(desc.inputs[0])
    index = [hl.Var(f"i{number}") for number in range(len(desc.outputs[0].dims))]
    out = hl.Func("out")
    functions = {}
    if desc.variant["kind"] == "transpose":
        block = hl.Func("block")
        block[index] = x[index]
        out[index] = block[index]
        functions["block"] = block
    else:
        out[index] = x[index]
    constrain_output(out, desc.outputs[0])
    return Definition([x], [out], {f"i{number}": name for number, name in enumerate(index)}, functions)
