"""Bindings of a record for several signatures: what is looked at for each, and where its temporaries lie."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opbuild.graph.extents import Extents
from opbuild.graph.formulas import Formulas, Numbers
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.runtime.dynamic import ChosenKernel, Decision, LoadedKernel, _Limits
from opbuild.runtime.memory_plan import Lives, Stack
from opbuild.runtime.record import ALIGNMENT, DimsTable

EXTENTS = st.integers(0, 20)
DIMS = st.builds(
    Dim,
    extent=st.just(FREE) | EXTENTS,
    stride=st.just(FREE) | st.integers(-3, 3),
    min=st.integers(0, 3),
    max=st.just(FREE) | EXTENTS,
    multiple=st.integers(1, 4),
)


@given(st.lists(st.lists(st.tuples(DIMS, EXTENTS, st.integers(-3, 3)), max_size=3), min_size=1, max_size=3))
def test_all_limits_at_once_are_those_of_one_after_the_other(operands: list[list[tuple[Dim, int, int]]]) -> None:
    """Kernels are judged as ``OpDesc.problem`` judges them: that is the safety of what is bound by numbers."""
    made = tuple(Operand(f"x{i}", "float32", tuple(dim for dim, _, _ in each)) for i, each in enumerate(operands))
    desc = OpDesc(("Some",), "copy", made[:-1], made[-1:])
    pairs = [tuple((extent, stride) for _, extent, stride in each) for each in operands]
    numbers = np.array([number for each in pairs for pair in each for number in pair], np.int64)
    places = iter(range(len(numbers)))
    table = DimsTable.of([[(next(places), next(places)) for _ in each] for each in pairs])
    record = SimpleNamespace(rows_of_kinds=[[*range(len(pairs))]])
    network: Any = SimpleNamespace(dims=table, record=record, room=table.rank.tolist())
    kernel: Any = LoadedKernel(desc, "s", None, None)  # type: ignore[arg-type]
    limits = _Limits(network, Decision((ChosenKernel(kernel, 0),), frozenset()), {0})
    assert limits.keep(numbers) == (desc.problem(pairs) is None)


SIZES = st.lists(st.integers(0, 5 * ALIGNMENT), min_size=8, max_size=8)
CALLS = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=12)


@given(CALLS, SIZES, SIZES, st.sets(st.integers(0, 7), max_size=3))
def test_what_lives_at_once_lies_apart_in_every_size(
    calls: list[list[int]], first: list[int], second: list[int], padded: set[int]
) -> None:
    """A plan that is filled with other sizes is none where two would overlap; in its own size it is the plan."""
    lives = Lives(range(8), calls, padded)
    plan = lives.plan(first, dict.fromkeys(padded, "geometry"))
    stack = Stack(lives, plan, first)
    again = stack.plan(np.array(first))
    own = {life.buffer for life in (*lives.zeroed, *lives.others)}
    if again is not None and len({first[each] for each in padded}) < 2:
        assert (again.size, again.zeroed) == (plan.size, plan.zeroed)
        assert {each: int(again.offsets[each]) for each in own} == {each: plan.offsets[each] for each in own}
    other = stack.plan(np.array(second))
    if other is None or any(second[one] != second[slot] for one, slot in stack.alike):
        return
    spans = {each: (int(other.offsets[each]), int(other.offsets[each]) + second[each]) for each in own}
    assert all(begin % ALIGNMENT == 0 and end <= other.size for begin, end in spans.values())
    for touched in (set(range(8)) & {b for b in own if b in lived} for lived in _living(calls)):
        for one in touched:
            for two in touched - {one}:
                assert spans[one][1] <= spans[two][0] or spans[two][1] <= spans[one][0] or not second[one] * second[two]


def _living(calls: list[list[int]]) -> list[set[int]]:
    """The buffers that live in each call."""
    first = {each: min(i for i, call in enumerate(calls) if each in call) for call in calls for each in call}
    last = {each: max(i for i, call in enumerate(calls) if each in call) for call in calls for each in call}
    return [{each for each in first if first[each] <= index <= last[each]} for index in range(len(calls))]


@given(st.integers(1, 2**62), st.integers(1, 2**40), st.integers(1, 4))
def test_a_number_that_leaves_64_bits_is_no_number(start: int, extent: int, power: int) -> None:
    """Formulas give what Python gives, or nothing: never what is left of it in 64 bits."""
    extents = Extents()
    number: Any = extents.input(3)
    product = number
    for _ in range(power - 1):
        product = product * number
    numbers = Numbers(extents)
    place = numbers.place(product + start)
    formulas = Formulas.from_json(numbers.formulas().to_json())
    found = formulas([extent])
    wanted = extent**power + start
    assert found is None or int(found[place]) == wanted
    assert found is not None or wanted > 2**61
