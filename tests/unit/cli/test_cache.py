"""The commands ``opbuild cache`` and ``opbuild explain``: what they print, as tables and as JSON, and refuse."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from opbuild.cli.main import main
from opbuild.cli.options import read_size, read_span, span
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.key import KEY_FORMAT, Key, key_digest
from opbuild.pipeline.setup import set_up
from opbuild.store.operators import operators_in
from opbuild.target.host import host_level, parse_level
from opbuild.text.plural import size
from support.fake_compiler import fake_object
from support.samples import conv, key_of, stored
from support.small_network import SmallNetwork


@pytest.fixture
def names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two operators for this machine in the working folder's cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", ".")
    return sorted(stored(tmp_path / "rank_0" / "kernel_meta", host_level(), tile) for tile in (1, 2))


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Run a command and return what it printed."""
    assert main(list(arguments)) == code
    return capsys.readouterr().out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a command with ``--json`` and return what it printed."""
    return json.loads(said(capsys, *arguments, "--json"))


def test_ls_lists_names_variants_and_sizes(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Each operator is a line with its whole name; JSON has the same."""
    text = said(capsys, "cache", "ls")
    assert all(f"{name} " in text for name in names)
    assert "tile=2" in text
    assert "2 operators (32.0 KiB), 0 networks (0 B), 0 packed weights (0 B)" in text
    assert sorted(row["name"] for row in as_json(capsys, "cache", "ls")) == names


def test_an_empty_cache_is_shown_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No command fails or writes where nothing is stored."""
    monkeypatch.chdir(tmp_path)
    for command in ("ls", "stats", "verify", "clear"):
        assert said(capsys, "cache", command)
    for command in (["verify"], ["prune", "--older_than=1d"], ["clear"]):
        assert re.fullmatch(r"nothing is stored in /.*/rank_0\n", said(capsys, "cache", *command))
    assert as_json(capsys, "cache", "ls") == []
    assert list(tmp_path.iterdir()) == []


def test_show_gives_the_key_and_the_state(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One operator's files, key and soundness; the beginning of a name is enough if it is one name's."""
    details = as_json(capsys, "cache", "show", names[0])
    assert details["state"] == "sound"
    assert details["key"]["op_types"] == ["Conv", "Relu"]
    assert "asked by       first" in said(capsys, "cache", "show", names[0][:-6])
    said(capsys, "cache", "show", "conv_", code=2)
    said(capsys, "cache", "show", "absent", code=2)
    Path("rank_0/kernel_meta", f"{names[0]}.o").write_bytes(b"x")
    assert "digest differs" in as_json(capsys, "cache", "show", names[0])["state"]


def test_verify_ends_with_1_until_it_is_repaired(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Damage that stays is an exit code; JSON names operator, code and reason."""
    assert said(capsys, "cache", "verify") == "2 checked, 0 damaged\n"
    Path("rank_0/kernel_meta", f"{names[0]}.o").write_bytes(b"x")
    assert said(capsys, "cache", "verify", code=1).splitlines()[-1] == "2 checked, 1 damaged"
    assert "1 damaged and removed" in said(capsys, "cache", "verify", "--repair")
    assert as_json(capsys, "cache", "verify") == {"checked": 1, "damaged": [], "repaired": False}


def test_verify_knows_every_kind_of_file(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F80: what is only remembered is looked at too; a user's settings are named, and never removed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", ".")
    shutil.copytree(small_network.cache / "rank_0", "rank_0")
    with small_network.replayed():
        small_network.build(tmp_path)
    assert as_json(capsys, "cache", "verify")["damaged"] == []
    names = ("*.model", "*.digest", "*.seen", "compiler.json", "counters.jsonl", "weights/*.json")
    memos = [next(Path("rank_0/network_meta").glob(name)) for name in names]
    for path in memos:
        path.write_bytes(b'{"a": 1}')
    settings = Path("rank_0/op_cache.ini")
    settings.write_text("[op_compiler_cache]\nmax_op_cache_size=much\n", encoding="utf-8")
    found = said(capsys, "cache", "verify", "--repair", code=1)
    assert all(f"memo {path.name}: " in found for path in memos)
    assert "settings op_cache.ini: " in found
    assert found.splitlines()[-1].endswith("7 damaged, 1 not removed")
    assert settings.exists()
    assert not any(path.exists() for path in memos)


def test_prune_and_clear_say_what_went(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What was removed is counted and, as JSON, named."""
    os.utime(f"rank_0/kernel_meta/{names[0]}.json", (1, 1))
    assert as_json(capsys, "cache", "prune", "--older-than", "30d")["names"] == [names[0]]
    assert said(capsys, "cache", "clear").startswith("1 operator and 0 networks removed, ")


def test_a_bundle_goes_from_folder_to_folder(
    names: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Export, import, and import into the folder of one target."""
    assert as_json(capsys, "cache", "export", "all.bundle")["operators"] == 2
    assert as_json(capsys, "cache", "import", "all.bundle", "--cache_path", "b")["added"] == 2
    assert as_json(capsys, "cache", "import", "all.bundle", "--op-compiler-cache-dir", "c")["added"] == 2
    assert (tmp_path / "c" / str(host_level()) / f"{names[0]}.o").is_file()
    assert {row["name"] for row in as_json(capsys, "cache", "ls", "--op_compiler_cache_dir", "c")} == set(names)


OLD = "x86-64-linux-avx-avx2-f16c-fma-sse41"
"""How a release without levels called what is ``x86-64-v3``, and its folder."""


def store_old(folder: Path) -> str:
    """Store an operator as a release with another format of keys did; return its name."""
    components = {**key_of(conv()).components, "format": KEY_FORMAT - 1, "target": OLD}
    key = Key(components, key_digest(components))
    entry = make_entry(conv(), key, 0, Artifact(fake_object(b"code", (key.symbol,))), 12.0, nodes=("first",))
    operators_in(folder).publish(entry)
    return entry.name


def test_operators_of_another_release_are_told_apart_harmless_and_removed(
    names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """No build finds them; they are no damage, and go as everything does that is not used."""
    old = store_old(Path("rank_0/kernel_meta"))
    text = " ".join(said(capsys, "cache", "ls").split())
    assert "of another release of opbuild: 1 operator, which no build of this one finds" in text
    assert "for another level" not in text
    rows = {row["name"]: row["other_release"] for row in as_json(capsys, "cache", "ls")}
    assert rows == {**dict.fromkeys(names, False), old: True}
    assert said(capsys, "cache", "verify") == "3 checked, 0 damaged\n"
    shown = as_json(capsys, "cache", "show", old)
    assert shown["key"]["target"] == OLD
    assert shown["state"] == f"it has the key format {KEY_FORMAT - 1} of another release"
    os.utime(f"rank_0/kernel_meta/{old}.json", (1, 1))
    assert as_json(capsys, "cache", "prune", "--older-than", "30d")["names"] == [old]


def test_a_folder_of_an_older_release_is_named_shown_and_cleared_but_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder with one for each level it has the features as its name; that spelling means a level elsewhere."""
    monkeypatch.chdir(tmp_path)
    level = parse_level("x86-64-v3")
    old, new = store_old(tmp_path / "c" / OLD), stored(tmp_path / "c" / str(level), level)
    place = ("--op_compiler_cache_dir", "c", "--target")
    assert [row["name"] for row in as_json(capsys, "cache", "ls", *place, OLD)] == [old]
    assert [row["name"] for row in as_json(capsys, "cache", "ls", *place, "x86-64-v3")] == [new]
    assert main(["cache", "ls", *place[:2]]) == 0
    others = sorted({OLD, "x86-64-v3"} - {str(host_level())})
    assert capsys.readouterr().err == f"more is stored in {tmp_path / 'c'} for --target {', '.join(others)}\n"
    assert set_up(Config(op_compiler_cache_dir=Path("c")), OLD, None).config.kernel_meta == tmp_path / "c" / "x86-64-v3"
    assert as_json(capsys, "cache", "clear", *place, OLD)["operators"] == 1
    assert [row["name"] for row in as_json(capsys, "cache", "ls", *place, OLD)] == []
    assert [row["name"] for row in as_json(capsys, "cache", "ls", *place, "x86-64-v3")] == [new]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("cache", "prune"), "--older_than or --max_size"),
        (("cache", "prune", "--max_size", "much"), "--max_size is 'much'"),
        (("cache", "prune", "--older_than", "30"), "--older_than is '30'"),
        (("cache", "ls", "--target", "Ascend310"), "target is 'Ascend310'"),
        (("cache", "ls", "--cache_path", "a", "--op_compiler_cache_dir", "b"), "give one of them"),
        (("cache", "export", "x", "--network"), "give --model"),
        (("cache", "export", "x", "--model", "absent.onnx"), "absent.onnx"),
        (("cache", "import", "absent"), "there is no file 'absent'"),
        (("cache", "import", "rank_0"), "is a folder"),
        (("cache", "nothing"), "there is no command 'nothing'"),
        (("explain", "absent.onnx"), "absent.onnx"),
    ],
)
def test_a_bad_argument_is_named_and_nothing_is_written(
    names: list[str], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    """The error names the option and the value, the exit code is not 0, and the folder stays as it was."""
    before = sorted(tmp_path.rglob("*"))
    assert main(list(arguments)) in (2, 3, 5)
    error = capsys.readouterr().err
    assert named in error
    assert "Traceback" not in error
    assert sorted(tmp_path.rglob("*")) == before


def test_sizes_and_spans_are_read_and_shown() -> None:
    """Units that people write, and units that they read."""
    assert [read_size(text) for text in ("0", "10", "2K", "500m", "3GiB", None)] == [
        0, 10, 2048, 500 * 2**20, 3 * 2**30, None,
    ]  # fmt: skip
    assert [read_span(text) for text in ("5s", "90m", "12h", "30d", "1w", None)] == [
        5, 5400, 43200, 30 * 86400, 7 * 86400, None,
    ]  # fmt: skip
    for text in ("", "-1", "1.5G", "5X"):
        with pytest.raises(OptionError):
            read_size(text)
    assert [size(n) for n in (0, 2048, 3 * 2**20, 5 * 2**30)] == ["0 B", "2.0 KiB", "3.0 MiB", "5.0 GiB"]
    assert [span(n) for n in (-1, 59, 120, 7200, 2 * 86400)] == ["0 s", "59 s", "2 min", "2 h", "2 d"]
