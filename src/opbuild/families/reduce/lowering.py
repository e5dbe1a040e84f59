"""Lowering of reductions."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.blocked import BLOCK
from opbuild.families.reduce import family as reduces
from opbuild.graph.extents import always_equal, is_one
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.movement import integers
from opbuild.lowering.strided import dense_as, is_short, transposed, viewed_as
from opbuild.platform.records import dataclass
from opbuild.target.level import CPU

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

_POOLS = {"mean": "average", "max": "max"}
"""Reductions that are global pools of images."""


@serves("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2")
@serves("ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")
def reduce(lowering: Lowering, node: Node) -> None:
    """Lower a reduction over any axes: neighbouring axes that are reduced, or kept, are one."""
    type_ = lowering.type(node.inputs[0])
    name = _NAMES[node.op_type]
    if type_.dtype not in reduces.TYPES[name]:
        raise NotServedError(f"{node.op_type} of {type_.dtype} has no kernel")
    if type_.dtype == "bool" and not type_.size:
        raise NotServedError(f"{node.op_type} of no truth values: the greatest byte is none")
    axes = _axes(lowering, node, len(type_.shape))
    if not axes and node.attrs.get("noop_with_empty_axes", 0):
        raise NotServedError(f"{node.op_type} over no axes computes element by element")
    reduced = set(axes) or set(range(len(type_.shape)))
    if _is_pool(lowering, node, name, reduced):
        ask(lowering, (ASKED, "PlanePool"), node, _POOLS[name])
        return
    plan = _plan_of(lowering, node.inputs[0], reduced)
    if plan is None:
        raise NotServedError(f"{node.op_type} reduces more than two separate groups of axes")
    out = lowering.new_plain(node.outputs[0])
    if prod(out.shape) == 0:
        return

    def emit(plan: _Plan) -> None:
        lowering.emit(_reduction(lowering, node, name, plan), (plan.x, dense_as(out, plan.kept)), node)

    is_rows = plan.layout == "inner" and not is_one(plan.x.shape[1])
    short = is_short(plan.x.shape[-1]) if is_rows and not lowering.is_for_device(reduces.FAMILY.name) else 0
    lowering.either([(short, lambda: emit(_turned(plan))), (1, lambda: emit(plan))])


def _is_pool(lowering: Lowering, node: Node, name: str, reduced: set[int]) -> bool:
    """Return whether a reduction is over the planes of an image that lies in channel blocks."""
    x, shape = node.inputs[0], lowering.type(node.inputs[0]).shape
    if name not in _POOLS or not lowering.is_blocked(x) or lowering.type(x).dtype != "float32":
        return False
    kept = len(lowering.type(node.outputs[0]).shape) == len(shape)
    return reduced == set(range(2, len(shape))) and 0 not in shape and (kept or shape[1] % BLOCK == 0)


@dataclass(frozen=True)
class _Plan:
    """A reduction as kernels see it.

    Attributes:
        layout: ``inner`` or ``outer``.
        x: The input, its dimensions in the kernel's order.
        kept: The output's shape in these dimensions.
        is_turned: Whether short rows are reduced as columns.
    """

    layout: str
    x: Plain
    kept: tuple[int, ...]
    is_turned: bool = False


def _plan_of(lowering: Lowering, name: str, reduced: set[int]) -> _Plan | None:
    """Return the plan to reduce a value; of an image whose channels lie innermost, on a device, as it lies."""
    value = lowering.plain(name)
    order = (0, *range(2, len(value.shape)), 1)
    kept = [axis for axis in order if axis not in reduced]
    if lowering.target != CPU and value.has_channels_last and kept == sorted(kept):
        return _plan(transposed(value, order), {place for place, axis in enumerate(order) if axis in reduced})
    return _plan(value, reduced) or _plan(lowering.dense(name), reduced)


def _turned(plan: _Plan) -> _Plan:
    """Return a reduction of rows as one of columns."""
    z, y, *reduced = zip(plan.x.shape, plan.x.strides, strict=True)
    dims = (z, (1, 0), *reduced, y)
    view = viewed_as(plan.x, [extent for extent, _ in dims], [stride for _, stride in dims])
    return _Plan("outer", view, (z[0], 1, y[0]), True)


def _plan(x: Plain, reduced: set[int]) -> _Plan | None:
    """Return the plan to reduce ``x``, or None if its elements do not lie right for any kernel."""
    groups = _groups(x, reduced)
    groups.reverse()  # innermost first
    layout = "inner" if groups and groups[0][2] else "outer"
    pattern = (True, False, True, False) if layout == "inner" else (False, True, False, True, False)
    dims: list[tuple[int, int]] = []
    for wanted in pattern:
        found = groups.pop(0) if groups and groups[0][2] == wanted else (1, 1 if not dims else 0, wanted)
        dims.append(found[:2])
    if groups or not is_one(dims[0][1]):
        return None
    # The kernel's order: reduced dimensions together, then the kept ones; outermost first here.
    order = (3, 1, 2, 0) if layout == "inner" else (4, 2, 3, 1, 0)
    ordered = [dims[index] for index in order]
    kept = [ordered[0][0], ordered[1][0], *([] if layout == "inner" else [ordered[-1][0]])]
    view = viewed_as(x, [extent for extent, _ in ordered], [stride for _, stride in ordered])
    return _Plan(layout, view, tuple(kept))


def _groups(x: Plain, reduced: set[int]) -> list[tuple[int, int, bool]]:
    """Return ``(extent, stride, reduced)`` of neighbouring axes merged, outermost first, extents of 1 left out."""
    groups: list[tuple[int, int, bool]] = []
    for axis, (extent, stride) in enumerate(zip(x.shape, x.strides, strict=True)):
        if is_one(extent):
            continue
        this = axis in reduced
        if groups and groups[-1][2] == this and always_equal(groups[-1][1], stride * extent):
            groups[-1] = (groups[-1][0] * extent, stride, this)
        else:
            groups.append((extent, stride, this))
    return groups


def _reduction(lowering: Lowering, node: Node, name: str, plan: _Plan) -> OpDesc:
    x, dtype = plan.x, plan.x.storage.dtype
    variant = lowering.choose(reduces.FAMILY, plan.layout, x.shape[-1])
    mode = lowering.impl_mode(node, differs=dtype == "float32" and name not in ("max", "min"))
    ranks = len(x.shape), len(plan.kept)
    return reduces.describe(node.op_type, name, plan.layout, dtype, ranks, variant, mode, is_turned=plan.is_turned)


def _axes(lowering: Lowering, node: Node, rank: int) -> tuple[int, ...]:
    """Return the axes to reduce, none if the node names none."""
    listed = node.attrs.get("axes")
    if listed is None and len(node.inputs) > 1 and node.inputs[1] and not lowering.type(node.inputs[1]).size:
        return ()  # known without its contents
    given = (integers(lowering, node, 1) or ()) if listed is None else np.atleast_1d(np.asarray(listed)).tolist()
    return tuple(sorted({int(axis) % max(1, rank) for axis in given}))
