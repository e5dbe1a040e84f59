"""The metrics: what is counted where, their names, and Prometheus's form of them."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import opbuild
from opbuild import events
from opbuild.config import Config
from opbuild.events import with_subscribers
from opbuild.monitoring.metrics import COUNTERS, GAUGES
from opbuild.store.blobs import Memory
from opbuild.store.remote.retry import Retried
from support.samples import conv, disk_builder, needed
from support.until import until

REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "python_api.md"


class Growth:
    """The growth of the metrics since it was made."""

    def __init__(self) -> None:
        self._before = opbuild.metrics()

    def __call__(self) -> dict[str, float]:
        """Return the changes, by name."""
        return {name: now - self._before[name] for name, now in opbuild.metrics().items() if now != self._before[name]}


def test_a_build_counts_what_was_compiled_and_what_was_reused(config: Config) -> None:
    """Operators, bytes and seconds; what could not be compiled apart."""
    grown, observer = Growth(), with_subscribers(events.ignore)
    with disk_builder(config, observer) as builder:
        result = builder.build(needed(conv(1), conv(2)), "net")
    first = grown()
    nbytes = sum(len(entry.object) for entry in result.entries.values())
    assert first.keys() == {"builds", "build_seconds", "operators_built", "compile_seconds", "built_bytes"}
    assert (first["builds"], first["operators_built"], first["built_bytes"]) == (1, 2, nbytes)
    seconds = sum(entry.milliseconds for entry in result.entries.values()) / 1e3
    assert first["compile_seconds"] == pytest.approx(seconds, abs=0.001)  # entries have a tenth of a millisecond
    grown = Growth()
    with disk_builder(config, observer) as builder:
        builder.build(needed(conv(1), conv(2)), "net")
    again = grown()
    assert (again["operators_reused"], again["reused_bytes"]) == (2, nbytes)
    assert "operators_built" not in again
    grown = Growth()
    with disk_builder(config, observer) as builder, pytest.raises(opbuild.errors.CompileError):
        builder.build(needed(conv(3, fake="raise"), conv(4)), "net")
    assert {name: grown().get(name) for name in ("operators_failed", "operators_built", "builds")} == {
        "operators_failed": 1, "operators_built": 1, "builds": None,
    }  # fmt: skip


def test_what_is_pending_falls_to_nothing_however_a_build_ends(config: Config, tmp_path: Path) -> None:
    """While operators are compiled they are counted; a server that dies leaves none behind."""
    assert opbuild.metrics()["operators_pending"] == 0
    gate = tmp_path / "gate"
    with disk_builder(config) as builder:
        work = builder.start(needed(conv(1, until=str(gate)), conv(2, until=str(gate))), "net")
        assert until(lambda: opbuild.metrics()["operators_pending"] == 2)
        gate.touch()
        work.result()
        assert opbuild.metrics()["operators_pending"] == 0
        with pytest.raises(opbuild.errors.CompileError):
            builder.build(needed(conv(3, fake="crash")), "net")
    assert opbuild.metrics()["operators_pending"] == 0


def test_operators_are_counted_by_where_they_came_from() -> None:
    """The pack and the remote store are told apart from one's own, and from other processes."""
    sources = ["", events.PACK, events.PACK, events.REMOTE, "rank 2"]
    grown = Growth()
    events.tell(
        events.BuildFinished("net", 0, 5, 0.5, tuple(events.Reused(f"op{n}", "", s, 10) for n, s in enumerate(sources)))
    )
    assert grown() == pytest.approx({
        "builds": 1, "build_seconds": 0.5, "operators_reused": 5, "operators_from_pack": 2, "operators_from_remote": 1,
        "reused_bytes": 50,
    })  # fmt: skip


@pytest.mark.parametrize("how", [events.STORED, events.BY_NUMBERS, events.BUILT])
def test_bindings_are_counted_by_how_they_were_made(how: str) -> None:
    """With what numpy computes in them; those that others answer first are counted apart."""
    grown = Growth()
    events.tell(events.NetworkBound("net", [], how, "", {"NonZero": 2, "Unique": 1}, 0, 0.25))
    events.tell(events.NetworkBound("net", [], how, "", {}, 4, 0.5))
    assert grown() == pytest.approx({
        f"bindings_{how.replace(' ', '_')}": 2, "bind_seconds": 0.75, "fallbacks": 3, "first_answers": 1,
        "first_answer_seconds": 0.5,
    })  # fmt: skip


def test_requests_are_counted_with_their_bytes() -> None:
    """An object that is absent is no error."""
    grown, blobs = Growth(), Retried(Memory({"one": b"111"}))
    blobs.get("one", 10)
    blobs.get("nothing", 10)
    blobs.put([("two", b"2"), ("three", b"33")])
    counted = grown()
    assert counted.pop("remote_seconds") >= 0
    assert counted == {"remote_requests": 3, "remote_read_bytes": 3, "remote_written_bytes": 3}
    grown = Growth()
    events.tell(events.RemoteAsked("", "get", "x", 0, 0, 1.0, "slow", "slow: no answer in time"))
    assert grown() == pytest.approx({"remote_requests": 1, "remote_errors": 1, "remote_seconds": 1.0})


def test_all_that_is_counted_has_a_name_that_is_documented() -> None:
    """And each name is counted by some kind of events."""
    samples: list[events.ProcessEvent] = [
        events.CompileFinished("a", 1.0, 1, 1),
        events.CompileFinished("a", 1.0, 1, 1, failure="bad"),
        events.BuildFinished("net", 0, 0, 1.0),
        *(events.NetworkBound("net", [], how, "", {}, 1, 1.0) for how in ("stored", "by numbers", "built")),
        events.NetworkLoaded("net", 1),
        events.NetworkFetched("net"),
        events.RemoteAsked("", "get", "x", 0, 0, 1.0),
        events.Warned("odd"),
    ]
    counted = {name for each in samples for name in events._COUNTED[type(each)](each)}
    assert counted == COUNTERS.keys()
    assert {type(each) for each in samples} == events._COUNTED.keys()
    assert list(opbuild.metrics()) == [*COUNTERS, *GAUGES]
    text = REFERENCE.read_text()
    assert [name for name in (*COUNTERS, *GAUGES) if f"| `{name}` |" not in text] == []


def test_a_fork_has_counted_nothing() -> None:
    """Each process counts its own: what the parent did would be counted as often as it has children."""
    events.tell(events.NetworkFetched("net"))
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, repr(sum(opbuild.metrics().values())).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    assert os.read(read, 100) == b"0"
    os.close(read)


def test_prometheus_is_given_the_same_numbers() -> None:
    """By its conventions: a name of the program, the unit, and ``_total`` behind what only grows."""
    registry = CollectorRegistry()
    registry.register(opbuild.PrometheusCollector())
    events.tell(events.NetworkFetched("net"))
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    found = {sample.name: sample.value for family in families for sample in family.samples}
    counted = opbuild.metrics()
    assert found == {
        **{f"opbuild_{name}_total": counted[name] for name in COUNTERS},
        **{f"opbuild_{name}": counted[name] for name in GAUGES},
    }
    assert found["opbuild_networks_from_remote_total"] >= 1
    assert Counter(family.type for family in families) == {"counter": len(COUNTERS), "gauge": len(GAUGES)}
    assert all(family.documentation for family in families)
