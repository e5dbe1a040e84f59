"""The work of a build, a start and the commands does not depend on a store's size, or is shown and can be ended."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from opbuild.builder import work
from opbuild.builder.explain import Effort, Explainer
from opbuild.cli.main import main
from opbuild.cli.store import folder as cache_module
from opbuild.cli.store.folder import Cache
from opbuild.frontend.models import memory as model_memory
from opbuild.platform.files import mapping as files
from opbuild.platform.files.writing import count_written
from opbuild.store import ageing, inventory, items
from opbuild.store.ageing import Clock, age, age_after_build
from opbuild.store.inventory import BELIEVED_SECONDS, MeasuredFolder, remember_size, survey, tidy
from opbuild.store.operators import operators_in
from opbuild.store.policy import MEGABYTE, Policy
from support.aged_entries import fill, left
from support.counted_calls import counted_calls
from support.samples import conv, entry_of
from support.small_network import SmallNetwork
from support.until import until

FEW, MANY = 180, 1500


@pytest.fixture
def small_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that 180 entries reach, so that no test needs 50,000."""
    monkeypatch.setattr(work, "Explainer", partial(Explainer, effort=Effort(files=300, times=20, reads=10)))
    monkeypatch.setattr(ageing, "FEW_FILES", 100)
    monkeypatch.setattr(ageing, "LOOKED_AT", 100)
    monkeypatch.setattr(model_memory, "_NAMES_AT_MOST", 100)


def crowd(network: SmallNetwork, cache: Path, count: int) -> None:
    """Put so many operators of the network's own types, images, memos and weights into a cache, as links."""
    rank, built = cache / "rank_0", network.cache / "rank_0"
    (rank / "kernel_meta").mkdir(parents=True)
    (rank / "network_meta" / "weights").mkdir(parents=True)
    marks = sorted((built / "kernel_meta").glob("*_0.json"))
    (image,) = (path for path in (built / "network_meta").glob("small_*.json"))
    (weight,) = (built / "network_meta" / "weights").glob("*.bin")
    for number, mark in zip(range(count), itertools.cycle(marks), strict=False):
        op_type = mark.stem.rsplit("_", 2)[0]
        for suffix in (".o", ".info", ".json"):
            (rank / "kernel_meta" / f"{op_type}_{number}_0{suffix}").hardlink_to(mark.with_suffix(suffix))
        if number % 3 == 0:
            for suffix in (".so", ".bin", ".json"):
                (rank / "network_meta" / f"small_{number}{suffix}").hardlink_to(image.with_suffix(suffix))
            (rank / "network_meta" / f"small_{number}.model").hardlink_to(image)
            (rank / "network_meta" / "weights" / f"{number:064x}.bin").hardlink_to(weight)
            (rank / "network_meta" / "weights" / f"{number:064x}.json").hardlink_to(image)


def forget_network(network: SmallNetwork, cache: Path) -> None:
    """Remove what building the network stored."""
    for folder in ("kernel_meta", "network_meta", "network_meta/weights"):
        for path in (network.cache / "rank_0" / folder).iterdir():
            if path.is_file() and path.suffix != ".jsonl":
                (cache / "rank_0" / folder / path.name).unlink(missing_ok=True)


def calls_of_builds(network: SmallNetwork, cache: Path, count: int) -> list[Counter[str]]:
    """Return the calls of the first build beside so many entries, of another that adds as much, and of a start."""
    crowd(network, cache, count)
    calls = []
    for step in ("first", "next", "start"):
        with network.replayed(), counted_calls(cache) as counts:
            report = network.build(cache).report
        assert report.image == (step == "start")
        calls.append(Counter(counts))
        if step == "first":
            forget_network(network, cache)
    return calls


def alike(one: Counter[str], other: Counter[str]) -> bool:
    """Return whether counts differ by no more than what depends on the moment."""
    return all(abs(one[name] - other[name]) <= 5 for name in one.keys() | other.keys())


@pytest.mark.usefixtures("small_bounds")
def test_a_build_asks_as_much_beside_many_entries_as_beside_few(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Only the first build in a folder that nobody measured lists all names, once; none looks at all files (F51).

    Beside 50,000 entries a new network's build took 18 s: it looked at 150,000 files, twice.
    """
    few = calls_of_builds(small_network, tmp_path / "few", FEW)
    many = calls_of_builds(small_network, tmp_path / "many", MANY)
    first_few, next_few, start_few = few
    first_many, next_many, start_many = many
    assert alike(next_many, next_few)
    assert alike(start_many, start_few)
    assert start_many["name"] == 0
    assert next_many["name"] <= 300 + 50
    assert first_many["name"] <= 5 * MANY + 300 + 100 + 50
    first_many["name"] = first_few["name"] = 0
    assert alike(first_many, first_few)


def aged_folder(tmp_path: Path, megabytes: int, count: int, *, idle: float = 7200.0) -> list[str]:
    """Fill a folder and return the names, the one used longest ago first."""
    (tmp_path / "network_meta").mkdir()
    return fill(tmp_path / "kernel_meta", megabytes, count, idle=idle)


def age_here(tmp_path: Path, policy: Policy, clock: Clock = time.time) -> Counter[str]:
    """Age as the end of a build does; return the calls."""
    with counted_calls(tmp_path) as calls:
        age_after_build(tmp_path / "kernel_meta", tmp_path / "network_meta", policy, clock=clock)
    return calls


@pytest.mark.usefixtures("small_bounds")
def test_a_folder_of_few_files_is_measured_each_time(tmp_path: Path) -> None:
    """What is cheap is not remembered, and there is no file more."""
    aged_folder(tmp_path, 1, 20)
    assert age_here(tmp_path, Policy(2))["stat"] >= 60
    assert age_here(tmp_path, Policy(2))["stat"] >= 60
    assert list((tmp_path / "network_meta").iterdir()) == []


@pytest.mark.usefixtures("small_bounds")
def test_a_large_folder_is_measured_once_and_again_when_it_may_be_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What builds add is summed up; once the sum exceeds the limit the folder ages as it always did (F48, F49)."""
    monkeypatch.setattr(ageing, "LOOKED_AT", 200)
    names = aged_folder(tmp_path, 4, 60)
    folder, policy = tmp_path / "kernel_meta", Policy(5, 50)
    assert age_here(tmp_path, policy)["stat"] >= 180
    for _ in range(3):
        assert age_here(tmp_path, policy)["name"] == 0
    assert left(folder) == sorted(names)
    with (folder / "conv_7_0.o").open("wb") as file:
        file.truncate(2 * MEGABYTE)
    count_written(MEGABYTE // 2)
    assert age_here(tmp_path, policy)["name"] == 0
    count_written(MEGABYTE)
    assert age_here(tmp_path, policy)["name"] > 0
    assert 0 < len(left(folder)) < 60
    assert left(folder) == sorted(names[60 - len(left(folder)) :])


@pytest.mark.usefixtures("small_bounds")
@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"{", b"[]", b"{}", b"null", b'{"nbytes": 1}', b"\xff", b"[" * 100_000, b'{"nbytes": 1, "time": NaN}',
     b'{"nbytes": "1", "time": 1}', b'{"nbytes": 1, "time": 1e400}', b'{"nbytes": 1, "time": NOW}\n1\nx',
     b'{"nbytes": 1, "time": NOW, "again": 1e17}', b'{"nbytes": 1, "time": OLD}', b'{"nbytes": 1, "time": LATER}',
     b'{"nbytes": true, "time": NOW}', b'{"nbytes": 1, "time": NOW}' + b"\n1" * 50_000, b"\n" + b"9" * 10_000],
    ids=range(19),
)  # fmt: skip
def test_a_measurement_that_cannot_be_believed_is_made_again(tmp_path: Path, content: bytes) -> None:
    """Damaged, from the future, a day old, endless: the folder is measured and the file replaced (F50, F56)."""
    aged_folder(tmp_path, 8, 60)
    now = time.time()
    for word, moment in ((b"NOW", now), (b"OLD", now - BELIEVED_SECONDS - 1), (b"LATER", now + 3600)):
        content = content.replace(word, repr(moment).encode())
    (tmp_path / "network_meta" / inventory.SIZE_FILE).write_bytes(content)
    age_here(tmp_path, Policy(4, 50))
    assert 0 < len(left(tmp_path / "kernel_meta")) <= 30
    assert age_here(tmp_path, Policy(4, 50))["name"] == 0


@pytest.mark.usefixtures("small_bounds")
def test_a_folder_whose_entries_are_all_in_use_is_not_looked_at_by_each_build(tmp_path: Path) -> None:
    """It stays above its limit, and looking again at once would be in vain; later it is looked at."""
    aged_folder(tmp_path, 8, 60, idle=60.0)
    assert age_here(tmp_path, Policy(4, 50))["stat"] > 0
    assert age_here(tmp_path, Policy(4, 50))["name"] == 0
    later = time.time() + 1800.0
    age_here(tmp_path, Policy(4, 50), lambda: later)
    assert len(left(tmp_path / "kernel_meta")) <= 30


def test_a_build_removes_what_it_added_and_leaves_the_rest_to_the_next(tmp_path: Path) -> None:
    """Nobody waits for the removal of 40,000 entries; a folder that is too large shrinks nevertheless (F48)."""
    names = aged_folder(tmp_path, 8, 64)
    folder, network_meta = tmp_path / "kernel_meta", tmp_path / "network_meta"
    aged = age(folder, network_meta, Policy(4, 50), least=MEGABYTE, seconds=0.0)
    assert not aged.ended
    assert MEGABYTE <= aged.freed <= MEGABYTE + MEGABYTE // 4
    assert left(folder) == sorted(names[len(aged.removed) :])
    while not (aged := age(folder, network_meta, Policy(4, 50), least=MEGABYTE, seconds=0.0)).ended:
        assert aged.removed
    assert age(folder, network_meta, Policy(4, 50)).removed == ()


def test_the_size_of_a_folder_too_large_to_look_at_all_of_it_is_estimated(tmp_path: Path) -> None:
    """From files taken at random, so that neither the order of names nor that of creation matters."""
    aged_folder(tmp_path, 30, 400)
    whole = survey(tmp_path / "kernel_meta", tmp_path / "network_meta").nbytes
    found = tidy(tmp_path / "kernel_meta", tmp_path / "network_meta", 300)
    assert found.files == 1200
    assert abs(found.nbytes - whole) < whole / 10
    assert tidy(tmp_path / "kernel_meta", tmp_path / "network_meta", 1200).nbytes == whole


@pytest.mark.usefixtures("small_bounds")
def test_without_a_limit_a_large_folder_is_not_listed_by_each_build(tmp_path: Path) -> None:
    """Names are listed once a day, to remove what killed writers left (F53)."""
    aged_folder(tmp_path, 8, 60)
    calls = age_here(tmp_path, Policy(-1))
    assert calls["name"] == 180
    assert calls["stat"] < 10
    assert age_here(tmp_path, Policy(-1))["name"] == 0


def test_a_damaged_measurement_is_found_and_repaired(tmp_path: Path) -> None:
    """What is remembered of a folder's size is a kind of file too; that an old one no longer counts is no damage."""
    cache = Cache(tmp_path / "kernel_meta", tmp_path)
    remember_size(tmp_path, MeasuredFolder(1, 1.0))
    assert list(cache.problems()) == []
    (tmp_path / inventory.SIZE_FILE).write_bytes(b"{")
    (problem,) = cache.problems()
    assert (problem.item.name, problem.reason.code) == (inventory.SIZE_FILE, "damaged")
    assert cache.repair(problem)
    assert list(tmp_path.iterdir()) == []


def test_clearing_forgets_the_measurement(tmp_path: Path) -> None:
    """Only the settings are left (F53)."""
    remember_size(tmp_path, MeasuredFolder(1, time.time()))
    Cache(tmp_path / "kernel_meta", tmp_path).clear()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def six(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of six operators."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", ".")
    store = operators_in(tmp_path / "rank_0" / "kernel_meta")
    for tile in range(6):
        store.publish(entry_of(conv(tile))[1])
    return store.blobs.path


@pytest.mark.slow
@pytest.mark.parametrize("command", [("clear",), ("prune", "--max_size", "0")], ids=["clear", "prune"])
def test_an_interrupted_removal_leaves_no_part_of_an_entry_and_says_how_far_it_got(
    six: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    """Ctrl-C after any file: entries are whole or gone, the rest is counted, and the same command ends the work."""
    unlink = os.unlink
    files = {path.name: path.read_bytes() for path in six.iterdir()}
    for stop in range(1, 19):
        for name, content in files.items():
            (six / name).write_bytes(content)
        removals = itertools.count(1)

        def interrupted(path: str, last: int = stop, removals: Iterator[int] = removals) -> None:
            unlink(path)
            if next(removals) == last:
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(items.os, "unlink", interrupted)
        assert main(["cache", *command]) == 130
        # A thread that was just being started is not waited for, and ends its item.
        assert until(lambda: len(list(six.iterdir())) % 3 == 0)
        monkeypatch.setattr(items.os, "unlink", unlink)
        said = capsys.readouterr().err
        left_over = len(list(six.iterdir()))
        counted = re.match(r"interrupted: (\d) of 6 removed; the rest is whole and can be used\n", said)
        assert counted
        assert int(counted[1]) in (6 - left_over // 3, 5 - left_over // 3)
        assert main(["cache", "verify"]) == 0
    assert main(["cache", *command]) == 0
    assert list(six.iterdir()) == []


def test_an_interrupted_check_says_how_far_it_got(
    six: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C ends it at once, changes nothing, and is no traceback."""
    before = {path.name: path.read_bytes() for path in six.iterdir()}
    look, looks = cache_module.problem_of, itertools.count(1)

    def interrupted(*arguments: object) -> object:
        if next(looks) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return look(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cache_module, "problem_of", interrupted)
    assert main(["cache", "verify", "--repair"]) == 130
    said = capsys.readouterr().err.strip()
    assert said.startswith("interrupted: ")
    assert said.endswith(" of 6 checked; the rest was not looked at")
    assert {path.name: path.read_bytes() for path in six.iterdir()} == before


def test_checking_and_listing_change_no_time_and_write_nothing(six: Path) -> None:
    """Setting 150,000 access times back wrote to the disk what reading alone would not have."""
    for path in six.iterdir():
        os.utime(path, (1e9, 1e9))
    with counted_calls(six) as calls:
        assert main(["cache", "verify"]) == 0
        assert main(["cache", "ls"]) == 0
    assert calls["utime"] == 0
    assert {path.stat().st_atime for path in six.iterdir()} == {1e9}


def test_weights_that_networks_share_are_read_once(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checking a thousand networks must not read the weights that all of them map a thousand times."""
    with small_network.replayed():
        small_network.build(tmp_path)
        small_network.build(tmp_path, precision_mode="force_fp32")
    read: list[Path] = []
    digest_file = files.digest_file

    def counted(path: Path, *arguments: object) -> str:
        read.append(path)
        return digest_file(path, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cache_module, "digest_file", counted)
    found = Cache(tmp_path / "rank_0" / "kernel_meta", tmp_path / "rank_0" / "network_meta")
    assert len(found.items("network")) == 2
    assert list(found.problems()) == []
    assert len(read) == len(set(read)) == len(found.items("weight")) > 0


def test_a_removal_that_is_refused_is_not_counted(six: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be removed stays, and nobody is told that it went."""

    def refused(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(items.os, "unlink", refused)
    assert Cache(six, six.parent / "network_meta").clear() == ()


def test_a_thousand_rows_are_lines(six: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Laying out a table of 50,000 rows takes minutes; lines have the same columns and whole names."""
    names = [f"conv_{number}_0" for number in range(600)]
    for name in names:
        (six / f"{name}.json").write_text("{}")
    assert main(["cache", "ls"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["name", "kind", "variant", "ms", "size", "idle"]
    assert {line.split()[0] for line in lines[1:-1]} >= set(names)
    assert len({len(line) for line in lines[:601]}) == 1
    assert main(["cache", "ls", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 606
