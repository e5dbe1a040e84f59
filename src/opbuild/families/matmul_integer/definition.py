"""Products of matrices of bytes, defined.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[k, n])``, as many times as there are batches: uint8 by int8, the
sum in int32, which wraps. Other types and zero points are for who makes the operands and the epilogue.

``rhs`` lies as ``(group, panel, K/group, N/panel)``: panels of columns, in which a group of neighbours along K, four or
two, are adjacent, as the instructions take them; one matrix for all batches or one each. With the attribute ``halves``
groups are of four, and sums of two products fit 16 bits: they are added up so first. What lies beyond K and N is never
looked at. The ``epilogue`` is an expression over the sum and the operands after ``rhs``, each of the output's rank; a
stride of 0 repeats.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

PAIR = 2
"""A group of numbers of 16 bits, to which the left operand is widened first; bytes are in groups of four."""


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
    halves = bool(desc.attrs.get("halves"))
    acc, out = hl.Func("acc"), hl.Func("out")
    functions = {"acc": acc}

    left = lhs
    if group == PAIR:
        functions["left"] = left = hl.Func("left")
        (j,) = variables("j")
        left[(j, m, *batch)] = hl.i16(lhs[(j, m, *batch)])

    def product(number: Any, byte: Any, wide: Any = hl.i32) -> Any:
        right = rhs[(byte, n % panel, number, n // panel, *own)]
        right = hl.i16(right) if group == PAIR else right  # what the instruction for pairs multiplies
        return wide(left[(number * group + byte, m, *batch)]) * wide(right)

    k = hl.RDom([(0, group // PAIR if halves else group), (0, extent // group)], "k")
    rest = hl.RDom([(0, extent % group)], "rest")
    acc[place] = hl.i32(0)
    if halves:
        pair, number, byte = hl.Var("pair"), hl.Var("number"), hl.RDom([(0, PAIR)], "byte")
        functions["halves"] = sums = hl.Func("halves")
        at = (pair, number, *place)
        sums[at] = hl.i16(0)
        # That the addition saturates names the instruction: these sums fit.
        sums[at] = hl.saturating_add(sums[at], product(number, byte.x + PAIR * pair, hl.i16))
        acc[place] += hl.i32(sums[(k.x, k.y, *place)])
    else:
        acc[place] += product(k.y, k.x)
    acc[place] += product(extent // group, rest.x)
    operands = [other[place] for other in others]
    out[place] = compile_expression(
        from_json(desc.attrs["epilogue"]), operands, place, hl.Expr(acc[place]), refined=desc.is_precise
    )
    constrain_output(out, desc.outputs[0])
    names = {"n": n, "m": m, **{var.name(): var for var in batch}}
    return Definition(inputs, [out], names, functions, {"k": k, "rest": rest}, dots=True)
