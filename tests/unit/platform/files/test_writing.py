"""Files of the cache are written whole, in whatever pieces the system takes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opbuild.platform.files import writing
from opbuild.platform.files.writing import write_new


@pytest.mark.parametrize("nbytes", [0, 1, writing._PIECE - 1, writing._PIECE, writing._PIECE + 1, 3 * writing._PIECE])
def test_every_piece_is_written(tmp_path: Path, nbytes: int) -> None:
    """Wherever the last one ends."""
    contents = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    write_new(tmp_path / "weights", contents.data)
    assert (tmp_path / "weights").read_bytes() == contents.tobytes()


def test_what_exists_is_not_written_to(tmp_path: Path) -> None:
    """Somebody may have it mapped."""
    (tmp_path / "weights").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "weights", b"new")
    assert (tmp_path / "weights").read_bytes() == b"old"
