"""Where the compile server's temporary files are."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from opbuild.builder.server import use_temporary_folder


def test_the_folder_that_the_system_names_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TMPDIR, or one of the usual ones."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    use_temporary_folder()
    assert tempfile.gettempdir() == str(tmp_path)


def test_where_no_folder_takes_files_they_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container that may not write to its disk an operator is compiled nevertheless."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    use_temporary_folder()
    assert Path(tempfile.gettempdir()).is_dir()
