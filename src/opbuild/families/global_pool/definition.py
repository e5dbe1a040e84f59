"""Global average and max pooling of blocked values: the definition.

``x (16, W, H, C1)``, ``out (16, C1)``. A row is reduced into ``variant["partials"]`` accumulators, so that additions
do not wait for each other, and what is left of the row into the first of them. In the mode ``high_precision``
an average is added up in float64.
"""

from __future__ import annotations

from operator import add

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameter, variables
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64, maximum
from opbuild.kernel.opdesc import OpDesc


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kind`` (max, average)."""
    x = parameter(desc.inputs[0])
    lane, block, partial = variables("lane block partial")
    width, height = x.dim(1).extent(), x.dim(2).extent()
    count = desc.variant["partials"]
    average = desc.attrs["kind"] == "average"
    join = add if average else maximum
    kind = FLOAT64 if desc.is_precise else FLOAT32
    start = hl.cast(kind, 0) if average else hl.f32(float("-inf"))
    whole = hl.RDom([(0, width // count), (0, height)], "whole")
    rest = hl.RDom([(0, width % count), (0, height)], "rest")
    lanes = hl.RDom([(0, count)], "lanes")
    partials, total, out = hl.Func("partials"), hl.Func("total"), hl.Func("out")
    partials[lane, partial, block] = start
    partials[lane, partial, block] = join(
        partials[lane, partial, block], hl.cast(kind, x[lane, whole[0] * count + partial, whole[1], block])
    )
    partials[lane, 0, block] = join(
        partials[lane, 0, block], hl.cast(kind, x[lane, width // count * count + rest[0], rest[1], block])
    )
    total[lane, block] = start
    total[lane, block] = join(total[lane, block], partials[lane, lanes[0], block])
    size = hl.cast(kind, width * height)
    out[lane, block] = hl.cast(FLOAT32, total[lane, block] / size) if average else total[lane, block]
    constrain_output(out, desc.outputs[0])
    return Definition(
        [x],
        [out],
        {"lane": lane, "block": block, "partial": partial},
        {"partials": partials, "total": total},
        {"whole": whole, "lanes": lanes},
    )
