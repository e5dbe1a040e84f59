"""Damage of every kind to every file of an entry: a miss with its reason, replaced, and the next run hits."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import Config
from opbuild.kernel.entry import SUFFIXES
from support.samples import conv, disk_builder, needed

WANTED = needed(*(conv(tile) for tile in range(5)))
VICTIM = conv(2)


def truncate(size: Callable[[int], int]) -> Callable[[Path], None]:
    """Return a damage that cuts a file to a size computed from its own."""
    return lambda path: path.write_bytes(path.read_bytes()[: size(path.stat().st_size)])


def flip(path: Path) -> None:
    """Change one byte in the middle of the file's part that decides what is loaded."""
    data = bytearray(path.read_bytes())
    marks = {".o": 70, ".info": data.find(b'"sha256": "') + 20, ".json": data.find(b'"sha256": "') + 20}
    data[marks[path.suffix]] ^= 1
    path.write_bytes(data)


def to_folder(path: Path) -> None:
    """Put a folder with something in it where the file was."""
    path.unlink()
    path.mkdir()
    (path / "inside").write_bytes(b"x")


def swap(path: Path) -> None:
    """Put another entry's file where this one's was."""
    other = next(p for p in sorted(path.parent.iterdir()) if p.suffix == path.suffix and p != path)
    shutil.copyfile(other, path)


def dangle(path: Path) -> None:
    """Put a link to nothing where the file was."""
    path.unlink()
    path.symlink_to("/nonexistent/file")


def loop(path: Path) -> None:
    """Put a link to itself where the file was."""
    path.unlink()
    path.symlink_to(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": truncate(lambda size: 0),
    "one byte": truncate(lambda size: 1),
    "half": truncate(lambda size: size // 2),
    "two bytes short": truncate(lambda size: size - 2),
    "flipped": flip,
    "deleted": Path.unlink,
    "folder": to_folder,
    "swapped": swap,
    "dangling link": dangle,
    "looping link": loop,
    "garbage": lambda path: path.write_bytes(b"\xff\x00" * 100),
    "other JSON": lambda path: path.write_bytes(b"[1, 2]"),
    "deep JSON": lambda path: path.write_bytes(b"[" * 100_000),
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_costs_one_operator_once(config: Config, damage: str, suffix: str) -> None:
    """Only the damaged operator is built again, with a reason; the next run builds nothing (F01 F02 F07 F08 F09)."""
    with disk_builder(config) as builder:
        clean = builder.build(WANTED, "net")
        name = clean.entries[VICTIM].name
        DAMAGES[damage](config.kernel_meta / f"{name}{suffix}")
        repaired = builder.build(WANTED, "net")
    built = [decision for decision in repaired.decisions if decision.outcome == "built"]
    assert [decision.desc for decision in built] == [VICTIM]
    assert built[0].reason.code in {"damaged", "incomplete", "unreadable", "other-key"}
    assert built[0].reason.text
    assert repaired.entries[VICTIM].object == clean.entries[VICTIM].object
    assert repaired.warnings == ()
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        again = builder.build(WANTED, "net")
    assert again.reused == 5
    assert len(list(config.kernel_meta.iterdir())) == 15


@pytest.mark.parametrize("kept", SUFFIXES)
def test_a_lone_file_is_completed(config: Config, kept: str) -> None:
    """Half an entry never blocks its own repair (F09)."""
    with disk_builder(config) as builder:
        builder.build(needed(VICTIM), "net")
        for path in config.kernel_meta.iterdir():
            if path.suffix != kept:
                path.unlink()
        assert builder.build(needed(VICTIM), "net").built == 1
        assert builder.build(needed(VICTIM), "net").built == 0


@pytest.mark.parametrize("position", range(0, 600, 37))
def test_no_flipped_byte_of_the_record_gives_another_result(config: Config, position: int) -> None:
    """Whichever byte of .json changes, the object delivered is the right one, with the right symbols (F07)."""
    with disk_builder(config) as builder:
        clean = builder.build(needed(VICTIM), "net").entries[VICTIM]
        path = config.kernel_meta / f"{clean.name}.json"
        data = bytearray(path.read_bytes())
        data[position % len(data)] ^= 4
        path.write_bytes(data)
        found = builder.build(needed(VICTIM), "net").entries[VICTIM]
    assert (found.object, found.symbol, found.undefined) == (clean.object, clean.symbol, clean.undefined)
