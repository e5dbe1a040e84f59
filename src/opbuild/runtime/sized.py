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
from opbuild.runtime.buffers import DIMENSION, HEADER, HEADER_WORDS, HOST_WORD, address_of, element_type
from opbuild.runtime.executor import Evaluate, Prepared, Runner, evaluate_step
from opbuild.runtime.library import Callee, Library, Step, kernel_steps
from opbuild.runtime.memory_plan import Lives
from opbuild.runtime.record import addresses
from opbuild.runtime.soundness import INT32_MAX
from opbuild.runtime.template import (
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


class Layout:
    """What all sizes of a template have in common, as arrays.

    Args:
        template: The template.
        constants: The bytes of its constants.
    """

    def __init__(self, template: Template, constants: Sequence[Array]) -> None:
        self.template = template
        self.constants = constants
        self.kernels = [step for step in template.steps if isinstance(step, OpenKernel)]
        views = [
            (view, template.decided[step.decided].desc, index)
            for step in self.kernels
            for index, view in enumerate(step.views)
        ]
        rooms = [max(len(view.dims) // 2, ANY_RANK if find(desc.family).any_rank else 0) for view, desc, _ in views]
        self.buffer = np.array([view.buffer for view, _, _ in views], np.int64)
        self.more = np.array([view.more for view, _, _ in views], np.int64)
        self.repetition = np.array([step.repetition for step in self.kernels for _ in step.views], np.int64)
        ends = list(accumulate(len(step.views) if isinstance(step, OpenKernel) else 0 for step in template.steps))
        self.views = [range(start, end) for start, end in pairwise([0, *ends])]
        self.offset = np.array([view.offset for view, _, _ in views], np.int64)
        self.rank = np.array([len(view.dims) // 2 for view, _, _ in views], np.int32)
        self.first = np.concatenate(([0], np.cumsum(rooms)))[:-1].astype(np.int64)
        filled = [self._filled(view, room) for (view, _, _), room in zip(views, rooms, strict=True)]
        places = np.array([place for each in filled for place in each], np.int64).reshape(-1, 2)
        self.extents, self.strides = places[:, 0], places[:, 1]
        self.written = np.array([index >= len(desc.inputs) for _, desc, index in views], np.bool_)
        self.decided = np.array([step.decided for step in self.kernels for _ in step.views], np.int64)
        self.headers = np.zeros(len(views), HEADER)
        types = [desc.operands[index].dtype for _, desc, index in views]
        kinds = [element_type("uint8" if dtype == "bool" else dtype) for dtype in types]
        self.headers["type_code"] = [code for code, _ in kinds]
        self.headers["type_bits"] = [bits for _, bits in kinds]
        self.headers["type_lanes"] = 1
        buffers = template.buffers
        self.itemsize = np.array([itemsize(each.dtype) for each in buffers], np.int64)
        self.sizes = np.array([each.size for each in buffers], np.int64)
        self.is_temporary = np.array([each.kind == "temporary" for each in buffers], np.bool_)
        places = addresses(constants)
        self.addresses = np.array([places[each.place] if each.kind == "constant" else 0 for each in buffers], np.int64)
        self.on_host = sorted(
            {view.buffer for step in template.steps if isinstance(step, OpenHost) for view in views_of_step(step)}
        )
        padded = {index for index, each in enumerate(buffers) if each.zeroed is not None}
        runs = [[template.steps[index] for index in run] for run in template.runs()]
        touched = [[view.buffer for step in run for view in views_of_step(step)] for run in runs for _ in run]
        self.lives = Lives(np.flatnonzero(self.is_temporary).tolist(), touched, padded)

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
        nbytes = self._sizes * layout.itemsize
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
        ranks = np.array([len(each.kernel.desc.outputs[0].dims) for each in chosen], np.int32)
        any_rank = np.array([find(each.kernel.desc.family).any_rank for each in chosen], np.bool_)
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
            return host_call(self.host_calls[self._steps[step]])
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

    def _check(self, extents: Array, strides: Array) -> None:
        """Refuse what ``record.problem`` refuses: kernels check nothing."""
        layout = self._layout
        if not len(layout.first):
            return
        if extents.min() < 1 or extents.max() > INT32_MAX or np.abs(strides).max() > INT32_MAX:
            raise ValueError("an extent or a stride is out of range")
        reach = (extents - 1) * strides
        times = np.array(self._counts, np.int64)[layout.repetition]
        if times.min() < 1:
            raise ValueError("something is repeated less than once")
        last = (times - 1) * self._numbers[layout.more]
        low = self._offsets + np.minimum(last, 0) + np.add.reduceat(np.minimum(reach, 0), layout.first)
        high = self._offsets + np.maximum(last, 0) + np.add.reduceat(np.maximum(reach, 0), layout.first)
        if low.min() < 0 or (high >= self._sizes[layout.buffer]).any():
            raise ValueError("a view leaves its buffer")
        elements = np.multiply.reduceat(np.where(strides != 0, extents, 1), layout.first) * times
        for step in layout.template.steps:
            if isinstance(step, OpenHost):
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


class _Sized:
    """Memory and ready-made arguments for one call at a time."""

    def __init__(self, owner: SizedExecutor, memory: Array) -> None:
        layout = owner._layout
        self._headers = owner._headers[owner._views]
        self._words = self._headers.view(np.uint64)
        bases = layout.addresses + np.where(layout.is_temporary, memory.ctypes.data + owner._places, 0)
        bases[list(owner._tables)] = [each.ctypes.data for each in owner._tables.values()]
        offsets = owner._starts
        self._headers["host"] = (bases[layout.buffer[owner._views]] + offsets).astype(np.uint64)
        template = layout.template
        self._arrays: list[Array | None] = [None] * len(template.buffers)
        for index in layout.on_host:
            self._arrays[index] = self._storage(index, owner, memory)
        self._ports = [
            (port.buffer, list(zip((views * HEADER_WORDS + HOST_WORD).tolist(), offsets[views].tolist(), strict=True)))
            for port, views in zip((*template.inputs, *template.outputs), owner._ports, strict=True)
        ]
        self.steps = self._steps(owner)

    def attach(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the arguments at the caller's arrays."""
        words = self._words
        for (buffer, hosts), array in zip(self._ports, (*inputs, *outputs), strict=True):
            address = address_of(array)
            for word, offset in hosts:
                words[word] = address + offset
            self._arrays[buffer] = array

    def detach(self) -> None:
        """Let go of the caller's arrays."""
        for buffer, _ in self._ports:
            self._arrays[buffer] = None

    def _storage(self, index: int, owner: SizedExecutor, memory: Array) -> Array | None:
        buffer = owner._layout.template.buffers[index]
        if buffer.kind == "temporary":
            place = int(owner._places[index])
            return memory[place : place + int(owner._nbytes[index])].view(buffer.dtype)
        if buffer.kind == TABLE:
            return owner._tables[index]
        return owner._layout.constants[buffer.place].view(buffer.dtype) if buffer.kind == "constant" else None

    def _steps(self, owner: SizedExecutor) -> list[Step]:
        machine, found = here(), [owner._layout.template.steps[index] for index in owner._steps]
        callees = [
            Callee(function, library, machine.tasks(work, library.num_threads))
            for (_, _, library, function), work in owner._chosen
        ]
        kernels = [step for step in found if isinstance(step, OpenKernel)]
        called = np.array([step.decided for step in kernels], np.int64)
        ends = np.cumsum([len(step.views) for step in kernels], dtype=np.int64)
        run = iter(kernel_steps(callees, called, ends, self._headers))
        return [
            (evaluate_step, (owner.host_calls[index], self._arrays, owner._evaluate))
            if isinstance(step, OpenHost)
            else next(run)
            for index, step in zip(owner._steps, found, strict=True)
        ]
