"""Making templates: a model lowered with open extents, at the size at hand, and what is kept of that."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any

from opbuild.families.catalogue import find
from opbuild.graph.extents import Extent, Extents, at_hand
from opbuild.graph.formulas import Numbers
from opbuild.graph.repetition import parts
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.level import Level
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.recording import Question, Recording
from opbuild.pipeline.loaded import with_rank
from opbuild.program import Buffer, Call, HostCall, KernelCall, Port, Program, Repeated, View
from opbuild.runtime.binding import Shapes
from opbuild.runtime.template import (
    NONE,
    Decided,
    OpenBuffer,
    OpenHost,
    OpenKernel,
    OpenPort,
    OpenQuestion,
    OpenTable,
    OpenType,
    OpenView,
    Template,
)
from opbuild.runtime.weights import Constants


def open_shapes(declared: Sequence[Sequence[int]], shapes: Shapes) -> tuple[Extents, Shapes, list[tuple[int, int]]]:
    """Return shapes whose open extents are open, and where these stand: input and dimension.

    Each is one of its own: that some are equal, as batches and lengths are, is a condition where it has to be so.

    Args:
        declared: The shapes of the inputs, ``FREE`` where they are open.
        shapes: The size at hand.
    """
    extents = Extents()
    places: list[tuple[int, int]] = []
    opened = []
    for index, (free, shape) in enumerate(zip(declared, shapes, strict=True)):
        row: list[Any] = list(shape)
        for axis, (declared_extent, extent) in enumerate(zip(free, shape, strict=True)):
            if declared_extent != FREE:
                continue
            row[axis] = extents.input(extent)
            places.append((index, axis))
        opened.append(tuple(row))
    return extents, tuple(opened), places


class OpenProgram:
    """A model lowered with open extents.

    Args:
        graph: Returns the optimized graph for shapes that may be open.
        declared: The shapes of the inputs, ``FREE`` where they are open; behind them other numbers that decide.
        shapes: The size at hand.
        level: The level that it is for.
        options: How it is lowered.

    Attributes:
        program: The program; its numbers may be open.
    """

    def __init__(
        self,
        graph: Callable[[Shapes], Graph],
        declared: Sequence[Sequence[int]],
        shapes: Shapes,
        level: Level,
        options: Options,
    ) -> None:
        self._extents, self._opened, self._variables = open_shapes(declared, shapes)
        self._recording = Recording()
        self.program = lower(
            graph(self._opened), level, Options(options.impl_mode, options.impl_types, self._recording)
        )

    def template(self, constants: Constants) -> Template:
        """Return the template; nothing is decided by an open extent after that.

        Args:
            constants: Of the program, packed.
        """
        values = self._opened[len(self.program.inputs) :]
        return _Making(self.program, self._extents, self._recording, self._variables, values).template(constants)

    def kernels(self, alike: Callable[[OpDesc], Sequence[OpDesc]]) -> dict[OpDesc, tuple[str, ...]]:
        """Return kernels that compute it at any size, with the nodes that need them.

        Args:
            alike: Returns kernels that compute what another one does, the best first: that one itself if it is there
                or wanted. The first that may run at all sizes serves; if none may, the one without limits.
        """
        found: defaultdict[OpDesc, dict[str, None]] = defaultdict(dict)
        for call in self.program.calls:
            if isinstance(call, KernelCall):
                served = (each for each in alike(call.desc) if self._runs_always(each, call))
                chosen = next(served, None) or find(call.desc.family).without_limits(call.desc)
                found[chosen].update(dict.fromkeys(call.nodes))
        return {desc: tuple(nodes) for desc, nodes in found.items()}

    def _runs_always(self, desc: OpDesc, call: KernelCall) -> bool:
        dims = with_rank(desc, [view.dims for view in call.views])
        return bool(self._extents.always(lambda: desc.problem(dims) is None))

    def at_hand(self) -> Program:
        """Return the program of the size at hand."""
        return _fixed(self.program)


class _Making:
    """Replaces the numbers of a program by their places."""

    def __init__(
        self,
        program: Program,
        extents: Extents,
        recording: Recording,
        variables: Sequence[tuple[int, int]],
        values: Shapes,
    ) -> None:
        self._program, self._recording, self._variables, self._values = program, recording, variables, values
        self._numbers = Numbers(extents)
        self._decided: dict[tuple[Any, ...], int] = {}
        self._classes: list[Decided] = []
        self._questions: dict[OpenQuestion, int] = {}
        self._repeated: dict[Repeated, int] = {}
        self._tables: list[OpenTable] = []

    def template(self, constants: Constants) -> Template:
        """Return the template of the program."""
        program, place = self._program, self._numbers.place
        for question in self._recording.questions:
            self._question(question)
        ports = {port.buffer: index for index, port in enumerate(program.inputs)}
        ports |= {port.buffer: index for index, port in enumerate(program.outputs)}
        places = {**ports, **constants.positions}
        buffers = tuple(self._buffer(each, places.get(index, 0)) for index, each in enumerate(program.buffers))
        steps = tuple(map(self._step, program.calls))
        inputs, outputs = (
            tuple(OpenPort(port.name, self._type(port.type), port.buffer) for port in side)
            for side in (program.inputs, program.outputs)
        )
        one, zero = place(1), place(0)
        return Template(
            name=program.name,
            inputs=inputs,
            outputs=outputs,
            values=tuple(tuple(map(place, each)) for each in self._values),
            variables=tuple(self._variables),
            one=one,
            zero=zero,
            buffers=buffers,
            steps=steps,
            decided=tuple(self._classes),
            questions=tuple(self._questions),
            repetitions=tuple(self._repeated.values()),
            tables=tuple(self._tables),
            constants=constants.places,
            notes={str(node): str(note) for node, note in program.notes.items()},
            formulas=self._numbers.formulas(),
        )

    def _geometry(self, zeroed: Any) -> tuple[str, tuple[int, ...]] | None:
        if zeroed is None:
            return None
        name, _, shape, halo = zeroed
        return name, tuple(map(self._numbers.place, (*shape, *halo)))

    def _question(self, question: Question) -> int:
        family = question.choose.__module__.split(".")[2]
        if find(family).choose is not question.choose:
            raise ValueError(f"{question.choose} is no family's")
        arguments = tuple(map(self._argument, question.arguments))
        found = OpenQuestion(family, arguments, question.answer is not None)
        return self._questions.setdefault(found, len(self._questions))

    def _argument(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return "tuple", tuple(map(self._argument, value))
        return ("place", self._numbers.place(value)) if isinstance(value, Extent) else ("value", value)

    def _step(self, call: KernelCall | HostCall) -> OpenKernel | OpenHost:
        if isinstance(call, KernelCall):
            views = tuple(map(self._view, call.views))
            return OpenKernel(self._class(call, views), views, call.nodes, self._repetition(call.repeated))
        sides = (call.inputs, call.outputs), (call.input_types, call.output_types)
        inputs, outputs = (tuple(None if view is None else self._view(view) for view in side) for side in sides[0])
        taken, given = (tuple(None if each is None else self._type(each) for each in side) for side in sides[1])
        return OpenHost(call.node, (inputs, outputs), (taken, given), call.opset)

    def _repetition(self, repeated: Repeated | None) -> int:
        if repeated is None:
            return NONE
        self._repeated.setdefault(repeated, self._numbers.place(repeated.count))
        return list(self._repeated).index(repeated)

    def _buffer(self, buffer: Buffer, place: int) -> OpenBuffer:
        size, geometry = self._numbers.place(buffer.size), self._geometry(buffer.zeroed)
        if buffer.table is None:
            return OpenBuffer(buffer.kind, buffer.dtype, size, place, geometry)
        self._tables.append(OpenTable(buffer.table.name, tuple(map(self._argument, buffer.table.arguments))))
        return OpenBuffer("table", buffer.dtype, size, len(self._tables) - 1, geometry)

    def _class(self, call: KernelCall, views: Sequence[OpenView]) -> int:
        question = self._recording.question_of(call.desc)
        asked = NONE if question is None else self._question(question)
        found = Decided(call.desc, asked, tuple(view.dims for view in views))
        known = self._decided.setdefault(found, len(self._classes))
        if known == len(self._classes):
            self._classes.append(found)
        return known

    def _view(self, view: View) -> OpenView:
        place = self._numbers.place
        first, more = parts(view.offset)
        dims = tuple(place(each) for dim in view.dims for each in dim)
        return OpenView(view.buffer, place(first), dims, place(more))

    def _type(self, type_: TensorType) -> OpenType:
        return OpenType(type_.dtype, tuple(map(self._numbers.place, type_.shape)))


# -- the size at hand -------------------------------------------------------------------------------------------------


def _fixed(program: Program) -> Program:
    return Program(
        program.name,
        tuple(
            Buffer(b.kind, b.dtype, at_hand(b.size), _fixed_value(b.zeroed), b.pack, b.source) for b in program.buffers
        ),
        tuple(_fixed_calls(program.calls)),
        tuple(Port(port.name, _fixed_type(port.type), port.buffer) for port in program.inputs),
        tuple(Port(port.name, _fixed_type(port.type), port.buffer) for port in program.outputs),
        program.notes,
    )


def _fixed_calls(calls: Sequence[Call]) -> Iterator[Call]:
    for repeated, part in groupby(calls, lambda call: call.repeated if isinstance(call, KernelCall) else None):
        together = list(part)
        for number in range(1 if repeated is None else at_hand(repeated.count)):
            yield from (_fixed_call(call, number) for call in together)


def _fixed_call(call: Call, number: int) -> Call:
    if isinstance(call, KernelCall):
        return KernelCall(call.desc, tuple(_fixed_view(view, number) for view in call.views), call.nodes, call.work)
    inputs, outputs = (
        tuple(None if v is None else _fixed_view(v) for v in side) for side in (call.inputs, call.outputs)
    )
    taken, given = (
        tuple(None if each is None else _fixed_type(each) for each in side)
        for side in (call.input_types, call.output_types)
    )
    return HostCall(call.node, inputs, outputs, taken, given, call.opset)


def _fixed_view(view: View, number: int = 0) -> View:
    first, more = map(at_hand, parts(view.offset))
    return View(view.buffer, first + number * more, _fixed_value(view.dims))


def _fixed_type(type_: TensorType) -> TensorType:
    return TensorType(type_.dtype, _fixed_value(type_.shape))


def _fixed_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_fixed_value, value))
    return at_hand(value) if isinstance(value, Extent) else value
