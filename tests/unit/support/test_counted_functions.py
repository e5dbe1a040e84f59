"""Exchanging functions: who has imported one by name calls the other one too, until the end."""

from __future__ import annotations

import threading

from opbuild.text import plural
from opbuild.text.plural import counted as words
from support.counted_functions import counted, exchanged


def test_calls_are_counted_by_thread_whoever_imported_the_function() -> None:
    """By its weight; afterwards nothing is counted."""
    with counted(words, lambda number, _: number) as counts:
        assert words(2, "file") == "2 files"
        thread = threading.Thread(target=words, args=(3, "file"))
        thread.start()
        thread.join()
    assert words(4, "file") == plural.counted(4, "file") == "4 files"
    assert (counts.here, counts.elsewhere, counts.count) == (2, 3, 5)


def test_a_function_is_what_it_was_when_another_one_raises() -> None:
    """The other one may call the whole one."""
    try:
        with exchanged(words, lambda whole: lambda *given: whole(*given).upper()):
            assert words(1, "file") == "1 FILE"
            raise ValueError
    except ValueError:
        assert words(1, "file") == "1 file"
