"""Numbering: the record of a program that is for several input signatures, each number of it written as its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from opbuild.errors import BuildError
from opbuild.graph.extents import SymbolicExtent, parts
from opbuild.graph.formulas import Numbers
from opbuild.graph.tables import Table
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.program import Call, HostCall, KernelCall, Port, Program, ProgramSymbols, VariantChoice, View
from opbuild.runtime.assembly import host_step, storages
from opbuild.runtime.record import CallKind, Constant, KernelStep, Places, Ports, Record, Steps
from opbuild.runtime.symbolic import problem
from opbuild.runtime.symbols import NONE, Argument, Decided, Padding, Repetition, Symbolic, SymbolicChoice
from opbuild.target.level import CPU


def numbered(
    program: Program,
    constant_of: Mapping[int, int],
    constants: Sequence[Constant],
    notes: Mapping[str, Any],
) -> Record:
    """Return the record of a program for several input signatures; nothing is decided by a symbolic extent after that.

    Kernels are chosen, and temporaries placed, for each signature; arguments are those of ``assembly.make_record``.

    Raises:
        BuildError: If it names what it does not have.
        ValueError: If it is for one signature, or asks what no family answers.
    """
    if program.symbols is None:
        raise ValueError("the program is for one signature")
    record = _Numbering(program, program.symbols).record(constant_of, constants, notes)
    wrong = problem(record)
    if wrong:
        raise BuildError(f"network {program.name}: {wrong}", "this is an error in opbuild; please report it")
    return record


class _Numbering:
    """Replaces the numbers of a program by their places."""

    def __init__(self, program: Program, symbols: ProgramSymbols) -> None:
        self._program, self._symbols = program, symbols
        self._numbers = Numbers(symbols.extents)
        self._kinds: dict[tuple[OpDesc, int, tuple[Any, ...]], int] = {}
        self._choices: dict[SymbolicChoice, int] = {}
        self._variants: dict[int, int] = {}
        self._more: list[int] = []

    def record(self, constant_of: Mapping[int, int], constants: Sequence[Constant], notes: Mapping[str, Any]) -> Record:
        """Return the record of the program."""
        program, place = self._program, self._numbers.place
        for choice in self._symbols.choices:
            self._variants[id(choice.answer)] = self._choice(choice)
        tables = {index: each.table for index, each in enumerate(program.buffers) if each.table is not None}
        behind = {index: len(constants) + number for number, index in enumerate(tables)}
        buffers = storages(program, {**constant_of, **behind}, [0] * len(program.buffers), place)
        has_library = any(isinstance(call, KernelCall) and call.desc.device == CPU for call in program.calls)
        called = [self._step(call, has_library=has_library) for call in program.calls]
        kinds = [_kind(desc, number) for number, (desc, _, _) in enumerate(self._kinds)]
        steps = Steps.of(called, kinds)
        inputs, outputs = (Ports.of(map(self._port, side)) for side in (program.inputs, program.outputs))
        repetitions = tuple(self._repetitions())
        symbolic = Symbolic(
            variables=self._symbols.variables,
            values=tuple(tuple(map(place, each)) for each in self._symbols.values),
            decided=tuple(Decided(desc, choice) for desc, choice, _ in self._kinds),
            choices=tuple(self._choices),
            repetitions=repetitions,
            more=np.array(self._more if repetitions else [], np.int64),
            tables=tuple(Table(each.name, tuple(map(self._argument, each.arguments))) for each in tables.values()),
            padding=tuple(self._padding()),
            one=place(1),
            zero=place(0),
            formulas=self._numbers.formulas(),
        )
        return Record(program.name, buffers, steps, inputs, outputs, 0, Places.of(constants), notes,
                      symbolic=symbolic)  # fmt: skip

    def _step(self, call: Call, *, has_library: bool) -> KernelStep | HostCall:
        if isinstance(call, KernelCall):
            views = tuple(map(self._view, call.views))
            self._more += [self._numbers.place(parts(view.offset)[1]) for view in call.views]
            asked = self._variants.get(id(call.desc.variant), NONE)
            key = call.desc, asked, tuple(view.dims for view in views)
            kind = _kind(call.desc, self._kinds.setdefault(key, len(self._kinds)))
            return KernelStep(kind.symbol, views, call.nodes, *kind[2:])
        inputs, outputs = (tuple(None if view is None else self._view(view) for view in side)
                           for side in (call.inputs, call.outputs))  # fmt: skip
        taken, given = (tuple(None if each is None else self._type(each) for each in side)
                        for side in (call.input_types, call.output_types))  # fmt: skip
        step = host_step(HostCall(call.node, inputs, outputs, taken, given, call.opset), has_library=has_library)
        if isinstance(step, KernelStep):
            self._more += [self._numbers.place(0)] * len(step.views)
            return step._replace(work=0)
        return step

    def _repetitions(self) -> Iterator[Repetition]:
        calls = enumerate(self._program.calls)
        for repeated, part in groupby(calls, lambda each: getattr(each[1], "repeated", None)):
            together = [index for index, _ in part]
            if repeated is not None:
                yield Repetition(together[0], together[-1] + 1, self._numbers.place(repeated.count))

    def _padding(self) -> Iterator[Padding]:
        for index, buffer in enumerate(self._program.buffers):
            geometry: Any = buffer.zeroed
            if geometry is not None:
                name, _, shape, halo = geometry
                yield Padding(index, name, tuple(map(self._numbers.place, (*shape, *halo))))

    def _choice(self, choice: VariantChoice) -> int:
        arguments = tuple(map(self._argument, choice.arguments))
        found = SymbolicChoice(choice.family, arguments, choice.answer is not None)
        return self._choices.setdefault(found, len(self._choices))

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, tuple):
            return "tuple", tuple(map(self._argument, value))
        return ("place", self._numbers.place(value)) if isinstance(value, SymbolicExtent) else ("value", value)

    def _view(self, view: View) -> View:
        return View(view.buffer, self._numbers.place(parts(view.offset)[0]), tuple(self._dims(view.dims)))

    def _dims(self, dims: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        return ((self._numbers.place(extent), self._numbers.place(stride)) for extent, stride in dims)

    def _type(self, type_: TensorType) -> TensorType:
        return TensorType(type_.dtype, tuple(map(self._numbers.place, type_.shape)))

    def _port(self, port: Port) -> Port:
        return Port(port.name, self._type(port.type), port.buffer)


def _kind(desc: OpDesc, number: int) -> CallKind:
    """Return the kind of the calls that are decided together, which are counted from 0."""
    types: Sequence[str] = ["uint8" if each.dtype == "bool" else each.dtype for each in desc.operands]
    return CallKind(str(number), len(types), tuple(types), 0, len(desc.outputs))
