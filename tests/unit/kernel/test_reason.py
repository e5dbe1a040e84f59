"""Every miss has one reason with a code for programs; each code is known, and can be reached."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import Config
from support.samples import conv, disk_builder, needed

SOURCES = Path(__file__).resolve().parents[3] / "src" / "opbuild"

HITS = {"stored", "shared", "unchanged"}
MISSES = {"absent", "changed", "incomplete", "damaged", "other-key", "unreadable", "untrusted", "forced", "debugged"}
SIGNED = {"unsigned", "wrong-signature"}
STORED = {"other-compiler", "other-target", "unwritable", "stale", "abandoned"}
"""Those of networks, weights, bundles, the pack and remote stores; their suites reach them."""
INSPECTED = {"other-format", "invalid"}
"""Codes by what they say; signatures have theirs where a key is set, and ``cache verify`` has two more:
of another release, and settings that are none (``test_cache_commands``)."""


def test_every_code_is_known() -> None:
    """A new code is put into a set above, and a test reaches it (F69)."""
    codes = set()
    for path in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Reason" and node.args:
                codes |= {each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)}
    assert codes - {"", "another key"} - HITS - MISSES - SIGNED - STORED - INSPECTED == set()


def _nothing(_: Path) -> None:
    """Leave the folder as it is."""


def _all_gone(folder: Path) -> None:
    shutil.rmtree(folder)


def _no_object(folder: Path) -> None:
    next(folder.glob("*.o")).unlink()


def _another_object(folder: Path) -> None:
    path = next(folder.glob("*.o"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")


def _another_info(folder: Path) -> None:
    path = next(folder.glob("*.info"))
    path.write_text(path.read_text().replace("3", "5"))


def _an_object_that_is_a_folder(folder: Path) -> None:
    path = next(folder.glob("*.o"))
    path.unlink()
    path.mkdir()


def _for_everybody(folder: Path) -> None:
    next(folder.glob("*.json")).chmod(0o666)


@pytest.mark.parametrize(
    ("change", "asked", "code"),
    [
        (_nothing, 1, "stored"), (_nothing, 2, "changed"), (_all_gone, 1, "absent"), (_no_object, 1, "incomplete"),
        (_another_object, 1, "damaged"), (_another_info, 1, "other-key"), (_for_everybody, 1, "untrusted"),
        (_an_object_that_is_a_folder, 1, "unreadable"),
    ],
)  # fmt: skip
def test_each_reason_is_reached_and_the_only_one(
    config: Config, change: Callable[[Path], None], asked: int, code: str
) -> None:
    """One decision, one reason, one code; what missed is built, and the next build hits (F69)."""
    with disk_builder(config) as builder:
        builder.build(needed(conv(1)), "net")
    change(config.kernel_meta)
    with disk_builder(config) as builder:
        (decision,) = builder.build(needed(conv(asked)), "net").decisions
    assert (decision.reason.code, decision.outcome) == (code, "reused" if code in HITS else "built")
    assert decision.reason.text
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        (decision,) = builder.build(needed(conv(asked)), "net").decisions
    assert decision.reason.code == "stored"


def test_a_forced_build_says_so(config: Config) -> None:
    """Whatever is stored, being forced is why (F69)."""
    with disk_builder(config) as builder:
        builder.build(needed(conv(1)), "net")
    with disk_builder(config, force=True) as builder:
        (decision,) = builder.build(needed(conv(1)), "net").decisions
    assert decision.reason.code == "forced"
