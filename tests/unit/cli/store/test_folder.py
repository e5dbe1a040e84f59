"""Seeing and tending a cache: counters, checking entries, pruning and clearing, with made-up operators."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from opbuild.cli.store.folder import Cache, looked_at
from opbuild.config import Config
from opbuild.kernel.interfaces import Found
from opbuild.store import counters
from opbuild.store.counters import count_build, read_counters
from opbuild.store.operators import entry_in, operators_in, summarize
from support.samples import conv, disk_builder, entry_of, needed


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    """A cache of three operators, the first of which was used longest ago."""
    found = Cache(tmp_path / "kernel_meta", tmp_path / "network_meta")
    for tile in (1, 2, 3):
        _, entry = entry_of(conv(tile), milliseconds=10.0 * tile)
        operators_in(found.kernel_meta).publish(entry)
        when = time.time() - 86400 * (10 - tile)
        os.utime(found.kernel_meta / f"{entry.name}.json", (when, when))
    return found


def name_of(tile: int) -> str:
    """Return the name of an operator of ``cache``."""
    return entry_of(conv(tile))[1].name


# Counters


def test_builds_add_up(tmp_path: Path) -> None:
    """Hits, misses by reason, and the times saved and spent are summed over builds."""
    count_build(tmp_path, [10.0, 20.0], [("absent", 5.0)])
    count_build(tmp_path, [1.0], [("absent", 1.0), ("damaged", 2.0)])
    found = read_counters(tmp_path)
    assert (found.builds, found.hits, found.saved_ms, found.spent_ms) == (2, 3, 31.0, 8.0)
    assert found.misses == {"absent": 2, "damaged": 1}
    assert abs(found.since - time.time()) < 100


def test_nothing_counted_is_zero(tmp_path: Path) -> None:
    """A cache without counters shows zeros."""
    assert read_counters(tmp_path / "absent") == counters.Counters()


@pytest.mark.parametrize(
    "line",
    ["", "{", "[1]", "null", '{"hits":1}', '{"time":1,"hits":"x","saved_ms":1,"spent_ms":1,"misses":{}}', "\0\0"],
)
def test_a_broken_line_is_left_out(tmp_path: Path, line: str) -> None:
    """A line of a torn write does not spoil the others."""
    count_build(tmp_path, [1.0], [])
    with (tmp_path / counters.FILE).open("a") as file:
        file.write("\n" + line)
    count_build(tmp_path, [2.0], [])
    assert read_counters(tmp_path).saved_ms == 3.0


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Lines that are appended at once are all there."""
    threads = [threading.Thread(target=lambda: [count_build(tmp_path, [1.0], []) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read_counters(tmp_path).hits == 400


def test_counters_stay_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file becomes the old one; the newest builds are counted still."""
    monkeypatch.setattr(counters, "LARGEST", 1000)
    for _ in range(200):
        count_build(tmp_path, [1.0], [])
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3000
    assert 5 < read_counters(tmp_path).builds < 200


def test_a_folder_that_cannot_be_written_costs_nothing(tmp_path: Path) -> None:
    """Counting never fails a build."""
    (tmp_path / "file").write_bytes(b"")
    count_build(tmp_path / "file" / "folder", [1.0], [])


# Checking


def test_sound_entries_are_no_problem(cache: Cache) -> None:
    """Verifying accepts all that a look-up accepts, and does not change the time of the last use."""
    before = [item.last_use for item in cache.items("operator")]
    assert list(cache.problems()) == []
    assert summarize(looked_at(cache.kernel_meta), name_of(2)).milliseconds == 20.0
    assert [item.last_use for item in cache.items("operator")] == before


@pytest.mark.parametrize(
    ("suffix", "content", "said"),
    [
        (".o", None, "missing"),
        (".info", None, "missing"),
        (".json", None, "missing"),
        (".o", b"x", "digest differs"),
        (".info", b"{", "not what was written"),
        (".info", b'{"key":{"components":{"format":3,"op_types":[1]}}}', ""),
        (".json", b"{}", "digest differs"),
    ],
)
def test_damage_is_found_and_repaired(cache: Cache, suffix: str, content: bytes | None, said: str) -> None:
    """F07: a missing or changed file is reported with its operator and reason; repairing removes only that entry."""
    path = cache.kernel_meta / (name_of(2) + suffix)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    (problem,) = cache.problems()
    assert problem.item.name == name_of(2)
    assert said in problem.reason.text
    cache.repair(problem)
    assert list(cache.problems()) == []
    assert [item.name for item in cache.items("operator")] == sorted([name_of(1), name_of(3)])


def test_an_entry_of_another_release_is_not_damaged(cache: Cache) -> None:
    """Its key has another format, which this release cannot check: it stays."""
    path = cache.kernel_meta / f"{name_of(1)}.info"
    info = json.loads(path.read_bytes())
    info["key"]["components"]["format"] = 999
    path.write_text(json.dumps(info))
    assert list(cache.problems()) == []


def test_an_entry_under_a_false_name_is_damaged(cache: Cache) -> None:
    """Files that were renamed are found by their key."""
    for suffix in (".o", ".info", ".json"):
        (cache.kernel_meta / (name_of(1) + suffix)).rename(cache.kernel_meta / f"conv_relu_1_0{suffix}")
    (problem,) = cache.problems()
    assert problem.reason.code == "other-key"


def test_reading_an_entry_gives_what_was_stored(cache: Cache) -> None:
    """The entry read by its name is the one that its key finds."""
    key, entry = entry_of(conv(1))
    found, stored = operators_in(cache.kernel_meta).lookup(key), entry_in(looked_at(cache.kernel_meta), entry.name)
    assert isinstance(found, Found)
    assert stored.files() == found.entry.files()  # type: ignore[union-attr]


# Removing


def test_pruning_by_age_takes_what_is_older(cache: Cache) -> None:
    """Only what was not used for that long goes."""
    removed = cache.prune(older_than=8.5 * 86400)
    assert [item.name for item in removed] == [name_of(1)]
    assert len(cache.items("operator")) == 2


def test_pruning_by_size_takes_the_least_recently_used(cache: Cache) -> None:
    """Entries go until the size is reached, the one used longest ago first."""
    total = sum(item.nbytes for item in cache.items("operator"))
    removed = cache.prune(max_bytes=total - 1)
    assert [item.name for item in removed] == [name_of(1)]
    assert cache.prune(max_bytes=total) == ()
    assert {item.name for item in cache.prune(max_bytes=0)} == {name_of(2), name_of(3)}


def test_clearing_leaves_settings_and_files_being_written(cache: Cache) -> None:
    """Entries, counters and old rubbish go; op_cache.ini, strange files and another process's private file stay."""
    count_build(cache.network_meta, [1.0], [])
    settings, stranger = cache.kernel_meta / "op_cache.ini", cache.kernel_meta / "notes.txt"
    private, rubbish = cache.kernel_meta / ".publish-new-0", cache.kernel_meta / ".publish-old-0"
    for path in (settings, stranger, private, rubbish):
        path.write_text("x")
    os.utime(rubbish, (1, 1))
    assert len([item for item in cache.clear() if item.kind == "operator"]) == 3
    assert sorted(cache.kernel_meta.iterdir()) == sorted([settings, stranger, private])
    assert list(cache.network_meta.iterdir()) == []


@pytest.mark.slow
def test_clearing_beside_builds_harms_none(config: Config) -> None:
    """A build whose entries vanish all the time delivers every operator (F05)."""
    cache, stop = Cache.of(config), threading.Event()

    def clear() -> None:
        while not stop.is_set():
            cache.clear()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        with disk_builder(config) as builder:
            for _ in range(5):
                result = builder.build(needed(*(conv(tile) for tile in range(4))), "net")
                assert len(result.entries) == 4
                assert all(entry.object for entry in result.entries.values())
    finally:
        stop.set()
        thread.join()


def test_stats_count_kinds_and_bytes(cache: Cache) -> None:
    """Numbers and bytes are those of the folder."""
    stats = cache.stats()
    assert stats.count["operator"] == 3
    assert stats.nbytes["operator"] == sum(
        max(path.stat().st_size, 512 * path.stat().st_blocks) for path in cache.kernel_meta.iterdir()
    )
