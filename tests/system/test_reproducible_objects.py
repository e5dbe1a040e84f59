"""An operator is the same bytes whenever, wherever and in whatever order it is built."""

from __future__ import annotations

from pathlib import Path

import pytest

import opbuild
from support import networks


def objects(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every object in a store, by file name."""
    return {path.name: path.read_bytes() for path in sorted((folder / "rank_0" / "kernel_meta").glob("*.o"))}


@pytest.mark.slow
def test_objects_are_byte_identical_in_any_order_by_any_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two stores, filled in other orders by other numbers of workers under other hash seeds, are equal (F40)."""
    models = {"squeezenet": networks.light_path("squeezenet"), "mlp": networks.mlp()}
    orders = {"one": (("squeezenet", "mlp"), 1, "1"), "two": (("mlp", "squeezenet"), 2, "77")}
    for folder, (names, workers, seed) in orders.items():
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        for name in names:
            opbuild.compile(models[name], cache_path=tmp_path / folder, workers=workers)
    first, second = objects(tmp_path / "one"), objects(tmp_path / "two")
    assert first
    assert first == second
