"""The writes of a program after its end: one budget, however many uploads, services and retries there are.

Time is simulated: each step of a request takes as long as it is told to, or until its limit.
"""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.remote import manifest
from opbuild.store.remote.leases import Lease
from opbuild.store.remote.networks import RemoteNetworks
from opbuild.store.remote.objects import CLAIMS, Objects
from opbuild.store.remote.operators import RemoteStore
from opbuild.store.remote.service import OpenDal, Service
from opbuild.store.remote.uploads import EXIT_SECONDS, UPLOAD_SECONDS, Ending, Uploads
from support.fuzzing import check_seeds
from support.remote_servers import PATIENT
from support.samples import conv, entry_of
from support.simulated import Time
from support.until import until

STEPS = 3
"""Steps of which a request consists: opening, sending, closing."""


class Operator:
    """OpenDAL's operator for a service whose steps take random times.

    Args:
        world: Says what happens.
        seconds: The limit of each step.
    """

    def __init__(self, world: World, seconds: float) -> None:
        self._world, self._seconds = world, seconds

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return any kind of request."""
        return lambda *given, **named: self._world.request(name, self._seconds)


class World:
    """Services that misbehave from some request on, and a program that ends in the midst of one.

    Args:
        chance: Decides.
        answers: Requests that are answered before they misbehave.
        ends: The request, counted from 0, in whose midst the program ends.
    """

    def __init__(self, chance: random.Random, answers: int, ends: int) -> None:
        self.time = Time()
        self.ending = Ending(clock=self.time)
        self.numbers = 0
        self._chance, self._answers, self._ends = chance, answers, ends
        self.how = chance.choice(("hangs", "refuses", "asks for patience", "breaks off", "anything"))

    def request(self, name: str, seconds: float) -> Any:
        """Let a request take its time; raise what it meets."""
        number, self.numbers = self.numbers, self.numbers + 1
        how = "answers" if number < self._answers else self.how
        if how == "anything":
            how = self._chance.choice(("answers", "hangs", "refuses", "asks for patience", "breaks off"))
        for step in range(self._chance.randint(1, STEPS)):
            if number == self._ends and not step:
                self.time.sleep(self._chance.random() * seconds / 2)
                self.ending.begin()
                seconds /= 2
            self.time.sleep(seconds if how == "hangs" else self._chance.random() * min(seconds, 0.3))
            if how == "hangs":
                raise TimeoutError("timeout")
        if how in ("refuses", "asks for patience", "breaks off"):
            words = {"refuses": "connection refused", "asks for patience": "ratelimited", "breaks off": "(temporary)"}
            raise OSError(words[how])
        return io.BytesIO() if name == "open" else mock.MagicMock(content_length=7, __bool__=lambda _: False)

    def knock(self, seconds: float) -> None:
        """Do what looking for a better reason takes at most."""
        self.time.sleep(seconds)
        raise TimeoutError("timed out")


def network(chance: random.Random) -> tuple[NetworkKey, StoredNetwork, dict[str, Any]]:
    """Return a network with some blobs."""
    array = chance.randbytes(chance.randint(0, 20) * 16 + 5)
    weights = {blake3_of(array): np.frombuffer(array, np.uint8)}
    key = NetworkKey("net", {"model": chance.random()}, str)
    return key, StoredNetwork({}, b"library", np.zeros(3, np.uint8), dict.fromkeys(weights)), weights


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks have many blobs though they are small, which are written one after the other."""
    monkeypatch.setattr(manifest, "PIECE", 16)
    monkeypatch.setattr(manifest, "HELD", 0)
    monkeypatch.setattr("opbuild.store.concurrent_map._THREADS", 1)


def _ended(seed: int) -> tuple[float, int, list[str]]:
    """Let a program end; return for how long it was kept, how many requests there were, and what was told.

    Its threads go on one after the other: simulated time would pass for each of those that wait together.
    """
    chance = random.Random(seed)
    world = World(chance, chance.choice((0, 1, 5, 1000)), chance.randint(0, 6))
    told: list[str] = []
    made: list[Uploads] = []
    threads: list[Callable[[], object]] = []
    with (
        mock.patch("opbuild.store.remote.uploads.begin", lambda work, _: threads.append(work) or True),
        mock.patch.object(OpenDal, "_opened", lambda self, seconds: Operator(world, seconds)),
        mock.patch.object(OpenDal, "_probe_server", lambda self, seconds: world.knock(seconds)),
        mock.patch("opbuild.store.remote.uploads.atexit"),
    ):
        for number in range(chance.randint(1, 3)):
            address = mock.Mock(service="redis", url=f"redis://{number}")
            service = Service(address, None, UPLOAD_SECONDS, world.ending, world.time, world.time.sleep)
            objects, uploads = Objects(service, PRIVATE, told.append), Uploads(told.append, world.ending)
            made.append(uploads)
            for _ in range(chance.randint(1, 30)):
                uploads.add(_upload(chance, objects))
            uploads.add(Lease(partial(service.delete, f"{CLAIMS}x/0")).release)  # type: ignore[arg-type]
        for work in threads:
            work()
        for uploads in made:
            uploads.finish()
        for uploads in made:
            uploads.wait()
    return world.time.now - (world.ending._until - EXIT_SECONDS), world.numbers, told


def _upload(chance: random.Random, objects: Objects) -> Callable[[], str | None]:
    if chance.random() < 0.5:
        entry = entry_of(conv(chance.randint(0, 9)))[1]
        return lambda: RemoteStore(objects).publish(entry)
    made = network(chance)
    return lambda: RemoteNetworks(objects).publish(*made)


@pytest.mark.slow
@pytest.mark.usefixtures("small_pieces")
def test_a_program_that_has_ended_is_kept_no_longer_than_the_guide_says() -> None:
    """Whatever services do and whenever the program ends, also in the midst of a request; with all retries (F67)."""

    def one(seed: int) -> tuple[str, str]:
        kept, _, _ = _ended(seed)
        outcome = "wrong" if kept > EXIT_SECONDS else "kept for a while" if kept > 1.0 else "ended at once"
        return outcome, f"{kept} s" if outcome == "wrong" else ""

    assert len(check_seeds("uploads at the end of a program", one).outcomes) == 2


def test_the_budget_is_divided_among_the_steps_of_a_request() -> None:
    """While the program runs each has its usual time; in the end as much as all of them fit in, and then none."""
    time = Time()
    ending = Ending(9.0, time)
    assert (ending.left(), ending.limit(5.0, 1.0)) == (float("inf"), 5.0)
    ending.begin()
    assert (ending.left(), ending.limit(5.0, 1.0)) == (9.0, 1.0)
    time.sleep(7.5)
    assert ending.limit(5.0, 1.0) == 0.5
    ending.begin()
    time.sleep(1.4)
    assert (round(ending.left(), 9), ending.limit(5.0, 1.0)) == (0.1, 0.0)


def test_uploads_are_finished_or_abandoned_at_exit() -> None:
    """What is done in time is done in order; what is left then is dropped, and said once."""
    told: list[str] = []
    done: list[int] = []
    uploads = Uploads(told.append, Ending(PATIENT))
    for number in range(20):
        uploads.add(lambda number=number: done.append(number))  # type: ignore[misc]
    uploads.finish()
    assert done == list(range(20))
    assert told == []
    stuck, hurried = threading.Event(), Uploads(told.append, Ending(0.05))
    hurried.add(lambda: stuck.wait(PATIENT))
    hurried.add(lambda: done.append(99))
    hurried.finish()
    stuck.set()
    assert told == ["uploads to the remote store were abandoned: 2 objects were not written in 0.05 s"]
    assert 99 not in done


def test_an_upload_that_fails_as_nobody_foresaw_is_told_and_the_others_are_written() -> None:
    """Who waits for them is not kept for ever."""
    done, uploads = list[int](), Uploads(lambda _: None, Ending(0.05))

    def fail() -> None:
        raise ValueError("unforeseen")

    uploads.add(fail)
    uploads.add(lambda: done.append(1))
    assert until(lambda: done, 10)
    assert uploads.wait() == ["ValueError: unforeseen"]


def test_an_upload_that_is_interrupted_leaves_the_next_ones_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no thread for it, Ctrl-C comes to who adds it."""
    done, uploads = list[int](), Uploads(lambda _: None, Ending(0.05))
    monkeypatch.setattr("opbuild.store.remote.uploads.begin", lambda *_: None)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        uploads.add(interrupt)
    uploads.add(lambda: done.append(1))
    assert done == [1]
    assert uploads.wait() == []
