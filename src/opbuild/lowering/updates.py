"""Outputs that replace inputs: the last calls of a program, which write where the inputs lie.

An elementwise call that reads an input only where it writes may write there, as long as no vector of a row overlaps
another one: then each element is read before it is written, and once. What another call computes, or one that is read
later as it was before, is written elsewhere and copied at the end.

All that changes inputs is put behind everything else, and is elementwise calls and copies, which need no memory and
cannot
fail: a run that fails or is interrupted before has changed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opbuild.families.catalogue import find
from opbuild.platform.records import replace
from opbuild.program import Buffer, Call, KernelCall, Program, View

Copy = Callable[[View, View, str], KernelCall]
"""Makes the call that copies one dense view to another, of a value that is named."""


def update_in_place(program: Program, updates: Sequence[tuple[int, int]], copy: Copy) -> Program:
    """Return a program whose outputs replace inputs.

    Args:
        program: A program whose outputs have memory of their own.
        updates: As ``Graph.updates``.
        copy: Makes a copy.
    """
    if not updates:
        return program
    targets = {program.outputs[output].buffer: program.inputs[given].buffer for output, given in updates}
    writers: dict[int, list[Call]] = {}
    for call in program.calls:
        for buffer in _buffers(call.outputs):
            writers.setdefault(buffer, []).append(call)
    direct = {buffer: target for buffer, target in targets.items() if _may_write(writers.get(buffer, ()), target)}
    order = _last_changes(program.calls, direct)
    if order is None:  # one of them is in the way: which one is found by taking them one after the other
        chosen: dict[int, int] = {}
        order = (program.calls, ())
        for buffer, target in direct.items():
            found = _last_changes(program.calls, {**chosen, buffer: target})
            if found is not None:
                chosen[buffer], order = target, found
        direct = chosen
    first, last = order
    copies = [
        copy(_whole_view(program, buffer), _whole_view(program, target), port.name)
        for port in program.outputs
        for buffer, target in ((port.buffer, targets.get(port.buffer, port.buffer)),)
        if target != buffer and buffer not in direct
    ]
    calls = (*first, *(_redirected(call, direct) for call in last), *copies)
    buffers = tuple(_without_port(each, index, targets, direct) for index, each in enumerate(program.buffers))
    outputs = tuple(port._replace(buffer=targets.get(port.buffer, port.buffer)) for port in program.outputs)
    return replace(program, calls=calls, buffers=buffers, outputs=outputs)


def _may_write(writers: Sequence[Call], target: int) -> bool:
    """Return whether the writers of an output may write it where an input lies that they may read."""
    if len(writers) != 1 or not isinstance(writers[0], KernelCall) or not find(writers[0].desc.family).overwrites:
        return False
    *read, written = writers[0].views
    own = [view for view in read if view.buffer == target]
    width = int(writers[0].desc.variant["width"])
    is_same = all((view.offset, view.dims) == (written.offset, written.dims) for view in own)
    return not own or (is_same and written.dims[0][0] % width == 0)


def _last_changes(calls: Sequence[Call], direct: Mapping[int, int]) -> tuple[Sequence[Call], Sequence[Call]] | None:
    """Return the calls that are done first, and those that write where inputs lie, with all that depend on them.

    None if one of these may fail, or reads an input as it was before another one writes there.
    """
    first, last = list[Call](), list[Call]()
    touched, changed, gone = set[int](), set[int](), set[int]()
    for call in calls:
        wrote, read = _buffers(call.outputs), _buffers(call.inputs)
        if changed.isdisjoint(read) and touched.isdisjoint(wrote) and direct.keys().isdisjoint(wrote):
            first.append(call)
            continue
        if not isinstance(call, KernelCall) or not find(call.desc.family).is_certain or not gone.isdisjoint(read):
            return None
        last.append(call)
        changed |= wrote
        touched |= wrote | read
        gone.update(direct[buffer] for buffer in wrote if buffer in direct)
    return first, last


def _buffers(views: Sequence[View | None]) -> set[int]:
    return {view.buffer for view in views if view is not None}


def _redirected(call: Call, direct: Mapping[int, int]) -> Call:
    assert isinstance(call, KernelCall)  # noqa: S101 - no other is among the last ones
    views = tuple(view._replace(buffer=direct.get(view.buffer, view.buffer)) for view in call.views)
    return replace(call, views=views)


def _whole_view(program: Program, buffer: int) -> View:
    return View(buffer, 0, ((program.buffers[buffer].size, 1),))


def _without_port(buffer: Buffer, index: int, targets: Mapping[int, int], direct: Mapping[int, int]) -> Buffer:
    """Return a buffer, as a temporary one if it was an output's that replaces an input; of no size if it is unused."""
    if index not in targets:
        return buffer
    return replace(buffer, kind="temporary", size=0 if index in direct else buffer.size)
