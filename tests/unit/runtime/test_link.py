"""Linking and loading: one library a network, deterministic, with clear errors."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from opbuild.errors import LinkError
from opbuild.platform.files.private import private_stem
from opbuild.runtime.devices.cpu import library as library_module
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.devices.cpu.link import find_linker, link
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
    """Linking the same objects twice gives the same bytes, wherever the linker's files lay."""
    objects = [kernel_object(ADD), kernel_object(SQUARE)]
    assert link(objects, find_linker()) == link(objects, find_linker())


def test_a_symbol_defined_twice_is_a_link_error_that_says_so() -> None:
    """The linker's own message reaches the user."""
    with pytest.raises(LinkError, match=r"multiple definition|duplicate symbol"):
        link([kernel_object(ADD), kernel_object(ADD)], find_linker())


def test_bytes_that_are_no_object_are_a_link_error() -> None:
    """A damaged object is refused by the linker and mapped."""
    with pytest.raises(LinkError, match="failed"):
        link([b"not an object"], find_linker())


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
    library = link([kernel_object(PARALLEL)], find_linker())
    done = subprocess.run([sys.executable, "-c", program], input=library, capture_output=True, check=True)
    assert b"halide_" in done.stdout


def test_a_linker_that_does_not_exist_is_named() -> None:
    """OPBUILD_LINKER with a wrong path says which."""
    with pytest.raises(LinkError, match="/no/such/linker"):
        find_linker("/no/such/linker")


def test_no_linker_at_all_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without binutils, compiler and ziglang the error names all three remedies."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LinkError, match=r"opbuild\[linker\]"):
        find_linker()


def test_ziglang_is_used_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wheel's linker is the last resort, run by this interpreter."""
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr("opbuild.runtime.devices.cpu.link._check_linker", lambda linker, machine: linker)
    assert find_linker().command[:4] == (sys.executable, "-m", "ziglang", "ld.lld")


@pytest.mark.parametrize("name", ["ld", "gcc", "ld.lld", "clang", "cc"])
def test_each_linker_present_makes_a_library_that_runs(name: str) -> None:
    """Linkers and compilers take their own flags; the kernels run the same."""
    try:
        linker = find_linker(name)
    except LinkError:
        pytest.skip(f"{name} is not installed")
    data = link([kernel_object(PARALLEL), *SUPPORT], linker)
    assert Library(data, 1).kernel("parallel__kernel0")


def test_a_folder_without_room_falls_back_to_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """F54: a full temporary folder does not stop the link where /dev/shm has room."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("no /dev/shm here")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert link([kernel_object(ADD)], find_linker())[:4] == b"\x7fELF"


def test_linking_removes_what_a_killed_link_left_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """F53: the temporary folder is everybody's: what has a similar name stays, however old it is."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = multiprocessing.get_context("spawn").Process()
    dead.start()
    dead.join()
    left = tmp_path / private_stem("opbuild-").replace(f".{os.getpid()}-", f".{dead.pid}-x")
    others = [tmp_path / name for name in ("opbuild-results", "opbuild-kernels-0rv1211x", "opbuild-")]
    for folder in (left, *others):
        folder.mkdir()
        os.utime(folder, (0, 0))
    link([kernel_object(SQUARE)], find_linker())
    assert sorted(tmp_path.iterdir()) == sorted(others)


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
        Library(link([kernel_object(ADD)], find_linker()), 1).kernel("nothing__kernel0")


@pytest.mark.parametrize(
    "symbol", ["system", "exit", "abort", "opbuild_call", "halide_error", "add__kernel0\0", "", "a" * 5000]
)
def test_what_is_no_kernels_name_is_not_looked_up(symbol: str) -> None:
    """A record's symbol is looked up in all that a library is linked with, where ``system`` is, too."""
    library = Library(link([kernel_object(ADD)], find_linker()), 1)
    with pytest.raises(LinkError, match="has no kernel"):
        library.kernel(symbol)
