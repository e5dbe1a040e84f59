"""What serves where the cache's folder cannot be used: the pack and the remote store, which need none."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbuild.cli.main import main
from opbuild.errors import CompileForbiddenError
from opbuild.pipeline.remote import _uploads, service_at
from opbuild.platform.files.trust import SETTING
from support.fuzzing import CAMPAIGN, check_seeds
from support.small_network import SHAPE, Built, SmallNetwork

pytestmark = pytest.mark.usefixtures("patient")

STRANGER = 12345


def _open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def _open_to_a_group(folder: Path) -> None:
    folder.chmod(0o775)
    os.chown(folder, -1, STRANGER)


def _given_away(folder: Path) -> None:
    os.chown(folder, STRANGER, -1)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user or group")
STATES: dict[str, Callable[[Path], None]] = {"everybody": _open_to_all} | (
    {"group": _open_to_a_group, "owner": _given_away} if os.geteuid() == 0 else {}
)
PLACES = ("", "rank_0", "rank_0/kernel_meta", "rank_0/network_meta")
"""Where, in a cache: on the way to its folders, or one of them."""


@pytest.fixture
def others(tmp_path: Path) -> Path:
    """A cache's folder that everybody may write to, as an ``emptyDir`` is."""
    folder = tmp_path / "others"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder


def _send(network: SmallNetwork, url: str, cache: Path) -> Built:
    """Build and write to a remote store."""
    with pytest.MonkeyPatch.context() as patch, network.replayed():
        patch.setenv("OPBUILD_REMOTE_MODE", "write")
        built = network.build(cache, remote=url)
    _uploads(service_at(url)).wait()
    return built


def _without_networks(shared: Path) -> None:
    for folder in shared.glob("opbuild/*/networks"):
        shutil.rmtree(folder)


def test_the_pack_serves_where_the_folder_is_not_trusted(
    small_network: SmallNetwork, others: Path, with_pack: None
) -> None:
    """Nothing is compiled, the user is told once, and nothing is put where others could exchange it (F58)."""
    done = small_network.build(others, forbid_compile=True)
    assert [each.reason for each in done.report.operators] == ["from the pack"] * 2
    (warning,) = done.warnings
    assert warning.startswith(f"the cache is not used: everybody may write to {others}")
    assert [*others.rglob("*")] == []


def test_a_remote_network_serves_where_the_folder_is_not_trusted(
    small_network: SmallNetwork, others: Path, tmp_path: Path
) -> None:
    """It starts whole, as in a folder that is; weights are in memory, and nothing is read or written there."""
    url = f"file://{tmp_path}/shared"
    _send(small_network, url, tmp_path / "own")
    done = small_network.build(others, remote=url, forbid_compile=True)
    assert done.report.image
    assert len(done.warnings) == 1
    assert [*others.rglob("*")] == []


def test_remote_operators_serve_where_the_folder_is_not_trusted(
    small_network: SmallNetwork, others: Path, tmp_path: Path
) -> None:
    """Also where no network of the model is there."""
    url = f"file://{tmp_path}/shared"
    _send(small_network, url, tmp_path / "own")
    _without_networks(tmp_path / "shared")
    done = small_network.build(others, remote=url, forbid_compile=True)
    assert not done.report.image
    assert (done.report.built, done.report.shared) == (0, 2)
    assert [*others.rglob("*")] == []


def test_what_is_built_there_goes_to_the_remote_store(
    small_network: SmallNetwork, others: Path, tmp_path: Path
) -> None:
    """A pod that may write there fills it although it keeps nothing itself: the next one starts the network."""
    url = f"file://{tmp_path}/shared"
    assert _send(small_network, url, others).report.built == 2
    assert [*others.rglob("*")] == []
    assert small_network.build(tmp_path / "next", remote=url, forbid_compile=True).report.image


def test_a_folder_that_is_not_trusted_is_neither_believed_nor_changed(
    small_network: SmallNetwork, tmp_path: Path
) -> None:
    """F58: what lies there, sound as it is, serves nobody, and settings and memos beside it do not count."""
    cache = tmp_path / "cache"
    shutil.copytree(small_network.cache, cache)
    (cache / "rank_0" / "op_cache.ini").write_text(f"[op_compiler_cache]\nremote=file://{tmp_path}/elsewhere\n")
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*")}
    cache.chmod(0o777)
    with pytest.raises(CompileForbiddenError) as caught:
        small_network.build(cache, forbid_compile=True)
    assert f"the cache is not used: everybody may write to {cache}" in caught.value.hint
    assert SETTING in caught.value.hint
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*")} == before


def test_the_commands_say_that_nothing_was_kept(
    small_network: SmallNetwork, others: Path, with_pack: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """``opbuild compile`` builds by the pack, and says that it keeps nothing, and why."""
    shapes = "x:" + ",".join(map(str, SHAPE))
    arguments = ["compile", str(small_network.path), "--shape", shapes, "--cache_path", str(others)]
    assert main([*arguments, "--forbid_compile"]) == 0
    said = capsys.readouterr()
    assert "not kept in" in said.out + said.err
    assert "the cache is not used" in said.err


def test_nothing_is_compiled_that_the_pack_or_the_remote_store_has(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Whoever else may write to whichever folder of a cache, filled or empty, what lies elsewhere serves."""
    url = f"file://{tmp_path}/shared"
    _send(small_network, url, tmp_path / "own")

    def check(seed: int) -> str:
        draw = random.Random(seed)
        with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=tmp_path) as folder:
            cache = Path(folder, "cache")
            if is_filled := draw.random() < 0.5:
                shutil.copytree(small_network.cache, cache)
            place, state = cache / draw.choice(PLACES), draw.choice([*STATES, "ours", "a file"])
            place.mkdir(parents=True, exist_ok=True)
            if state == "a file":
                shutil.rmtree(place)
                place.write_bytes(b"")
            elif state != "ours":
                STATES[state](place)
            with_pack, with_remote = draw.random() < 0.5, draw.random() < 0.5
            patch.setenv("OPBUILD_PACK", str(int(with_pack)))
            options: dict[str, Any] = {"remote": url} if with_remote else {}
            is_whole = state == "ours" or (state == "a file" and place.name == "network_meta")  # operators suffice
            serves = with_pack or with_remote or (is_filled and is_whole)
            if not serves:
                with pytest.raises(CompileForbiddenError) as caught:
                    small_network.build(cache, forbid_compile=True)
                assert state not in STATES or "the cache is not used" in caught.value.hint
                return "forbidden"
            done = small_network.build(cache, forbid_compile=True, **options)
            assert done.report.built == 0
            assert sum("the cache is not used" in each for each in done.warnings) == (state in STATES)
            return "served"

    check_seeds("folders of others", check, range(CAMPAIGN or 12), 0)
