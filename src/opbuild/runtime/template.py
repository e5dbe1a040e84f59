"""Template: a network that was lowered once, with open extents, and is bound to sizes by filling in numbers.

It is a program whose numbers are places in a list; the list is worked out for a size (``graph.formulas``), if the
conditions hold under which the program is right. What remains to be decided then is which kernel computes a call: any
of those that compute the same and whose limits (``OpDesc.problem``) the size keeps. Calls of one descriptor on equal
extents are decided once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, get_args

import numpy as np

from opbuild.graph.formulas import Formulas
from opbuild.graph.node_json import node_from_json, node_to_json
from opbuild.graph.tables import TABLES
from opbuild.graph.types import DTYPES, Array, Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.stored_desc import desc_from_json
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.program import BufferKind
from opbuild.runtime.record import Constant

Places = tuple[int, ...]
"""Indices of numbers."""
Argument = tuple[str, Any]
"""``place`` and an index, ``value`` and a JSON scalar, or ``tuple`` and such pairs."""

MOST_STEPS = 2**22
"""Steps of a call, those that are repeated counted each time."""

NONE = -1
INT64_MAX = 2**63 - 1
TABLE = "table"


class OpenView(NamedTuple):
    """A window into a buffer: ``View`` with the places of its numbers, extent and stride one after the other.

    Where it is repeated, it begins ``more`` elements later each time.
    """

    buffer: int
    offset: int
    dims: Places
    more: int


class OpenType(NamedTuple):
    """An element type and the places of a shape's extents."""

    dtype: str
    shape: Places


class OpenPort(NamedTuple):
    """An input or output of the network."""

    name: str
    type: OpenType
    buffer: int


class OpenBuffer(NamedTuple):
    """One buffer: what ``Storage`` has, the place of its size, and the geometry of its padding, as in ``Buffer``.

    One of kind ``table`` has contents for each size; it is which of the tables.
    """

    kind: str
    dtype: str
    size: int
    place: int
    zeroed: tuple[str, Places] | None


class OpenKernel(NamedTuple):
    """A call of a kernel: the class of calls that it is decided with, its views, its nodes, and its repetition if any.

    Calls of one repetition lie next to each other, and are run in turn.
    """

    decided: int
    views: tuple[OpenView, ...]
    nodes: tuple[str, ...]
    repetition: int = NONE


class OpenHost(NamedTuple):
    """A call of the host backend: ``HostCall`` with open views and types."""

    node: Node
    views: tuple[tuple[OpenView | None, ...], tuple[OpenView | None, ...]]
    types: tuple[tuple[OpenType | None, ...], tuple[OpenType | None, ...]]
    opset: int


class OpenQuestion(NamedTuple):
    """What a family is to be asked for a size.

    Attributes:
        family: Its name.
        arguments: What it is asked with.
        answered: Whether it had an answer: the program is right only where it still has, or still has none.
    """

    family: str
    arguments: tuple[Argument, ...]
    answered: bool


class OpenTable(NamedTuple):
    """A constant of one size (``graph.tables``): its name and what it is made of."""

    name: str
    arguments: tuple[Argument, ...]


class Decided(NamedTuple):
    """Calls for which one kernel is chosen.

    Attributes:
        desc: The kernel that was asked for in the size at which the network was lowered.
        question: Which question's answer is its variant; ``NONE``: none's.
        dims: The places of the operands' extents and strides.
    """

    desc: OpDesc
    question: int
    dims: tuple[Places, ...]


@dataclass(frozen=True, eq=False)
class Template:
    """See the module.

    Attributes:
        name: The network's name.
        inputs: Input ports in order.
        outputs: Output ports in order.
        values: Numbers that decide besides the shapes of the inputs, as further shapes.
        variables: For each open extent, where it stands in the shapes of the inputs: input and dimension; the first of
            those that are equal.
        formulas: The numbers.
        one: The place of the number 1.
        zero: The place of the number 0.
        buffers: All buffers.
        steps: Calls in order.
        decided: Classes of kernel calls.
        questions: What families are to be asked.
        repetitions: The place of each one's number.
        tables: Constants of one size.
        constants: Where constants are.
        notes: Remarks of lowering, by node.
    """

    name: str
    inputs: tuple[OpenPort, ...]
    outputs: tuple[OpenPort, ...]
    values: tuple[Places, ...]
    variables: tuple[tuple[int, int], ...]
    formulas: Formulas
    one: int
    zero: int
    buffers: tuple[OpenBuffer, ...]
    steps: tuple[OpenKernel | OpenHost, ...]
    decided: tuple[Decided, ...]
    questions: tuple[OpenQuestion, ...]
    repetitions: Places
    tables: tuple[OpenTable, ...]
    constants: tuple[Constant, ...]
    notes: Mapping[str, str]

    def runs(self) -> list[list[int]]:
        """Return the indices of the steps, those together that are repeated together."""
        found = groupby(range(len(self.steps)), lambda index: _repetition_of(self.steps[index]))
        return [list(indices) for _, indices in found]

    def order(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Return the steps as they are run in a size: the index of each, and how often it was run before.

        Raises:
            ValueError: If they are more than can be run.
        """
        found: list[tuple[int, int]] = []
        for indices in self.runs():
            repetition = _repetition_of(self.steps[indices[0]])
            times = 1 if repetition == NONE else int(numbers[self.repetitions[repetition]])
            if len(found) + times * len(indices) > MOST_STEPS:
                raise ValueError(f"it would run more than {MOST_STEPS} steps")
            found += [(index, time) for time in range(times) for index in indices]
        return found

    def run_classes(self, numbers: Sequence[int]) -> set[int]:
        """Return the classes of kernel calls of which some are run in a size; others are computed otherwise there."""
        times = [*(numbers[place] for place in self.repetitions), 1]  # the last is that of ``NONE``
        return {step.decided for step in self.steps if isinstance(step, OpenKernel) and times[step.repetition]}

    def extents(self, shapes: Sequence[Sequence[int]]) -> list[int]:
        """Return the open extents in the shapes of the inputs, and in what decides besides."""
        return [shapes[index][axis] for index, axis in self.variables]

    def numbers(self, shapes: Sequence[Sequence[int]]) -> Array | None:
        """Return all numbers for a size; None if the program is not for it."""
        given = [*(port.type.shape for port in self.inputs), *self.values]
        if [len(shape) for shape in shapes] != [len(places) for places in given]:
            return None
        found = self.formulas(self.extents(shapes))
        if found is None:
            return None
        known = (found[place] for places in given for place in places)
        same = all(one == other for one, other in zip(known, chain(*shapes), strict=True))
        return np.array(found, np.int64) if same and max(map(abs, found)) <= INT64_MAX else None


def _repetition_of(step: OpenKernel | OpenHost) -> int:
    return step.repetition if isinstance(step, OpenKernel) else NONE


# -- JSON and back ----------------------------------------------------------------------------------------------------


def to_json(template: Template) -> dict[str, Any]:
    """Return a template as JSON values.

    Raises:
        ValueError: If a host call's node has an attribute that JSON can not hold.
    """
    return {
        "name": template.name,
        "inputs": template.inputs,
        "outputs": template.outputs,
        "values": template.values,
        "variables": template.variables,
        "formulas": template.formulas.to_json(),
        "one": template.one,
        "zero": template.zero,
        "buffers": template.buffers,
        "steps": [
            step if isinstance(step, OpenKernel) else {"node": node_to_json(step.node), "rest": step[1:]}
            for step in template.steps
        ],
        "decided": [[each.desc.components(), each.question, each.dims] for each in template.decided],
        "questions": template.questions,
        "repetitions": template.repetitions,
        "tables": template.tables,
        "constants": template.constants,
        "notes": dict(template.notes),
    }


def from_json(parts: Any) -> Template:
    """Return the template that ``to_json`` wrote.

    Raises:
        ValueError: If it is no template; or ``KeyError``, ``TypeError``, ``IndexError``.
    """
    template = Template(
        name=str(parts["name"]),
        inputs=tuple(map(_port, parts["inputs"])),
        outputs=tuple(map(_port, parts["outputs"])),
        values=tuple(map(_places, parts["values"])),
        variables=tuple((int(index), int(axis)) for index, axis in parts["variables"]),
        formulas=Formulas.from_json(parts["formulas"]),
        one=int(parts["one"]),
        zero=int(parts["zero"]),
        buffers=tuple(map(_buffer, parts["buffers"])),
        steps=tuple(map(_step, parts["steps"])),
        decided=tuple(
            Decided(desc_from_json(desc), int(question), tuple(map(_places, dims)))
            for desc, question, dims in parts["decided"]
        ),
        questions=tuple(
            OpenQuestion(str(family), tuple(map(_argument, arguments)), bool(answered))
            for family, arguments, answered in parts["questions"]
        ),
        repetitions=_places(parts["repetitions"]),
        tables=tuple(OpenTable(str(name), tuple(map(_argument, arguments))) for name, arguments in parts["tables"]),
        constants=tuple(Constant(int(nbytes), str(digest), int(at)) for nbytes, digest, at in parts["constants"]),
        notes={str(node): str(note) for node, note in parts["notes"].items()},
    )
    _require_sound(template)
    return template


def _require_sound(template: Template) -> None:
    """Refuse a template that names what it does not have.

    Whether views stay in their buffers is looked at for each size.
    """
    given = [*(port.type.shape for port in template.inputs), *template.values]
    places = [place for port in (*template.inputs, *template.outputs) for place in port.type.shape]
    places += [place for each in template.values for place in each]
    places += [template.one, template.zero, *(each.size for each in template.buffers)]
    places += [place for each in template.buffers if each.zeroed for place in each.zeroed[1]]
    places += [place for each in template.decided for dims in each.dims for place in dims]
    views = [view for step in template.steps for view in views_of_step(step)]
    places += [place for view in views for place in (view.offset, view.more, *view.dims)]
    places += template.repetitions
    asked = [each.arguments for each in template.questions] + [each.arguments for each in template.tables]
    places += [place for arguments in asked for place in _places_in(arguments)]
    kernels = [step for step in template.steps if isinstance(step, OpenKernel)]
    hosts = [step for step in template.steps if isinstance(step, OpenHost)]
    places += [place for step in hosts for side in step.types for each in side if each for place in each.shape]
    in_range = [
        (places, template.formulas.count),
        ([view.buffer for view in views], len(template.buffers)),
        ([index for index, _ in template.variables], len(given)),
        ([port.buffer for port in (*template.inputs, *template.outputs)], len(template.buffers)),
        ([step.decided for step in kernels], len(template.decided)),
        ([step.repetition for step in kernels if step.repetition != NONE], len(template.repetitions)),
        ([each.place for each in template.buffers if each.kind == TABLE], len(template.tables)),
        ([each.question for each in template.decided if each.question != NONE], len(template.questions)),
        ([each.place for each in template.buffers if each.kind == "constant"], len(template.constants)),
    ]
    if any(not 0 <= index < count for indices, count in in_range for index in indices):
        raise ValueError("it names what it does not have")
    if any(not 0 <= axis < len(given[index]) for index, axis in template.variables):
        raise ValueError("it reads an extent that no input has")
    if any(each.name not in TABLES for each in template.tables):
        raise ValueError("it has a table that nobody makes")
    for step in template.steps:
        if isinstance(step, OpenKernel):
            operands = template.decided[step.decided].desc.operands
            if [len(view.dims) // 2 for view in step.views] != [len(operand.dims) for operand in operands]:
                raise ValueError(f"{', '.join(step.nodes)}: its operands are not those of its kernel")
        written = step.views[-1:] if isinstance(step, OpenKernel) else step.views[1]
        if any(view and template.buffers[view.buffer].kind in ("input", "constant", TABLE) for view in written):
            raise ValueError("it would write to an input or a constant")


def argument(given: Argument, numbers: Sequence[int]) -> Any:
    """Return an argument in a size."""
    kind, value = given
    if kind == "tuple":
        return tuple(argument(each, numbers) for each in value)
    return numbers[value] if kind == "place" else value


def _places_in(arguments: Sequence[Argument]) -> Iterator[int]:
    for kind, value in arguments:
        if kind == "tuple":
            yield from _places_in(value)
        elif kind == "place":
            yield value


def views_of_step(step: OpenKernel | OpenHost) -> Sequence[OpenView]:
    """Return the views that a step reads or writes."""
    if isinstance(step, OpenKernel):
        return step.views
    return [view for side in step.views for view in side if view is not None]


def _places(parts: Any) -> Places:
    return tuple(int(place) for place in parts)


def _argument(parts: Any) -> Argument:
    kind, value = parts
    if kind not in ("place", "value", "tuple"):
        raise ValueError(f"there is an argument of kind {kind!r}")
    return kind, tuple(map(_argument, value)) if kind == "tuple" else int(value) if kind == "place" else value


def _type(parts: Any) -> OpenType:
    dtype, shape = parts
    if dtype not in DTYPES:
        raise ValueError(f"a value is of type {dtype!r}")
    return OpenType(dtype, _places(shape))


def _port(parts: Any) -> OpenPort:
    name, type_, buffer = parts
    return OpenPort(str(name), _type(type_), int(buffer))


def _buffer(parts: Any) -> OpenBuffer:
    kind, dtype, size, place, zeroed = parts
    if kind not in (*get_args(BufferKind), TABLE) or dtype not in DTYPES:
        raise ValueError(f"a buffer is of kind {kind!r} and type {dtype!r}")
    return OpenBuffer(kind, dtype, int(size), int(place), (str(zeroed[0]), _places(zeroed[1])) if zeroed else None)


def _view(parts: Any) -> OpenView:
    buffer, offset, dims, more = parts
    return OpenView(int(buffer), int(offset), _places(dims), int(more))


def _step(parts: Any) -> OpenKernel | OpenHost:
    if isinstance(parts, Mapping):
        views, types, opset = parts["rest"]
        inputs, outputs = (tuple(None if view is None else _view(view) for view in side) for side in views)
        taken, given = (tuple(None if each is None else _type(each) for each in side) for side in types)
        if [view is None for view in (*inputs, *outputs)] != [each is None for each in (*taken, *given)]:
            raise ValueError("a view of a host call has no type")
        return OpenHost(node_from_json(parts["node"]), (inputs, outputs), (taken, given), int(opset))
    decided, views, nodes, repetition = parts
    return OpenKernel(int(decided), tuple(map(_view, views)), tuple(map(str, nodes)), int(repetition))
