"""Accumulators: the order in which register tiles add up products, and the epilogue before they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed
from opbuild.backend.halide.expression import compile_expression
from opbuild.families.blocked import BLOCK
from opbuild.families.layouts import registers
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json
from opbuild.target.machine import Machine

PREFIX = "e"
"""Epilogue operands are named ``e0``, ``e1``, ... and stand in this order among the inputs."""


def stored(desc: OpDesc, params: dict[str, Any], index: list[Any], functions: dict[str, Any], r: Any) -> Definition:
    """Return the definition that stores the accumulator ``functions["acc"]`` at ``index`` = (lane, x, y, block)."""
    value = apply_epilogue(desc, params, functions["acc"][index], tuple(index))
    return computed(desc, list(params.values()), index, value, functions, {"r": r})


def apply_epilogue(
    desc: OpDesc, params: dict[str, Any], accumulator: Any, index: tuple[Any, ...], names: Sequence[Any] = ()
) -> Any:
    """Return the value to store at ``index`` = (lane, x, y, block).

    An epilogue operand of rank 4 is read at the same index (a residual), one of rank 2 at (lane, block) (a value for
    each channel), one of rank 1 at 0 (a scalar). ``names`` are the variables of the value where ``index`` is
    expressions of them.
    """
    lane, _, _, block = index
    args = []
    for operand in desc.inputs:
        if operand.name[0] == PREFIX and operand.name[1:].isdigit():
            param = params[operand.name]
            places: dict[int, tuple[Any, ...]] = {4: index, 2: (lane, block), 1: (0,)}
            args.append(_expr(param[places[len(operand.dims)]]))
    expression = from_json(list(desc.attrs["epilogue"]))
    return compile_expression(expression, args, names or index, _expr(accumulator), refined=desc.is_precise)


def fused(desc: OpDesc, others: Sequence[Any], place: Sequence[Any], total: Any) -> Any:
    """Return the value that a product's epilogue makes of a sum at a place, where it reads its operands, too."""
    operands, expression = [other[tuple(place)] for other in others], from_json(desc.attrs["epilogue"])
    return compile_expression(expression, operands, place, _expr(total), refined=desc.is_precise)


def _expr(value: Any) -> Any:
    """Return a reference to a function as an expression; an expression stays."""
    return value if isinstance(value, hl.Expr) else hl.Expr(value)


def accumulate(update: Any, loops: tuple[Any, Any, Any], sums: Sequence[Any], desc: OpDesc, machine: Machine) -> None:
    """Keep a tile of sums in registers while inputs pass.

    Positions pass one by one by the weights of one input channel; or, where these do not fit beside the sums, vectors
    of weights pass by the inputs of all positions.

    Args:
        update: The accumulating definition.
        loops: Its loops over lanes, positions and channel blocks.
        sums: Its loops over what is added up, the innermost first.
        desc: The operator, whose variant has ``width`` and ``blocks``.
        machine: What runs it.
    """
    lane, position, block = loops
    width, blocks = desc.variant["width"], desc.variant["blocks"]
    if registers(width, blocks * machine.vectors(BLOCK)) <= machine.registers:
        update.reorder(lane, block, position, *sums).vectorize(lane)
    else:
        vector = hl.Var("vector")
        update.split(lane, vector, lane, machine.lanes).reorder(lane, position, vector, block, *sums)
        update.vectorize(lane).unroll(vector)
    update.unroll(block).unroll(position)
