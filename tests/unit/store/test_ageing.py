"""Ageing: which entries go, in which order, and which never do."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.events import Warned
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.store import ageing
from opbuild.store.ageing import age, choose, remove_unused
from opbuild.store.inventory import Inventory, survey
from opbuild.store.items import Item, Kind, mark_used
from opbuild.store.networks import weights_of
from opbuild.store.operators import operators_in
from opbuild.store.policy import MEGABYTE, Policy
from support.aged_entries import fill, left
from support.samples import Recorder, conv, entry_of

NOW = 1e9


def item(kind: Kind, name: str, nbytes: int, idle: float) -> Item:
    """Return something last used ``idle`` seconds before ``NOW``."""
    return Item(kind, name, (f"/{name}",), nbytes, NOW - idle)


def chosen(remaining: int, *items: Item, used: tuple[str, ...] = (), maps: dict[str, set[str]] | None = None) -> str:
    """Return the names of what must go, in order."""
    inventory = Inventory(items, sum(each.nbytes for each in items))
    mapped = {f"/{name}": frozenset(digests) for name, digests in (maps or {}).items()}
    victims = choose(
        inventory, remaining, NOW, lambda one: one.name in used, lambda image: mapped.get(image.mark, frozenset())
    )
    return " ".join(victim.name for victim in victims)


def test_least_recently_used_operators_go_first() -> None:
    """Until the remaining size is reached, and no further."""
    items = [item("operator", name, 10, idle) for name, idle in (("b", 3000), ("a", 5000), ("c", 2000), ("d", 4000))]
    assert chosen(25, *items) == "a d"
    assert chosen(40, *items) == ""


def test_what_was_used_in_the_last_half_hour_stays() -> None:
    """However far the size is above what should remain."""
    assert chosen(0, item("operator", "old", 1, 1801), item("operator", "new", 99, 1799)) == "old"


def test_what_this_process_uses_stays() -> None:
    """However long ago it was read."""
    assert chosen(0, item("operator", "mine", 1, 1e6), item("operator", "other", 1, 9e5), used=("mine",)) == "other"


def test_a_time_in_the_far_future_protects_nothing() -> None:
    """Clocks of hosts may differ by hours; a year means a broken one."""
    assert chosen(0, item("operator", "skewed", 1, -3600), item("operator", "broken", 1, -3e7)) == "broken"


def test_networks_go_before_operators() -> None:
    """An old operator outlives a newer network: the network is put together from it again."""
    items = [
        item("operator", "operator", 10, 9000),
        item("network", "network", 10, 3000),
        item("memo", "memo", 1, 4000),
    ]
    assert chosen(10, *items) == "memo network"


def test_weights_go_with_the_last_network_that_maps_them() -> None:
    """Shared weights stay for the other network; weights of nobody go first."""
    weights = [item("weight", name, 100, 5000) for name in ("own", "shared", "orphan")]
    images = [item("network", "old", 1, 4000), item("network", "new", 1, 100)]
    maps = {"old": {"own", "shared"}, "new": {"shared"}}
    assert chosen(0, *weights, *images, maps=maps) == "orphan old own"
    assert chosen(250, *weights, *images, maps=maps) == "orphan"


def test_weights_that_are_being_stored_stay() -> None:
    """They are written before the network that maps them."""
    assert chosen(0, item("weight", "fresh", 1, 5)) == ""


def test_weights_in_use_push_no_operators_out() -> None:
    """A network larger than the limit would otherwise empty the folder of everything else."""
    items = [item("weight", "w", 1000, 100), item("network", "net", 1, 100), item("operator", "op", 10, 9000)]
    assert chosen(50, *items, maps={"net": {"w"}}) == ""
    assert chosen(5, *items, maps={"net": {"w"}}) == "op"


def test_fifty_thousand_entries_are_looked_at_once_each() -> None:
    """The work grows with the number of entries and no faster."""
    items = tuple(item("operator", str(number), 1, 2000 + number) for number in range(50_000))
    asked: list[str] = []

    def is_used(one: Item) -> bool:
        asked.append(one.name)
        return False

    victims = list(choose(Inventory(items, 50_000), 25_000, NOW, is_used, lambda _: frozenset()))
    assert [int(victim.name) for victim in victims] == list(range(49_999, 24_999, -1))
    assert len(asked) == len(set(asked)) == 25_000


def test_files_of_killed_writers_go_after_an_hour() -> None:
    """Even where the size is not the reason any more."""
    assert chosen(100, item("private", "dead", 1, 4000), item("private", "alive", 1, 3000)) == "dead"


def size_on_disk(path: Path) -> int:
    """Return the space of a file on the disk, or its size where the system does not say it yet."""
    return max(path.stat().st_size, 512 * path.stat().st_blocks)


def test_a_folder_is_surveyed_by_what_lies_in_it(tmp_path: Path) -> None:
    """Operators, networks, memos, weights and private files are told apart; strange files count and stay."""
    kernel_meta, network_meta = tmp_path / "kernel_meta", tmp_path / "network_meta"
    names = [
        "kernel_meta/conv_1_0.o", "kernel_meta/conv_1_0.json", "kernel_meta/.publish-1", "kernel_meta/notes.txt",
        "network_meta/net_5.json", "network_meta/net_5.so", "network_meta/net_6_7.json", "network_meta/net_9.model",
        "network_meta/runtime_1_0.o", "network_meta/runtime_1_0.json", "network_meta/compiler.json",
        f"network_meta/weights/{'a' * 64}.bin", f"network_meta/weights/{'b' * 64}.json", "network_meta/.net.1.tmp",
    ]  # fmt: skip
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"four")
    inventory = survey(kernel_meta, network_meta)
    assert inventory.nbytes == sum(size_on_disk(tmp_path / name) for name in names)
    assert sorted((one.kind, one.name, len(one.files)) for one in inventory.items) == [
        ("memo", "net_9", 1), ("network", "net_5", 2), ("network", "net_6_7", 1), ("note", "compiler", 1),
        ("operator", "conv_1_0", 2), ("operator", "runtime_1_0", 2), ("private", ".net.1.tmp", 1),
        ("private", ".publish-1", 1), ("reference", "b" * 64, 1), ("weight", "a" * 64, 1),
    ]  # fmt: skip
    assert all(one.mark.endswith(".json") for one in inventory.items if one.kind in ("operator", "network"))


STEMS = st.sampled_from(
    ["conv_1_0", "net_5", "compiler", "counters", "counters.old", "a" * 64, ".publish-1", "notes", "N"]
)
SUFFIXES = st.sampled_from([".json", ".o", ".info", ".so", ".bin", ".seen", ".model", ".digest", ".jsonl", ".tmp", ""])
FOLDERS = st.sampled_from(["kernel_meta", "network_meta", "network_meta/weights"])


@settings(max_examples=30, deadline=None)
@given(st.sets(st.tuples(FOLDERS, STEMS, SUFFIXES), max_size=8))
@example({("network_meta", "conv_1_0", ".o"), ("network_meta", "conv_1_0", ".so")})
def test_whatever_names_lie_there_they_are_listed_checked_aged_and_cleared(names: set[tuple[str, str, str]]) -> None:
    """F50: no file of any name in any of the folders stops a build or a command, and each is of one item at most."""
    with tempfile.TemporaryDirectory() as folder:
        for place, stem, suffix in names:
            path = Path(folder, place, stem + suffix)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"{}")
        folders = Path(folder, "kernel_meta"), Path(folder, "network_meta")
        files = [file for item in survey(*folders).items for file in item.files]
        there = [file for file in files if os.path.lexists(file)]  # rests of two items may lack one mark
        assert len(there) == len(set(there))
        age(*folders, Policy(1, 1))
        cache = Cache(*folders)
        assert {problem.item.mark for problem in cache.problems()} <= set(files)
        cache.clear()
        assert [item for item in survey(*folders).items if item.kind != "private"] == []


def _file(config: Config, monkeypatch: pytest.MonkeyPatch) -> int:
    config.policy_file.write_text("[op_compiler_cache]\nmax_op_cache_size=10\nremain_cache_size_ratio=40\n")
    monkeypatch.setenv("ASCEND_MAX_OP_CACHE_SIZE", "77")
    return 10


def _environment(_: Config, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setenv("ASCEND_MAX_OP_CACHE_SIZE", "20")
    monkeypatch.setenv("ASCEND_REMAIN_CACHE_SIZE_RATIO", "40")
    return 20


def _default(config: Config, monkeypatch: pytest.MonkeyPatch) -> int:
    return 5000 if config.op_compiler_cache_dir is None else 500


def _invalid_file(config: Config, monkeypatch: pytest.MonkeyPatch) -> int:
    config.policy_file.write_text("[op_compiler_cache]\nmax_op_cache_size=ten\nremain_cache_size_ratio=40\n")
    return _environment(config, monkeypatch)


@pytest.mark.parametrize("layout", ["rank", "dir"])
@pytest.mark.parametrize("source", [_file, _environment, _default, _invalid_file])
def test_a_cache_of_five_times_its_maximum_ends_at_the_ratio(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: Callable[[Config, pytest.MonkeyPatch], int],
    layout: str,
) -> None:
    """Under each source of the settings and in both layouts, the least recently used entries are gone."""
    monkeypatch.delenv("ASCEND_MAX_OP_CACHE_SIZE", raising=False)
    monkeypatch.delenv("ASCEND_REMAIN_CACHE_SIZE_RATIO", raising=False)
    seen = Recorder()
    options = {"op_compiler_cache_dir": tmp_path} if layout == "dir" else {"cache_path": tmp_path}
    setup = set_up(Config.from_environment(**options), None, seen)  # type: ignore[arg-type]
    folder = setup.config.kernel_meta
    folder.mkdir(parents=True)
    megabytes = source(setup.config, monkeypatch)
    names = fill(folder, 5 * megabytes, 100)
    Stores(setup).age()
    remaining = 50 if source is _default else 40
    assert left(folder) == names[100 - remaining // 5 :]
    assert survey(folder, setup.config.network_meta).nbytes <= megabytes * MEGABYTE * remaining // 100
    assert setup.config.policy_file.exists()
    warnings = [event.message for event in seen.of(Warned)]
    assert ["line 2" in warning for warning in warnings] == ([True] if source is _invalid_file else [])


def test_a_folder_within_its_maximum_is_left_alone(tmp_path: Path) -> None:
    """The ratio counts only once the maximum is exceeded."""
    names = fill(tmp_path, 9.9, 10)
    assert age(tmp_path, tmp_path / "network_meta", Policy(10, 1)).removed == ()
    assert left(tmp_path) == names


def test_entries_of_this_run_survive_whatever_their_age(tmp_path: Path) -> None:
    """An entry that a look-up found or a build published is in use until the process ends."""
    store = operators_in(tmp_path)
    key, entry = entry_of(conv(77))
    store.publish(entry)
    long_ago = time.time() - 1e6
    os.utime(tmp_path / f"{entry.name}.json", (long_ago, long_ago))
    fill(tmp_path, 50, 10)
    age(tmp_path, tmp_path / "network_meta", Policy(1, 1))
    assert left(tmp_path) == [entry.name]
    assert store.lookup(key)


def test_an_entry_that_another_process_uses_meanwhile_is_spared(tmp_path: Path) -> None:
    """Its time is looked at once more before it goes."""
    names = fill(tmp_path, 50, 4)
    before = survey(tmp_path, tmp_path / "none").items
    os.utime(tmp_path / f"{names[0]}.json")
    remove_unused(before, time.time())
    assert left(tmp_path) == [names[0]]


def test_references_go_with_their_weights(tmp_path: Path) -> None:
    """What says that a source packs to weights that are gone goes too, and other references stay."""
    weights = tmp_path / "network_meta" / "weights"
    weights.mkdir(parents=True)
    for digest, source in (("a" * 64, "1" * 64), ("b" * 64, "2" * 64)):
        (weights / f"{source}.json").write_text(f'{{"blake3": "{digest}"}}')
        with (weights / f"{digest}.bin").open("wb") as file:
            file.truncate(2 * MEGABYTE)
    os.utime(weights / f"{'a' * 64}.bin", (1e9, 1e9))
    age(tmp_path / "kernel_meta", tmp_path / "network_meta", Policy(1, 1))
    assert sorted(path.name for path in weights.iterdir()) == [f"{'2' * 64}.json", f"{'b' * 64}.bin"]


def test_without_a_limit_no_file_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """-1: no ageing, and no file is looked at."""
    monkeypatch.setattr(ageing, "survey", None)
    assert age(tmp_path, tmp_path, Policy(-1)).removed == ()


def test_a_folder_that_cannot_be_read_ages_without_a_word(tmp_path: Path) -> None:
    """A fault of the storage is never a fault of the build (F54)."""
    (tmp_path / "file").write_text("")
    assert age(tmp_path / "file", tmp_path / "none", Policy(1, 1)).removed == ()


@pytest.mark.parametrize("keep_times", [True, False])
def test_a_use_is_noted_if_times_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep_times: bool) -> None:
    """A look-up sets the commit mark's access time and keeps its time of change; with -1 it writes nothing."""
    key, entry = entry_of(conv())
    operators_in(tmp_path).publish(entry)
    mark = tmp_path / f"{entry.name}.json"
    written = time.time() - 5000
    os.utime(mark, (written, written))
    set_times: list[tuple[Path, dict[str, tuple[int, int]]]] = []
    monkeypatch.setattr(os, "utime", lambda *arguments, **times: set_times.append((arguments[0], times)))
    opened = os.open
    traceless = getattr(os, "O_NOATIME", 0)  # as where the file system is mounted without access times
    monkeypatch.setattr(os, "open", lambda path, flags, *more, **named: opened(path, flags | traceless, *more, **named))
    operators_in(tmp_path, keep_times=keep_times).lookup(key)
    assert [path for path, _ in set_times] == ([mark] if keep_times else [])
    for _, times in set_times:
        assert times["ns"][0] / 1e9 == pytest.approx(time.time(), abs=60)
        assert times["ns"][1] / 1e9 == pytest.approx(written)


def test_a_recent_use_is_not_written_again(tmp_path: Path) -> None:
    """A write in ten minutes is enough for a limit of thirty."""
    mark = tmp_path / "mark.json"
    mark.write_text("")
    recent = time.time() - 300
    os.utime(mark, (recent, recent))
    mark_used(mark, keep_time=True)
    assert mark.stat().st_atime == pytest.approx(recent)


def test_looking_for_an_images_weights_is_no_use_of_it(tmp_path: Path) -> None:
    """F49: file systems note the first reading in a day; an image that only ageing reads must age nevertheless."""
    mark = tmp_path / "net_1.json"
    mark.write_text("{}")
    os.utime(mark, (1.0, mark.stat().st_mtime))
    assert weights_of(Item("network", "net_1", (str(mark),), 2, 1.0)) == frozenset()
    assert mark.stat().st_atime == 1.0
