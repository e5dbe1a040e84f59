"""Matrix products of float32 or float64, defined.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[n, k])``, as many times as there are batches. Attributes:

* ``rhs``: how the right operand lies. ``panels``: ``(32, K, N/32)``, the columns in panels of 32, zero beyond N; one
  matrix for all batches or one each; float32, or float16 or bfloat16, which become float32 where they are read or
  copied. ``pairs``: ``(2, 32, K/2, N/32)``, panels of bfloat16 in which two neighbours along K are adjacent, as the
  instruction for them takes them; zero beyond K and N. ``rows``: ``(N, K, ...)`` with neighbouring columns adjacent.
  ``columns``: ``(N, K, ...)`` with neighbours along K adjacent (a transposed matrix).
* ``epilogue``: an expression over the sum and the operands after ``rhs``, each of the output's rank; a stride of 0
  repeats.

With ``pairs`` the left operand's numbers must be bfloat16's too: what lies behind their digits is cut off. The sums are
float32; where the level has the instruction, denormal numbers and sums count as 0.

In the mode ``high_precision`` the products of ``CHUNK`` neighbours along K are added up by themselves, then the sums:
the error of a long sum falls by half a dozen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import CHECKED, Definition, constrain_output, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.mathematics import BFLOAT16, FLOAT16, FLOAT32, narrowed, widened
from opbuild.families.matmul.layouts import LEAST_FETCHED, PANEL, fetches
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

Domains = dict[str, Any]
"""Reduction domains by the names under which schedules find them."""

CHUNK = 32
"""Products that ``high_precision`` adds up by themselves."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix product."""
    inputs = parameters(desc)
    lhs, rhs, *others = inputs
    n, m = variables("n m")
    batch = variables("b0 b1")[: len(desc.outputs[0].dims) - 2]
    functions: dict[str, Any] = {}

    def right(n: Any, k: Any) -> Any:
        if desc.attrs["rhs"] == "panels":
            panel = desc.inputs[1].dims[0].extent
            loaded = rhs[(n % panel, k, n // panel, *batch[: rhs.dimensions() - 3])]
            # Halide's own conversion of a float16, which takes a fifth of the instructions: sums are not strict either.
            return hl.cast(FLOAT32, loaded) if loaded.type() == FLOAT16 else widened(loaded)
        return rhs[(n, k, *batch)]

    staged = _stage(functions, right, desc.attrs["rhs"], batch) if desc.variant.get("stage") else None
    place = (n, m, *batch)
    is_fetched = fetches(desc) and not desc.variant.get(CHECKED)
    is_needed = _ahead(functions, (lhs, rhs), place, desc.variant["columns"]) if is_fetched else None

    def product(k: Any) -> Any:
        factor = right(n, k) if staged is None else staged[(n, k, *batch)]
        return lhs[(k, m, *batch)] * (factor if is_needed is None else hl.select(is_needed(k), 0, factor))

    if desc.attrs["rhs"] == "pairs":
        domains = _sum_of_pairs(functions, lhs, rhs, place)
    else:
        add_up = _sum_in_chunks if desc.is_precise else _sum
        domains = add_up(functions, product, place, lhs.dim(0).extent(), lhs.type())
    acc, out = functions["acc"], hl.Func("out")
    operands = [other[(n, m, *batch)] for other in others]
    expression, total = from_json(desc.attrs["epilogue"]), hl.Expr(acc[(n, m, *batch)])
    out[place] = compile_expression(expression, operands, place, total, refined=desc.is_precise)
    constrain_output(out, desc.outputs[0])
    names = {"n": n, "m": m, **{var.name(): var for var in batch}}
    return Definition(inputs, [out], names, functions, domains, dots=desc.attrs["rhs"] == "pairs")


def _sum(
    functions: dict[str, Any], product: Callable[[Any], Any], place: tuple[Any, ...], extent: Any, kind: Any
) -> Domains:
    """Define ``acc``, the sum of products; return its domain ``k``."""
    k = hl.RDom([(0, extent)], "k")
    acc = functions["acc"] = hl.Func("acc")
    acc[place] = hl.cast(kind, 0)
    acc[place] += product(k.x)
    return {"k": k}


def _sum_in_chunks(
    functions: dict[str, Any], product: Callable[[Any], Any], place: tuple[Any, ...], extent: Any, kind: Any
) -> Domains:
    """Define ``acc``, the sum of the sums ``chunk`` and ``rest``; return the domains of all three."""
    number = variables("number")[0]
    k, inner, beyond = (
        hl.RDom([(0, count)], name)
        for name, count in (("k", extent // CHUNK), ("inner", CHUNK), ("beyond", extent % CHUNK))
    )
    acc, chunk, rest = (hl.Func(name) for name in ("acc", "chunk", "rest"))
    functions.update(acc=acc, chunk=chunk, rest=rest)
    chunk[(*place, number)] = hl.cast(kind, 0)
    chunk[(*place, number)] += product(number * CHUNK + inner.x)
    rest[place] = hl.cast(kind, 0)
    rest[place] += product(extent // CHUNK * CHUNK + beyond.x)
    acc[place] = rest[place]
    acc[place] += chunk[(*place, k.x)]
    return {"k": k, "chunk": inner, "rest": beyond}


def _sum_of_pairs(functions: dict[str, Any], lhs: Any, rhs: Any, place: tuple[Any, ...]) -> Domains:
    """Define ``acc``, the sum of products of bfloat16, and ``left``, the left operand as such."""
    n, m, *batch = place
    j = variables("j")[0]
    extent = lhs.dim(0).extent()
    k, rest = hl.RDom([(0, 2), (0, extent // 2)], "k"), hl.RDom([(0, extent % 2)], "rest")
    left, acc = hl.Func("left"), hl.Func("acc")
    functions.update(left=left, acc=acc)
    left[(j, m, *batch)] = narrowed(lhs[(j, m, *batch)], BFLOAT16, rounds=False)

    def right(number: Any, pair: Any) -> Any:
        return hl.cast(FLOAT32, rhs[(number, n % PANEL, pair, n // PANEL)])

    acc[place] = hl.f32(0)
    acc[place] += hl.cast(FLOAT32, left[(k.y * 2 + k.x, m, *batch)]) * right(k.x, k.y)
    acc[place] += lhs[(extent - 1 + rest.x, m, *batch)] * right(rest.x, extent // 2)
    return {"k": k, "rest": rest}


def _ahead(
    functions: dict[str, Any], operands: tuple[Any, Any], place: tuple[Any, ...], columns: int
) -> Callable[[Any], Any]:
    """Define ``ahead``, elements of the panels behind a tile's; return a condition at k that is never true.

    A schedule can fetch only what is read, and what is read has to be used. LLVM knows that no number has more bits set
    than bits, and leaves of all this what is fetched. Few rows fetch what is there.

    Args:
        functions: Gets ``ahead``.
        operands: The left operand, and the right one in panels.
        place: Where in the output.
        columns: Columns of a tile.
    """
    (lhs, rhs), (n, _, *batch) = operands, place
    element, tile = variables("element tile")
    panels, bits = columns // PANEL, rhs.type().bits()
    distance = hl.select(lhs.dim(1).extent() < LEAST_FETCHED, 0, panels)
    panel = hl.min(tile * panels + distance, rhs.dim(2).extent() - panels)
    behind = rhs[(element, 0, panel, *batch[: rhs.dimensions() - 3])]
    ahead = functions["ahead"] = hl.Func("ahead")
    ahead[(element, tile, *batch)] = hl.reinterpret(hl.UInt(bits), behind)

    def is_needed(k: Any) -> Any:
        # The second is the first, but Halide does not know: it keeps the loop over both, by which the schedule fetches.
        first, second = (ahead[(each, n // columns, *batch)] for each in (0, k // hl.Int(32).max()))
        return hl.popcount(first | second) > bits

    return is_needed


def _stage(functions: dict[str, Any], right: Callable[[Any, Any], Any], layout: str, batch: list[Any]) -> Any:
    """Return a copy of the right operand that the schedule keeps a panel at a time, columns adjacent."""
    n, k = variables("n k")
    staged = hl.Func("staged")
    if layout == "columns":
        # Loaded along K, as it lies, and transposed in registers.
        block = hl.Func("block")
        block[(k, n, *batch)] = right(n, k)
        staged[(n, k, *batch)] = block[(k, n, *batch)]
        functions["block"] = block
    else:
        staged[(n, k, *batch)] = right(n, k)
    functions["staged"] = staged
    return staged
