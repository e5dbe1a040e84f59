"""``--strict``: what could not be stored is counted, said, and fails the command."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.cli.main import main
from support.small_network import SmallNetwork

SHAPES = "--shape=x:64,256"


@pytest.mark.parametrize("strict", [True, False])
def test_a_build_that_is_not_stored_fails_if_one_is_strict(
    small_network: SmallNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: bool
) -> None:
    """Two operators are not stored: the summary counts them, and with --strict the command fails (F68)."""
    (tmp_path / "rank_0").write_text("not a folder")
    options = [str(small_network.path), SHAPES, f"--cache_path={tmp_path}", *(["--strict"] * strict)]
    with small_network.replayed():
        assert main(["compile", *options]) == (5 if strict else 0)
    said = capsys.readouterr()
    assert "2 operators built, 0 reused, 2 not stored" in said.out
    assert "2 operators are used but not stored" in said.err
    assert ("2 parts were built and not stored" in said.err) == strict


@pytest.mark.parametrize("strict", [True, False])
def test_a_compile_that_is_not_stored_fails_if_one_is_strict(
    small_network: SmallNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str], strict: bool
) -> None:
    """The .om file is written all the same (F68)."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "link").symlink_to("nothing")
    options = [f"--model={small_network.path}", SHAPES, f"--output={tmp_path / 'small'}", *(["--strict"] * strict)]
    with small_network.replayed():
        folder = f"--op_compiler_cache_dir={tmp_path / 'cache' / 'link'}"
        assert main(["export", *options, folder]) == (5 if strict else 0)
    assert "2 operators built, 0 reused, 2 not stored" in capsys.readouterr().out.replace("\n", " ")
    assert (tmp_path / "small.om").exists()


def test_a_build_that_is_stored_passes(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Being strict costs nothing where everything is stored (F68)."""
    with small_network.replayed():
        assert main(["compile", str(small_network.path), SHAPES, f"--cache_path={tmp_path}", "--strict"]) == 0
