"""Memory plans: nothing that lives at once overlaps, and padding that must stay zero does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from opbuild.graph.types import Node, TensorType
from opbuild.program import Buffer, HostCall, Program, View
from opbuild.runtime.memory_plan import MemoryPlan, plan
from opbuild.runtime.record import ALIGNMENT


def program_of(buffers: list[Buffer], uses: list[list[int]]) -> Program:
    """A program whose calls read these buffers."""

    def call(indices: list[int]) -> HostCall:
        views = tuple(View(index, 0, ((buffers[index].size, 1),)) for index in indices)
        types = tuple(TensorType(buffers[index].dtype, (buffers[index].size,)) for index in indices)
        return HostCall(Node("Use", (), (), name="use"), views, (), types, (), 21)

    return Program("p", tuple(buffers), tuple(call(indices) for indices in uses), (), ())


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of a few buffers, some zeroed, used in any order."""
    buffers = [
        Buffer(
            "temporary",
            draw(st.sampled_from(["float32", "uint8"])),
            size,
            zeroed=draw(st.sampled_from([None, None, "a", "b"])),
        )
        for size in draw(st.lists(st.integers(0, 300), min_size=1, max_size=12))
    ]
    uses = draw(st.lists(st.lists(st.integers(0, len(buffers) - 1), max_size=4), max_size=12))
    return program_of(buffers, uses)


def extent(program: Program, memory: MemoryPlan, index: int) -> tuple[int, int]:
    """First byte and end of a buffer."""
    buffer = program.buffers[index]
    itemsize = 4 if buffer.dtype == "float32" else 1
    return memory.offsets[index], memory.offsets[index] + buffer.size * itemsize


def life(program: Program, index: int) -> tuple[int, int] | None:
    """First and last call that touch a buffer."""
    touched = [at for at, call in enumerate(program.calls) if any(view.buffer == index for view in call.inputs)]
    return (touched[0], touched[-1]) if touched else None


@given(programs())
def test_buffers_that_live_at_once_never_overlap(program: Program) -> None:
    """Any two buffers whose lives meet have disjoint bytes, inside the arena, on cache lines."""
    memory = plan(program)
    for a in range(len(program.buffers)):
        life_a = life(program, a)
        if life_a is None:
            continue
        low_a, high_a = extent(program, memory, a)
        assert low_a % ALIGNMENT == 0
        assert high_a <= memory.size
        for b in range(a):
            life_b = life(program, b)
            if life_b and life_a[0] <= life_b[1] and life_b[0] <= life_a[1]:
                low_b, high_b = extent(program, memory, b)
                assert high_a <= low_b or high_b <= low_a or low_a == high_a or low_b == high_b


@given(programs())
def test_zeroed_buffers_share_only_with_their_own_geometry_at_the_same_place(program: Program) -> None:
    """A buffer whose padding stays zero overlaps another only if both have one geometry and one offset, in any call."""
    memory = plan(program)
    used = [index for index in range(len(program.buffers)) if life(program, index)]
    for a in used:
        for b in used:
            first, second = program.buffers[a], program.buffers[b]
            (low_a, high_a), (low_b, high_b) = extent(program, memory, a), extent(program, memory, b)
            if a == b or (first.zeroed is None and second.zeroed is None) or high_a <= low_b or high_b <= low_a:
                continue
            assert (first.zeroed, first.dtype, first.size) == (second.zeroed, second.dtype, second.size)
            assert low_a == low_b


def test_a_chain_of_equal_buffers_needs_two_of_them() -> None:
    """Memory is reused: of ten buffers in a chain only two live at once."""
    buffers = [Buffer("temporary", "float32", 1024) for _ in range(10)]
    memory = plan(program_of(buffers, [[i, i + 1] for i in range(9)]))
    assert memory.size == 2 * 4096


def test_a_small_buffer_takes_the_smallest_gap() -> None:
    """Best fit: a small buffer goes where least is wasted, and the arena does not grow."""
    sizes = [640, 320, 64, 960, 64]
    buffers = [Buffer("temporary", "uint8", size) for size in sizes]
    memory = plan(program_of(buffers, [[3, 0, 2, 1], [3, 2, 4]]))
    assert memory.size == 960 + 640 + 320 + 64


def test_only_temporaries_are_placed() -> None:
    """Inputs, outputs and constants lie elsewhere."""
    buffers = [Buffer("input", "float32", 8), Buffer("temporary", "float32", 8), Buffer("output", "float32", 8)]
    assert plan(program_of(buffers, [[0, 1], [1, 2]])).offsets.tolist() == [0, 0, 0]
