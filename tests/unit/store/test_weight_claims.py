"""Claims on the packing of weights: all of a store in one file, each ends with its process, and nobody needs any."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from opbuild.platform.digest import blake3_of
from opbuild.store.claims import WeightClaims, sweep_claims
from support.forked import in_fork

FIRST, SECOND = blake3_of(b"first"), blake3_of(b"second")


def test_a_source_is_packed_by_one_until_that_gives_it_up(tmp_path: Path) -> None:
    """Others are not touched by that, and who has it may take it again."""
    one, other = WeightClaims(tmp_path, "store"), WeightClaims(tmp_path, "store")
    assert one.take(FIRST)
    assert one.take(FIRST)
    assert not other.take(FIRST)
    assert other.take(SECOND)
    one.give(FIRST)
    assert other.take(FIRST)


def test_another_stores_claims_are_others(tmp_path: Path) -> None:
    """What one rank stores no other can find."""
    assert WeightClaims(tmp_path, "rank_0").take(FIRST)
    assert WeightClaims(tmp_path, "rank_1").take(FIRST)


def test_the_file_goes_with_the_last_who_uses_it(tmp_path: Path) -> None:
    """Nor is it swept away before, when nobody would see the claims any more."""
    one, other = WeightClaims(tmp_path / "claims", "store"), WeightClaims(tmp_path / "claims", "store")
    assert one.take(FIRST)
    assert other.take(SECOND)
    one.close()
    sweep_claims(tmp_path / "claims")
    assert [*(tmp_path / "claims").iterdir()]
    assert not WeightClaims(tmp_path / "claims", "store").take(SECOND)
    other.close()
    assert not [*(tmp_path / "claims").iterdir()]


def test_claims_end_with_who_is_gone(tmp_path: Path) -> None:
    """A build that failed gives nothing up, and the next sweep removes the file."""
    assert WeightClaims(tmp_path / "claims", "store").take(FIRST)
    assert WeightClaims(tmp_path / "claims", "store").take(FIRST)
    sweep_claims(tmp_path / "claims")
    assert not (tmp_path / "claims").exists()


def test_a_fork_has_none_of_its_parents_claims(tmp_path: Path) -> None:
    """It packs what it needs, and takes and gives nothing that is its parent's."""
    claims = WeightClaims(tmp_path, "store")
    assert claims.take(FIRST)

    def child() -> bool:
        own = claims.take(FIRST) and claims.take(SECOND)
        claims.give(FIRST)
        claims.close()
        return own

    assert in_fork(child)
    assert not WeightClaims(tmp_path, "store").take(FIRST)
    assert WeightClaims(tmp_path, "store").take(SECOND)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOLCK])
def test_where_there_are_no_such_locks_each_packs_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """As on some network file systems."""

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    one, other = WeightClaims(tmp_path, "store"), WeightClaims(tmp_path, "store")
    assert one.take(FIRST)
    assert other.take(FIRST)


def test_where_no_file_can_be_made_each_packs_all(tmp_path: Path) -> None:
    """A file is in the folder's place."""
    (tmp_path / "claims").touch()
    claims = WeightClaims(tmp_path / "claims", "store")
    assert claims.take(FIRST)
    claims.give(FIRST)
    claims.close()


def test_what_one_offers_others_are_told(tmp_path: Path) -> None:
    """By the last offer, whoever asks and whenever; also after it gave the claim up."""
    one, other = WeightClaims(tmp_path, "store"), WeightClaims(tmp_path, "store")
    assert other.offered(FIRST) is None
    one.offer(FIRST, 7)
    other.offer(SECOND, 8)
    assert (one.offered(FIRST), other.offered(FIRST)) == ((os.getpid(), 7), (os.getpid(), 7))
    assert one.offered(SECOND) == (os.getpid(), 8)
    one.offer(FIRST, 9)
    assert other.offered(FIRST) == (os.getpid(), 9)
    assert WeightClaims(tmp_path, "store").offered(SECOND) == (os.getpid(), 8)


@pytest.mark.parametrize("text", [b"\xff" * 96, b"x" * 96 + b"y", b"a b c".ljust(96), b"a 1 2 3".ljust(96), b"a"])
def test_an_offer_that_cannot_be_read_is_none(tmp_path: Path, text: bytes) -> None:
    """A disk was full, or the file system let two write at one place."""
    claims = WeightClaims(tmp_path, "store")
    assert claims.take(FIRST)
    (path,) = tmp_path.iterdir()
    path.write_bytes(text)
    assert claims.offered(FIRST) is None
    claims.offer(FIRST, 7)
    assert claims.offered(FIRST) in {(os.getpid(), 7), None}
    assert not WeightClaims(tmp_path, "store").take(FIRST)


def test_a_fork_offers_nothing(tmp_path: Path) -> None:
    """Its copy of the descriptor is closed, and may be another file."""
    claims = WeightClaims(tmp_path, "store")
    claims.offer(FIRST, 7)

    def child() -> bool:
        claims.offer(FIRST, 8)
        return claims.offered(FIRST) is None

    assert in_fork(child)
    assert claims.offered(FIRST) == (os.getpid(), 7)
