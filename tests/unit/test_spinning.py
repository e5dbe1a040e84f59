"""The function that decides how idle threads wait is a well-formed object that Halide's runtime gives way to."""

from __future__ import annotations

import ctypes
import platform
import time
from pathlib import Path

import pytest

from opbuild.kernel.elf import read_symbols
from opbuild.runtime.link import find_linker, link
from opbuild.runtime.spinning import TICKS, spinning_object


@pytest.mark.parametrize("triple", ["x86-64-linux", "arm-64-linux"])
def test_the_object_defines_the_yield_and_needs_only_sched_yield(triple: str) -> None:
    """The linker finds one strong function and one that the C library has."""
    data = spinning_object(triple)
    assert data is not None
    symbols = read_symbols(data)
    assert (symbols.defined, symbols.undefined) == (("halide_thread_yield",), ("sched_yield",))


def test_other_architectures_keep_halides_own() -> None:
    """Nothing is linked where no code is known."""
    assert spinning_object("riscv-64-linux") is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls x86-64 code")
def test_the_function_waits_some_microseconds_and_returns(tmp_path: Path) -> None:
    """Linked and called, it comes back after at least its ticks, a thousand times in a row."""
    data = spinning_object("x86-64-linux")
    assert data is not None
    path = tmp_path / "spin.so"
    path.write_bytes(link([data], find_linker()))
    wait = ctypes.CDLL(str(path)).halide_thread_yield
    started = time.perf_counter()
    for _ in range(1000):
        wait()
    # The fastest counters tick at about 6 GHz: 1.6 us a call at least.
    assert time.perf_counter() - started >= 1000 * TICKS / 6e9
