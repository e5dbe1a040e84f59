"""Linking and loading: one library a network, deterministic, with clear errors."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from opbuild.errors import LinkError
from opbuild.kernel.artifact import read_symbols
from opbuild.runtime.devices.cpu import library as library_module
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.devices.cpu.link import link, support_parts
from opbuild.store.pack import PACKS, read_pack
from opbuild.target.host import host_level
from opbuild.target.level import BY_NAME
from support.handmade import (
    ADD,
    PARALLEL,
    SQUARE,
    SUPPORT,
    build,
    chain,
    expected_chain,
    kernel_object,
    parallel_program,
)


def test_equal_objects_give_equal_libraries() -> None:
    """Linking the same objects twice gives the same bytes."""
    objects = [kernel_object(ADD), kernel_object(SQUARE)]
    assert link(objects) == link(objects)


def test_a_symbol_defined_twice_is_a_link_error_that_says_so() -> None:
    """Which one would be called would be chance."""
    with pytest.raises(LinkError, match="add__kernel0 is defined twice"):
        link([kernel_object(ADD), kernel_object(ADD)])


def test_bytes_that_are_no_object_are_a_link_error() -> None:
    """A damaged object is refused with what is wrong with it, never with the reader's own failure."""
    whole = kernel_object(ADD)
    with pytest.raises(LinkError, match="no little-endian ELF file"):
        link([b"not an object"])
    for length in range(6, len(whole), 97):
        with pytest.raises(LinkError, match="cannot be linked"):
            link([whole[:length]])


@pytest.mark.parametrize("seed", range(200))
def test_a_damaged_object_is_a_link_error_or_a_library(seed: int) -> None:
    """Whatever its tables say, the linker ends, and with one of these."""
    draw = random.Random(seed)
    damaged = bytearray(kernel_object(PARALLEL))
    for _ in range(draw.choice([1, 2, 8])):
        damaged[draw.randrange(len(damaged))] = draw.choice([0, 1, 0x7F, 0xFF, draw.randrange(256)])
    try:
        library = link([bytes(damaged), *SUPPORT])
    except LinkError:
        return
    assert library[:4] == b"\x7fELF"


def test_what_nothing_reaches_is_left_out() -> None:
    """Halide's description of a kernel is half of an object, and nobody asks for it."""
    objects = [kernel_object(ADD), kernel_object(SQUARE)]
    assert all(b"__kernel0_metadata" in each for each in objects)
    library = link(objects)
    assert b"__kernel0_metadata" not in library
    assert len(library) < sum(map(len, objects)) / 2


@pytest.mark.parametrize("level", sorted(path.name for path in PACKS.iterdir() if path.is_dir()))
def test_all_kernels_of_a_pack_are_one_library_in_which_each_is_found(level: str) -> None:
    """Every form in which the compiler writes an address is among them, for other architectures than this one, too."""
    objects = list(_objects_of(level))
    library = link([*objects, *support_parts(BY_NAME[level].triple).values()])
    if BY_NAME[level].triple == host_level().triple:
        loaded = Library(library, 1)
        for found in objects:
            (symbol,) = (name for name in read_symbols(found).defined if name.endswith("__kernel0"))
            assert loaded.kernel(symbol)
    else:
        assert library[:4] == b"\x7fELF"


def _objects_of(level: str) -> Iterator[bytes]:
    for path in sorted((PACKS / level).iterdir()):
        yield from (each.object for each in read_pack(path).objects())


def test_a_missing_symbol_is_an_error_when_the_library_is_loaded() -> None:
    """Everything is bound on loading: a kernel without its runtime does not load, and the symbol is named."""
    # In a new process: here the compiler may be loaded, and its own symbols would serve.
    program = (
        "import sys\n"
        "from opbuild.errors import LinkError\n"
        "from opbuild.runtime.devices.cpu.library import Library\n"
        "try:\n"
        "    Library(sys.stdin.buffer.read(), 1)\n"
        "except LinkError as error:\n"
        "    print(error.message)\n"
    )
    library = link([kernel_object(PARALLEL)])
    done = subprocess.run([sys.executable, "-c", program], input=library, capture_output=True, check=True)
    assert b"halide_" in done.stdout


def test_a_parallel_kernel_computes_what_it_should() -> None:
    """The threads that are linked in run the kernel."""
    x = np.arange(4096, dtype=np.float32)
    np.testing.assert_array_equal(build(parallel_program()).executor.run([x])[0], x * 2 + 1)


def test_a_library_loads_where_memory_files_are_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where anonymous files may not be executed, a temporary file serves and does not stay."""

    def forbidden(data: bytes) -> tuple[str, int]:
        raise PermissionError("memfd is forbidden here")

    before = set(Path(tempfile.gettempdir()).glob("opbuild-*.so"))
    monkeypatch.setattr(library_module, "_memory_file", forbidden)
    built = build(chain())
    x = np.ones(32, np.float32)
    np.testing.assert_allclose(built.executor.run([x])[0], expected_chain(x))
    assert set(Path(tempfile.gettempdir()).glob("opbuild-*.so")) == before


def test_a_damaged_library_is_a_link_error() -> None:
    """Bytes that are no library do not load, and nothing stays open."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(LinkError, match="cannot be loaded"):
        Library(b"\x7fELF" + bytes(100), 1)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before  # what earlier tests left may be collected meanwhile


def test_a_kernel_that_is_not_there_is_named() -> None:
    """Asking for an unknown symbol is a link error with the symbol."""
    with pytest.raises(LinkError, match="nothing__kernel0"):
        Library(link([kernel_object(ADD)]), 1).kernel("nothing__kernel0")


@pytest.mark.parametrize(
    "symbol", ["system", "exit", "abort", "opbuild_call", "halide_error", "add__kernel0\0", "", "a" * 5000]
)
def test_what_is_no_kernels_name_is_not_looked_up(symbol: str) -> None:
    """A record's symbol is looked up in all that a library is linked with, where ``system`` is, too."""
    library = Library(link([kernel_object(ADD)]), 1)
    with pytest.raises(LinkError, match="has no kernel"):
        library.kernel(symbol)
