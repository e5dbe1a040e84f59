"""The compiler that is installed: all its bytes are in the key, and objects of another are not stored."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.builder import build as build_module
from opbuild.builder.build import Builder
from opbuild.builder.client import IdleServer
from opbuild.config import Config
from opbuild.kernel.identity import files_state, identify
from opbuild.kernel.key import CompilerIdentity
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, conv, key_of, needed

FILES = ("lib64/libHalide.so", "halide_.cpython-311-x86_64-linux-gnu.so", "__init__.py", "_generator_helpers.py")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up installation of halide, first on the path."""
    site = tmp_path / "site"
    for name in (*FILES, "lib64/cmake/Config.cmake", "include/Halide.h"):
        path = site / "halide" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() * 50)
    release(site, "99.0.0")
    for name in [name for name in sys.modules if name.partition(".")[0] == "halide"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(site))
    return site / "halide"


def release(site: Path, version: str) -> None:
    """Write what says which release is installed."""
    for old in site.glob("halide-*.dist-info"):
        shutil.rmtree(old)
    folder = site / f"halide-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: halide\nVersion: {version}\n")


def flip(path: Path) -> None:
    """Change one byte of a file in place, and set back its times."""
    stat = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (stat.st_size, stat.st_mtime_ns)


def rebuilt(before: CompilerIdentity, after: CompilerIdentity) -> set[str]:
    """Return which of several operators have another key for another compiler."""
    operators = {f"conv {tile}": conv(tile) for tile in range(4)}
    return {
        name
        for name, desc in operators.items()
        if key_of(desc, identity=before).sha256 != key_of(desc, identity=after).sha256
    }


ALL = {f"conv {tile}" for tile in range(4)}


def test_two_hosts_with_the_same_wheel_have_one_identity(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever, whenever and by whom it was installed: paths, times and inodes are not in it; each file's bytes are."""
    here = identify(HalideCompiler())
    elsewhere = tmp_path / "another" / "host"
    shutil.copytree(installed.parent, elsewhere)
    for path in elsewhere.rglob("*"):
        os.utime(path, (1, 1))
    monkeypatch.syspath_prepend(str(elsewhere))
    assert HalideCompiler.files()[0].is_relative_to(elsewhere)
    assert identify(HalideCompiler()) == here
    for name in FILES:
        flip(elsewhere / "halide" / name)
        assert identify(HalideCompiler()).digest != here.digest, name
        flip(elsewhere / "halide" / name)
    assert identify(HalideCompiler()) == here


@pytest.mark.parametrize("name", FILES)
def test_one_byte_of_the_compiler_under_its_old_version_size_and_time_rebuilds_everything(
    installed: Path, tmp_path: Path, name: str
) -> None:
    """The library, its Python binding and its Python sources are all in the digest (F28)."""
    memo = tmp_path / "compiler.json"
    before = identify(HalideCompiler(), memo)
    assert [path.relative_to(installed).as_posix() for path in HalideCompiler.files()] == list(FILES)
    flip(installed / name)
    assert rebuilt(before, identify(HalideCompiler(), memo)) == ALL


def test_another_release_of_equal_bytes_rebuilds_everything(installed: Path, tmp_path: Path) -> None:
    """The version alone is in the key too (F29)."""
    before = identify(HalideCompiler(), tmp_path / "compiler.json")
    release(installed.parent, "99.0.1")
    after = identify(HalideCompiler(), tmp_path / "compiler.json")
    assert (before.version, after.version) == ("99.0.0", "99.0.1")
    assert rebuilt(before, after) == ALL


def test_a_copied_linked_and_touched_compiler_rebuilds_nothing(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another place, a symbolic link, new times and what compiles nothing are not in the key (F41, F42, F44)."""
    before = identify(HalideCompiler())
    for path in installed.rglob("*.*"):
        os.utime(path, (1, 1))
    flip(installed / "include" / "Halide.h")
    assert rebuilt(before, identify(HalideCompiler())) == set()
    copied = tmp_path / "copied"
    shutil.copytree(installed.parent, copied)
    linked = tmp_path / "linked"
    linked.symlink_to(copied)
    monkeypatch.syspath_prepend(str(linked))
    assert str(copied) in str(HalideCompiler.library())
    assert rebuilt(before, identify(HalideCompiler())) == set()


def test_a_compiler_that_appears_earlier_on_the_path_is_another(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Python would import now counts, not what it would have imported before (F33)."""
    before = identify(HalideCompiler())
    shutil.copytree(installed.parent, tmp_path / "earlier")
    flip(tmp_path / "earlier" / "halide" / FILES[0])
    monkeypatch.syspath_prepend(str(tmp_path / "earlier"))
    assert rebuilt(before, identify(HalideCompiler())) == ALL


class Replaced(FakeCompiler):
    """A compiler whose files are others here than in the compile server: replaced since one of the two looked."""

    library_here = Path(__file__)

    def files(self) -> tuple[Path, ...]:
        return (self.library_here,)


@pytest.fixture
def idle_server(monkeypatch: pytest.MonkeyPatch) -> IdleServer:
    """No server rests from tests before."""
    idle_server = IdleServer()
    monkeypatch.setattr(build_module, "IDLE_SERVER", idle_server)
    return idle_server


def test_an_object_of_a_compiler_that_was_replaced_meanwhile_is_not_stored(
    config: Config, idle_server: IdleServer
) -> None:
    """The server says which files it loaded; if they are not those of the key, the object is used once (F28, F34)."""
    store = Operators(Memory())
    with Builder(store, Replaced(), LEVEL, config) as builder:
        result = builder.build(needed(conv()), "net")
    assert result.built == 1
    assert not result.certain
    assert store.names() == ()
    assert "the compiler was replaced while it was built" in result.warnings[0]


def test_a_server_that_rested_while_the_compiler_was_replaced_is_not_used(
    config: Config, idle_server: IdleServer, tmp_path: Path
) -> None:
    """A server of the old compiler ends; with the new one everything is certain again (F28)."""
    library = tmp_path / "lib.so"
    library.write_bytes(b"compiler")
    kinds = []
    for _ in range(2):
        state = files_state((library,))
        server = idle_server.start(FakeCompiler.import_string, config.workers, state)
        server.receive()
        kinds.append((server.compiler, server._process.pid))
        idle_server.keep(server)
        flip(library)
    assert kinds[0][0] != kinds[1][0]
    assert kinds[0][1] != kinds[1][1]
    last = idle_server._take()
    assert last is not None
    last.close()


def test_the_release_is_what_the_metadata_beside_the_package_says(installed: Path) -> None:
    """Where there is metadata of two releases, it is what ``importlib.metadata`` finds; without any it is empty."""
    assert HalideCompiler.version() == "99.0.0"
    stale = installed.parent / "halide-98.0.0.dist-info"
    stale.mkdir()
    (stale / "METADATA").write_text("Metadata-Version: 2.1\nName: halide\nVersion: 98.0.0\n")
    assert HalideCompiler.version() == metadata.version("halide")
    release(installed.parent, "100.0.0")
    assert HalideCompiler.version() == "100.0.0"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "path", [str(installed.parent)])
        shutil.rmtree(installed.parent / "halide-100.0.0.dist-info")
        assert HalideCompiler.version() == ""
