"""What leases promise over every service: one of many holds a claim, a dead holder's ends, and nobody's is for ever."""

from __future__ import annotations

import pytest

from opbuild.kernel.interfaces import UNCLAIMED, Holder
from opbuild.store.remote.leases import Lease, Leases
from opbuild.store.remote.service import Service
from support.remote_servers import KINDS, Servers, free_port, service
from support.samples import conv, key_of
from support.simulated import Time
from support.together import run_together


@pytest.fixture(params=KINDS)
def remote(request: pytest.FixtureRequest, servers: Servers) -> Service:
    """An empty store of each kind."""
    return servers(request.param)


def leases(remote: Service, time: Time | None = None) -> Leases:
    """Return the claims of another process."""
    return Leases(remote, "claims/", 3, time or Time())


def test_one_holds_a_claim_until_it_is_released(remote: Service) -> None:
    """Others are told who it is; a released claim is free, and releasing twice is harmless."""
    key = key_of(conv())
    first = leases(remote).take(key)
    assert isinstance(first, Lease)
    holder = leases(remote).take(key)
    assert isinstance(holder, Holder)
    assert holder.rank == 3
    assert holder.process
    first.release()
    first.release()
    assert isinstance(leases(remote).take(key), Lease)


def test_of_many_that_claim_at_once_hardly_more_than_one_succeeds(remote: Service) -> None:
    """Exactly one where the service writes only new objects; elsewhere two may, and then something is made twice."""
    held: list[object] = []

    def work(number: int) -> None:
        claim = leases(remote).claim("one")
        if isinstance(claim, Lease):
            held.append(claim)

    assert run_together(work, 6) == []
    assert 1 <= len(held) <= (1 if remote.writes_only_new() else 2)


def test_a_dead_holders_claim_ends_by_the_clock_of_who_waits(remote: Service) -> None:
    """However wrong the clocks of two hosts are: only what passes while one waits counts; then one follows."""
    assert isinstance(leases(remote, Time(1e9)).claim("one", 10.0), Lease)
    early, late = Time(-5e8), Time(7.0)
    waiting, other = leases(remote, early), leases(remote, late)
    assert isinstance(waiting.claim("one"), Holder)
    assert isinstance(other.claim("one"), Holder)
    early.now += 9.9
    assert isinstance(waiting.claim("one"), Holder)
    early.now += 0.2
    late.now += 10.1
    follower = waiting.claim("one")
    assert isinstance(follower, Lease)
    assert isinstance(other.claim("one"), Holder)
    follower.release()
    assert isinstance(leases(remote).claim("one"), Lease)


def test_who_cannot_wait_takes_a_claim_over(remote: Service) -> None:
    """In the same way as one that has ended: one of many has it, and the next one can take that over."""
    time = Time()
    hosts = [leases(remote, time) for _ in range(3)]
    assert not isinstance(hosts[0].claim("k"), Holder)
    assert all(isinstance(host.claim("k", patience=0.5), Holder) for host in hosts[1:])
    time.now = 0.6
    assert not isinstance(hosts[1].claim("k", patience=0.5), Holder)
    assert isinstance(hosts[2].claim("k", patience=0.5), Holder)
    time.now = 1.2
    assert not isinstance(hosts[2].claim("k", patience=0.5), Holder)


@pytest.mark.parametrize("said", [b"", b"garbage", b"[1]", b'{"seconds": 1e9, "word": 3, "process": "x"}'])
def test_what_is_no_claim_ends_too(remote: Service, said: bytes) -> None:
    """Who writes nonsense into the folder of claims makes others wait for one lease, not for ever."""
    assert remote.put([("claims/one/0", said)]) is None
    time = Time()
    waiting = leases(remote, time)
    assert isinstance(waiting.claim("one"), Holder)
    time.now = 16.0
    assert isinstance(waiting.claim("one"), Lease)


def test_where_there_are_no_claims_everybody_goes_on() -> None:
    """A service that is not there holds nobody up."""
    remote = service(f"redis://127.0.0.1:{free_port()}", 0.2)
    assert leases(remote).claim("one") is UNCLAIMED
