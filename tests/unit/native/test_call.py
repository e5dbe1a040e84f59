"""Kernels that run in one thread are called on a stack that begins with a page, with all their operands."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

from opbuild.runtime.devices.cpu.library import MOST_OPERANDS, Library
from opbuild.runtime.devices.cpu.link import link, support_parts
from opbuild.target.host import host_level

COUNTS = (1, 2, 4, 5, 6, 7, 12, 13)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with a kernel for each number of operands, which says where its frame is and what it was given."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    parts = support_parts(host_level().triple)
    if compiler is None or not parts:
        pytest.skip("no C compiler, or no object for this machine")
    folder = tmp_path_factory.mktemp("calls")
    text = ""
    for count in COUNTS:
        names = [f"p{index}" for index in range(count)]
        text += f"int k{count}__kernel0(int tasks, {', '.join(f'long *{name}' for name in names)}) {{\n"
        text += "".join(f"    *{name} = *{name} * 10 + {index % 10};\n" for index, name in enumerate(names))
        text += "    return (int)((unsigned long)__builtin_dwarf_cfa() % 4096);\n}\n"
    (folder / "k.c").write_text(text)
    subprocess.run([compiler, "-O1", "-fPIC", "-c", "-o", folder / "k.o", folder / "k.c"], check=True)
    return link([(folder / "k.o").read_bytes(), parts["call"], parts["tasks"]])


def called(library: Library, count: int, values: Any) -> int:
    """Call the kernel of ``count`` operands on values, as an executor does."""
    assert library.call is not None
    kernel: Any = library.kernel(f"k{count}__kernel0")
    address = ctypes.addressof(values)
    words = [ctypes.cast(kernel, ctypes.c_void_p).value, 1, *(address + 8 * index for index in range(count))]
    return library.call(ctypes.byref((ctypes.c_void_p * (2 + MOST_OPERANDS))(*words)))


@pytest.mark.parametrize("count", COUNTS)
def test_a_kernel_gets_its_operands_and_a_page_of_stack(data: bytes, count: int) -> None:
    """However deep the caller is: eight operands fill a line before the page's end."""
    library = Library(data, 1)

    def deeper(depth: int) -> None:
        values = (ctypes.c_long * count)(*range(1, count + 1))
        assert called(library, count, values) == 4096 - 64
        assert list(values) == [(index + 1) * 10 + index % 10 for index in range(count)]
        if depth:
            deeper(depth - 1)

    deeper(20)


def test_kernels_that_run_in_several_threads_are_called_themselves(data: bytes) -> None:
    """They see to their tasks' stacks."""
    assert Library(data, 2).call is None
