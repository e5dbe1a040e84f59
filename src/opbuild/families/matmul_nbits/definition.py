"""Products of float32 and weights of few bits, defined.

``out[n, m] = epilogue(sum over k of lhs[k, m] * scale[n, k / block] * (w[n, k] - zero[n, k / block]))`` in float32. The
weights stay as they are stored: what is summed up in a block is multiplied by its scale once. Attributes:

* ``bits``: 4 or 8, of a weight, which is unsigned.
* ``block``: neighbours along K that share a scale and a zero point.
* ``zeros``: the type of the zero points; none: they are half of the range.
* ``epilogue``: an expression over the sum and the operands after these, each of the output's rank; a stride of 0
  repeats.

``rhs`` lies as ``(panel, bytes of K, N/panel)``: with 4 bits a byte holds two neighbours along K, the first one in its
low half. ``scale`` and ``zero`` lie as ``(panel, blocks, N/panel)``. What lies beyond K and N is never looked at.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json


def define(desc: OpDesc) -> Definition:
    """Return the definition of a product with weights of few bits."""
    inputs = parameters(desc)
    lhs, rhs, scale, *others = inputs
    zeros = others.pop(0) if desc.attrs["zeros"] else None
    n, m = variables("n m")
    panel, block, each = desc.inputs[1].dims[0].extent, desc.attrs["block"], 8 // desc.attrs["bits"]
    extent = lhs.dim(0).extent()

    def weight(byte: Any, part: Any) -> Any:
        bits = rhs[n % panel, byte, n // panel]
        bits = bits if each == 1 else (bits >> hl.cast(hl.UInt(8), part * 4)) & hl.u8(15)
        return hl.f32(hl.i32(bits))

    def scaled(total: Any, beside: Any, number: Any) -> Any:
        """Return the sum of a block; ``beside`` is the sum of the left operand alone."""
        place = (n % panel, number, n // panel)
        zero = hl.f32(2 ** (desc.attrs["bits"] - 1)) if zeros is None else hl.f32(zeros[place])
        return scale[place] * (total - zero * beside)

    b, whole = hl.Var("b"), extent // block
    k = hl.RDom([(0, each), (0, block // each)], "k")
    blocks, rest = hl.RDom([(0, whole)], "blocks"), hl.RDom([(0, extent % block)], "rest")
    functions = {name: hl.Func(name) for name in ("acc", "total", "beside", "last", "last_beside")}
    acc, total, beside, last, last_beside = functions.values()
    total[n, m, b] = hl.f32(0)
    total[n, m, b] += lhs[b * block + k.y * each + k.x, m] * weight(b * (block // each) + k.y, k.x)
    beside[m, b] = hl.f32(0)
    beside[m, b] += lhs[b * block + k.y * each + k.x, m]
    last[n, m] = hl.f32(0)
    last[n, m] += lhs[whole * block + rest.x, m] * weight(whole * (block // each) + rest.x // each, rest.x % each)
    last_beside[m] = hl.f32(0)
    last_beside[m] += lhs[whole * block + rest.x, m]
    acc[n, m] = hl.f32(0)
    acc[n, m] += scaled(total[n, m, blocks.x], beside[m, blocks.x], blocks.x)
    ends = hl.RDom([(0, hl.select(extent % block > 0, 1, 0))], "ends")
    acc[n, m] += scaled(last[n, m], last_beside[m], whole + ends.x)
    out = hl.Func("out")
    out[n, m] = compile_expression(
        from_json(desc.attrs["epilogue"]), [other[n, m] for other in others], (n, m), hl.Expr(acc[n, m]),
        refined=desc.is_precise,
    )  # fmt: skip
    constrain_output(out, desc.outputs[0])
    domains = {"k": k, "blocks": blocks, "rest": rest, "ends": ends}
    return Definition(inputs, [out], {"n": n, "m": m}, functions, domains)
