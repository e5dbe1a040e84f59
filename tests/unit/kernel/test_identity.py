"""Which compiler is installed: its bytes decide, and reading them is remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opbuild.errors import BuildError
from opbuild.kernel import identity as identity_module
from opbuild.kernel.identity import files_digest, identify, remember, remembered
from opbuild.kernel.key import CompilerIdentity
from support.fake_compiler import FakeCompiler


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file that stands for the compiler's library."""
    path = tmp_path / "libcompiler.so"
    path.write_bytes(b"compiler" * 1000)
    return path


@pytest.fixture
def memo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the digest is remembered, in a folder that does not exist yet; files settle at once."""
    monkeypatch.setattr(identity_module, "_SETTLED", -(10**9))
    return tmp_path / "cache" / "compiler.json"


def test_a_library_is_read_once(library: Path, memo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process takes the digest from the memo."""
    digest = files_digest([library], memo)

    def refuse(path: Path) -> str:
        raise AssertionError("read again")

    monkeypatch.setattr(identity_module, "blake3_of_file", refuse)
    assert files_digest([library], memo) == digest


def test_bytes_swapped_in_place_are_noticed(library: Path, memo: Path) -> None:
    """Other bytes of equal length under the old time stamp are another compiler (F28)."""
    state = library.stat()
    digest = files_digest([library], memo)
    with library.open("r+b") as file:
        file.write(b"COMPILER")
    os.utime(library, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert (library.stat().st_size, library.stat().st_mtime_ns) == (state.st_size, state.st_mtime_ns)
    assert files_digest([library], memo) != digest


def test_a_reinstalled_library_is_the_same_compiler(library: Path, memo: Path) -> None:
    """Equal bytes in a new file, with new times or through a link, have the same digest (F41, F42)."""
    digest = files_digest([library], memo)
    content = library.read_bytes()
    library.unlink()
    library.write_bytes(content)
    os.utime(library, (1, 1))
    assert files_digest([library], memo) == digest
    link = library.with_name("link.so")
    link.symlink_to(library)
    assert files_digest([link], memo) == digest


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"file": 1}', b"\xff", b'{"blake3": "x"}'])
def test_a_damaged_memo_is_written_again(library: Path, memo: Path, content: bytes) -> None:
    """A memo of any content costs one reading (F01)."""
    digest = files_digest([library], memo)
    memo.write_bytes(content)
    assert files_digest([library], memo) == digest
    assert digest in memo.read_text(encoding="utf-8")


def test_a_memo_that_lies_about_the_digest_is_not_believed(library: Path, memo: Path) -> None:
    """A digest of the wrong form is not taken."""
    digest = files_digest([library], memo)
    memo.write_text(memo.read_text(encoding="utf-8").replace(digest, "short"), encoding="utf-8")
    assert files_digest([library], memo) == digest


def test_a_folder_that_cannot_be_written_costs_only_time(library: Path, tmp_path: Path) -> None:
    """Without a place for the memo the library is read each time (F61)."""
    (tmp_path / "file").write_bytes(b"")
    memo = tmp_path / "file" / "compiler.json"
    assert files_digest([library], memo) == files_digest([library], None)


def test_a_compiler_without_its_library_is_an_error(tmp_path: Path) -> None:
    """A broken installation is named with the path."""

    class Broken(FakeCompiler):
        def library(self) -> Path:
            return tmp_path / "gone.so"

    with pytest.raises(BuildError, match=r"gone\.so cannot be read"):
        identify(Broken())


class Removed(FakeCompiler):
    """The fake compiler on a machine where it is not installed."""

    def library(self) -> None:  # type: ignore[override]
        return None


def test_a_compiler_that_is_gone_is_remembered(memo: Path) -> None:
    """Where it is not installed any more, what it built is looked up under its identity."""
    identity = identify(FakeCompiler(), memo)
    assert identify(Removed(), memo) == identity == remembered(memo)


def test_an_imported_identity_does_not_outlive_an_installed_compiler(memo: Path) -> None:
    """The identity that an import wrote down counts only where no compiler is installed."""
    imported = CompilerIdentity("fake", "9.9", "9" * 64)
    remember(memo, imported)
    assert identify(Removed(), memo) == imported
    assert identify(FakeCompiler(), memo) != imported


def test_reading_the_library_again_keeps_what_is_remembered(memo: Path, library: Path) -> None:
    """The same library in a new file is still the compiler that is remembered; another one is not."""
    remember(memo, CompilerIdentity("fake", "1.0", files_digest([library], memo)))
    os.utime(library, (1, 1))
    files_digest([library], memo)
    assert remembered(memo) is not None
    library.write_bytes(b"another")
    files_digest([library], memo)
    assert remembered(memo) is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"compiler":1,"version":"1","blake3":"x"}'])
def test_a_broken_memo_remembers_nothing(memo: Path, content: str) -> None:
    """The error says that the compiler is not installed."""
    memo.parent.mkdir()
    memo.write_text(content)
    with pytest.raises(BuildError, match="is not installed"):
        identify(Removed(), memo)


def test_a_compiler_of_another_name_is_not_taken(memo: Path) -> None:
    """What another compiler built is not looked up for this one."""
    remember(memo, CompilerIdentity("tvm", "1.0", "0" * 64))
    with pytest.raises(BuildError, match="is not installed"):
        identify(Removed(), memo)
