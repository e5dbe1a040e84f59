"""Records as columns: what is looked at all at once is found as by who looks at one view after the other."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from opbuild.dtypes import itemsize
from opbuild.graph.types import Node, TensorType
from opbuild.program import HostCall, Port, View
from opbuild.runtime.changes import first_change
from opbuild.runtime.record import KINDS, Constant, KernelStep, Places, Ports, Record, Steps, Storage, Storages
from opbuild.runtime.record_json import from_json, to_json
from opbuild.runtime.soundness import problem
from support.old_records import to_old_json

SIZE = 4
STORED = [
    Storage("input", "float32", SIZE, 0),
    Storage("constant", "int64", SIZE, 0),
    Storage("temporary", "float32", SIZE, 0),
    Storage("temporary", "uint8", 0, 64),
    Storage("output", "float32", SIZE, 0),
    Storage("input", "float32", SIZE, 1),
]
"""The second output replaces the last one, an input."""
RETURNED = (4, 5)
DIMS = st.sampled_from([((SIZE, 1),), ((2, 1), (2, 2)), ((SIZE, -1),), ((3, 0),), (), ((0, 1),), ((2, 3),), ((5, 1),)])
VIEWS = st.builds(View, st.sampled_from([0, 1, 2, 2, 3, 4, 4, 5, 6, -1]), st.sampled_from([0, 0, 0, 1, 3, -1]), DIMS)
READ, WRITTEN = (
    st.builds(View, st.sampled_from(buffers), st.just(0), st.just(((SIZE, 1),)))
    for buffers in ([0, 1, 2, 4, 5], [2, 4, 5])
)
FIRST = KernelStep("f", tuple(View(buffer, 0, ((SIZE, 1),)) for buffer in (0, 2, *RETURNED)), ("n",), writes=3)
"""Writes all that is to be written."""


def unsigned(view: View) -> str:
    """The type of elements that are only moved."""
    return f"uint{8 * itemsize(STORED[view.buffer % len(STORED)].dtype)}"


@st.composite
def kernel_steps(draw: st.DrawFn) -> KernelStep:
    """A call of a kernel of up to four arguments, most of them sound."""
    views = tuple(draw(st.lists(READ | READ | VIEWS, max_size=2)) + draw(st.lists(WRITTEN, min_size=1, max_size=2)))
    writes = draw(st.integers(1, 2) if len(views) > 1 else st.just(1))
    dtypes = draw(st.sampled_from([(), (), tuple(map(unsigned, views)), ("uint8",) * len(views)]))
    return KernelStep(draw(st.sampled_from("fg")), views, ("n", "m"), dtypes, draw(st.sampled_from([0, 9])), writes)


@st.composite
def host_calls(draw: st.DrawFn) -> HostCall:
    """A call of the host backend, with inputs and outputs that may be absent."""
    inputs, outputs = (tuple(draw(st.lists(own | own | VIEWS | st.none(), max_size=2))) for own in (READ, WRITTEN))
    types = [tuple(each and _type(each) for each in side) for side in (inputs, outputs)]
    return HostCall(Node("Some", ("x",), ("y",), {}, "n"), inputs, outputs, types[0], types[1], 21)


def _type(view: View) -> TensorType:
    return TensorType("float32", tuple(extent for extent, _ in view.dims))


def record_of(steps: list[KernelStep | HostCall]) -> Record:
    """A record of these steps between the buffers above."""
    type_ = TensorType("float32", (SIZE,))
    return Record(
        "net", Storages.of(STORED), Steps.of(steps), Ports.of((Port("x", type_, 0), Port("w", type_, 5))),
        Ports.of(Port(f"y{buffer}", type_, buffer) for buffer in RETURNED), 64, Places.of([Constant(8 * SIZE, "", 0)]),
    )  # fmt: skip


def places(view: View) -> list[int]:
    """The elements that a view touches, one by one."""
    ranges = [range(extent) for extent, _ in view.dims]
    strides = [stride for _, stride in view.dims]
    return [view.offset + sum(map(int.__mul__, index, strides)) for index in itertools.product(*ranges)]


def is_sound(steps: list[KernelStep | HostCall]) -> bool:
    """Whether all views stay in their buffers, and what is read or returned was written, view by view."""
    written: dict[int, int] = {}
    for step in steps:
        if isinstance(step, KernelStep):
            reads, writes = step.views[: -step.writes], step.views[-step.writes :]
            own = {view.buffer for view in writes} if step.writes > 1 else set()
            if step.dtypes and step.dtypes != tuple(map(unsigned, step.views)):
                return False
        else:
            reads, writes, own = filter(None, step.inputs), [*filter(None, step.outputs)], set()  # type: ignore[assignment]
        reads = [*reads]  # type: ignore[assignment]
        for view in (*reads, *writes):
            if not 0 <= view.buffer < len(STORED):
                return False
            size, touched = STORED[view.buffer].size, places(view)
            if not (0 <= min(touched) <= max(touched) < size if touched else 0 <= view.offset <= size):
                return False
        made = [
            view for view in reads if view.buffer not in own and STORED[view.buffer].kind in ("temporary", "output")
        ]
        if any(places(view) and view.buffer not in written for view in made):
            return False
        for view in writes:
            if STORED[view.buffer].kind in ("input", "constant") and view.buffer not in RETURNED:
                return False
            written[view.buffer] = written.get(view.buffer, 0) + len({*places(view)})
    return all(written.get(buffer, 0) >= SIZE for buffer in RETURNED)


STEPS = st.builds(list.__add__, st.sampled_from([[FIRST], []]), st.lists(kernel_steps() | host_calls(), max_size=3))
SOUND = st.lists(kernel_steps() | host_calls(), max_size=3).map(lambda steps: [FIRST, *steps]).filter(is_sound)


@given(STEPS)
def test_all_views_at_once_are_judged_as_one_after_the_other(steps: list[KernelStep | HostCall]) -> None:
    """F58: a record is sound if and only if each of its views is, whatever order, hosts and kernels it has."""
    assert (problem(record_of(steps)) is None) == is_sound(steps), problem(record_of(steps))


@given(STEPS)
def test_what_changes_inputs_begins_with_the_first_kernel_that_writes_one(steps: list[KernelStep | HostCall]) -> None:
    """Whichever of its arguments that is, and whatever else is called before."""
    kernels = ((place, step) for place, step in enumerate(steps) if isinstance(step, KernelStep))
    changes = [place for place, step in kernels if any(view.buffer == 5 for view in step.views[-step.writes :])]
    assert first_change(record_of(steps)) == (changes[0] if changes else None)


@given(STEPS)
def test_columns_are_the_rows_that_they_were_made_of(steps: list[KernelStep | HostCall]) -> None:
    """Calls and buffers come back one by one, by place and by slice, in their order."""
    columns = Steps.of(steps)
    assert (len(columns), [*columns], columns[:1]) == (len(steps), steps, tuple(steps[:1]))
    assert [*Storages.of(STORED)] == STORED


def plain(record: Record) -> dict[str, Any]:
    """What JSON keeps of a record."""
    kept: dict[str, Any] = json.loads(json.dumps(to_json(record)))
    return kept


@given(SOUND)
def test_records_survive_json_in_each_form(steps: list[KernelStep | HostCall]) -> None:
    """What is written now, and what earlier releases wrote, is read as the record that it was."""
    record = record_of(steps)
    for form in (plain(record), *(json.loads(json.dumps(to_old_json(record, version))) for version in (2, 3))):
        again = from_json(form)
        assert ([*again.buffers], plain(again)["steps"]) == (STORED, plain(record)["steps"])


def test_each_kind_of_buffer_is_found() -> None:
    """Buffers are told apart by kind whatever element types there are of it."""
    stored = Storages.of(STORED)
    assert [stored.is_of(kind).tolist() for kind in KINDS] == [[each.kind == kind for each in STORED] for kind in KINDS]
