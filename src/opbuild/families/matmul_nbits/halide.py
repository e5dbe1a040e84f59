"""Products of float32 and weights of few bits.

``out[n, m] = epilogue(sum over k of lhs[k, m] * scale[n, k / block] * (w[n, k] - zero[n, k / block]))`` in float32. The
weights stay as they are stored: what is summed up in a block is multiplied by its scale once. Attributes:

* ``bits``: 4 or 8, of a weight, which is unsigned.
* ``block``: neighbours along K that share a scale and a zero point.
* ``zeros``: the type of the zero points; none: they are half of the range.
* ``epilogue``: an expression over the sum and the operands after these, each of the output's rank; a stride of 0
  repeats.

``rhs`` lies as ``(panel, bytes of K, N/panel)``: with 4 bits a byte holds two neighbours along K, the first one in its
low half. ``scale`` and ``zero`` lie as ``(panel, blocks, N/panel)``. What lies beyond K and N is never looked at.

Schedule: a tile of sums of a block, then of blocks.

Weights become float32 in registers, once for all rows of a tile; with ``stage`` before all tiles of rows, a panel at a
time, scaled. Limits: ``rows`` <= M.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.epilogue import fused
from opbuild.families.matmul.halide import tile_output
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


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

    if desc.variant.get("stage"):
        functions, k = {name: hl.Func(name) for name in ("staged", "acc")}, hl.RDom([(0, extent)], "k")
        (i,) = variables("i")
        place = (n % panel, i // block, n // panel)
        zero = hl.f32(2 ** (desc.attrs["bits"] - 1)) if zeros is None else hl.f32(zeros[place])
        functions["staged"][n, i] = scale[place] * (weight(i // each, i % each) - zero)
        functions["acc"][n, m] = hl.f32(0)
        functions["acc"][n, m] += lhs[k.x, m] * functions["staged"][n, k.x]
        value = fused(desc, others, (n, m), functions["acc"][n, m])
        return computed(desc, inputs, (n, m), value, functions, {"k": k})

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
    domains = {"k": k, "blocks": blocks, "rest": rest, "ends": ends}
    return computed(desc, inputs, (n, m), fused(desc, others, (n, m), acc[n, m]), functions, domains)


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule a product with weights of few bits."""
    out, lanes = definition.outputs[0], machine.lanes
    rows = desc.variant["rows"]
    tile = rows, desc.variant["panels"] * desc.inputs[1].dims[0].extent
    mo, unit = tile_output(definition, tile, lanes)
    functions, domains = definition.functions, definition.domains
    acc = functions["acc"]
    acc.compute_at(out, mo)
    if "staged" in functions:
        tile_sums(acc, tile, lanes, [domains["k"].x])
        staged, each = functions["staged"], 8 // desc.attrs["bits"]
        n, i = staged.args()
        staged.compute_at(out, unit).bound_extent(n, tile[1]).vectorize(n, lanes).unroll(n)
        if each > 1:
            staged.unroll(i, each, hl.TailStrategy.RoundUp)
        staged.never_partition_all()
        return
    tile_sums(acc, tile, lanes, [domains["blocks"].x], [domains["ends"].x])
    k, number = domains["k"], domains["blocks"].x
    functions["total"].compute_at(acc, number)
    tile_sums(functions["total"], tile, lanes, [k.x, k.y])
    functions["total"].update().unroll(k.x)
    functions["last"].compute_at(acc, domains["ends"].x)
    tile_sums(functions["last"], tile, lanes, [domains["rest"].x])
    for name, at in (("beside", number), ("last_beside", domains["ends"].x)):
        functions[name].compute_at(acc, at).bound_extent(functions[name].args()[0], rows)
        functions[name].unroll(functions[name].args()[0])
    functions["beside"].update().atomic().vectorize(k.y, lanes, hl.TailStrategy.GuardWithIf)


def tile_sums(function: Any, tile: tuple[int, int], lanes: int, *reduced: list[Any]) -> None:
    """Keep a tile of a function in registers while its summands pass, the loops of each of its updates."""
    n, m, *_ = function.args()
    function.bound_extent(n, tile[1]).bound_extent(m, tile[0]).vectorize(n, lanes).unroll(n).unroll(m)
    for number, loops in enumerate(reduced):
        inner, outer = loops[:-1], loops[-1]
        function.update(number).reorder(*inner, n, m, outer).vectorize(n, lanes).unroll(n).unroll(m)
    function.never_partition_all()
