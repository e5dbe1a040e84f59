"""Making the pack: what is there is not compiled again, and an edit of one family changes its file alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from kernels.make import Packing, differing
from kernels.repack import repack
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.store import pack
from opbuild.store.pack import Object, PackFile, pack_bytes, read_pack
from support.fake_compiler import FakeCompiler
from support.packed import object_in
from support.samples import LEVEL, conv


class Maker(FakeCompiler):
    """A compiler for families whose sources have given digests.

    Args:
        edits: By family, what is appended to its digests: of its code, and of its text.
    """

    def __init__(self, edits: dict[str, tuple[str, str]] | None = None) -> None:
        super().__init__()
        self._edits = edits or {}

    def sources_digest(self, desc: OpDesc) -> str:
        """Return the digest of the code."""
        return f"{desc.family} {self._edits.get(desc.family, ('', ''))[0]}"

    def text_digest(self, desc: OpDesc) -> str:
        """Return the digest of the text."""
        return f"{desc.family} text {self._edits.get(desc.family, ('', ''))[1]}"


def pool(size: int) -> OpDesc:
    """Return a made-up operator of another family."""
    return OpDesc(
        ("Pool",), "pool", (Operand("x", "float32", (Dim(),)),), (Operand("y", "float32", (Dim(),)),), {"k": size}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a pack of two families."""
    assert make(tmp_path, [conv(1), conv(2), pool(1)])[0] == ["conv", "pool"]
    return tmp_path


def make(folder: Path, descs: list[OpDesc], maker: Maker | None = None) -> tuple[list[str], int]:
    """Return the files that were written, and how many kernels were compiled."""
    packing = Packing(LEVEL, folder / "packs", folder / "store", 2, Console(quiet=True), maker or Maker())
    return packing.make(dict.fromkeys(descs)), packing.compiled


def test_what_is_there_is_left_as_it_is(folder: Path) -> None:
    """The same list with the same sources writes and compiles nothing."""
    assert make(folder, [conv(1), conv(2), pool(1)]) == ([], 0)


def test_a_new_kernel_is_the_only_one_that_is_compiled(folder: Path) -> None:
    """Its family's file is written, with what it had."""
    assert make(folder, [conv(1), conv(2), conv(3), pool(1)]) == (["conv"], 1)
    assert len(read_pack(folder / "packs" / LEVEL.name / "conv.pack")) == 3


def test_an_edit_that_changes_no_pipeline_compiles_nothing(folder: Path) -> None:
    """The family's file names the new sources; its objects are those that it had, and no other file changes."""
    path = folder / "packs" / LEVEL.name / "conv.pack"
    before = blocks_of(path)
    assert make(folder, [conv(1), conv(2), pool(1)], Maker({"conv": ("edited", "edited")})) == (["conv"], 0)
    assert blocks_of(path) == before
    assert make(folder, [conv(1), conv(2), pool(1)], Maker({"conv": ("edited", "edited")})) == ([], 0)


def test_parts_of_the_file_that_stay_are_not_compressed_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an edit that changes no pipeline only lists are compressed; of one that adds a kernel what has it, too."""
    compressed: list[bytes] = []

    def compress(data: bytes, really: Callable[[bytes], bytes] = pack._compressed) -> bytes:
        compressed.append(data)
        return really(data)

    monkeypatch.setattr(pack, "_compressed", compress)
    make(folder, [conv(1), conv(2), pool(1)], Maker({"conv": ("edited", "edited")}))
    assert len(compressed) == 2, "a list of each family"
    make(folder, [conv(1), conv(2), conv(3), pool(1)])
    assert len(compressed) == 2 + 4, "and a block and descriptors"


def test_a_part_that_is_damaged_is_written_again(folder: Path) -> None:
    """Nothing is taken of it."""
    path = folder / "packs" / LEVEL.name / "conv.pack"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert make(folder, [conv(1), conv(2), pool(1)]) == (["conv"], 0)
    assert path.read_bytes() == whole


def test_an_edit_of_one_pipeline_compiles_that_one(folder: Path) -> None:
    """F30: what sources define now is compiled where it is not what the pack's object was compiled from."""
    path = folder / "packs" / LEVEL.name / "conv.pack"
    file = read_pack(path)
    objects = [packed(file, conv(1), pipeline="0" * 32), packed(file, conv(2))]
    path.write_bytes(pack_bytes(LEVEL.name, "conv", file.compiler, file.sources, objects))
    shutil.rmtree(folder / "store")
    assert make(folder, [conv(1), conv(2), pool(1)], Maker({"conv": ("edited", "edited")})) == (["conv"], 1)


def blocks_of(path: Path) -> list[bytes | None]:
    """Return the objects of a pack."""
    file = read_pack(path)
    return [packed(file, OpDesc.from_components(each)).object for each in file.descriptors()]


def packed(file: PackFile, desc: OpDesc, pipeline: str = "") -> Object:
    """Return an operator as a file has it, or as compiled from another pipeline."""
    key = make_key(desc, LEVEL, file.compiler, file.sources.code)
    object_, known = object_in(file, key), file.pipeline(key)
    assert object_ is not None
    assert known is not None
    return Object(desc.components(), key.operator, pipeline or known, object_)


def test_an_edit_of_a_comment_compiles_nothing(folder: Path) -> None:
    """The file names the new text, so that the checkout finds it; the objects are those that it had."""
    assert make(folder, [conv(1), conv(2), pool(1)], Maker({"conv": ("", "edited")})) == (["conv"], 0)


def test_a_family_that_is_not_needed_any_more_goes(folder: Path) -> None:
    """What the list does not name is not shipped."""
    assert make(folder, [conv(1), conv(2)]) == (["pool"], 0)
    assert not (folder / "packs" / LEVEL.name / "pool.pack").exists()


def test_a_file_is_written_anew_in_the_form_of_now(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever blocks it had, it has the bytes that making it gives; of a damaged one nothing is written."""
    path = folder / "packs" / LEVEL.name / "conv.pack"
    whole = path.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(pack, "_BLOCK", 1)
        repack(path)
    assert path.read_bytes() != whole
    assert [each.object for each in read_pack(path).objects()] == blocks_of(path)
    repack(path)
    assert path.read_bytes() == whole
    path.write_bytes(damaged := whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ValueError, match="not what was written"):
        repack(path)
    assert path.read_bytes() == damaged


def test_what_is_made_anew_is_the_same(folder: Path, tmp_path: Path) -> None:
    """A pack made from nothing has the same bytes; one that differs, lacks a file or has one more is told."""
    anew = tmp_path / "anew"
    make(anew, [conv(1), conv(2), pool(1)])
    assert differing(anew / "packs", folder / "packs") == []
    path = folder / "packs" / LEVEL.name / "conv.pack"
    path.write_bytes(path.read_bytes()[:-1])
    (anew / "packs" / LEVEL.name / "pool.pack").unlink()
    assert differing(anew / "packs", folder / "packs") == [f"{LEVEL}/conv.pack", f"{LEVEL}/pool.pack"]
