"""Placement: which calls of a program are run on another device than the CPU, and the copies that this takes.

Of what the device has kernels for, where operands lie as it takes them, that is run there which makes the sum of all
calls' and copies' times the least: a minimum cut (Stone 1977) between what stays and what goes. Where a class states no
costs, all goes. Times are those of the example size, of calls one after the other, on one core.

A buffer that both read or write becomes two, of which at any time one or both have the contents; a copy stands before
the first call that reads where they are not. What is written in parts keeps its other parts: it is copied before, too.
Constants are uploaded once, in the layout that the device's kernel takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from math import inf, prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opbuild.dtypes import itemsize, numpy_dtype
from opbuild.families.catalogue import find
from opbuild.graph.extents import always_equal, example_value
from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering.minimum_cut import SINK, SOURCE, FlowNetwork
from opbuild.lowering.operands import dense_strides
from opbuild.lowering.sixteen_bits import (
    buffers_in,
    constant_in,
    described,
    narrow_contents,
    stored_types,
    without_conversions,
)
from opbuild.platform.records import NamedTuple, replace
from opbuild.program import DEVICE_COPY, Buffer, Call, HostCall, KernelCall, Program, Unpacked, View
from opbuild.target.devices import ConstantLayout, DeviceCost, device_class
from opbuild.target.level import CPU

DEAR = "copies would take longer"
REPEATED = "it is run for each image, or at some sizes alone"
"""Reasons to stay on the CPU."""


def place_lowered(lower: Callable[[frozenset[str]], Program], device: str, *, ends_there: bool = False) -> Program:
    """Return a network placed on the CPU and a device.

    Args:
        lower: Lowers it, given the nodes that are not for the device's kernels alone.
        device: The class of devices.
        ends_there: Whether the caller's arrays lie on the device.
    """
    on_cpu = frozenset[str]()
    while True:
        program = lower(on_cpu)
        placed = place(program, device, ends_there=ends_there)
        stayed = (call.nodes for call in placed.calls if isinstance(call, KernelCall) and call.desc.device == CPU)
        left = program.for_device.intersection(chain.from_iterable(stayed)) - on_cpu
        if not left:
            return placed
        on_cpu |= left


def place(program: Program, device: str, *, ends_there: bool = False) -> Program:
    """Return a program whose calls are run on a device where that has kernels for them and is worth it.

    Args:
        program: It is all on the CPU.
        device: The class of devices.
        ends_there: Whether the caller's arrays lie on the device.
    """
    refused = set[KernelCall]()
    while True:
        placing = _Placing(program, device, refused, SINK if ends_there else SOURCE)
        placed = placing.placed()
        if not placing.lacking:
            return placed
        refused |= placing.lacking


_Constant = tuple[Unpacked, ConstantLayout | None]


class _Served(NamedTuple):
    """A call that the device has a kernel for.

    Attributes:
        call: The call, as the CPU runs it.
        desc: What it computes, of constants as the device has them.
        constants: For each operand that is uploaded once what it is made of, and the layout that it is brought into.
    """

    call: KernelCall
    desc: OpDesc
    constants: Mapping[int, _Constant] = {}


class _Step(NamedTuple):
    """Calls that are run on one device.

    Attributes:
        calls: The calls: one, or all of a repetition.
        served: The call, if the device may run it.
        why: The reason that it stays on the CPU, if it does.
        needed: The buffers whose contents are to be where it runs.
        written: Those that are only there afterwards.
    """

    calls: Sequence[Call]
    served: _Served | None
    why: str
    needed: Sequence[int]
    written: Sequence[int]


class _Placing:
    """Goes through a program and notes where the contents of each buffer are.

    Attributes:
        twins: For each buffer the one with the same contents on the device, once there is one.
        there: For each buffer the devices that have its contents; none before anything was written.
        lacking: Calls of the program that the device would have a kernel for if other calls were run there, too.
    """

    def __init__(self, program: Program, device: str, refused: Collection[KernelCall] = (), ends: int = SOURCE) -> None:
        self._program, self._device, self._class = program, device, device_class(device)
        self._refused, self._narrow, self._ends = refused, narrow_contents(program), ends
        self._served: dict[int, _Served] = {}  # by the places of their calls
        self.lacking: set[KernelCall] = set()
        self._buffers = list(program.buffers)
        self._calls: list[Call] = []
        self._known: dict[Hashable, OpDesc | None] = {}
        self._constants: dict[Hashable, int] = {}
        self.twins: dict[int, int] = {}
        self.there = [{CPU} if buffer.kind in ("input", "constant") else set[str]() for buffer in program.buffers]

    def placed(self) -> Program:
        """Return the program."""
        steps, stayed = [*self._steps()], Counter[str]()
        for step, goes in zip(steps, self._device_steps(steps), strict=True):
            self._add(step, self._device if goes else CPU)
            kernels = (call for call in step.calls if isinstance(call, KernelCall) and not goes)
            stayed.update(f"{call.desc.family}: {step.why}" for call in kernels)
        for port in self._program.outputs:
            self._copy_to(port.buffer, CPU, port.name)
        self._take_kernels()
        program = replace(self._program, buffers=tuple(self._buffers), calls=tuple(self._calls), stayed=stayed)
        return _without_unused(program)

    def _take_kernels(self) -> None:
        """Give each call of the device its kernel and constants, and store in 16 bits what may be."""
        copies = (_sides(call) for call in self._calls if isinstance(call, HostCall))
        copied = {view.buffer for reads, writes in copies for view in (*reads, *writes)}
        shared = {index: type_ for index, type_ in self._narrow.items() if self._is_shared(index)}
        narrow = {self.twins[index]: type_ for index, type_ in self._narrow.items() if index in self.twins} | shared
        mine = {place: call for place, call in enumerate(self._calls) if isinstance(call, KernelCall)}
        mine = {place: call for place, call in mine.items() if place in self._served}
        free = {index: type_ for index, type_ in narrow.items() if index not in copied}
        stored, lacking = stored_types(mine, free, self._kernel)
        self.lacking = {self._served[place].call for place in lacking}
        for place, call in mine.items():
            desc = described(call, stored)
            kernel = None if desc is None else self._kernel(desc)
            if kernel is not None:
                self._calls[place] = self._with_kernel(call, kernel, self._served[place].constants, stored)
        own = {index: type_ for index, type_ in stored.items() if index not in shared}
        self._calls = without_conversions(self._calls, buffers := buffers_in(self._buffers, own))
        self._buffers = buffers

    def _kernel(self, desc: OpDesc) -> OpDesc | None:
        """Return the device's kernel; what is for it already is its own."""
        if desc not in self._known:
            self._known[desc] = self._class.kernel(desc) if desc.device == CPU else desc
        return self._known[desc]

    def _steps(self) -> Iterator[_Step]:
        for repeated, part in groupby(self._program.calls, lambda call: getattr(call, "repeated", None)):
            if repeated is None:
                for call in part:
                    reads, writes = _sides(call)
                    kept = [view for view in writes if _updates(call) or not self._covers(view)]
                    found = self._device_kernel(call) if isinstance(call, KernelCall) else ""
                    served, why = (None, found) if isinstance(found, str) else (found, DEAR)
                    yield _Step((call,), served, why, _buffers_of((*reads, *kept)), _buffers_of(writes))
            else:  # run in turn, or not at all: on the CPU, with all that they touch brought there before
                calls = [*part]
                reads, writes = ([view for call in calls for view in _sides(call)[side]] for side in (0, 1))
                yield _Step(calls, None, REPEATED, _buffers_of((*reads, *writes)), _buffers_of(writes))

    # -- what goes ----------------------------------------------------------------------------------------------------

    def _device_steps(self, steps: Sequence[_Step]) -> list[bool]:
        """Return for each step whether it is run on the device."""
        network, copy = FlowNetwork(), self._class.copy_cost()
        nodes = [self._add_step(network, step) for step in steps]
        for buffer, writer, readers in self._contents(steps, nodes):
            own = self._buffers[buffer]
            nbytes = example_value(own.size) * itemsize(own.dtype)
            _add_copies(network, writer, readers, round(copy.call + copy.byte * nbytes))
        staying = network.cut()
        return [node not in staying for node in nodes]

    def _add_step(self, network: FlowNetwork, step: _Step) -> int:
        """Return the node of a step, with its cost on either side."""
        if step.served is None:
            return SOURCE
        call = step.served.call
        if call.desc.device != CPU:
            return SINK
        node = network.node()
        network.edge(SOURCE, node, round(_time(call, self._class.kernel_cost(call.desc.family))))
        network.edge(node, SINK, call.work)
        return node

    def _contents(self, steps: Sequence[_Step], nodes: Sequence[int]) -> Iterator[tuple[int, int, set[int]]]:
        """Yield each contents that a buffer has for a time: the buffer, who writes them, and all who need them."""
        last: dict[int, tuple[int, set[int]]] = {
            index: (self._ends if self._program.buffers[index].kind == "input" else SOURCE, set())
            for index, there in enumerate(self.there)
            if there and not self._is_shared(index)
        }
        for step, node in zip(steps, nodes, strict=True):
            for buffer in step.needed:
                if buffer in last:
                    last[buffer][1].add(node)
            for buffer in step.written:
                if buffer in last:
                    yield buffer, *last[buffer]
                last[buffer] = node, set()
        for port in self._program.outputs:
            if port.buffer in last:
                last[port.buffer][1].add(self._ends)
        for buffer, (writer, readers) in last.items():
            yield buffer, writer, readers

    # -- placing ------------------------------------------------------------------------------------------------------

    def _add(self, step: _Step, device: str) -> None:
        name = next(iter(step.calls[0].nodes), "a call")  # for the names of copies
        for buffer in step.needed:
            self._copy_to(buffer, device, name)
        if device != CPU and step.served is not None:
            self._served[len(self._calls)] = step.served
            self._calls.append(self._device_call(step.served))
        else:
            self._calls += step.calls
        for buffer in step.written:
            self.there[buffer] = {device}

    def _copy_to(self, buffer: int, device: str, name: str) -> None:
        """Copy the contents of a buffer to a device, if there are any and they are elsewhere."""
        there = self.there[buffer]
        if not there or device in there or self._is_shared(buffer):
            return
        source, target = (self._buffer_on(buffer, each) for each in (next(iter(there)), device))
        self._calls.append(self._copy(source, target, name))
        there.add(device)

    def _copy(self, source: int, target: int, name: str) -> HostCall:
        dtype, size = self._buffers[source].dtype, self._buffers[source].size
        views = [View(each, 0, ((size, 1),)) for each in (source, target)]
        node = Node(DEVICE_COPY, (), (), name=name, domain="opbuild")
        types = (TensorType(dtype, (size,)),)
        return HostCall(node, tuple(views[:1]), tuple(views[1:]), types, types, 0)

    def _buffer_on(self, buffer: int, device: str) -> int:
        return buffer if device == CPU else self._twin(buffer)

    def _twin(self, buffer: int) -> int:
        """Return the buffer on the device that stands for one of the CPU."""
        if buffer not in self.twins:
            own = self._program.buffers[buffer]
            self.twins[buffer] = len(self._buffers)
            self._buffers.append(Buffer("temporary", own.dtype, own.size, own.zeroed, device=self._device))
        return self.twins[buffer]

    def _is_shared(self, buffer: int) -> bool:
        """Return whether a buffer is a constant that is uploaded once, not at each call: no table of a size."""
        own = self._program.buffers[buffer]
        return own.kind == "constant" and own.table is None and own.source is not None

    def _covers(self, view: View) -> bool:
        """Return whether a view is surely all of its buffer."""
        size: Any = self._program.buffers[view.buffer].size
        return bool(always_equal(prod(extent for extent, _ in view.dims), size))

    # -- kernels, and constants as they take them ---------------------------------------------------------------------

    def _device_kernel(self, call: KernelCall) -> _Served | str:
        """Return a call that the device has a kernel for; why not, if it has none for it or for how operands lie."""
        if call in self._refused:
            return f"{self._device} has a kernel for it in 16 bits alone"
        desc, constants = call.desc, dict[int, _Constant]()
        layouts = {self._program.buffers[view.buffer].layout for view in call.views} - {""}
        taken = self._class.layouts(desc.family)
        lacking = f"{self._device} has no kernels of the family" if taken is None else ""
        if layouts and not layouts <= {*(taken or ())}:
            return lacking or f"{self._device} has no kernels for operands in {', '.join(sorted(layouts))} layout"
        for number, view in enumerate(call.inputs):
            if self._is_shared(view.buffer):
                given = self._device_constant(call, number)
                if given.view is not view:
                    desc = _with_layout(desc, number, given.buffer.dtype, _shape(given.view), "ND", given.attrs)
                layout = self._class.constant(desc, number) if desc.device == CPU else None
                if layout is not None:
                    desc = _with_layout(desc, number, given.buffer.dtype, layout.shape(_shape(given.view)), layout.name)
                constants[number] = given, layout
        narrow = described(replace(call, desc=desc), self._narrow) if desc.device == CPU else None
        is_served = self._kernel(desc) or (narrow is not None and self._kernel(narrow))
        if is_served:
            return _Served(call, desc, constants)
        return lacking or f"{self._device} has no kernel for it"

    def _device_constant(self, call: KernelCall, number: int) -> Unpacked:
        """Return a constant as the device is to have it: packed only for kernels that take it so."""
        view, is_plain = call.views[number], call.desc.inputs[number].format == "ND"
        own = self._program.buffers[view.buffer]
        unpacked = None if is_plain or call.desc.device != CPU else own.unpacked
        return unpacked or Unpacked(own, view, {})

    def _device_call(self, served: _Served) -> KernelCall:
        """Return a call on the device, which has no kernel and no constants yet."""
        views = list(served.call.views)
        for number, view in enumerate(views):
            if number not in served.constants:
                views[number] = view._replace(buffer=self._twin(view.buffer))
        return replace(served.call, desc=served.desc, views=tuple(views))

    def _with_kernel(
        self, call: KernelCall, kernel: OpDesc, constants: Mapping[int, _Constant], stored: Mapping[int, str]
    ) -> KernelCall:
        views = list(call.views)
        for number, given in constants.items():
            index, dtype = views[number].buffer, kernel.operands[number].dtype
            views[number] = self._constant(index, *given, dtype, stored.get(index, ""))
        return replace(call, desc=kernel, views=tuple(views))

    def _constant(self, index: int, given: Unpacked, layout: ConstantLayout | None, dtype: str, narrow: str) -> View:
        """Return a constant as a kernel of the device takes it, in 16 bits if one is named; uploaded once."""
        buffer, window = given.buffer, given.view
        known = index, buffer is self._program.buffers[index], layout and (layout.name, dtype, window[1:]), narrow
        if layout is not None:
            buffer, window = _laid_out(buffer, window, layout, dtype)
        elif narrow:
            buffer = constant_in(buffer, narrow)
        if known not in self._constants:
            self._constants[known] = len(self._buffers)
            self._buffers.append(replace(buffer, device=self._device, unpacked=None))
        return window._replace(buffer=self._constants[known])


def _add_copies(network: FlowNetwork, writer: int, readers: set[int], time: int) -> None:
    """Add the copy of what one wrote to the others, and from it: each is made at most once."""
    others = readers - {writer}
    if len(others) < 2:
        for reader in others:
            network.edge(writer, reader, time)
            network.edge(reader, writer, time)
        return
    to, back = network.node(), network.node()
    network.edge(writer, to, time)
    network.edge(back, writer, time)
    for reader in others:
        network.edge(to, reader, inf)
        network.edge(reader, back, inf)


def _time(call: KernelCall, cost: DeviceCost) -> float:
    """Return the nanoseconds that a call takes on the device."""
    dims = [[(example_value(extent), example_value(step)) for extent, step in view.dims] for view in call.views]
    time = cost.call
    if cost.byte:
        sizes = zip(call.desc.operands, dims, strict=True)
        time += cost.byte * sum(prod(n for n, step in own if step) * itemsize(each.dtype) for each, own in sizes)
    count = find(call.desc.family).products if cost.product else None
    return time if count is None else time + cost.product * count(dims, dims[len(call.desc.inputs)])


def _with_layout(
    desc: OpDesc, number: int, dtype: str, shape: Sequence[int], layout: str, attrs: Mapping[str, Any] | None = None
) -> OpDesc:
    """Return the descriptor of the same on an operand in another layout."""
    inputs = [*desc.inputs]
    inputs[number] = Operand(inputs[number].name, dtype, (Dim(),) * len(shape), layout)
    return replace(desc, inputs=tuple(inputs), attrs={**desc.attrs, **(attrs or {})})


def _shape(view: View) -> tuple[int, ...]:
    """Return the row-major shape of a view."""
    return tuple(extent for extent, _ in reversed(view.dims))


def _laid_out(buffer: Buffer, window: View, layout: ConstantLayout, dtype: str) -> tuple[Buffer, View]:
    """Return a constant in a layout of a device, and the view of all of it."""
    extents, steps = _shape(window), [step for _, step in reversed(window.dims)]
    shape, read, named = layout.shape(extents), buffer.pack, buffer.source
    assert read is not None  # noqa: S101 - as ``_is_shared`` says
    assert named is not None  # noqa: S101

    def pack() -> Array:
        contents = read().reshape(-1)[window.offset :]
        given = as_strided(contents, extents, [step * contents.itemsize for step in steps], writeable=False)
        return np.ascontiguousarray(layout.pack(given), numpy_dtype(dtype))

    dims = tuple(zip(reversed(shape), reversed(dense_strides(shape)), strict=True))
    known = (*window[1:], layout.name, dtype)
    return Buffer("constant", dtype, prod(shape), pack=pack, source=lambda: (named(), *known)), View(0, 0, dims)


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


def _updates(call: Call) -> bool:
    """Return whether a call changes a part of what lies where it writes."""
    return isinstance(call, KernelCall) and find(call.desc.family).updates


def _sides(call: Call) -> tuple[list[View], list[View]]:
    """Return the views that a call reads and those that it writes."""
    sides: tuple[Iterable[View | None], ...] = (call.inputs, call.outputs)
    reads, writes = ([view for view in side if view is not None] for side in sides)
    return reads, writes


def _buffers_of(views: Iterable[View]) -> list[int]:
    """Return the buffers of views, each once."""
    return [*dict.fromkeys(view.buffer for view in views)]
