"""Work in several threads: what comes back, what is raised, and what happens where there are no threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import pytest

from opbuild.platform import background
from opbuild.platform.background import parallel_map
from opbuild.platform.files import mapping
from opbuild.platform.files.mapping import read_file

_SEEN: ContextVar[str] = ContextVar("seen", default="nothing")


def _together(count: int) -> Callable[[int], tuple[int, str]]:
    """Return a function that returns only when so many threads are in it."""
    barrier = threading.Barrier(count, timeout=60)

    def work(item: int) -> tuple[int, str]:
        barrier.wait()
        return item * item, _SEEN.get()

    return work


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_work_at_once_and_answers_come_in_the_order_of_the_items(threads: int) -> None:
    """As many as are allowed, each with the context variables of the caller."""
    token = _SEEN.set("the caller's")
    try:
        answers = parallel_map(_together(threads), range(2 * threads), threads, "test")
    finally:
        _SEEN.reset(token)
    assert answers == [(item * item, "the caller's") for item in range(2 * threads)]


def test_without_threads_the_caller_does_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on processes or memory costs time alone."""
    monkeypatch.setattr(background, "has_room", lambda: False)
    callers = parallel_map(lambda _: threading.get_ident(), range(5), 4, "test")
    assert callers == [threading.get_ident()] * 5


def test_nothing_to_do_starts_nothing() -> None:
    """An empty list has an empty answer."""
    assert parallel_map(lambda item: item, [], 4, "test") == []


@pytest.mark.parametrize("error", [ValueError, MemoryError, KeyboardInterrupt])
def test_the_first_items_error_is_raised_and_nobody_works_behind_it(error: type[BaseException]) -> None:
    """Whichever thread meets an error first; the others end with the item at hand."""
    barrier, begun = threading.Barrier(2, timeout=60), list[int]()

    def work(item: int) -> None:
        begun.append(item)
        if item < 2:
            barrier.wait()
            raise error(str(item))

    with pytest.raises(error, match="0"):
        parallel_map(work, range(1000), 2, "test")
    assert set(begun[:2]) == {0, 1}
    assert len(begun) < 1000


@pytest.mark.parametrize("nbytes", [0, 1, 4095, 4096, 4097, 12288, 50_001])
def test_a_file_read_in_parts_has_the_bytes_of_the_file(
    nbytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is left for the last part."""
    monkeypatch.setattr(mapping, "_PART", 4096)
    monkeypatch.setattr(mapping, "available_cores", lambda: 4)
    contents = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8).tobytes()
    path = tmp_path / "model.onnx"
    path.write_bytes(contents)
    assert read_file(path).tobytes() == contents


def test_a_file_that_is_cut_while_it_is_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In whichever part; no part is left as zeros that nobody read."""
    monkeypatch.setattr(mapping, "_PART", 4096)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"x" * 50_000)
    original = mapping.anonymous

    def cut(nbytes: int) -> mapping.Array:
        with path.open("r+b") as file:
            file.truncate(20_000)
        return original(nbytes)

    monkeypatch.setattr(mapping, "anonymous", cut)
    with pytest.raises(OSError, match=r"model\.onnx became shorter while it was read"):
        read_file(path)
