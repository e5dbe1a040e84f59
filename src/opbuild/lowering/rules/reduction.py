"""Lowering of reductions, ArgMax and ArgMin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from opbuild.graph.types import Node
from opbuild.kernel.opdesc import FREE, OpDesc, Operand
from opbuild.lowering.context import Lowering, NotServedError, rule
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.lowering.strided import free_dims, made, seen_as

FLOATS = ("float32", "float64")
INTEGERS = ("int32", "int64")
SMALL = ("int8", "uint8")

_EVERYWHERE = (*FLOATS, *INTEGERS)
_TYPES: dict[str, tuple[str, ...]] = {
    "sum": _EVERYWHERE,
    "prod": _EVERYWHERE,
    "l1": _EVERYWHERE,
    "sum_square": _EVERYWHERE,
    "max": (*_EVERYWHERE, *SMALL),
    "min": (*_EVERYWHERE, *SMALL),
    "mean": FLOATS,
    "l2": FLOATS,
    "log_sum": FLOATS,
    "log_sum_exp": FLOATS,
}
"""Element types that the kernels of each reduction serve."""

_NAMES = {
    "ReduceSum": "sum",
    "ReduceMean": "mean",
    "ReduceMax": "max",
    "ReduceMin": "min",
    "ReduceProd": "prod",
    "ReduceL1": "l1",
    "ReduceL2": "l2",
    "ReduceLogSum": "log_sum",
    "ReduceLogSumExp": "log_sum_exp",
    "ReduceSumSquare": "sum_square",
}

LANES = (64, 16, 1)
"""Columns that are reduced side by side; the first that fits is taken."""

SERIAL = 32768
"""Elements below which waking a second thread costs more than it saves."""


@rule(*_NAMES)
def reduce(lowering: Lowering, node: Node) -> None:
    """Lower a reduction over any axes: neighbouring axes that are reduced, or kept, are one."""
    type_ = lowering.type(node.inputs[0])
    name = _NAMES[node.op_type]
    if type_.dtype not in _TYPES[name]:
        raise NotServedError(f"{node.op_type} of {type_.dtype} has no kernel")
    axes = _axes(lowering, node, len(type_.shape))
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        raise NotServedError(f"{node.op_type} over no axes computes element by element")
    reduced = set(axes) or set(range(len(type_.shape)))
    plan = _plan(lowering.plain(node.inputs[0]), reduced) or _plan(lowering.dense(node.inputs[0]), reduced)
    if plan is None:
        raise NotServedError(f"{node.op_type} reduces more than two separate groups of axes")
    out = lowering.new_plain(node.outputs[0])
    if prod(out.shape) == 0:
        return
    _emit_reduction(lowering, node, name, plan, seen_as(out, plan.kept, dense_strides(plan.kept)))


@dataclass(frozen=True)
class _Plan:
    """A reduction as kernels see it.

    Attributes:
        layout: ``inner`` or ``outer``.
        x: The input, its dimensions in the kernel's order.
        kept: The output's shape in these dimensions.
    """

    layout: str
    x: Plain
    kept: tuple[int, ...]


def _plan(x: Plain, reduced: set[int]) -> _Plan | None:
    """Return how to reduce ``x``, or None if its elements do not lie right for any kernel."""
    groups = _groups(x, reduced)
    groups.reverse()  # innermost first
    layout = "inner" if groups and groups[0][2] else "outer"
    pattern = (True, False, True, False) if layout == "inner" else (False, True, False, True, False)
    dims: list[tuple[int, int]] = []
    for wanted in pattern:
        found = groups.pop(0) if groups and groups[0][2] == wanted else (1, 1 if not dims else 0, wanted)
        dims.append(found[:2])
    if groups or dims[0][1] != 1:
        return None
    # The kernel's order: reduced dimensions together, then the kept ones; outermost first here.
    order = (3, 1, 2, 0) if layout == "inner" else (4, 2, 3, 1, 0)
    ordered = [dims[index] for index in order]
    kept = [ordered[0][0], ordered[1][0], *([] if layout == "inner" else [ordered[-1][0]])]
    view = seen_as(x, [extent for extent, _ in ordered], [stride for _, stride in ordered])
    return _Plan(layout, view, tuple(kept))


def _groups(x: Plain, reduced: set[int]) -> list[tuple[int, int, bool]]:
    """Return ``(extent, stride, reduced)`` of neighbouring axes merged, outermost first, extents of 1 left out."""
    groups: list[tuple[int, int, bool]] = []
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        if extent == 1:
            continue
        this = axis in reduced
        if groups and groups[-1][2] == this and groups[-1][1] == stride * extent:
            groups[-1] = (groups[-1][0] * extent, stride, this)
        else:
            groups.append((extent, stride, this))
    return groups


def _emit_reduction(lowering: Lowering, node: Node, name: str, plan: _Plan, out: Plain) -> None:
    dtype = plan.x.storage.dtype
    variant: dict[str, Any] = {"parallel": _parallel(lowering, plan.x, out)}
    lanes = 0
    if plan.layout == "outer":
        lanes = variant["lanes"] = _lanes(plan.x.shape[-1])
    desc = OpDesc(
        (node.op_type,),
        "reduce",
        (Operand("x", dtype, free_dims(len(plan.x.shape), inner_stride=1, inner_min=lanes)),),
        (Operand("out", dtype, free_dims(len(out.shape), inner_stride=1 if lanes else FREE)),),
        {"reduction": name, "layout": plan.layout},
        variant,
        lowering.impl_mode(node, differs=dtype == "float32" and name not in ("max", "min")),
    )
    lowering.emit(made(desc), (plan.x, out), node)


@rule("ArgMax", "ArgMin")
def arg_reduce(lowering: Lowering, node: Node) -> None:
    """Lower ArgMax and ArgMin over one axis."""
    type_ = lowering.type(node.inputs[0])
    if type_.dtype not in (*FLOATS, *INTEGERS, *SMALL):
        raise NotServedError(f"{node.op_type} of {type_.dtype} has no kernel")
    axis = int(node.attrs.get("axis", 0)) % max(1, len(type_.shape))
    if type_.size == 0 or not type_.shape:
        raise NotServedError(f"{node.op_type} of nothing or of a scalar has no kernel")
    inner = prod(type_.shape[axis + 1 :])
    shape: tuple[int, ...] = (prod(type_.shape[:axis]), type_.shape[axis], inner)
    x = lowering.dense(node.inputs[0])
    layout, kept = "outer", (shape[0], inner)
    if inner == 1:
        layout, shape, kept = "inner", (1, shape[0], shape[1]), (1, shape[0])
    x = seen_as(x, shape, dense_strides(shape))
    out = seen_as(lowering.new_plain(node.outputs[0]), kept, dense_strides(kept))
    variant: dict[str, Any] = {"parallel": _parallel(lowering, x, out)}
    lanes = 0
    if layout == "outer":
        lanes = variant["lanes"] = VECTOR if inner >= VECTOR else 1
    desc = OpDesc(
        (node.op_type,),
        "arg_reduce",
        (Operand("x", type_.dtype, free_dims(3, inner_stride=1, inner_min=lanes)),),
        (Operand("out", "int64", free_dims(2, inner_stride=1 if lanes else FREE)),),
        {"least": node.op_type == "ArgMin", "last": bool(node.attrs.get("select_last_index", 0)), "layout": layout},
        variant,
    )
    lowering.emit(made(desc), (x, out), node)


VECTOR = 16


def _axes(lowering: Lowering, node: Node, rank: int) -> tuple[int, ...]:
    """Return the axes to reduce, none if the node names none."""
    given: Sequence[int] = ()
    if "axes" in node.attrs:
        given = np.atleast_1d(np.asarray(node.attrs["axes"])).tolist()
    elif len(node.inputs) > 1 and node.inputs[1]:
        constant = lowering.constant(node.inputs[1])
        if constant is None:
            raise NotServedError(f"{node.op_type}'s axes are not known when the network is built")
        given = np.asarray(constant).reshape(-1).tolist()
    return tuple(sorted({int(axis) % max(1, rank) for axis in given}))


def _lanes(extent: int) -> int:
    return next(lanes for lanes in LANES if lanes <= max(extent, 1))


def _parallel(lowering: Lowering, x: Plain, out: Plain) -> bool:
    return lowering.options.num_threads > 1 and prod(x.shape) >= SERIAL and prod(out.shape) > 1
