"""Products of float32 and weights of few bits.

``out[n, m] = epilogue(sum over k of lhs[k, m] * scale[n, k / block] * (w[n, k] - zero[n, k / block]))`` in float32. The
weights stay as they are stored: what is summed up in a block is multiplied by its scale once. Attributes:

* ``bits``: 2, 4 or 8, of a weight, which is unsigned.
* ``block``: neighbours along K that share a scale and a zero point.
* ``zeros``: the type of the zero points; none: they are half of the range.
* ``epilogue``: an expression over the sum and the operands after these, each of the output's rank; a stride of 0
  repeats.

``rhs`` lies as ``(panel, bytes of K, N/panel)``: a byte holds one, two or four neighbours along K, the first one in its
lowest bits. ``scale``, float32 or float16, and ``zero`` lie as ``(panel, blocks, N/panel)``. What lies beyond K and N
is never looked at.

Schedule: a tile of sums of a block, then of blocks.

Weights become float32 in registers, once for all rows of a tile; with ``stage`` before all tiles of rows, a panel at a
time, scaled. Limits: ``rows`` <= M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameters, variables
from opbuild.backend.halide.epilogue import fused
from opbuild.families.matmul.halide import tile_output
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


@dataclass(frozen=True)
class _Right:
    """Elements of the right operand in a column of the output.

    Attributes:
        n: The column.
        desc: The operator.
        weights: The weights as they are stored.
        scale: The scales of blocks.
        zeros: Their zero points, or None: half of the range.
    """

    n: Any
    desc: OpDesc
    weights: Any
    scale: Any
    zeros: Any = None

    def weight(self, byte: Any, part: Any) -> Any:
        """Return the weight that is a part of a byte, as a float32."""
        panel, bits = self.desc.inputs[1].dims[0].extent, self.desc.attrs["bits"]
        whole = self.weights[self.n % panel, byte, self.n // panel]
        own = whole if bits == 8 else (whole >> hl.cast(hl.UInt(8), part * bits)) & hl.u8(2**bits - 1)
        return hl.f32(hl.i32(own))

    def of_block(self, number: Any) -> tuple[Any, Any]:
        """Return the scale and the zero point of a block."""
        panel = self.desc.inputs[1].dims[0].extent
        place = (self.n % panel, number, self.n // panel)
        half = hl.f32(2 ** (self.desc.attrs["bits"] - 1))
        return hl.cast(hl.Float(32), self.scale[place]), half if self.zeros is None else hl.f32(self.zeros[place])


MOST_AT_ONCE = 2
"""Weights of a byte whose products are added up in one step. Those of four the compiler adds up in another order for
other rows of a tile, so that bits depend on the tasks."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a product with weights of few bits."""
    inputs = parameters(desc)
    lhs, *packed = inputs[: 4 if desc.attrs["zeros"] else 3]
    n, m = variables("n m")
    right = _Right(n, desc, *packed)
    functions, domains = (_sum_of_staged if desc.variant.get("stage") else _sum_of_blocks)(lhs, right, m)
    value = fused(desc, inputs[1 + len(packed) :], (n, m), functions["acc"][n, m])
    return computed(desc, inputs, (n, m), value, functions, domains)


def _sum_of_staged(lhs: Any, right: _Right, m: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``acc``, the sum of products with the weights ``staged`` as float32, and its domain."""
    n, block, each = right.n, right.desc.attrs["block"], 8 // right.desc.attrs["bits"]
    functions, k = {name: hl.Func(name) for name in ("staged", "acc")}, hl.RDom([(0, lhs.dim(0).extent())], "k")
    staged, acc = functions.values()
    (i,) = variables("i")
    scale, zero = right.of_block(i // block)
    staged[n, i] = scale * (right.weight(i // each, i % each) - zero)
    acc[n, m] = hl.f32(0)
    acc[n, m] += lhs[k.x, m] * staged[n, k.x]
    return functions, {"k": k}


def _sum_of_blocks(lhs: Any, right: _Right, m: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return ``acc``, the sum of the sums of blocks and of a last one that is not full, and all domains."""
    n, block, each = right.n, right.desc.attrs["block"], 8 // right.desc.attrs["bits"]
    extent = lhs.dim(0).extent()
    b, whole = hl.Var("b"), extent // block
    k = hl.RDom([(0, each), (0, block // each)], "k")
    blocks, rest = hl.RDom([(0, whole)], "blocks"), hl.RDom([(0, extent % block)], "rest")
    functions = {name: hl.Func(name) for name in ("acc", "total", "beside", "last", "last_beside")}
    acc, total, beside, last, last_beside = functions.values()
    total[n, m, b] = hl.f32(0)
    total[n, m, b] += lhs[b * block + k.y * each + k.x, m] * right.weight(b * (block // each) + k.y, k.x)
    beside[m, b] = hl.f32(0)
    beside[m, b] += lhs[b * block + k.y * each + k.x, m]
    last[n, m] = hl.f32(0)
    last[n, m] += lhs[whole * block + rest.x, m] * right.weight(whole * (block // each) + rest.x // each, rest.x % each)
    last_beside[m] = hl.f32(0)
    last_beside[m] += lhs[whole * block + rest.x, m]

    def scaled(total: Any, beside: Any, number: Any) -> Any:
        """Return the sum of a block; ``beside`` is the sum of the left operand alone."""
        scale, zero = right.of_block(number)
        return scale * (total - zero * beside)

    acc[n, m] = hl.f32(0)
    acc[n, m] += scaled(total[n, m, blocks.x], beside[m, blocks.x], blocks.x)
    ends = hl.RDom([(0, hl.select(extent % block > 0, 1, 0))], "ends")
    acc[n, m] += scaled(last[n, m], last_beside[m], whole + ends.x)
    return functions, {"k": k, "blocks": blocks, "rest": rest, "ends": ends}


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
    if 8 // desc.attrs["bits"] > MOST_AT_ONCE:
        functions["total"].update().reorder(*functions["total"].args()[:2], k.x, k.y)
    else:
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
