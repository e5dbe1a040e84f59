"""A template bound to a size: all arguments of all kernels are made at once, with numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.dtypes import itemsize
from opbuild.families.catalogue import find
from opbuild.families.family import ANY_RANK
from opbuild.graph.tables import TABLES
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.host import here
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.lazily import lazily
from opbuild.platform.records import NamedTuple
from opbuild.program import HostCall, Port, View
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.buffers import DIMENSION, HEADER, HEADER_WORDS, HOST_WORD, element_type
from opbuild.runtime.executor import Evaluate, Prepared, Runner, evaluate_step
from opbuild.runtime.given import Given
from opbuild.runtime.indices import check_symbol, work_of
from opbuild.runtime.library import Callee, Library, Step, kernel_steps
from opbuild.runtime.memory_plan import Lives
from opbuild.runtime.record import addresses
from opbuild.runtime.soundness import INT32_MAX
from opbuild.runtime.template import (
    NONE,
    TABLE,
    OpenHost,
    OpenKernel,
    OpenTable,
    OpenType,
    OpenView,
    Template,
    argument,
    views_of_step,
)

if TYPE_CHECKING:
    from opbuild.runtime.calls import Call


class Kernel(NamedTuple):
    """A kernel that is loaded.

    Attributes:
        desc: What it computes.
        symbol: Its name.
        library: What it is in.
        function: Runs it.
    """

    desc: OpDesc
    symbol: str
    library: Library
    function: Any


class Chosen(NamedTuple):
    """The kernel that computes a class of calls in a size.

    Attributes:
        kernel: The kernel.
        work: Nanoseconds that it takes on one core, roughly.
    """

    kernel: Kernel
    work: int


class _Operand(NamedTuple):
    """An argument of a call: its view and element type, and as ``Layout`` has it."""

    view: OpenView
    dtype: str
    any_rank: bool
    written: bool
    decided: int
    repetition: int


class Layout:
    """What all sizes of a template have in common, as arrays.

    Args:
        template: The template.
        constants: The bytes of its constants.
    """

    def __init__(self, template: Template, constants: Sequence[Array]) -> None:
        self.template = template
        self.constants = constants
        hosts = {index: step for index, step in enumerate(template.steps) if isinstance(step, OpenHost)}
        self.checks = {index: symbol for index, step in hosts.items() if (symbol := self._check(step))}
        self.evaluated = hosts.keys() - self.checks.keys()
        arguments = [self._arguments(index, step) for index, step in enumerate(template.steps)]
        operands = [each for own in arguments for each in own]
        rooms = [max(len(each.view.dims) // 2, ANY_RANK if each.any_rank else 0) for each in operands]
        self.buffer = np.array([each.view.buffer for each in operands], np.int64)
        self.more = np.array([each.view.more for each in operands], np.int64)
        self.repetition = np.array([each.repetition for each in operands], np.int64)
        self.views = [range(start, end) for start, end in pairwise([0, *accumulate(map(len, arguments))])]
        self.offset = np.array([each.view.offset for each in operands], np.int64)
        self.rank = np.array([len(each.view.dims) // 2 for each in operands], np.int32)
        self.first = np.concatenate(([0], np.cumsum(rooms)))[:-1].astype(np.int64)
        filled = [self._filled(each.view, room) for each, room in zip(operands, rooms, strict=True)]
        places = np.array([place for each in filled for place in each], np.int64).reshape(-1, 2)
        self.extents, self.strides = places[:, 0], places[:, 1]
        self.written = np.array([each.written for each in operands], np.bool_)
        self.decided = np.array([each.decided for each in operands], np.int64)
        self.headers = np.zeros(len(operands), HEADER)
        kinds = [element_type("uint8" if each.dtype == "bool" else each.dtype) for each in operands]
        self.headers["type_code"] = [code for code, _ in kinds]
        self.headers["type_bits"] = [bits for _, bits in kinds]
        self.headers["type_lanes"] = 1
        buffers = template.buffers
        self.itemsize = np.array([itemsize(each.dtype) for each in buffers], np.int64)
        self.sizes = np.array([each.size for each in buffers], np.int64)
        self.is_temporary = np.array([each.kind == "temporary" for each in buffers], np.bool_)
        places = addresses(constants)
        self.addresses = np.array([places[each.place] if each.kind == "constant" else 0 for each in buffers], np.int64)
        self.on_host = sorted({view.buffer for index in self.evaluated for view in views_of_step(hosts[index])})
        padded = {index for index, each in enumerate(buffers) if each.zeroed is not None}
        runs = [[template.steps[index] for index in run] for run in template.runs()]
        touched = [[view.buffer for step in run for view in views_of_step(step)] for run in runs for _ in run]
        self.lives = Lives(np.flatnonzero(self.is_temporary).tolist(), touched, padded)

    def _check(self, step: OpenHost) -> str:
        """Return the symbol of what refuses indices as a kernel would; without kernels there is no library with it."""
        return check_symbol(step.node, step.types[0][0]) if self.template.decided and step.types[0] else ""

    def _arguments(self, index: int, step: OpenKernel | OpenHost) -> list[_Operand]:
        """Return the operands of a step; none if the host backend evaluates it."""
        if isinstance(step, OpenKernel):
            desc = self.template.decided[step.decided].desc
            any_rank, inputs = find(desc.family).any_rank, len(desc.inputs)
            return [
                _Operand(view, operand.dtype, any_rank, number >= inputs, step.decided, step.repetition)
                for number, (view, operand) in enumerate(zip(step.views, desc.operands, strict=True))
            ]
        if index not in self.checks:
            return []
        pairs = zip(step.views[0], step.types[0], strict=True)
        return [_Operand(v, t.dtype, False, False, len(self.template.decided), NONE) for v, t in pairs if v and t]

    def _filled(self, view: OpenView, room: int) -> list[tuple[int, int]]:
        """Return a view's places with dimensions of one element behind them."""
        one, zero = self.template.one, self.template.zero
        own = list(zip(view.dims[::2], view.dims[1::2], strict=True))
        return own + [(one, zero)] * (room - len(own))


class SizedExecutor(Runner):
    """Runs a template in one size.

    Args:
        layout: The template's.
        numbers: All its numbers in this size.
        chosen: The kernel of each class of calls; each was checked to allow the extents.
        evaluate: The host backend.
        blocks: The memory that it runs in.

    Raises:
        ValueError: If a view would leave its buffer, or nothing would be in it.
    """

    def __init__(
        self, layout: Layout, numbers: Array, chosen: Sequence[Chosen], evaluate: Evaluate, blocks: Blocks[Prepared]
    ) -> None:
        self._layout, self._numbers, self._chosen, self._evaluate = layout, numbers, chosen, evaluate
        self._offsets, self._sizes = numbers[layout.offset], numbers[layout.sizes]
        extents, strides = numbers[layout.extents], numbers[layout.strides]
        self._counts = [*numbers[list(layout.template.repetitions)].tolist(), 1]  # the last is that of ``NONE``
        self._check(extents, strides)
        self._order_steps()
        self._tables = {
            index: self._table(layout.template.tables[each.place], each.dtype, self._sizes[index])
            for index, each in enumerate(layout.template.buffers)
            if each.kind == TABLE
        }
        nbytes = np.where(self._is_idle(), 0, self._sizes * layout.itemsize)
        buffers = layout.template.buffers
        geometries = {
            index: (each.zeroed[0], *numbers[list(each.zeroed[1])].tolist(), each.dtype)
            for index, each in enumerate(buffers)
            if each.zeroed is not None
        }
        plan = layout.lives.plan(nbytes.tolist(), geometries)
        self._places = np.zeros(len(buffers), np.int64)
        self._places[list(plan.offsets)] = list(plan.offsets.values())
        self._nbytes = nbytes
        self._dims = np.zeros(len(extents), DIMENSION)
        self._dims["extent"], self._dims["stride"] = extents, strides
        self._headers = layout.headers.copy()
        ranks = np.array([*(len(each.kernel.desc.outputs[0].dims) for each in chosen), 0], np.int32)
        any_rank = np.array([*(find(each.kernel.desc.family).any_rank for each in chosen), False], np.bool_)
        if len(chosen):
            of_view = layout.decided
            self._headers["dimensions"] = np.where(any_rank[of_view], ranks[of_view], layout.rank)
        self._headers["dim"] = self._dims.ctypes.data + layout.first * DIMENSION.itemsize
        template = layout.template
        inputs, outputs = (
            tuple(Port(port.name, self._type(port.type), port.buffer) for port in side)
            for side in (template.inputs, template.outputs)
        )
        super().__init__(inputs, outputs, plan.size, plan.zeroed, blocks)
        self._prepare_first()

    def prepare(self, memory: Array) -> Prepared:
        """Return what a call needs to run in some memory."""
        return _Sized(self, memory)

    def call_of(self, step: int) -> Call:
        """Describe the call of a step."""
        from opbuild.runtime.calls import host_call, kernel_call

        found = self._layout.template.steps[self._steps[step]]
        if isinstance(found, OpenHost):
            called = host_call(self.host_calls[self._steps[step]])
            check = self._layout.checks.get(self._steps[step], "")
            return called._replace(symbol=check, writes=0) if check else called
        desc, symbol, _, _ = self._chosen[found.decided].kernel
        time = self._times[step]
        views = [self._view(view, time) for view in found.views]
        sizes = [itemsize(operand.dtype) for operand in desc.operands]
        made_as = (desc.family, desc.variant)
        return kernel_call(symbol, found.nodes, made_as, views, sizes, len(desc.outputs))

    @property
    def step_count(self) -> int:
        """How many calls a run makes."""
        return len(self._steps)

    @property
    def temporaries(self) -> Mapping[int, int]:
        """Bytes of the buffers that lie in the memory for temporaries."""
        return {int(index): int(self._nbytes[index]) for index in np.flatnonzero(self._layout.is_temporary)}

    def callees(self) -> tuple[list[Callee], dict[int, int]]:
        """Return all that is called, and where what refuses indices is among it, by step."""
        machine = here()
        found = [
            Callee(function, library, machine.tasks(work, library.num_threads))
            for (_, _, library, function), work in self._chosen
        ]
        places = {}
        for index, symbol in self._layout.checks.items():
            library, views = self._chosen[0].kernel.library, self._layout.views[index]
            work = work_of(int(self._dims["extent"][self._layout.first[views[0]]]))
            places[index] = len(found)
            found.append(Callee(library.kernel(symbol), library, machine.tasks(work, library.num_threads)))
        return found, places

    @lazily
    def host_calls(self) -> dict[int, HostCall]:
        """The calls of the host backend, by step."""
        steps = self._layout.template.steps
        return {index: self._host(step) for index, step in enumerate(steps) if isinstance(step, OpenHost)}

    def _type(self, type_: OpenType) -> TensorType:
        return TensorType(type_.dtype, tuple(self._numbers[list(type_.shape)].tolist()))

    def _host(self, step: OpenHost) -> HostCall:
        views = [tuple(None if view is None else self._view(view) for view in side) for side in step.views]
        types = [tuple(None if each is None else self._type(each) for each in side) for side in step.types]
        return HostCall(step.node, views[0], views[1], types[0], types[1], step.opset)

    def _view(self, view: OpenView, time: int = 0) -> View:
        numbers = self._numbers[list(view.dims)].tolist()
        offset = int(self._numbers[view.offset] + time * self._numbers[view.more])
        return View(view.buffer, offset, tuple(zip(numbers[::2], numbers[1::2], strict=True)))

    def _order_steps(self) -> None:
        """Work out the steps that are run and their views, each as often as it is repeated, and which time it is."""
        order = self._layout.template.order(self._numbers.tolist())
        self._steps, self._times = [index for index, _ in order], [time for _, time in order]
        views = [(view, time) for index, time in order for view in self._layout.views[index]]
        self._views, times = np.array(views, np.int64).reshape(-1, 2).T
        own_offsets = self._offsets[self._views] + self._numbers[self._layout.more[self._views]] * times
        buffers = self._layout.buffer[self._views]
        self._starts = own_offsets.astype(np.int64) * self._layout.itemsize[buffers]
        template = self._layout.template
        self._ports = [np.flatnonzero(buffers == port.buffer) for port in (*template.inputs, *template.outputs)]

    def _table(self, open_: OpenTable, dtype: str, size: int) -> Array:
        numbers = self._numbers.tolist()
        made = TABLES[open_.name](*(argument(each, numbers) for each in open_.arguments))
        if made.dtype != dtype or made.size != size:
            raise ValueError(f"the table of {open_.name} is not what its buffer is for")
        return np.ascontiguousarray(made)

    def _is_idle(self) -> Array:
        """Return which temporary buffers only calls touch that are run at other sizes."""
        layout, count = self._layout, len(self._layout.template.buffers)
        is_run = np.array(self._counts, np.int64)[layout.repetition] > 0
        idle, run = (np.bincount(layout.buffer[each], minlength=count) for each in (~is_run, is_run))
        return np.asarray(layout.is_temporary & (idle > 0) & (run == 0))

    def _check(self, extents: Array, strides: Array) -> None:
        """Refuse what ``record.problem`` refuses: kernels check nothing."""
        layout = self._layout
        if not len(layout.first):
            return
        times = np.array(self._counts, np.int64)[layout.repetition]
        if times.min() < 0:
            raise ValueError("something is repeated less than never")
        is_run = times > 0
        offsets = np.where(is_run, self._offsets, 0)
        of_dims = np.repeat(is_run, np.diff(np.append(layout.first, len(extents))))
        extents, strides = np.where(of_dims, extents, 1), np.where(of_dims, strides, 0)
        if extents.min() < 1 or extents.max() > INT32_MAX or np.abs(strides).max() > INT32_MAX:
            raise ValueError("an extent or a stride is out of range")
        reach = (extents - 1) * strides
        last = np.maximum(times - 1, 0) * self._numbers[layout.more]
        low = offsets + np.minimum(last, 0) + np.add.reduceat(np.minimum(reach, 0), layout.first)
        high = offsets + np.maximum(last, 0) + np.add.reduceat(np.maximum(reach, 0), layout.first)
        if low.min() < 0 or (high >= self._sizes[layout.buffer]).any():
            raise ValueError("a view leaves its buffer")
        elements = np.multiply.reduceat(np.where(strides != 0, extents, 1), layout.first) * times
        for index, step in enumerate(layout.template.steps):
            if isinstance(step, OpenHost) and index in layout.evaluated:
                self._check_host(step)
        written = np.bincount(layout.buffer[layout.written], elements[layout.written], len(layout.template.buffers))
        for port in layout.template.outputs:
            if port.buffer not in layout.on_host and written[port.buffer] < self._sizes[port.buffer]:
                raise ValueError(f"not all of {port.name} is written")

    def _check_host(self, step: OpenHost) -> None:
        for views, types in zip(step.views, step.types, strict=True):
            for view, type_ in zip(views, types, strict=True):
                if view is None or type_ is None:
                    continue
                count, start = self._type(type_).size, int(self._numbers[view.offset])
                own = int(np.prod(self._numbers[list(view.dims[::2])]))
                if own != count or not 0 <= start <= int(self._sizes[view.buffer]) - count:
                    raise ValueError(f"{step.node.name}: a view does not fit the type of its value")


class _Sized(Given):
    """Memory and ready-made arguments for one call at a time."""

    def __init__(self, owner: SizedExecutor, memory: Array) -> None:
        layout = owner._layout
        self._layout, self._order = layout, owner._steps
        self._headers = owner._headers[owner._views]
        bases = layout.addresses + np.where(layout.is_temporary, memory.ctypes.data + owner._places, 0)
        bases[list(owner._tables)] = [each.ctypes.data for each in owner._tables.values()]
        offsets = owner._starts
        self._headers["host"] = (bases[layout.buffer[owner._views]] + offsets).astype(np.uint64)
        template = layout.template
        uses = [
            (port.buffer, list(zip((views * HEADER_WORDS + HOST_WORD).tolist(), offsets[views].tolist(), strict=True)))
            for port, views in zip((*template.inputs, *template.outputs), owner._ports, strict=True)
        ]
        super().__init__(self._headers, uses, [None] * len(template.buffers), layout.on_host)
        for index in layout.on_host:
            self._arrays[index] = self._storage(index, owner, memory)
        self.steps = self._steps(owner)

    def arguments(self, step: int) -> Array:
        """Return the headers of a kernel's arguments."""
        views = [len(self._layout.views[each]) for each in self._order]
        start = sum(views[:step])
        return self._headers[start : start + views[step]]

    def _storage(self, index: int, owner: SizedExecutor, memory: Array) -> Array | None:
        buffer = owner._layout.template.buffers[index]
        if buffer.kind == "temporary":
            place = int(owner._places[index])
            return memory[place : place + int(owner._nbytes[index])].view(buffer.dtype)
        if buffer.kind == TABLE:
            return owner._tables[index]
        return owner._layout.constants[buffer.place].view(buffer.dtype) if buffer.kind == "constant" else None

    def _steps(self, owner: SizedExecutor) -> list[Step]:
        layout = owner._layout
        callees, places = owner.callees()
        taken = [index for index in owner._steps if index not in layout.evaluated]
        steps = ((index, layout.template.steps[index]) for index in taken)
        called = [step.decided if isinstance(step, OpenKernel) else places[index] for index, step in steps]
        ends = np.cumsum([len(layout.views[index]) for index in taken], dtype=np.int64)
        run = iter(kernel_steps(callees, np.array(called, np.int64), ends, self._headers))
        return [
            (evaluate_step, (owner.host_calls[index], self._arrays, owner._evaluate))
            if index in layout.evaluated
            else next(run)
            for index in owner._steps
        ]
