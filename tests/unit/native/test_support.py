"""What networks are linked with besides their kernels: the objects in the repository, and the memory they give."""

from __future__ import annotations

import ctypes
import hashlib
import platform
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from opbuild import native
from opbuild.kernel.artifact import read_symbols
from opbuild.runtime.devices.cpu.link import link, provided_symbols, support_objects, support_parts

SUPPORT = Path(native.__file__).parent / "support"
TRIPLES = ("x86-64-linux", "arm-64-linux")
HERE = {"x86_64": "x86-64-linux", "aarch64": "arm-64-linux"}.get(platform.machine(), "")
POOL = ("opbuild_pool_open", "opbuild_pool_close", "opbuild_pool_run")


def dynamic_symbols(library: Path) -> tuple[set[str], set[str]]:
    """Return the names that a library looks for elsewhere, and those that it offers."""
    data = library.read_bytes()
    place, size, count = *struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, place + number * size) for number in range(count)]
    table = next(each for each in sections if each[1] == 11)  # SHT_DYNSYM
    names = sections[table[6]][4]
    found: tuple[set[str], set[str]] = set(), set()
    for start in range(table[4] + 24, table[4] + table[5], 24):  # the first has no name
        name, _, _, section = struct.unpack_from("<IBBH", data, start)
        found[section != 0].add(data[names + name : data.index(b"\0", names + name)].decode())
    return found


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_objects_define_what_kernels_call_and_need_only_the_c_library(triple: str) -> None:
    """The linker finds everything in them, and no helper of a compiler is missing."""
    tasks, memory = (read_symbols(support_parts(triple)[name]) for name in ("tasks", "memory"))
    assert {"halide_do_par_for", "halide_set_custom_do_par_for", "opbuild_use_pool"} <= set(tasks.defined)
    assert not tasks.undefined
    assert {"halide_malloc", "halide_free"} <= set(memory.defined)
    assert set(memory.undefined) == {"malloc", "free"}


def test_the_pool_needs_only_the_c_library() -> None:
    """Each name that it does not define is one of the C library's, in which also musl agrees with glibc."""
    for machine in ("x86_64", "aarch64"):
        undefined, defined = dynamic_symbols(SUPPORT / f"pool_{machine}.so")
        assert set(POOL) <= defined
        assert undefined <= {
            *("pthread_create", "pthread_join", "sched_yield", "sched_getcpu", "sched_getaffinity"),
            *("sched_setaffinity", "getpid", "syscall", "mmap", "munmap", "madvise", "__tls_get_addr"),
        }


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("part", ["tasks", "memory", "call", "indices"])
def test_the_objects_were_compiled_from_the_sources_beside_them(triple: str, part: str) -> None:
    """``make support`` puts a source's digest into its objects; one that was forgotten is noticed here."""
    header = SUPPORT.parent / "opbuild_argument.h" if part == "indices" else SUPPORT / "page.h"
    source = (SUPPORT / f"{part}.c").read_bytes() + header.read_bytes()
    assert hashlib.sha256(source).hexdigest().encode() in support_parts(triple)[part]


def test_what_packs_weights_needs_no_library() -> None:
    """It loads beside any C library."""
    for machine in ("x86_64", "aarch64"):
        undefined, defined = dynamic_symbols(SUPPORT / f"arrange_{machine}.so")
        assert "opbuild_arrange" in defined
        assert not undefined


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("library", ["pool", "arrange"])
def test_the_libraries_were_compiled_from_the_sources_beside_them(library: str, machine: str) -> None:
    """As the objects were."""
    source = b"".join((SUPPORT.parent / f"opbuild_{library}.{kind}").read_bytes() for kind in "ch")
    assert hashlib.sha256(source).hexdigest().encode() in (SUPPORT / f"{library}_{machine}.so").read_bytes()


def test_only_what_is_called_is_linked() -> None:
    """A network of kernels that run in one thread and need no memory has neither; all have what no kernel calls."""
    parts = support_parts("x86-64-linux")
    always = [parts["call"], parts["indices"]]
    assert support_objects("x86-64-linux", {"tanhf"}) == always
    assert support_objects("x86-64-linux", {"halide_do_par_for"}) == [parts["tasks"], *always]
    assert support_objects("x86-64-linux", {"halide_free", "halide_do_par_for"}) == list(parts.values())
    assert {"halide_do_par_for", "halide_malloc", "halide_free"} <= provided_symbols("x86-64-linux")


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    """The memory object, linked alone and loaded."""
    if not HERE:
        pytest.skip("no object for this machine")
    path = tmp_path / "memory.so"
    path.write_bytes(link([support_parts(HERE)["memory"]]))
    library = ctypes.CDLL(str(path))
    library.halide_malloc.restype = ctypes.c_void_p
    library.halide_malloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    library.halide_free.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    return library


@pytest.mark.slow
def test_memory_is_aligned_and_all_of_it_is_the_kernels(memory: Any) -> None:
    """Blocks of any size are aligned to 128 bytes, do not overlap, and may be written whole; too much is refused."""
    for _ in range(2):  # the second time from what was freed
        sizes = [0, 1, 7, 127, 128, 129, 4095, 4096, 100_000, 5_000_000, 70_000_000]
        blocks = [(memory.halide_malloc(None, size), size) for size in sizes]
        for number, (block, size) in enumerate(blocks):
            assert block % 128 == 0
            ctypes.memset(block, number, size)
        for number, (block, size) in enumerate(blocks):
            assert set(ctypes.string_at(block, size)) <= {number}
            memory.halide_free(None, block)
    memory.halide_free(None, None)
    assert memory.halide_malloc(None, 2**64 - 1) is None
    assert memory.halide_malloc(None, 2**62) is None


def test_what_was_freed_is_used_again(memory: Any) -> None:
    """A block serves what is not larger; a larger one takes its place, so that two in turn are soon two blocks."""
    first = memory.halide_malloc(None, 1000)
    memory.halide_free(None, first)
    assert memory.halide_malloc(None, 1000) == first
    memory.halide_free(None, first)
    assert memory.halide_malloc(None, 10) == first
    memory.halide_free(None, first)
    large = memory.halide_malloc(None, 10**6)
    memory.halide_free(None, large)
    seen = set()
    for size in (10, 10**6, 1000) * 20:
        block = memory.halide_malloc(None, size)
        seen.add(block)
        memory.halide_free(None, block)
    assert seen == {large}


def test_more_blocks_than_there_is_room_for_are_given_back(memory: Any) -> None:
    """Two thousand at once, freed in another order, and again: all are whole."""
    for _ in range(3):
        blocks = [memory.halide_malloc(None, 512) for _ in range(2000)]
        assert len(set(blocks)) == 2000
        for number, block in enumerate(blocks):
            ctypes.memset(block, number % 251, 512)
        for number, block in reversed(list(enumerate(blocks))):
            assert set(ctypes.string_at(block, 512)) == {number % 251}
            memory.halide_free(None, block)


def test_threads_never_share_a_block(memory: Any) -> None:
    """Eight threads take, fill, check and free blocks of changing sizes at once."""
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(400):
            size = 64 + (turn * 37 + number * 11) % 3000
            block = memory.halide_malloc(None, size)
            ctypes.memset(block, number, size)
            if set(ctypes.string_at(block, size)) != {number}:
                wrong.append(number)
            memory.halide_free(None, block)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_thread_gets_its_own_block_back(memory: Any) -> None:
    """Whatever others free meanwhile, and in whatever order; a thread without one takes anybody's."""
    mine = memory.halide_malloc(None, 1000)
    turns: list[threading.Event] = [threading.Event() for _ in range(2)]
    seen: set[int] = set()

    def other() -> None:
        for _ in range(50):
            assert turns[0].wait(60)
            turns[0].clear()
            block = memory.halide_malloc(None, 1000)
            seen.add(block)
            memory.halide_free(None, block)
            turns[1].set()

    thread = threading.Thread(target=other)
    thread.start()
    for turn in range(50):
        if turn:
            assert memory.halide_malloc(None, 1000) == mine
        turns[0].set()
        assert turns[1].wait(60)
        turns[1].clear()
        memory.halide_free(None, mine)
    thread.join()
    assert len(seen) == 1
    assert seen != {mine}
    assert memory.halide_malloc(None, 10) == mine
    assert {memory.halide_malloc(None, 10)} == seen


def test_unloading_gives_everything_back(tmp_path: Path) -> None:
    """Hundred networks that each kept a large block leave nothing behind."""
    if not HERE:
        pytest.skip("no object for this machine")
    program = """
import ctypes, sys, _ctypes
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
for turn in range(100):
    library = ctypes.CDLL(sys.argv[1])
    library.halide_malloc.restype = ctypes.c_void_p
    library.halide_malloc.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    block = library.halide_malloc(None, 4 << 20)
    ctypes.memset(block, 1, 4 << 20)
    library.halide_free(None, ctypes.c_void_p(block))
    _ctypes.dlclose(library._handle)
    if turn == 5:
        before = resident()
print(resident() - before)
"""
    path = tmp_path / "memory.so"
    path.write_bytes(link([support_parts(HERE)["memory"]]))
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40 << 20
