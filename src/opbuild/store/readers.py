"""Readers: several threads that look at many items, since a disk that is asked for much at once answers sooner.

Reading 30,000 small files that the system has not in memory takes a third of the time with eight readers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_READERS = 8
_AHEAD = 64
"""Items under way at most: an interruption waits for no more."""


def look_at(items: Iterable[_Item], look: Callable[[_Item], _Result]) -> Iterator[tuple[_Item, _Result]]:
    """Yield each item with what was found, in the order given.

    Args:
        items: The items.
        look: Looks at one; several threads call it.
    """
    pool = ThreadPoolExecutor(_READERS, thread_name_prefix="opbuild-reader")
    under_way: deque[tuple[_Item, Future[_Result]]] = deque()
    try:
        for item in items:
            under_way.append((item, _begin(pool, look, item)))
            if len(under_way) >= _AHEAD:
                yield _first(under_way)
        while under_way:
            yield _first(under_way)
    finally:
        pool.shutdown(cancel_futures=True)


def _begin(pool: ThreadPoolExecutor, look: Callable[[_Item], _Result], item: _Item) -> Future[_Result]:
    try:
        return pool.submit(look, item)
    except RuntimeError:  # there can be no more threads
        done = Future[_Result]()
        done.set_result(look(item))
        return done


def _first(under_way: deque[tuple[_Item, Future[_Result]]]) -> tuple[_Item, _Result]:
    item, future = under_way.popleft()
    return item, future.result()
