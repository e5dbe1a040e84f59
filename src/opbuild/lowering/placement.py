"""Placement: which calls of a program are run on another device than the CPU, and the copies that this takes.

All that the device has kernels for is run there, where operands lie as it takes them. A buffer that both read or write
becomes two, of which at any time one or both have the contents; a copy stands before the first call that reads where
they are not. What is written in parts keeps its other parts: it is copied before, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import prod
from typing import Any

from opbuild.graph.extents import always_equal
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace
from opbuild.program import DEVICE_COPY, Buffer, Call, HostCall, KernelCall, Program, View
from opbuild.target.devices import device_class
from opbuild.target.level import CPU


def place(program: Program, device: str) -> Program:
    """Return a program whose calls are run on a device where that has kernels for them.

    Args:
        program: It is all on the CPU.
        device: The class of devices.
    """
    return _Placing(program, device).placed()


class _Placing:
    """Goes through a program and notes where the contents of each buffer are.

    Attributes:
        twins: For each buffer the one with the same contents on the device, once there is one.
        there: For each buffer the devices that have its contents; none before anything was written.
    """

    def __init__(self, program: Program, device: str) -> None:
        self._program, self._device, self._class = program, device, device_class(device)
        self._buffers = list(program.buffers)
        self._calls: list[Call] = []
        self._known: dict[OpDesc, OpDesc | None] = {}
        self.twins: dict[int, int] = {}
        self.there = [{CPU} if buffer.kind in ("input", "constant") else set[str]() for buffer in program.buffers]

    def placed(self) -> Program:
        """Return the program."""
        for repeated, part in groupby(self._program.calls, lambda call: getattr(call, "repeated", None)):
            if repeated is None:
                for call in part:
                    self._add(call)
            else:
                self._add_repeated(list(part))
        for port in self._program.outputs:
            self._bring(port.buffer, CPU, port.name)
        return _without_unused(replace(self._program, buffers=tuple(self._buffers), calls=tuple(self._calls)))

    def _add(self, call: Call) -> None:
        kernel = self._kernel(call) if isinstance(call, KernelCall) else None
        reads, writes = _sides(call)
        device = CPU if kernel is None else self._device
        for view in reads:
            self._bring(view.buffer, device, _name(call))
        for view in writes:
            if not self._covers(view):
                self._bring(view.buffer, device, _name(call))
        if kernel is not None and isinstance(call, KernelCall):
            views = tuple(view._replace(buffer=self._twin(view.buffer)) for view in call.views)
            call = replace(call, desc=kernel, views=views)
        self._calls.append(call)
        for view in writes:
            self.there[view.buffer] = {device}

    def _add_repeated(self, calls: Sequence[Call]) -> None:
        """Add calls that are run in turn, or not at all: on the CPU, with all that they touch brought there before."""
        touched = [view for call in calls for side in _sides(call) for view in side]
        for view in touched:
            self._bring(view.buffer, CPU, _name(calls[0]))
        self._calls += calls
        for call in calls:
            for view in _sides(call)[1]:
                self.there[view.buffer] = {CPU}

    def _bring(self, buffer: int, device: str, name: str) -> None:
        """Copy the contents of a buffer to a device, if there are any and they are elsewhere."""
        there = self.there[buffer]
        if not there or device in there:
            return
        if device != CPU and self._is_shared(self._program.buffers[buffer]):
            self._twin(buffer)
        else:
            source, target = (self._on(buffer, each) for each in (next(iter(there)), device))
            self._calls.append(self._copy(source, target, name))
        there.add(device)

    def _copy(self, source: int, target: int, name: str) -> HostCall:
        dtype, size = self._buffers[source].dtype, self._buffers[source].size
        views = [View(each, 0, ((size, 1),)) for each in (source, target)]
        node = Node(DEVICE_COPY, (), (), name=name, domain="opbuild")
        types = (TensorType(dtype, (size,)),)
        return HostCall(node, tuple(views[:1]), tuple(views[1:]), types, types, 0)

    def _on(self, buffer: int, device: str) -> int:
        return buffer if device == CPU else self._twin(buffer)

    def _twin(self, buffer: int) -> int:
        """Return the buffer on the device that stands for one of the CPU."""
        if buffer not in self.twins:
            own = self._program.buffers[buffer]
            self.twins[buffer] = len(self._buffers)
            kept = self._is_shared(own)
            self._buffers.append(
                replace(own, device=self._device) if kept
                else Buffer("temporary", own.dtype, own.size, own.zeroed, device=self._device)
            )  # fmt: skip
        return self.twins[buffer]

    @staticmethod
    def _is_shared(buffer: Buffer) -> bool:
        """Return whether a buffer is a constant that is uploaded once, not at each call: no table of a size."""
        return buffer.kind == "constant" and buffer.table is None and buffer.source is not None

    def _covers(self, view: View) -> bool:
        """Return whether a view is surely all of its buffer."""
        size: Any = self._program.buffers[view.buffer].size
        return bool(always_equal(prod(extent for extent, _ in view.dims), size))

    def _kernel(self, call: KernelCall) -> OpDesc | None:
        """Return the device's kernel for a call; None if it has none for the operation, or for its operands' layout."""
        layouts = {self._program.buffers[view.buffer].layout for view in call.views} - {""}
        if layouts and not layouts <= {*(self._class.layouts(call.desc.family) or ())}:
            return None
        if call.desc not in self._known:
            self._known[call.desc] = self._class.kernel(call.desc)
        return self._known[call.desc]


def _without_unused(program: Program) -> Program:
    """Return a program without the buffers that nothing touches."""
    ports = (*program.inputs, *program.outputs)
    used = {port.buffer for port in ports} | {v.buffer for call in program.calls for side in _sides(call) for v in side}
    number = {old: new for new, old in enumerate(sorted(used))}

    def moved(side: Sequence[View | None]) -> tuple[Any, ...]:
        return tuple(view and view._replace(buffer=number[view.buffer]) for view in side)

    def again(call: Call) -> Call:
        if isinstance(call, KernelCall):
            return replace(call, views=moved(call.views))
        return replace(call, inputs=moved(call.inputs), outputs=moved(call.outputs))

    return replace(
        program,
        buffers=tuple(program.buffers[old] for old in number),
        calls=tuple(map(again, program.calls)),
        inputs=tuple(port._replace(buffer=number[port.buffer]) for port in program.inputs),
        outputs=tuple(port._replace(buffer=number[port.buffer]) for port in program.outputs),
    )


def _sides(call: Call) -> tuple[list[View], list[View]]:
    """Return the views that a call reads and those that it writes."""
    sides: tuple[Iterable[View | None], ...] = (call.inputs, call.outputs)
    reads, writes = ([view for view in side if view is not None] for side in sides)
    return reads, writes


def _name(call: Call) -> str:
    """Return the name of a node that a call computes, for the names of its copies."""
    return next(iter(call.nodes), "a call")
