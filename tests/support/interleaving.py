"""Interleaving: what several actors do to files, in every order of their steps.

An actor is a function in a thread of its own. Each call of the system that others can see the effect of, or that sees
an effect of theirs, is a step: opening, looking for, renaming to and removing a file that has its name (what is written
under a private name nobody else looks at). One actor runs at a time, from one step to the next; which one goes on is
decided by a list of choices, and all lists are tried, or some at random. Two lists after which the files are the same,
and each actor has met the same, go on alike: only one of them is followed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from unittest import mock

from opbuild.platform.files.private import is_private
from support.together import shut

Actor = Callable[[], object]

Choose = Callable[[int, object], int]
"""Returns which of so many actors goes on; also given what tells all that was done so far."""

_STEPS = {"open": 0, "unlink": 0, "lstat": 0, "stat": 0, "replace": 1, "rename": 1, "link": 1}
"""Functions of ``os``, and which argument says the file that others see."""

_HOLDERS = [os, *filter(None, [getattr(pathlib, "_normal_accessor", None)])]
"""Who is asked for these functions: until Python 3.10 paths have an object that took them from ``os`` when imported."""


class _Run:
    """Actors under way."""

    def __init__(self, actors: Sequence[Actor]) -> None:
        self._turns = [shut() for _ in actors]
        self._stopped = shut()
        self._numbers: dict[int, int] = {}
        self.alive = list(range(len(actors)))
        self.failed: list[BaseException] = []
        self.trace: list[str] = []
        self.met: list[tuple[Hashable, ...]] = [()] * len(actors)
        self._threads = [threading.Thread(target=self._work, args=(n, a), daemon=True) for n, a in enumerate(actors)]
        for thread in self._threads:
            thread.start()
            self._stopped.acquire()

    def _work(self, number: int, actor: Actor) -> None:
        self._numbers[threading.get_ident()] = number
        self._stop(number)
        try:
            actor()
        except BaseException as error:
            self.failed.append(error)
        self.alive.remove(number)
        self._stopped.release()

    def _stop(self, number: int) -> None:
        self._stopped.release()
        self._turns[number].acquire()

    def step(self, name: str, path: Any) -> None:
        """Wait for one's turn to take a step, if an actor is to take it."""
        number = self._numbers.get(threading.get_ident())
        file = os.fspath(path).rpartition("/")[2] if isinstance(path, (str, os.PathLike)) else ""
        if number is not None and "." in file and not is_private(file):
            self._stop(number)
            self.trace.append(f"{number} {name} {file}")

    def meet(self, outcome: str) -> None:
        """Take note of what a step of an actor came to."""
        number = self._numbers.get(threading.get_ident())
        if number is not None:
            self.met[number] += (outcome,)

    def go_on(self, number: int) -> None:
        """Let an actor take the step before which it waits, and come to its next one."""
        self._turns[number].release()
        self._stopped.acquire()


def run(actors: Sequence[Actor], choose: Choose, between: Callable[[], Hashable]) -> list[str]:
    """Let actors go on until all are done; return their steps.

    Args:
        actors: What they do.
        choose: Decides who goes on.
        between: Called after each step; returns what tells the state of the files.
    """
    with contextlib.ExitStack() as patches:
        holder: list[_Run] = []

        def hooked(name: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
            def call(*given: Any, **named: Any) -> Any:
                if not holder or len(given) <= place:
                    return function(*given, **named)
                holder[0].step(name, given[place])
                try:
                    done = function(*given, **named)
                except OSError as error:
                    holder[0].meet(f"{name} {error.errno}")
                    raise
                holder[0].meet(name)
                return done

            return call

        for name, place in _STEPS.items():
            function = getattr(os, name)
            for each in [each for each in _HOLDERS if getattr(each, name, None) is function]:
                patches.enter_context(mock.patch.object(each, name, hooked(name, function, place)))
        patches.enter_context(mock.patch("opbuild.store.operators.time.sleep"))
        under_way = _Run(actors)
        holder.append(under_way)
        state = between()
        while under_way.alive:
            options = sorted(under_way.alive)
            number = choose(len(options), (state, *under_way.met)) if len(options) > 1 else 0
            under_way.met[options[number]] = under_way.met[options[number]] or (state,)  # what it lists first
            under_way.go_on(options[number])
            state = between()
    assert not under_way.failed, under_way.failed
    return under_way.trace


def every(switches: int = 100_000, most: int = 100_000) -> Iterator[Choose]:
    """Yield choices until all have been tried; each is to be used for one ``run``.

    Args:
        switches: How often another actor than the one before may go on while that could; most faults need one or two.
        most: How many there may be.
    """
    left: list[list[int]] = [[]]
    known: dict[object, int] = {}
    while left:
        assert most, "there are more"
        most -= 1
        prefix, taken = left.pop(), list[int]()

        def choose(count: int, state: object, prefix: list[int] = prefix, taken: list[int] = taken) -> int:
            number = prefix[len(taken)] if len(taken) < len(prefix) else 0
            switched = sum(one != other for one, other in pairwise(taken))
            if len(taken) >= len(prefix):
                number = taken[-1] if taken else 0
                if switched < known.get((state, number), switches):
                    known[state, number] = switched
                    left.extend([*taken, other] for other in range(count) if other != number)
            taken.append(number)
            return number

        yield choose


def some(count: int, seed: int) -> Iterator[Choose]:
    """Yield so many random choices."""
    chance = random.Random(seed)
    for _ in range(count):
        yield lambda count, state: chance.randrange(count)
