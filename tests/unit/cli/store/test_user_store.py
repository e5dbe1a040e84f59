"""One store for each user: Python and the commands share it from every folder, and it never stops a build."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.cli.env import write_problem
from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.platform.files.trust import Trust
from opbuild.target.host import host_level, parse_level
from support.samples import Recorder, stored
from support.small_network import SHAPE, SmallNetwork

SHAPES = "--shape=x:64,256"


def test_every_way_to_build_finds_what_another_built_from_another_folder(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """``build``, ``compile`` and Python kept three stores, and each folder its own; now nothing is compiled twice."""
    model = str(small_network.path)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "first")
    with small_network.replayed():
        assert main(["compile", model, SHAPES]) == 0
    assert f"kept in {user_store}/rank_0 for later builds and runs" in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "second")
    monkeypatch.setenv("OPBUILD_FORBID_COMPILE", "1")
    assert main(["run", model, SHAPES, "--runs=1"]) == 0
    assert main(["export", model, SHAPES, "-o", "small"]) == 0
    assert main(["compile", "--model", model, SHAPES]) == 0
    assert main(["explain", model, SHAPES]) == 0
    assert capsys.readouterr().out.count("0 operators built, 2 reused") == 3
    np.testing.assert_array_equal(opbuild.compile(model, input_shapes={"x": SHAPE})(small_network.x), small_network.y)
    opbuild.export(model, "again", input_shapes={"x": SHAPE})
    assert sorted(path.name for path in Path().iterdir()) == ["again.om", "small.om"]
    assert list((tmp_path / "first").iterdir()) == []


def test_a_compile_fills_the_store_for_builds(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user_store: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It works the other way round too, and an .om file's build says where its operators are."""
    monkeypatch.chdir(tmp_path)
    with small_network.replayed():
        assert main(["export", str(small_network.path), SHAPES]) == 0
    assert f"kept in {user_store}/rank_0 for later" in capsys.readouterr().out
    assert main(["compile", str(small_network.path), SHAPES, "--forbid_compile"]) == 0


def test_the_store_is_its_users_alone_whatever_the_umask_is(small_network: SmallNetwork, user_store: Path) -> None:
    """With umask 0 the folders are made 0700, those above too, so that what is built is believed the next time."""
    before = os.umask(0)
    try:
        with small_network.replayed():
            opbuild.compile(small_network.path, input_shapes={"x": SHAPE})
    finally:
        os.umask(before)
    folders = [user_store.parent, user_store, *(path for path in user_store.rglob("*") if path.is_dir())]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    assert Trust().folder_problem(user_store / "rank_0" / "kernel_meta") is None
    assert opbuild.compile(small_network.path, input_shapes={"x": SHAPE}).report.image


def _file(folder: Path) -> Path:
    (folder / "file").write_text("")
    return folder / "file"


def _open_to_all(folder: Path) -> Path:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    return folder / "open"


def _nowhere(folder: Path) -> Path:
    (folder / "link").symlink_to(folder / "nothing")
    return folder / "link" / "home"


TROUBLES: dict[str, Callable[[Path], Path]] = {
    "device": lambda folder: Path("/dev/null"),
    "file": _file,
    "proc": lambda folder: Path("/proc"),
    "open": _open_to_all,
    "nowhere": _nowhere,
}
"""Homes in which no store can be, as service accounts and containers have them."""


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_home_that_can_hold_no_store_costs_a_warning(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Everything is built and runs; one warning, the last line says that nothing is kept, and ``env`` marks it before.

    ``HOME=/dev/null``, which service accounts have, once gave the advice to change the modes of ``/dev/null``.
    """
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(TROUBLES[trouble](tmp_path)))
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert "CAN NOT BE USED" in shown
    assert "/dev/null' mends it" not in shown
    with small_network.replayed():
        assert main(["compile", str(small_network.path), SHAPES]) == 0
    said = capsys.readouterr()
    assert said.err.count("warning: ") == 1
    assert "not kept in " in said.out.splitlines()[-1]
    assert "--cache_path" in said.out.splitlines()[-1]


def test_without_a_home_the_working_folder_keeps_it_and_a_warning_says_so(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user whom nobody knows builds, stores and starts from the store (F53, F57)."""

    def unknown(user: int) -> None:
        raise KeyError(user)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    seen = Recorder()
    with small_network.replayed():
        opbuild.compile(small_network.path, input_shapes={"x": SHAPE}, observer=seen)
    assert str(tmp_path) in seen.events[0].message  # type: ignore[union-attr]
    assert opbuild.compile(small_network.path, input_shapes={"x": SHAPE}).report.image
    assert (tmp_path / "rank_0" / "kernel_meta").is_dir()


def test_env_marks_only_a_store_that_cannot_be_written(user_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Looking makes no folder and leaves no file, whether the store is there or not."""
    assert main(["env"]) == 0
    shown = capsys.readouterr().out
    assert f"\nstore      {user_store}/rank_0\n" in shown
    assert not user_store.parent.exists()
    user_store.mkdir(parents=True)
    assert write_problem(user_store) == write_problem(user_store / "a" / "b") == ""
    assert list(user_store.iterdir()) == []


def test_targets_lie_together_and_are_told_apart(user_store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``ls`` counts what is for other machines, ``export`` takes one target's, and nothing is cleared by target."""
    config = Config.from_environment()
    host, other = host_level(), parse_level("arm-64-linux")
    here, there = stored(config.kernel_meta, host), stored(config.kernel_meta, other)
    assert here != there
    assert main(["cache", "ls"]) == 0
    assert "for another level: 1 operator for armv8-a\n" in capsys.readouterr().out
    assert main(["cache", "export", str(user_store / "arm.bundle"), "--target", "arm-64-linux"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("1 operator in ")
    assert shown[1:] == [f"not exported: 1 operator for {host}"]
    assert main(["cache", "clear", "--target", "armv8-a"]) == 2
    assert "is for all levels together" in capsys.readouterr().err
    assert main(["cache", "verify"]) == 0
    assert capsys.readouterr().out == "2 checked, 0 damaged\n"


def test_other_places_that_hold_something_are_said(
    user_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line on the standard error says what scripts and ``atc`` left; none where it is looked at, or there is none."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASCEND_CACHE_PATH", str(tmp_path / "ascend"))
    (tmp_path / "rank_1" / "kernel_meta").mkdir(parents=True)
    assert main(["cache", "ls"]) == 0
    assert capsys.readouterr().err == ""
    stored(tmp_path / "rank_1" / "kernel_meta", host_level())
    stored(tmp_path / "ascend" / "kernel_cache" / str(host_level()), host_level())
    assert main(["cache", "ls", "--json"]) == 0
    said = capsys.readouterr()
    assert said.out == "[]\n"
    atc = tmp_path / "ascend" / "kernel_cache"
    line = f"more is stored in ./rank_1 (--cache_path .) and {atc} (--op_compiler_cache_dir {atc})\n"
    assert said.err == line
    assert main(["cache", "ls", "--op_compiler_cache_dir", str(atc)]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "1 operator (" in said.out
