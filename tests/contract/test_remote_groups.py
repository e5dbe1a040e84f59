"""Groups of operators: what a build lacks comes as one object where somebody had most of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from opbuild.kernel.entry import Entry
from opbuild.kernel.interfaces import Claim, Found, Holder
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.objects import CLAIMS, GROUPS, Objects
from opbuild.store.remote.operators import AGAIN_SECONDS, COLLECTED, FIRST, LEAST, Group, RemoteStore, write_group
from opbuild.store.remote.service import Service
from support.remote_servers import service
from support.samples import conv, entry_of
from support.simulated import Time

COUNT = FIRST + LEAST + 2
MADE = [entry_of(conv(tile)) for tile in range(COUNT)]
KEYS = [key for key, _ in MADE]
NAME = Group({key.stem: key for key in KEYS}).name


@pytest.fixture
def time() -> Time:
    """What all who share the remote store wait by."""
    return Time()


@pytest.fixture
def shared(tmp_path: Path, time: Time) -> Service:
    """A remote store in a folder."""
    return service(f"file://{tmp_path / 'shared'}", time=time)


def writer(shared: Service) -> RemoteStore:
    """Return the store as a process uses it that writes at once."""
    objects = Objects(shared, PRIVATE)

    def write(name: str, entries: Sequence[Entry], claim: Claim | None) -> None:
        assert write_group(objects, name, entries, claim) is None

    return RemoteStore(objects, 0.0, Leases(shared, CLAIMS), write)


def reader(shared: Service) -> RemoteStore:
    """Return the store as a process uses it that only reads."""
    return RemoteStore(Objects(shared, PRIVATE))


def found(answers: Sequence[object]) -> int:
    """Return how many there are."""
    return sum(isinstance(answer, Found) for answer in answers)


def requests(shared: Service, work: Callable[[], object]) -> int:
    """Return how many requests some work takes."""
    before = shared.traffic.requests
    work()
    return shared.traffic.requests - before


def built_by(far: RemoteStore, number: int = COUNT) -> None:
    """Look for all, and build the first ones."""
    far.lookup_all(KEYS)
    for _, entry in MADE[:number]:
        far.publish(entry)
        far.built(entry)


def test_what_one_process_built_is_one_request_for_the_next(shared: Service) -> None:
    """All operators are checked as they are one by one, and are lent as those are."""
    built_by(writer(shared))
    for far in (reader(shared), writer(shared)):
        answers = far.lookup_all(KEYS)
        assert found(answers) == COUNT
        assert all(isinstance(answer, Found) and answer.is_lent for answer in answers)
    assert requests(shared, lambda: reader(shared).lookup_all(KEYS)) == 1


def test_the_order_in_which_operators_are_asked_for_is_no_part_of_a_group(shared: Service) -> None:
    """Threads and sets have orders of their own."""
    built_by(writer(shared))
    assert requests(shared, lambda: reader(shared).lookup_all(KEYS[::-1])) == 1


def test_an_operator_that_is_asked_for_later_comes_without_a_request(shared: Service) -> None:
    """The whole group came when most of it was asked for."""
    far = writer(shared)
    far.lookup_all(KEYS)
    for _, entry in MADE:
        reader(shared).publish(entry)
    assert found(far.lookup_all(KEYS[1:])) == COUNT - 1  # one by one: this process collects them
    assert isinstance(far.lookup(KEYS[0]), Found)
    late = reader(shared)
    assert found(late.lookup_all(KEYS)) == COUNT


def test_one_of_several_collects_and_the_others_ask_once_more(shared: Service) -> None:
    """Who comes while another one collects does not ask for each operator, and has them from what is written."""
    first, second = writer(shared), writer(shared)
    for far in (first, second):
        far.lookup_all(KEYS)  # none is there
    for _, entry in MADE[:-1]:
        reader(shared).publish(entry)
    assert found(first.lookup_all(KEYS)) == COUNT - 1
    assert requests(shared, lambda: second.lookup_all(KEYS)) <= 1 + FIRST + 1
    late = writer(shared)
    assert found(late.lookup_all(KEYS)) == COUNT - 1  # the last one is not there yet
    first.publish(MADE[-1][1])
    first.built(MADE[-1][1])
    assert requests(shared, lambda: reader(shared).lookup_all(KEYS)) == 1
    assert shared.names(CLAIMS) == ()


def test_who_meets_a_dead_collector_has_everything(shared: Service, time: Time) -> None:
    """It waits for half a second, and collects then."""
    for _, entry in MADE:
        reader(shared).publish(entry)
    assert not isinstance(Leases(shared, CLAIMS).claim(NAME), Holder)
    assert found(writer(shared).lookup_all(KEYS)) == COUNT
    assert COLLECTED <= time() < COLLECTED + 2 * AGAIN_SECONDS
    assert shared.names(GROUPS) == (NAME,)


@pytest.mark.parametrize("change", [lambda data: data[:-7], lambda data: b"", lambda data: b"[]\n", lambda data: data])
def test_a_group_that_is_not_what_was_written_costs_one_request(
    shared: Service, change: Callable[[bytes], bytes]
) -> None:
    """Its seal is checked, and each operator as it is alone; what is not sound is asked for one by one."""
    for _, entry in MADE:
        reader(shared).publish(entry)
    objects = Objects(shared, PRIVATE)
    assert write_group(objects, NAME, [MADE[0][1], MADE[1][1]], None) is None
    body = objects.get(GROUPS + NAME, 2**20)
    assert isinstance(body, bytes)
    assert objects.put([(GROUPS + NAME, change(body))]) is None
    assert found(reader(shared).lookup_all(KEYS)) == COUNT


def test_few_operators_are_no_group(shared: Service) -> None:
    """They are asked for one by one, and nothing else is written."""
    few = KEYS[: LEAST - 1]
    far = writer(shared)
    assert requests(shared, lambda: far.lookup_all(few)) == len(few)
    for _, entry in MADE[: LEAST - 1]:
        far.publish(entry)
        far.built(entry)
    assert shared.names(GROUPS) == ()
