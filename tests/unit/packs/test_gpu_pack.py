"""What is shipped of kernels for GPUs: those alone that a run on a card computed rightly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernels.gpu import TARGET, main
from opbuild.backend.triton.compiler import TritonCompiler
from opbuild.config import Config
from opbuild.kernel.identity import identify
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.platform.digest import sha256
from opbuild.platform.files.trust import PRIVATE
from opbuild.platform.paths import Path as OwnPath
from opbuild.store.archive import archive_parts
from opbuild.store.model_packs import KIND
from opbuild.store.pack import FamilySources, Object, Pack, PackFile, pack_bytes
from opbuild.target.devices import device_class
from opbuild.target.level import target_named

RESULTS = [
    {"step": "machine", "card": "NVIDIA H100", "date": "2027-01-01"},
    {"step": "opbuild BERT fp16", "right": True},
    {"step": "opbuild GPT-2 fp16", "right": False},
]


def copy(dtype: str) -> OpDesc:
    """Return the descriptor of a copy on a GPU."""
    operands = [Operand(name, dtype, (Dim(), Dim())) for name in ("x", "y")]
    desc = OpDesc(("Copy",), "copy", (operands[0],), (operands[1],), variant={"kind": "rows", "width": 1})
    served: OpDesc = device_class("cuda").kernel(desc)
    return served


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    """Three compiled copies."""
    compiler, found = TritonCompiler(), []
    for dtype in ("uint8", "uint16", "uint32"):
        desc = copy(dtype)
        key = make_key(desc, target_named(TARGET), identify(compiler), compiler.sources_digest(desc))
        pipeline = compiler.define(desc, target_named(TARGET))
        made = pipeline.compile(key.symbol)
        found.append(Object(desc.components(), key.operator, pipeline.digest, made.data, made.kind, made.launch))
    return found


@pytest.fixture
def pack(objects: list[Object], tmp_path: Path, config: Config) -> Path:
    """A model pack of them."""
    sources = FamilySources("code", "text")
    files = {f"0/{TARGET}/copy.pack": pack_bytes(TARGET, "copy", identify(TritonCompiler()), sources, objects)}
    path = tmp_path / "field.pack"
    path.write_bytes(b"".join(archive_parts(KIND, {"opbuild": "", "models": []}, files, PRIVATE)))
    return path


def ship(pack: Path, binaries: list[list[str]], folder: Path) -> Pack:
    """Ship what some results verify."""
    results = folder / "field.jsonl"
    rows = [RESULTS[0], *({**row, "binaries": each} for row, each in zip(RESULTS[1:], binaries, strict=True))]
    results.write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = ["--results", str(results), "--folder", str(folder / "packs"), "--verified", str(folder / "verified.json")]
    assert main([str(pack), *given]) == 0
    return Pack(TARGET, OwnPath(str(folder / "packs")))


def test_what_was_right_on_a_card_is_shipped_and_found(objects: list[Object], pack: Path, tmp_path: Path) -> None:
    """A binary of a wrong answer, and one that nothing called, are not; the list says where it was right."""
    right, wrong, _ = (sha256(each.object) for each in objects)
    shipped = ship(pack, [[right], [wrong]], tmp_path)
    compiler, answers = TritonCompiler(), []
    for each in objects:
        desc = OpDesc.from_components(each.components)
        key = make_key(desc, target_named(TARGET), identify(compiler), compiler.sources_digest(desc))
        answers.append(shipped.lookup(key))
    assert [type(each) for each in answers] == [Found, Missing, Missing]
    assert isinstance(answers[0], Found)
    assert answers[0].entry.artifact.launch == objects[0].launch
    said = json.loads((tmp_path / "verified.json").read_text())
    assert said == {right: {"card": "NVIDIA H100", "date": "2027-01-01", "check": "opbuild BERT fp16"}}
    file = shipped.file("copy")
    assert isinstance(file, PackFile)
    assert file.sources.code != file.sources.text


def test_what_nobody_verified_is_not_shipped(pack: Path, tmp_path: Path) -> None:
    """Then there is no file."""
    assert ship(pack, [[], []], tmp_path).families() == ()


def test_no_binary_is_shipped_that_is_not_on_the_list() -> None:
    """Packs of releases for GPUs hold what ``kernels/verified_sm_90a.json`` names."""
    listed = Path(__file__).parents[3] / "kernels" / "verified_sm_90a.json"
    verified = json.loads(listed.read_text())
    assert [each.operator for file in Pack(TARGET).files() for each in file.objects()
            if sha256(each.object) not in verified] == []  # fmt: skip
