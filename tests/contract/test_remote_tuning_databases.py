"""What tuning found, in every remote store that is written to: merged, checked, never fatal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import Config
from opbuild.events import Event, Warned
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import service_at
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store.blobs import Files
from opbuild.store.remote.objects import TUNING_DATABASE, Objects
from opbuild.store.remote.service import Service
from opbuild.store.tuning_database import (
    MOST,
    SharedTuningDatabase,
    TuningDatabase,
    TuningRecord,
    append_records,
    line_of,
    read_database,
)
from support.remote_servers import KINDS, Servers, servers, service
from support.tuned_records import product, record

__all__ = ["servers"]

SIGNED = Trust(key=b"a key of sixteen bytes")
ONE, TWO, LATER = (
    record(product("nn", 64, 64, 64), {"tile": 1}, {"tile": 2}),
    record(product("nn", 128, 64, 64), {"tile": 1}, {"tile": 4}),
    record(product("nn", 64, 64, 64), {"tile": 1}, {"tile": 8}, date="2026-12-01T00:00:00Z"),
)


@pytest.fixture(params=KINDS)
def far(request: pytest.FixtureRequest, servers: Servers) -> Service:
    """A service of each kind, empty."""
    return servers(request.param)


@pytest.fixture
def folder(tmp_path: Path) -> Service:
    """A remote store in a folder."""
    return service(f"file://{tmp_path / 'shared'}")


def database(far: Service, trust: Trust = PRIVATE) -> SharedTuningDatabase:
    """Return the database of a service."""
    return SharedTuningDatabase(Objects(far, trust), TUNING_DATABASE, trust)


def records(far: Service, trust: Trust = PRIVATE) -> set[TuningRecord]:
    """Return the records of a service's tuning database."""
    found = database(far, trust).read()
    assert isinstance(found, TuningDatabase)
    return {*map(_hashable, found.records)}


def _hashable(each: TuningRecord) -> TuningRecord:
    parts = {name: str(getattr(each, name)) for name in ("default", "choice", "kernels")}
    return replace(each, **parts)  # type: ignore[arg-type]


def test_records_of_two_machines_are_merged_and_come_back(far: Service, tmp_path: Path) -> None:
    """The later of two for one query counts, there and here; what is there is not written again."""
    assert database(far).read() == TuningDatabase()
    assert database(far).publish(TuningDatabase((ONE,))) == 1
    assert database(far).publish(TuningDatabase((TWO, LATER))) == 2
    assert database(far).publish(TuningDatabase((ONE, TWO))) == 0
    assert records(far) == {_hashable(TWO), _hashable(LATER)}
    own = tmp_path / "bank" / "records"
    append_records(own, [ONE], PRIVATE)
    assert database(far).take(own) == 2
    assert database(far).take(own) == 0
    assert {*map(_hashable, read_database(own, PRIVATE).latest().values())} == {_hashable(TWO), _hashable(LATER)}


def test_of_two_who_write_at_once_nothing_is_lost(folder: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was overwritten sees that, and writes again."""
    put, others = Objects.put, [ONE]

    def late(self: Objects, files: Files) -> Reason | None:
        problem = put(self, files)
        if others:  # another writer, who read before this one wrote
            put(self, [(TUNING_DATABASE, line_of(others.pop(), PRIVATE))])
        return problem

    monkeypatch.setattr(Objects, "put", late)
    assert database(folder).publish(TuningDatabase((TWO,))) == 1
    assert records(folder) == {_hashable(ONE), _hashable(TWO)}


def test_only_what_is_signed_with_the_key_counts(folder: Service) -> None:
    """As of every object; a database that somebody wrote without the key is refused, and not fatal."""
    database(folder).publish(TuningDatabase((ONE,)))
    refused = database(folder, SIGNED).read()
    assert isinstance(refused, Reason)
    assert "sign" in refused.code


def test_a_line_that_is_damaged_costs_itself_and_too_large_a_database_is_not_read(folder: Service) -> None:
    """The object's seal is sound, one of its lines is not."""
    objects = Objects(folder, PRIVATE)
    objects.put([(TUNING_DATABASE, b"no line\n" + line_of(ONE, PRIVATE))])
    assert records(folder) == {_hashable(ONE)}
    objects.put([(TUNING_DATABASE, bytes(MOST + 1000))])
    refused = database(folder).read()
    assert isinstance(refused, Reason)
    assert refused.code == "damaged"


def _images(tmp_path: Path, far: Service, **settings: str) -> tuple[Config, list[Event]]:
    """Open the stores of a build that reads a remote store."""
    told: list[Event] = []
    config = Config(cache_path=tmp_path / "cache", remote=far.address.url, **settings)  # type: ignore[arg-type]
    setup = set_up(config, None, told.append)
    assert Stores(setup).networks is not None
    assert Stores(setup).networks is not None
    return config, told


def test_a_build_takes_what_others_found_once_where_it_is_told_of_a_database(tmp_path: Path, folder: Service) -> None:
    """One request a process; its own database has it then."""
    database(folder).publish(TuningDatabase((ONE,)))
    config, told = _images(tmp_path, folder, tune_bank_path=str(tmp_path / "bank"))
    assert [_hashable(each) for each in read_database(config.tune_bank, PRIVATE).records] == [_hashable(ONE)]
    assert service_at(folder.address.url).traffic.requests == 1
    assert told == []


def test_a_build_that_is_told_of_no_database_asks_for_none(tmp_path: Path, folder: Service) -> None:
    """A start without a database costs no request."""
    database(folder).publish(TuningDatabase((ONE,)))
    config, _ = _images(tmp_path, folder)
    assert not config.tune_bank.exists()
    assert service_at(folder.address.url).traffic.requests == 0


def test_a_database_that_cannot_be_used_is_told_and_stops_nothing(tmp_path: Path, folder: Service) -> None:
    """What is there is no bank."""
    folder.put([(TUNING_DATABASE, b"garbage")])
    _, told = _images(tmp_path, folder, tune_bank_path=str(tmp_path / "bank"))
    assert [type(each) for each in told] == [Warned] * len(told)
    assert any("tuning database" in str(each) for each in told)
