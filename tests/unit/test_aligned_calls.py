"""Kernels are called on a stack that begins with a page, with all their operands, alone and one after the other."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

from opbuild.kernel.host import host_level
from opbuild.runtime.executor import kernel_step
from opbuild.runtime.library import Library
from opbuild.runtime.link import find_linker, link, support_parts
from opbuild.runtime.loops import Loops, Step

COUNTS = (1, 2, 4, 5, 6, 7, 12, 13)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with two kernels for each number of operands, which say what they were given and where a frame is."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    parts = support_parts(host_level().triple)
    if compiler is None or not parts:
        pytest.skip("no C compiler, or no object for this machine")
    folder = tmp_path_factory.mktemp("calls")
    text = ""
    for count in COUNTS:
        names = [f"p{index}" for index in range(count)]
        operands = ", ".join(f"long *{name}" for name in names)
        text += f"int kernel_{count}(int tasks, {operands}) {{\n"
        text += "".join(f"    *{name} = *{name} * 10 + {index % 10};\n" for index, name in enumerate(names))
        text += "    return tasks == 7;\n}\n"
        text += f"int frame_{count}(int tasks, {operands}) {{\n"
        text += "    *p0 = (long)((unsigned long)__builtin_dwarf_cfa() % 4096);\n    return 0;\n}\n"
    (folder / "k.c").write_text(text)
    subprocess.run([compiler, "-O1", "-fPIC", "-c", "-o", folder / "k.o", folder / "k.c"], check=True)
    return link([(folder / "k.o").read_bytes(), parts["call"], parts["tasks"]], find_linker())


def step(library: Library, symbol: str, values: Any, tasks: int = 1) -> Step:
    """Return the call of a kernel on values, as an executor has it."""
    address = ctypes.addressof(values)
    return kernel_step(library.kernel(symbol), library, tasks, [address + 8 * index for index in range(len(values))])


def numbers(count: int) -> Any:
    """Return operands."""
    return (ctypes.c_long * count)(*range(1, count + 1))


def computed(count: int) -> list[int]:
    """Return what a kernel makes of them."""
    return [(index + 1) * 10 + index % 10 for index in range(count)]


@pytest.mark.parametrize("count", COUNTS)
def test_a_kernel_gets_its_operands_and_a_page_of_stack(data: bytes, count: int) -> None:
    """However deep the caller is: eight operands fill a line before the page's end."""
    library = Library(data, 1)

    def deeper(depth: int) -> None:
        values = numbers(count)
        function, arguments = step(library, f"kernel_{count}", values)
        assert function(*arguments) == 0
        assert list(values) == computed(count)
        function, arguments = step(library, f"frame_{count}", values)
        assert function(*arguments) == 0
        assert values[0] == 4096 - 64
        if depth:
            deeper(depth - 1)

    deeper(20)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("failing", [None, 0, 3, len(COUNTS) - 1])
def test_a_loop_calls_kernels_until_one_fails(data: bytes, threads: int, failing: int | None) -> None:
    """Each gets its own operands, in order; the one that fails is known by its place, and none is called after it."""
    library = Library(data, threads)
    values = [numbers(count) for count in COUNTS]
    steps = [
        step(library, f"kernel_{count}", each, tasks=7 if place == failing else 1)
        for place, (count, each) in enumerate(zip(COUNTS, values, strict=True))
    ]
    loops = Loops(steps, [1] * len(steps), library.run)
    ((function, arguments),) = loops.steps
    code = function(*arguments)
    done = len(COUNTS) if failing is None else failing + 1
    assert [list(each) for each in values[:done]] == [computed(count) for count in COUNTS[:done]]
    assert [list(each) for each in values[done:]] == [list(numbers(count)) for count in COUNTS[done:]]
    assert code == (0 if failing is None else done)
    if failing is not None:
        assert loops.failed(arguments, code) == failing


@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_a_loop_have_a_page_of_stack_each(data: bytes, threads: int) -> None:
    """As those that are called alone."""
    library = Library(data, threads)
    values = [numbers(count) for count in COUNTS]
    steps = [step(library, f"frame_{count}", each) for count, each in zip(COUNTS, values, strict=True)]
    ((function, arguments),) = Loops(steps, [1] * len(steps), library.run).steps
    assert function(*arguments) == 0
    assert {each[0] for each in values} == {4096 - 64}
