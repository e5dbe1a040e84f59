"""Pages of memory that a file's take the place of."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import numpy as np
import pytest

from opbuild.platform.files import held
from opbuild.platform.files.held import LEAST_PAGES, exchange_pages, has_own_pages, new_pages
from opbuild.platform.files.mapping import map_file
from support.mapped import mapped_at


@pytest.mark.slow
@pytest.mark.parametrize("count", [LEAST_PAGES // 4, 100_003, 2**20])
def test_a_files_pages_take_the_place_of_an_arrays(tmp_path: Path, count: int) -> None:
    """The address stays, the memory is the file's, and outlives the map that it was taken from."""
    array = new_pages((count,), np.float32)
    array[:] = np.arange(count)
    path = tmp_path / "file"
    path.write_bytes(array.tobytes())
    assert not mapped_at(array)
    exchange_pages(array, map_file(path, None)[0])
    gc.collect()
    assert mapped_at(array) == str(path)
    np.testing.assert_array_equal(array, np.arange(count, dtype=np.float32))


def test_an_array_can_be_read_while_its_pages_are_exchanged(tmp_path: Path) -> None:
    """Another thread sums it all the time: it never sees anything else."""
    array = new_pages((2**19,), np.int64)
    array[:] = 3
    path, stop, sums = tmp_path / "file", threading.Event(), set[int]()
    path.write_bytes(array.tobytes())

    def read() -> None:
        while not stop.is_set():
            sums.add(int(array.sum()))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(200):
        exchange_pages(array, map_file(path, None)[0])
    stop.set()
    reader.join()
    assert sums == {3 * 2**19}


def test_only_all_of_the_memory_has_pages_of_its_own() -> None:
    """Not a part of it, nor what the allocator gave, and nothing is known of it once it was given back."""
    array = new_pages((2, LEAST_PAGES), np.uint8)
    assert has_own_pages(array)
    assert has_own_pages(array.view(np.int16).reshape(-1))
    assert not has_own_pages(array[0])
    assert not has_own_pages(array[1])
    assert not has_own_pages(np.zeros(2 * LEAST_PAGES, np.uint8))
    assert not has_own_pages(new_pages((LEAST_PAGES - 1,), np.uint8))
    assert [*held._own] == [array.ctypes.data]
    del array
    gc.collect()
    assert not held._own


def test_where_pages_cannot_be_exchanged_memory_stays() -> None:
    """A private map has nothing to share: the system refuses, and the array is as it was."""
    array, private = new_pages((LEAST_PAGES,), np.uint8), new_pages((LEAST_PAGES,), np.uint8)
    array[:], private[:] = 1, 2
    exchange_pages(array, private)
    assert (array == 1).all()
