"""Whose folders of remote stores are believed: the rule of one's own store, unless what lies there is signed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import _uploads, service_at
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store.remote.objects import OPERATORS, Objects
from opbuild.store.remote.operators import RemoteStore
from opbuild.store.remote.service import Service
from support.remote_servers import service
from support.samples import conv, entry_of
from support.small_network import SHAPE, small_model

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away, and pose as another user"),
    pytest.mark.usefixtures("patient"),
]

SIGNED = Trust(key=b"a key of sixteen bytes")
KEY, ENTRY = entry_of(conv())
STEM = KEY.stem
STRANGER = 12345


def _open_to_all(path: Path) -> None:
    path.chmod(0o777 if path.is_dir() else 0o666)


def _given_away(path: Path) -> None:
    os.chown(path, STRANGER, -1)


def _group(path: Path) -> None:
    path.chmod(0o775 if path.is_dir() else 0o664)
    os.chown(path, -1, STRANGER)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "everybody": (_open_to_all, "everybody may write to"),
    "a stranger": (_given_away, f"user {STRANGER} owns"),
    "a group": (_group, f"group {STRANGER} may write to"),
}
"""Who else may write, and what is said."""

PLACES = {"root": "", "on the way": "..", "folder": OPERATORS, "file": OPERATORS + STEM}


@pytest.fixture
def far(tmp_path: Path) -> Service:
    """A remote store in a folder, with an operator."""
    remote = service(f"file://{tmp_path}/way/shared")
    assert RemoteStore(Objects(remote, PRIVATE)).publish(ENTRY) is None
    return remote


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("who", CHANGES)
def test_what_others_can_write_to_is_not_used(far: Service, place: str, who: str) -> None:
    """Whether the folder, one on the way to it or the file: the warning says who can, and what to do (F59)."""
    change, said = CHANGES[who]
    change(Path(far.folder, PLACES[place]))
    told: list[str] = []
    asked = service(far.address.url)
    answer = RemoteStore(Objects(asked, PRIVATE, told.append)).lookup(KEY)
    assert isinstance(answer, Missing)
    assert "untrusted" in answer.reason.elsewhere
    (warning,) = told
    assert said in warning
    assert "chmod go-w" in warning or "chown 0" in warning
    assert "OPBUILD_TRUST_SHARED_CACHE=1" in warning
    assert "OPBUILD_SIGNING_KEY" in warning or place == "file"


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("who", CHANGES)
def test_what_is_signed_or_allowed_is_used_wherever_it_lies(far: Service, place: str, who: str) -> None:
    """A signature says who wrote it; a setting says that all who can are believed."""
    assert RemoteStore(Objects(far, SIGNED)).publish(ENTRY) is None
    CHANGES[who][0](Path(far.folder, PLACES[place]))
    for trust in (SIGNED, Trust(shared=True)):
        assert isinstance(RemoteStore(Objects(service(far.address.url), trust)).lookup(KEY), Found)


@pytest.mark.parametrize("who", CHANGES)
def test_nothing_is_written_where_others_can_change_it(far: Service, who: str) -> None:
    """A reader would not use it; the reason says what to do."""
    CHANGES[who][0](Path(far.folder))
    problem = RemoteStore(Objects(service(far.address.url), PRIVATE)).publish(ENTRY)
    assert problem is not None
    assert problem.startswith("untrusted: ")
    blob = Objects(service(far.address.url), PRIVATE).put_blob("0" * 64, b"x")
    assert isinstance(blob, Reason)
    assert blob.code == "untrusted"


def test_a_sticky_folder_on_the_way_is_no_danger(far: Service) -> None:
    """As ``/tmp`` is: there each removes what is his own only."""
    Path(far.folder).parent.chmod(0o1777)
    assert isinstance(RemoteStore(Objects(service(far.address.url), PRIVATE)).lookup(KEY), Found)
    Path(far.folder, OPERATORS).chmod(0o1777)
    assert isinstance(RemoteStore(Objects(service(far.address.url), PRIVATE)).lookup(KEY), Missing)


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_is_written_is_believed_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    """Files and folders are closed to others; a container's umask of 0 makes no store that nobody uses."""
    before = os.umask(umask)
    try:
        remote = service(f"file://{tmp_path}/new/shared")
        assert RemoteStore(Objects(remote, PRIVATE)).publish(ENTRY) is None
    finally:
        os.umask(before)
    for path in Path(remote.folder, OPERATORS).iterdir():
        assert not path.stat().st_mode & 0o022
    assert isinstance(RemoteStore(Objects(service(remote.address.url), PRIVATE)).lookup(KEY), Found)


def test_a_link_to_what_others_can_write_is_not_followed(far: Service, tmp_path: Path) -> None:
    """Neither as the store nor on the way to it."""
    Path(far.folder).chmod(0o777)
    (tmp_path / "link").symlink_to(far.folder)
    answer = RemoteStore(Objects(service(f"file://{tmp_path}/link"), PRIVATE)).lookup(KEY)
    assert isinstance(answer, Missing)
    assert "untrusted" in answer.reason.elsewhere


def test_check_says_what_is_wrong_with_a_folder(far: Service, capsys: pytest.CaptureFixture[str]) -> None:
    """``opbuild cache check`` fails, as it does for a store that refuses, and --repair removes nothing there."""
    Path(far.folder).chmod(0o777)
    assert main(["cache", "check", "--remote", far.address.url]) == 5
    assert "everybody may write to" in capsys.readouterr().err
    assert main(["cache", "check", "--repair", "--remote", far.address.url]) == 5
    assert "everybody may write to" in capsys.readouterr().err
    assert Path(far.folder, OPERATORS, STEM).exists()


def test_a_library_that_others_exchanged_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With digests that fit: a build compiles itself, warns once, and its own store keeps nothing of what lay there."""
    monkeypatch.setenv("OPBUILD_PACK", "0")
    onnx.save(small_model(), tmp_path / "model.onnx")
    shared, url = tmp_path / "shared", f"file://{tmp_path}/shared"
    build = partial(opbuild.compile, tmp_path / "model.onnx", input_shapes={"x": SHAPE}, remote=url)
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "write")
    assert build(cache_path=tmp_path / "own").report.built
    _uploads(service_at(url)).wait()
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "read")
    service_at.cache_clear()
    for folder in (shared, *shared.rglob("*")):
        _given_away(folder)
        _open_to_all(folder)
    net = build(cache_path=tmp_path / "victim")
    assert not net.report.image
    assert "untrusted" in net.report.image_reason
    assert net.report.built > 0
    assert caplog.text.count(url) == 1
