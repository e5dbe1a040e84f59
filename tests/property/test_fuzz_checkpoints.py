"""Loading checkpoints: whatever the bytes are, parameters or an error of opbuild, in little time and memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.errors import OpbuildError
from opbuild.mindspore import load_checkpoint
from support.fuzzing import CAMPAIGN, INPUTS, Change, changed, fuzz

DATA = Path(__file__).resolve().parents[1] / "data"

pytestmark = [pytest.mark.timeout(7200)] if CAMPAIGN else []


@pytest.mark.parametrize("form", ["ckpt", "safetensors"])
def test_checkpoints_of_changed_bytes(tmp_path: Path, form: str) -> None:
    """Bytes flipped, cut, doubled and spliced from other files, lengths that lie."""
    contents = [path.read_bytes() for path in sorted(DATA.glob(f"*.{form}"))]
    path = tmp_path / f"changed.{form}"

    def read(changes: list[Change], pick: int) -> str:
        path.write_bytes(changed(contents[pick % len(contents)], changes, contents))
        try:
            load_checkpoint(str(path), crc_check=pick % 2 == 1 and form == "ckpt", format=form)
        except OpbuildError:
            return "refused"
        return "loaded"

    assert fuzz(f"checkpoints ({form})", read)["refused"] > INPUTS // 3
