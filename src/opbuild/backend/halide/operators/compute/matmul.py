"""Matrix products: what they compute.

``out[n, m] = epilogue(sum over k of lhs[k, m] * rhs[n, k])``, as many times as there are batches. Attributes:

* ``rhs``: how the right operand lies. ``panels``: ``(32, K, N/32)``, the columns in panels of 32, zero beyond N; one
  matrix for all batches or one each. ``rows``: ``(N, K, ...)`` with neighbouring columns adjacent. ``columns``: ``(N,
  K, ...)`` with neighbours along K adjacent (a transposed matrix).
* ``epilogue``: an expression over the sum and the operands after ``rhs``, each of the output's rank; a stride of 0
  repeats.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.expression import compile_expression
from opbuild.kernel.expression import from_json
from opbuild.kernel.opdesc import OpDesc

PANEL = 32
"""Columns in a panel of packed weights."""


def define(desc: OpDesc) -> Definition:
    """Return the definition of a batched matrix product."""
    inputs = parameters(desc)
    lhs, rhs, *others = inputs
    n, m = variables("n m")
    batch = variables("b0 b1")[: len(desc.outputs[0].dims) - 2]
    k = hl.RDom([(0, lhs.dim(0).extent())], "k")

    functions: dict[str, Any] = {}
    if desc.attrs["rhs"] == "panels":
        right = rhs[(n % PANEL, k.x, n // PANEL, *batch[: rhs.dimensions() - 3])]
    elif desc.variant.get("stage"):
        right = _stage(functions, rhs, desc.attrs["rhs"], batch)[(n, k.x, *batch)]
    else:
        right = rhs[(n, k.x, *batch)]

    acc, out = hl.Func("acc"), hl.Func("out")
    acc[(n, m, *batch)] = hl.f32(0)
    acc[(n, m, *batch)] += lhs[(k.x, m, *batch)] * right
    operands = [other[(n, m, *batch)] for other in others]
    expression, total = from_json(desc.attrs["epilogue"]), hl.Expr(acc[(n, m, *batch)])
    out[(n, m, *batch)] = compile_expression(expression, operands, total, refined=desc.is_precise)
    constrain_output(out, desc.outputs[0])
    functions["acc"] = acc
    names = {"n": n, "m": m, **{var.name(): var for var in batch}}
    return Definition(inputs, [out], names, functions, {"k": k})


def _stage(functions: dict[str, Any], rhs: Any, layout: str, batch: list[Any]) -> Any:
    """Return a copy of the right operand that the schedule keeps a panel at a time, columns adjacent."""
    n, k = variables("n k")
    staged = hl.Func("staged")
    if layout == "columns":
        # Loaded along K, as it lies, and transposed in registers.
        block = hl.Func("block")
        block[(k, n, *batch)] = rhs[(n, k, *batch)]
        staged[(n, k, *batch)] = block[(k, n, *batch)]
        functions["block"] = block
    else:
        staged[(n, k, *batch)] = rhs[(n, k, *batch)]
    functions["staged"] = staged
    return staged
