"""Parallel map: a list of tasks in several threads, of which the calling one is the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import TypeVar

from opbuild.platform.background import Background
from opbuild.platform.locks import Lock

T = TypeVar("T")
R = TypeVar("R")


def parallel_map(
    work: Callable[[T], R],
    items: Sequence[T],
    threads: int,
    name: str,
) -> list[R]:
    """Call a function for each item, in the order of the items as far as threads are free; return its results.

    It pays where the function lets other threads run, as numpy, digests and files do. Where the system allows no
    further thread the calling one does everything. An error, Ctrl-C too, ends it before the next item of each thread.

    Args:
        work: The function; it sees the context variables of the caller.
        items: What it is called with.
        threads: Threads at most, the calling one among them.
        name: The threads' name.

    Raises:
        BaseException: What ``work`` raised, of the first item at which it did.
    """
    results: dict[int, R] = {}
    errors: dict[int, BaseException] = {}
    left, lock = iter(range(len(items))), Lock()

    def take() -> int | None:
        with lock:
            return None if errors else next(left, None)

    def run() -> None:
        number = take()
        while number is not None:
            try:
                results[number] = work(items[number])
            except BaseException as error:  # raised again by the caller
                errors[number] = error
            number = take()

    def helper() -> Background[None]:
        context = copy_context()  # one for each thread: none can be entered twice
        return Background(lambda: context.run(run), name)

    helpers = [helper() for _ in range(min(threads, len(items)) - 1)]
    for each in helpers:
        each.start()
    try:
        run()
        for each in helpers:
            each.result()
    except BaseException as error:  # Ctrl-C while the others end
        errors[-1] = error
        for each in helpers:
            each.result()
    if errors:
        first = errors[min(errors)]
        errors.clear()  # the error's traceback has this frame, or one that has the errors
        try:
            raise first
        finally:
            del first
    return [results[number] for number in range(len(items))]
