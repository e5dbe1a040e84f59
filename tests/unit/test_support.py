"""What networks are linked with besides their kernels: the objects in the repository, and the memory they give."""

from __future__ import annotations

import ctypes
import hashlib
import platform
from pathlib import Path

import pytest

from opbuild.kernel.elf import read_symbols
from opbuild.runtime import support
from opbuild.runtime.link import find_linker, link
from opbuild.runtime.support import provided_symbols, support_objects, support_parts

TRIPLES = ("x86-64-linux", "arm-64-linux")
HERE = {"x86_64": "x86-64-linux", "aarch64": "arm-64-linux"}.get(platform.machine(), "")
THREADS = ("do_par_for", "set_custom_do_par_for", "set_num_threads", "get_num_threads", "shutdown_thread_pool")


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_objects_define_what_kernels_call_and_need_only_the_c_library(triple: str) -> None:
    """The linker finds everything in them, and no helper of a compiler is missing."""
    threads, memory = (read_symbols(support_parts(triple)[name]) for name in ("threads", "memory"))
    assert {f"halide_{name}" for name in THREADS} <= set(threads.defined)
    assert {"halide_malloc", "halide_free"} <= set(memory.defined)
    assert set(memory.undefined) == {"malloc", "free"}
    assert set(threads.undefined) == {
        *("pthread_create", "pthread_join", "sched_yield", "sched_getcpu", "sched_getaffinity"),
        *("sched_setaffinity", "getpid", "sysconf", "syscall"),
    }


@pytest.mark.parametrize("triple", TRIPLES)
@pytest.mark.parametrize("part", ["threads", "memory"])
def test_the_objects_were_compiled_from_the_sources_beside_them(triple: str, part: str) -> None:
    """``make support`` puts a source's digest into its objects; one that was forgotten is noticed here."""
    source = Path(support.__file__).with_name(f"{part}.c").read_bytes()
    assert hashlib.sha256(source).hexdigest().encode() in support_parts(triple)[part]


def test_only_what_is_called_is_linked() -> None:
    """A network of kernels that run in one thread and need no memory has neither."""
    parts = support_parts("x86-64-linux")
    assert support_objects("x86-64-linux", {"tanhf"}) == []
    assert support_objects("x86-64-linux", {"halide_do_par_for"}) == [parts["threads"]]
    assert support_objects("x86-64-linux", {"halide_free", "halide_do_par_for"}) == list(parts.values())
    assert {"halide_do_par_for", "halide_malloc", "halide_free"} <= provided_symbols("x86-64-linux")


def test_other_architectures_have_the_compilers_own() -> None:
    """Nothing is linked where there is no object, and nothing is said to be there."""
    assert support_objects("riscv-64-linux", {"halide_malloc"}) == []
    assert provided_symbols("riscv-64-linux") == frozenset()


@pytest.mark.skipif(not HERE, reason="no object for this machine")
def test_memory_is_aligned_and_all_of_it_is_the_kernels(tmp_path: Path) -> None:
    """Blocks of any size are aligned to 128 bytes, do not overlap, and may be written whole; too much is refused."""
    path = tmp_path / "memory.so"
    path.write_bytes(link([support_parts(HERE)["memory"]], find_linker()))
    library = ctypes.CDLL(str(path))
    allocate, free = library.halide_malloc, library.halide_free
    allocate.restype, allocate.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
    free.restype, free.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
    sizes = [0, 1, 7, 127, 128, 129, 4095, 4096, 100_000, 5_000_000]
    blocks = [(allocate(None, size), size) for size in sizes]
    for number, (block, size) in enumerate(blocks):
        assert block % 128 == 0
        ctypes.memset(block, number, size)
    for number, (block, size) in enumerate(blocks):
        assert set(ctypes.string_at(block, size)) <= {number}
        free(None, block)
    free(None, None)
    assert allocate(None, 2**64 - 1) is None
    assert allocate(None, 2**62) is None
