"""Products of matrices of bytes: what they compute.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[k, n])``, as many times as there are batches: uint8 by int8, the
sum in int32, which wraps. Other types and zero points are for who makes the operands and the epilogue.

``rhs`` lies as ``(group, panel, K/group, N/panel)``: panels of columns, in which a group of neighbours along K, four or
two, are adjacent, as the instructions take them; one matrix for all batches or one each. What lies beyond K and N is
never looked at. The ``epilogue`` is an expression over the sum and the operands after ``rhs``, each of the output's
rank; a stride of 0 repeats.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

PAIR = 2
"""A group of numbers of 16 bits; bytes are in groups of four."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix product of bytes."""
    inputs = parameters(desc)
    lhs, rhs, *others = inputs
    n, m = variables("n m")
    batch = variables("b0 b1")[: len(desc.outputs[0].dims) - 2]
    place = (n, m, *batch)
    own = batch[: rhs.dimensions() - 4]
    extent = lhs.dim(0).extent()
    group, panel = (dim.extent for dim in desc.inputs[1].dims[:2])

    def product(number: Any, byte: Any) -> Any:
        left, right = lhs[(number * group + byte, m, *batch)], rhs[(byte, n % panel, number, n // panel, *own)]
        if group == PAIR:  # what the instruction for pairs multiplies
            left, right = hl.i16(left), hl.i16(right)
        return hl.i32(left) * hl.i32(right)

    k = hl.RDom([(0, group), (0, extent // group)], "k")
    rest = hl.RDom([(0, extent % group)], "rest")
    acc, out = hl.Func("acc"), hl.Func("out")
    acc[place] = hl.i32(0)
    acc[place] += product(k.y, k.x)
    acc[place] += product(extent // group, rest.x)
    operands = [other[place] for other in others]
    out[place] = compile_expression(
        from_json(desc.attrs["epilogue"]), operands, place, hl.Expr(acc[place]), refined=desc.is_precise
    )
    constrain_output(out, desc.outputs[0])
    names = {"n": n, "m": m, **{var.name(): var for var in batch}}
    return Definition(inputs, [out], names, {"acc": acc}, {"k": k, "rest": rest}, dots=True)
