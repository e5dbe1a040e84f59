"""A cache that grows: its size on the disk, strange files in it, what goes under whom, and what is never listed."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.store.ageing import age
from opbuild.store.operators import operators_in
from opbuild.store.policy import MEGABYTE, Policy
from support.samples import conv, entry_of
from support.small_network import SmallNetwork


def on_disk(folder: Path) -> int:
    """Return the bytes that a folder's files take, in whole blocks."""
    states = [path.lstat() for path in folder.rglob("*") if path.is_file()]
    return sum(max(state.st_size, 512 * state.st_blocks) for state in states)


def age_later(kernel_meta: Path, network_meta: Path, policy: Policy) -> None:
    """Age as another process would half a day after the entries were used."""
    age(kernel_meta, network_meta, policy, clock=lambda: time.time() + 43200, is_used=lambda _: False)


def test_one_long_run_that_stores_five_times_the_limit_stays_within_it(tmp_path: Path) -> None:
    """Ageing follows each build that stores something, and counts what the disk holds in whole blocks (F48, F49)."""
    kernel_meta, network_meta = tmp_path / "kernel_meta", tmp_path / "network_meta"
    policy, store = Policy(max_megabytes=1, remain_ratio=50), operators_in(kernel_meta)
    written = batch = 0
    while written < 5 * MEGABYTE:
        before = on_disk(kernel_meta)
        for number in range(4):
            store.publish(entry_of(conv(4 * batch + number), code=bytes(40_000))[1])
        added = on_disk(kernel_meta) - before
        written, batch = written + added, batch + 1
        age_later(kernel_meta, network_meta, policy)
        assert on_disk(kernel_meta) <= policy.max_bytes
    assert list(kernel_meta.glob("*.json"))


def test_entries_of_this_run_are_no_victims_however_small_the_limit(tmp_path: Path) -> None:
    """A limit below what a run needs would otherwise remove what it needs next, again and again (F51)."""
    store = operators_in(tmp_path / "kernel_meta")
    for tile in range(30):
        store.publish(entry_of(conv(tile), code=bytes(50_000))[1])
    for path in (tmp_path / "kernel_meta").iterdir():
        os.utime(path, (0, 0))
    assert age(tmp_path / "kernel_meta", tmp_path / "network_meta", Policy(1, 50)).removed == ()
    assert len(store.names()) == 30


def strew(folder: Path) -> None:
    """Put strange things where a cache's files are."""
    for place in (folder, folder / "kernel_meta", folder / "network_meta", folder / "network_meta" / "weights"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "notes.txt").write_text("stray")
        (place / "notes.json").write_text("{}")
        (place / "conv_1_0.o").write_text("an orphan")
        (place / "conv_2_0.json").write_text("{")
        (place / "conv_3_0.json").mkdir()
        (place / f"{'e' * 64}.bin").symlink_to("nothing")
        (place / "net_4.json").symlink_to(place)
        (place / "folder" / "in folder").mkdir(parents=True)
        os.mkfifo(place / "net_5.so")
        (place / "unreadable_6_0.json").touch(0)


def test_stray_files_stop_nothing(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Orphans, folders, pipes, links and unreadable files: a build stores, the next one hits, ageing ages (F50)."""
    rank = tmp_path / "rank_0"
    strew(rank)
    with small_network.replayed():
        assert small_network.build(tmp_path).warnings == []
        assert small_network.build(tmp_path).report.image
    age_later(rank / "kernel_meta", rank / "network_meta", Policy(1, 1))
    Cache(rank / "kernel_meta", rank / "network_meta").clear()
    with small_network.replayed():
        assert small_network.build(tmp_path).warnings == []
        assert small_network.build(tmp_path).report.image


def test_neither_a_start_nor_a_look_up_lists_the_cache(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files are opened by their names; a build that stores something lists a few times, a start never (F51, F66)."""
    listed: list[str] = []
    scan = os.scandir

    def scanned(path: Any = ".") -> Any:
        if str(path).startswith(str(tmp_path)):
            listed.append(Path(str(path)).name)
        return scan(path)

    with small_network.replayed():
        monkeypatch.setattr(os, "scandir", scanned)
        small_network.build(tmp_path)
        cold, listed[:] = list(listed), []
        assert small_network.build(tmp_path).report.image
    assert len(cold) <= 10  # to explain, to sweep and to age: a few times a build, however many operators it has
    assert listed == []


def test_builds_beside_one_that_clears_the_cache(small_network: SmallNetwork, tmp_path: Path) -> None:
    """A build holds all that it has looked up: whatever is removed under it, the network is right, silently (F52)."""
    rank, stop = tmp_path / "rank_0", threading.Event()

    def clear() -> None:
        while not stop.wait(0.003):
            Cache(rank / "kernel_meta", rank / "network_meta").clear()

    thread = threading.Thread(target=clear)
    thread.start()
    try:
        with small_network.replayed():
            for _ in range(8):
                small_network.build(tmp_path)
    finally:
        stop.set()
        thread.join()
    with small_network.replayed():
        small_network.build(tmp_path)
        assert small_network.build(tmp_path).report.image


def test_a_network_outlives_its_cache(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Mapped weights and the loaded library stay when their files go (F52)."""
    import opbuild

    with small_network.replayed():
        network = opbuild.compile(small_network.path, cache_path=tmp_path, input_shapes={"x": (64, 256)})
        Cache(tmp_path / "rank_0" / "kernel_meta", tmp_path / "rank_0" / "network_meta").clear()
        assert (network(small_network.x) == small_network.y).all()


def test_only_the_settings_remain_when_everything_is_removed(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Memos, counters, references of weights, claims and files of dead writers go with the rest (F53)."""
    with small_network.replayed():
        small_network.build(tmp_path)
    rank = tmp_path / "rank_0"
    config = Config(cache_path=tmp_path)
    for place in (rank, rank / "kernel_meta", rank / "network_meta", rank / "network_meta" / "weights"):
        os.utime(place, (0, 0))
    (rank / "network_meta" / "weights" / f"{'a' * 64}.json").write_text("{}")
    Cache.of(config).clear()
    left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if not path.is_dir())
    assert left == ["rank_0/op_cache.ini"]


@pytest.mark.parametrize("moment", [0.0, time.time() + 86400.0], ids=["1970", "tomorrow"])
def test_strange_times_of_files_change_nothing(small_network: SmallNetwork, tmp_path: Path, moment: float) -> None:
    """Within the limit nothing is evicted, and nothing is built again (F56)."""
    with small_network.replayed():
        small_network.build(tmp_path)
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        for path in files:
            os.utime(path, (moment, moment))
        assert age(tmp_path / "rank_0" / "kernel_meta", tmp_path / "rank_0" / "network_meta", Policy()).removed == ()
        assert small_network.build(tmp_path, forbid_compile=True).report.image
    assert all(path.exists() for path in files)
