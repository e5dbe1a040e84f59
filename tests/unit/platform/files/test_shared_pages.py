"""Memory that other processes of a user may map: whole, unchanged, only under its name, and gone with its last user."""

from __future__ import annotations

import fcntl
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opbuild.graph.types import Array
from opbuild.platform.files.held import exchange_pages, new_pages
from opbuild.platform.files.shared_pages import (
    PREFIX,
    end_sharing,
    map_shared_pages,
    new_shared_pages,
    shared_descriptor,
    sharing_new_pages,
)
from support.processes import environment

NBYTES = 3 * 2**16 + 4096


def made(name: str = "weights", nbytes: int = NBYTES) -> tuple[Array, int]:
    """Return shared memory that counts, and its descriptor."""
    memory = new_shared_pages(nbytes, name)
    assert memory is not None
    memory[:] = np.arange(nbytes, dtype=np.uint64).astype(np.uint8)
    descriptor = shared_descriptor(memory)
    assert descriptor is not None
    return memory, descriptor


def test_another_process_maps_what_is_shared() -> None:
    """It sees the bytes, and cannot write to them."""
    memory, descriptor = made()
    program = f"""
from opbuild.platform.files.shared_pages import map_shared_pages
pages = map_shared_pages({os.getpid()}, {descriptor}, "weights", {NBYTES})
assert not pages.flags.writeable
print(int(pages.astype("u8").sum()))
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment(), check=True)
    assert int(run.stdout) == int(memory.astype(np.uint64).sum())


def test_what_is_mapped_outlives_who_shared_it() -> None:
    """Killed or not: the pages stay for who has them."""
    program = """
import sys
from opbuild.platform.files.shared_pages import new_shared_pages, shared_descriptor
memory = new_shared_pages(65536, "weights")
memory[:] = 7
print(shared_descriptor(memory), flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    descriptor = int(process.stdout.readline())
    pages = map_shared_pages(process.pid, descriptor, "weights", 65536)
    process.kill()
    process.communicate()
    assert pages is not None
    assert (pages == 7).all()
    assert map_shared_pages(process.pid, descriptor, "weights", 65536) is None


def in_place_of(descriptor: int, other: int) -> None:
    """Put another file under a descriptor."""
    os.dup2(other, descriptor, inheritable=False)
    os.close(other)


def unsealed(descriptor: int) -> None:
    """Put memory there that may be cut."""
    other = os.memfd_create(PREFIX + "weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(other, NBYTES)
    in_place_of(descriptor, other)


@pytest.mark.parametrize(
    "change",
    [
        lambda descriptor: in_place_of(descriptor, os.open(sys.executable, os.O_RDONLY)),
        lambda descriptor: in_place_of(descriptor, os.pipe()[0]),
        unsealed,
    ],
    ids=["a file", "a pipe", "may be cut"],
)
def test_whatever_else_a_descriptor_is_by_now_is_not_taken(change: Callable[[int], None]) -> None:
    """Numbers of descriptors are used again, those of processes, too."""
    memory, descriptor = made()
    assert map_shared_pages(os.getpid(), descriptor, "weights", NBYTES) is not None
    change(descriptor)
    assert map_shared_pages(os.getpid(), descriptor, "weights", NBYTES) is None
    assert memory[255] == 255


def test_another_name_or_size_is_not_taken() -> None:
    """Nor a process or descriptor that is not there."""
    memory, descriptor = made()
    process = os.getpid()
    for where in (
        (process, descriptor, "other", NBYTES),
        (process, descriptor, "weights", NBYTES - 4096),
        (process, 2**20, "weights", NBYTES),
        (2**22 + 1, descriptor, "weights", NBYTES),
    ):
        assert map_shared_pages(*where) is None
    assert memory.nbytes == NBYTES


def test_nobody_cuts_what_others_map() -> None:
    """That would end them."""
    _, descriptor = made()
    for nbytes in (0, NBYTES + 1):
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, nbytes)
    with pytest.raises(PermissionError):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)


def test_sharing_ends_and_its_pages_stay() -> None:
    """Who maps them has them; nobody else comes to them."""
    memory, descriptor = made()
    mapped = map_shared_pages(os.getpid(), descriptor, "weights", NBYTES)
    end_sharing(memory)
    end_sharing(memory)
    assert shared_descriptor(memory) is None
    assert map_shared_pages(os.getpid(), descriptor, "weights", NBYTES) is None
    assert mapped is not None
    assert (mapped == memory).all()


def test_nothing_is_left_of_memory_that_is_gone() -> None:
    """Neither descriptor nor map; also where others have been put in its place."""
    before = len([*Path("/proc/self/fd").iterdir()])
    memory, descriptor = made("gone")
    mapped = map_shared_pages(os.getpid(), descriptor, "gone", NBYTES)
    assert mapped is not None
    exchange_pages(mapped, memory)
    del memory, mapped
    gc.collect()
    assert len([*Path("/proc/self/fd").iterdir()]) == before
    assert f"{PREFIX}gone" not in Path("/proc/self/maps").read_text()


def test_new_pages_are_shared_where_the_thread_says_so() -> None:
    """Under the name that it says, and its own again thereafter."""
    with sharing_new_pages("weights"):
        shared = new_pages((NBYTES // 4,), np.float32)
        with sharing_new_pages(""):
            own = new_pages((NBYTES,), np.uint8)
        small = new_pages((4,), np.float32)
    assert shared_descriptor(shared) is not None
    assert [shared_descriptor(each) for each in (own, small, new_pages((NBYTES,), np.uint8))] == [None] * 3


def test_descriptors_are_left_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of those that a process may have is the most; then memory is a process's own."""
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    kept = [new_shared_pages(4096, "weights") for _ in range(4)]
    assert [each is not None for each in kept] == [True, True, False, False]
    assert [each is not None for each in (new_shared_pages(4096), new_pages((NBYTES,), np.uint8))] == [False, True]
