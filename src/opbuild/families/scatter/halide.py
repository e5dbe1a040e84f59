"""scatter: elements of a tensor replaced, or combined with others, at places that another tensor names.

Schedule: updates are written in their order, where the tensor lies. What is not written is not touched, so a call takes
as long as its updates, however large the tensor is.

Dimensions that every update covers are independent of each other: they are divided among the tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, constrain_output, output_indices, parameters
from opbuild.backend.halide.division import share
from opbuild.backend.halide.mathematics import maximum, minimum
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

KEY = "steps"
"""The reduction domain: what is written one after the other."""

Update = tuple[Any, list[Any], list[Any], Any]
"""The domain, where an update goes, where it comes from, and whether it is to be done."""


def define(desc: OpDesc) -> Definition:
    """Define ``out``, which is what it was but for the ``updates`` at the places in ``indices``.

    Operands' dimensions are innermost first. ``attrs["kind"]`` is one of:

    * ``elements``: all of one rank; ``updates[p]`` goes to p with ``p[axis] = indices[p]``; ``attrs["axis"]`` counts
      from the innermost. With ``attrs["covers"]``, the updates are as long as ``out`` in all other dimensions.
    * ``rows``: ``updates[:, k]`` goes to ``out[:, indices[m-1, k], ..., indices[0, k]]``; x is (inner, m axes innermost
      first), indices (m, k), updates (inner, k).

    ``attrs["reduction"]``: ``none``, ``add``, ``mul``, ``max`` or ``min``. Of several updates of one element each
    counts, in their order; the last one is what stays without a reduction. A negative index counts from the end; one
    that is out of range changes nothing.
    """
    indices, updates = parameters(desc)
    out = hl.Func("out")
    index = output_indices(desc)
    out[index] = hl.undef(updates.type())
    domain, place, source, valid = (_rows if desc.attrs["kind"] == "rows" else _elements)(
        desc, out, indices, updates, index
    )
    # Not Halide's own predicate: it may not depend on the variables of dimensions that are written as a whole.
    old = hl.Expr(out[place])
    out[place] = hl.select(valid, _combined(desc, old, updates[source]), old)
    constrain_output(out, desc.outputs[0])
    variables = {f"i{number}": name for number, name in enumerate(index)}
    return Definition([indices, updates], [out], variables, {}, {KEY: domain})


def _elements(desc: OpDesc, out: Any, indices: Any, updates: Any, index: Sequence[Any]) -> Update:
    axis = int(desc.attrs["axis"])
    walked = [axis] if desc.attrs["covers"] else list(range(len(index)))
    domain = hl.RDom([(0, updates.dim(number).extent()) for number in walked], KEY)
    source = [domain[walked.index(number)] if number in walked else each for number, each in enumerate(index)]
    place, valid = _inside(indices[source], out.output_buffer().dim(axis).extent())
    return domain, [*source[:axis], place, *source[axis + 1 :]], source, valid


def _rows(desc: OpDesc, out: Any, indices: Any, updates: Any, index: Sequence[Any]) -> Update:
    domain = hl.RDom([(0, updates.dim(1).extent())], KEY)
    count = len(index) - 1
    places, valid = [], hl.cast(hl.Bool(), True)
    for number in range(count):
        place, inside = _inside(indices[count - 1 - number, domain.x], out.output_buffer().dim(number + 1).extent())
        places.append(place)
        valid = valid & inside
    return domain, [index[0], *places], [index[0], domain.x], valid


def _inside(index: Any, extent: Any) -> tuple[Any, Any]:
    """Return an index counted from the front, limited to the range, and whether it was in range."""
    kind = index.type() if index.type().bits() == 64 else hl.Int(32)
    index, count, zero = hl.cast(kind, index), hl.cast(kind, extent), hl.cast(kind, 0)
    wrapped = hl.select(index < zero, index + count, index)
    limited = hl.cast(hl.Int(32), hl.max(hl.min(wrapped, count - hl.cast(kind, 1)), zero))
    valid = (wrapped >= zero) & (wrapped < count)
    return hl.unsafe_promise_clamped(limited, 0, extent - 1), valid


def _combined(desc: OpDesc, old: Any, new: Any) -> Any:
    reduction = desc.attrs["reduction"]
    if reduction == "none":
        return new
    if reduction == "add":
        return old + new
    if reduction == "mul":
        return old * new
    if not new.type().is_float():
        return hl.max(old, new) if reduction == "max" else hl.min(old, new)
    return hl.strict_float((maximum if reduction == "max" else minimum)(old, new))


LEAST_COLUMNS = 64
"""Elements of a row that one task updates at least: what lies side by side is one core's."""


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Schedule a scatter."""
    (out,) = definition.outputs
    stage, index = out.update(0), list(definition.variables.values())
    steps = definition.domains["steps"]
    if desc.attrs["kind"] == "rows":
        column, inner = index[0], hl.Var("inner_column")
        width = int(desc.variant["width"])
        _divide(stage, definition, 0, column, LEAST_COLUMNS)
        if width > 1:
            stage.split(column, column, inner, width, hl.TailStrategy.GuardWithIf).vectorize(inner)
            stage.reorder(inner, column, steps.x, hl.Var("task"))
        else:
            stage.reorder(column, steps.x, hl.Var("task"))
    elif desc.attrs["covers"] and len(index) > 1:
        axis = int(desc.attrs["axis"])
        inside, outside = index[:axis], index[axis + 1 :]
        number = len(index) - 1 if outside else axis - 1
        _divide(stage, definition, number, index[number], 1 if number else LEAST_COLUMNS)
        stage.reorder(*inside, steps.x, *outside, hl.Var("task"))


def _divide(stage: Any, definition: Definition, number: int, loop: Any, least: int) -> None:
    """Divide a dimension of the updates among the tasks; the loop over them is ``task``."""
    extent = definition.outputs[0].output_buffer().dim(number).extent()
    length = hl.max(least, share(extent, definition.tasks))
    stage.split(loop, hl.Var("task"), loop, length, hl.TailStrategy.GuardWithIf).parallel(hl.Var("task"))
