"""What ``opbuild cache ls``, ``show`` and ``stats`` say of weights and networks, and that it adds up."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from opbuild.cli.main import main
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.store.inventory import disk_usage, survey
from opbuild.text.plural import size
from support.fuzzing import CAMPAIGN, check_seeds
from support.small_network import SmallNetwork


def du(folder: Path) -> int:
    """Return the size of a folder by ``du``."""
    done = subprocess.run(["du", "-s", "--block-size=1", folder], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


@pytest.fixture
def kept(small_network: SmallNetwork, user_store: Path) -> Path:
    """The small network's operators, network and weights in the user's own store."""
    with small_network.replayed():
        small_network.build(user_store)
    return user_store / "rank_0"


def test_every_file_of_a_cache_is_some_stores_own(kept: Path) -> None:
    """A file whose form no store states would never age, and be neither checked nor cleared."""
    items = survey(kept / "kernel_meta", kept / "network_meta").items
    owned = Counter(file for item in items for file in item.files)
    files = {str(path) for path in kept.rglob("*") if path.is_file()}
    assert files - owned.keys() == {str(kept / "op_cache.ini")}
    assert set(owned.values()) == {1}
    assert {item.kind for item in items} == {"operator", "network", "weight", "reference", "memo", "note", "origin"}


def test_ls_counts_packed_weights_and_its_parts_add_up_to_du(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``ls`` said 636 KiB of a store of 45 MiB: packed weights were not counted."""
    assert main(["cache", "ls"]) == 0
    *_, parts, total = capsys.readouterr().out.splitlines()
    weights = du(kept / "network_meta" / "weights")
    pattern = r"2 operators \((.*)\), 1 network \((.*)\), 1 packed weight \((.*)\), other files \((.*)\)"
    found = re.fullmatch(pattern, parts)
    assert found is not None
    assert weights > 200 * 1024
    assert found[3] == size(next((kept / "network_meta" / "weights").glob("*.bin")).stat().st_blocks * 512)
    assert total == f"{size(du(kept))} together in {kept}"
    assert main(["cache", "ls", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["kind"] for row in rows) == ["network", "operator", "operator", "weights"]
    (network,) = (row for row in rows if row["kind"] == "network")
    (weight,) = (row for row in rows if row["kind"] == "weights")
    assert (network["weights"], network["weights_bytes"]) == (1, weight["bytes"])
    assert main(["cache", "stats", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    parts_ = sum(each["bytes"] for each in numbers["stored"].values()) + numbers["other_bytes"]
    assert parts_ == numbers["total_bytes"] == du(kept)


def test_sizes_are_what_du_says_for_any_folder(tmp_path: Path) -> None:
    """Random trees of files, hard and symbolic links, folders within folders."""

    def one(seed: int) -> None:
        numbers = random.Random(seed)
        root = tmp_path / str(seed)
        folders, files = [root], []
        root.mkdir()
        for index in range(numbers.randrange(25)):
            path = numbers.choice(folders) / str(index)
            match numbers.randrange(4):
                case 0:
                    path.mkdir()
                    folders.append(path)
                case 1 if files:
                    os.link(numbers.choice(files), path)
                case 2:
                    path.symlink_to(numbers.choice((root, tmp_path, Path("nowhere"))))
                case _:
                    path.write_bytes(numbers.randbytes(numbers.choice((0, 1, 4096, 4097, 70000))))
                    files.append(path)
        assert disk_usage(root) == du(root)

    check_seeds("what folders take", one, CAMPAIGN or 12)


def test_show_says_what_a_network_takes_gives_and_is_made_of(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``show`` of a network gave files and bytes only; now inputs, outputs, operators and weights."""
    assert main(["cache", "show", "small"]) == 0
    shown = capsys.readouterr().out
    for line in ("inputs         x  float32[64,256]", "outputs        y  float32[64,256]", "operators      2",
                 "network        small", "state          sound"):  # fmt: skip
        assert f"\n{line}\n" in shown
    assert re.search(r"\n  matmul_\d+_0 +product\n  softmax_\d+_0 +scores\n", shown)
    assert "weights        1 packed weight, 256.0 KiB\n" in shown
    assert main(["cache", "show", "small", "--json"]) == 0
    details = json.loads(capsys.readouterr().out)
    assert details["inputs"] == [{"name": "x", "dtype": "float32", "shape": [64, 256]}]
    assert sorted(nodes for (nodes,) in details["operators"].values()) == ["product", "scores"]


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 100, None])
def test_show_of_a_damaged_network_says_so(
    kept: Path, content: bytes | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be read is left out, and the state says why."""
    (record,) = (path for path in (kept / "network_meta").glob("small_*.json"))
    record.write_bytes(record.read_bytes()[:-30] if content is None else content)
    assert main(["cache", "show", "small"]) == 0
    shown = capsys.readouterr().out
    assert "state          sound" not in shown
    assert "inputs" not in shown


def test_looking_at_a_network_is_no_use(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``show`` and ``verify`` counted as the last use of a network, which keeps it from ageing."""
    (record,) = (path for path in (kept / "network_meta").glob("small_*.json"))
    os.utime(record, (1000, 1000))
    for command in (["show", "small"], ["verify"], ["ls"]):
        assert main(["cache", *command]) == 0
    assert record.stat().st_atime == 1000
    (item,) = Cache.of(Config.from_environment()).items("network")
    assert item.last_use == 1000


@pytest.mark.parametrize("columns", [80, 100])
def test_a_table_of_a_terminal_keeps_names_whole(
    kept: Path, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At 80 columns a name stands in one line: what is wide is left out, not what is copied."""
    from rich.console import Console

    monkeypatch.setattr("opbuild.cli.tables.output_console", lambda: Console(width=columns))
    assert main(["cache", "ls"]) == 0
    shown = capsys.readouterr().out
    for path in (kept / "kernel_meta").glob("*.o"):
        assert f"{path.stem} " in shown
    assert max(map(len, shown.splitlines()[:-2])) <= columns
