"""Memory that is used again: what callers let go of is, what they have is not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from opbuild.errors import RunError
from opbuild.graph.types import Array
from opbuild.pipeline.segmented import _own_copy
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Executor
from opbuild.runtime.reused import LEAST, MemoryRequest, ReusedMemory, memory_request
from opbuild.target.level import CPU
from support.handmade import build, chain, expected_chain

LARGE = memory_request((3, LEAST), np.dtype(np.float32))
SMALL = memory_request((5,), np.dtype(np.int64))


def kept(memory: ReusedMemory) -> int:
    """Return how many arrays' memory is kept for later."""
    return sum(map(len, memory._latest[1].values()))


def test_memory_that_a_caller_let_go_of_is_used_for_the_next_call() -> None:
    """The next call gets the same memory, and only as much as it had is kept."""
    memory, asked = ReusedMemory(), [LARGE, SMALL, LARGE]
    places = {each.ctypes.data for each in memory.take(asked) if each.size > 5}
    assert kept(memory) == len(places) == 2
    again = memory.take(asked)
    assert {again[0].ctypes.data, again[2].ctypes.data} == places
    assert kept(memory) == 0


@pytest.mark.parametrize("held", [lambda array: array[1:, ::2].T, lambda array: memoryview(array[1])])
def test_memory_that_somebody_looks_at_is_not_used(held: Callable[[Array], object]) -> None:
    """A view, or a buffer of one, keeps what it shows when the array itself is gone."""
    memory = ReusedMemory()
    (array,) = memory.take([LARGE])
    array[:] = 7
    view = held(array)
    (array,) = memory.take([LARGE])
    array[:] = 8
    assert np.all(np.asarray(view) == 7)
    assert kept(memory) == 0
    del view
    assert kept(memory) == 1


@pytest.mark.parametrize("seed", range(20))
def test_arrays_that_are_alive_never_share_memory(seed: int) -> None:
    """Whatever is taken, viewed and dropped in whatever order: each array keeps its own numbers."""
    draw = np.random.default_rng(seed)
    kinds = [memory_request((int(size),), np.dtype(np.float32)) for size in draw.integers(1, LEAST, 4)]
    memory, alive = ReusedMemory(), dict[int, Array]()
    for number in range(150):
        asked = [kinds[place] for place in draw.integers(0, len(kinds), draw.integers(1, 4))]
        for place, array in enumerate(memory.take(asked)):
            array[:] = 10 * number + place
            alive[10 * number + place] = array[draw.integers(0, array.size) :] if draw.random() < 0.3 else array
        del array
        for key in list(alive):
            assert np.all(alive[key] == key)
            if draw.random() < 0.5:
                del alive[key]
    most = sum(1 for each in asked if each.size)
    alive.clear()
    assert kept(memory) <= most


def test_what_one_call_does_not_need_is_not_kept() -> None:
    """However many outputs are dropped at once, and whatever sizes were asked for before, one call's are kept."""
    memory = ReusedMemory()
    many = [memory.take([LARGE, SMALL]) for _ in range(5)]
    many.clear()
    assert kept(memory) == 1
    memory.take([memory_request((7 * LEAST,), np.dtype(np.float32))])
    assert kept(memory) == 1


def test_an_output_that_grows_fits_the_memory_that_is_there() -> None:
    """An output that is the next call's input, one longer each time, takes turns with it in the same two places."""
    memory, places, array = ReusedMemory(), set[int](), np.zeros(0)
    for length in range(1000, 1020):
        (array,) = memory.take([memory_request((12, length, 64), np.dtype(np.float32))])
        places.add(array.ctypes.data)
    assert len(places) == 2
    for nbytes in (LEAST, LEAST + 1, 2 * LEAST - 1, 10**6, 2**31 + 5):
        assert nbytes <= memory_request((nbytes,), np.dtype(np.uint8)).size <= nbytes * 9 / 8


def test_threads_that_take_outputs_at_once_get_different_memory() -> None:
    """Calls of several sizes beside each other neither share memory nor meet what another is changing."""
    memory, start = ReusedMemory(), threading.Barrier(4)
    sizes: list[list[MemoryRequest]] = [[LARGE, LARGE], [memory_request((LEAST,), np.dtype(np.float32))]]

    def work(number: int) -> bool:
        start.wait()
        right = True
        for turn in range(200):
            arrays = memory.take(sizes[(number + turn // 7) % 2])
            for array in arrays:
                array.reshape(-1)[::1000] = number
            right = right and all(np.all(array.reshape(-1)[::1000] == number) for array in arrays)
        return right

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))


def test_an_output_outlives_what_made_it() -> None:
    """An array stays what it is when the network is gone."""
    memory = ReusedMemory()
    (array,) = memory.take([LARGE])
    array[:] = 3
    del memory
    assert np.all(array == 3)


def test_an_output_of_a_network_in_parts_is_copied_only_where_it_is_another_array_too() -> None:
    """An output of a part is a result as it is; once more, or as a view, it is copied."""
    (array,) = ReusedMemory().take([LARGE])
    taken: set[int] = set()
    assert _own_copy(array, taken) is array
    for again in (_own_copy(array, taken), _own_copy(array[1:], taken)):
        assert not np.shares_memory(again, array)


def test_an_output_without_memory_is_an_error_of_the_run() -> None:
    """What does not fit into the address space names how much was wanted."""
    with pytest.raises(RunError, match=r"no memory for \d+ bytes of an array"):
        ReusedMemory().take([memory_request((2**60,), np.dtype(np.uint8))])


def test_a_network_writes_again_where_its_last_outputs_were() -> None:
    """Results that are kept stay right, and memory of those that are not is used by the next call."""
    size = LEAST
    built = build(chain(size))
    executor = Executor(built.record, {CPU: Library(built.library, 2)}, built.constants.arrays, None)
    inputs = [np.linspace(start, 1, size, dtype=np.float32) for start in (-3, -2, -1)]
    first = executor.run([inputs[0]])[0]
    place = executor.run([inputs[1]])[0].ctypes.data
    second = executor.run([inputs[2]])[0]
    assert second.ctypes.data == place != first.ctypes.data
    np.testing.assert_allclose(first, expected_chain(inputs[0]), rtol=1e-6)
    np.testing.assert_allclose(second, expected_chain(inputs[2]), rtol=1e-6)
