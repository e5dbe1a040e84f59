"""Finalizers: an interrupt that comes while an object goes reaches the line that dropped it."""

from __future__ import annotations

import _thread
import gc
import operator
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opbuild
from opbuild.platform.files.held import LEAST, LEAST_PAGES, digest_parts, hold_file, new_pages
from opbuild.platform.finalizers import Finalizer, WeakValues
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.reused import LEAST as LEAST_REUSED
from opbuild.runtime.reused import new_array
from opbuild.store.claims import ClaimFile


class Interrupting(weakref.ref[Any]):
    """Interrupts this thread when an object goes, as a signal would between two lines."""

    __slots__ = ("interrupt",)
    interrupt: Callable[[], None]


SUPPORT = Path(opbuild.__file__).parent / "native" / "support"


def held_file(folder: Path) -> object:
    """Return a large file that others may not write to."""
    (folder / "file").write_bytes(bytes(2 * LEAST))
    return hold_file(folder / "file")


def digested(_: Path) -> object:
    """Return memory whose digest is known."""
    contents = np.zeros(64, np.uint8)
    digest_parts(contents, [(0, 64)])
    return contents


class Owner:
    """An object that has a finalizer."""


VALUES = WeakValues[str, "Owner"]()


def not_kept() -> object:
    """Return a value of a dictionary that does not keep it."""
    VALUES["x"] = value = Owner()
    return value


OBJECTS: dict[str, Callable[[Path], object]] = {
    "array of a call": lambda _: new_array((LEAST_REUSED,), np.uint8),
    "library": lambda _: Library((SUPPORT / f"arrange_{os.uname().machine}.so").read_bytes(), 1),
    "held file": held_file,
    "memory with a digest": digested,
    "memory on pages": lambda _: new_pages((LEAST_PAGES,), np.uint8),
    "claim": lambda folder: ClaimFile.opened(folder / "x.claim"),
    "value that is not kept": lambda _: not_kept(),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_interrupt_is_raised_where_the_object_was_dropped(name: str, tmp_path: Path) -> None:
    """No destructor runs between the signal and the next line, which would swallow what the handler raises."""
    dropped: list[Any] = [OBJECTS[name](tmp_path), set[int]()]  # the last one goes first
    reference = Interrupting(dropped[-1], operator.methodcaller("interrupt"))
    reference.interrupt = _thread.interrupt_main
    with pytest.raises(KeyboardInterrupt):
        dropped.clear()


def test_steps_are_taken_in_order_once_the_owner_is_gone() -> None:
    """In a cycle too, and whether or not somebody has the finalizer."""
    taken: list[int] = []
    owner = Owner()
    owner.__dict__.update(cycle=owner, own=Finalizer(owner, partial(taken.append, 1), partial(taken.append, 2)))
    Finalizer(owner, partial(taken.append, 3))
    assert not taken
    del owner
    gc.collect()
    assert sorted(taken) == [1, 2, 3]
    assert taken.index(1) < taken.index(2)


def test_steps_are_taken_once_or_left_out() -> None:
    """Also where they were taken before the owner is gone, and after they were left out."""
    taken: list[int] = []
    first, second = Owner(), Owner()
    run, left_out = Finalizer(first, partial(taken.append, 1)), Finalizer(second, partial(taken.append, 2))
    run.run()
    run.run()
    left_out.detach()
    left_out.run()
    del first, second
    assert taken == [1]


def test_nothing_is_given_back_at_the_end_of_the_program() -> None:
    """Threads that are left may still use it."""
    program = "import os; from functools import partial; from opbuild.platform.finalizers import Finalizer"
    program += "\nclass Owner: pass\nowner = Owner()\nowner.own = Finalizer(owner, partial(os.write, 1, b'taken'))"
    for end, said in (("", b""), ("\ndel owner", b"taken")):
        done = subprocess.run([sys.executable, "-c", program + end], capture_output=True, check=True)
        assert done.stdout == said


def test_values_are_forgotten_when_nobody_has_them() -> None:
    """Also where another took the place of one, which goes later."""
    values = WeakValues[str, Owner]()
    first, second = Owner(), Owner()
    values["x"] = first
    assert values.get("x") is first
    values["x"] = second
    del first
    assert values.get("x") is second
    assert values.items() == [("x", second)]
    del second
    assert values.get("x") is None
    assert not values.items()


def test_no_class_of_the_package_has_a_destructor() -> None:
    """It would be a place where an interrupt is lost; callbacks of ``weakref`` in Python ruff refuses."""
    sources = Path(opbuild.__file__).parent.rglob("*.py")
    assert [str(path) for path in sources if "def __del__" in path.read_text(encoding="utf-8")] == []
