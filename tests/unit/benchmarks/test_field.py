"""The benchmark of the field: pieces that are merged, and which times count."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from opbuild.tuning.bench.measure import Figures

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import field_picture
import limited_cpu

field = pytest.importorskip("field", reason="the benchmarks' packages (extra bench) are not installed")

KEPT = ("onnxruntime", "openvino")

ASKS = """
#include <cpuid.h>
unsigned found[4];
void ask(unsigned leaf) { __cpuid_count(leaf, 0, found[0], found[1], found[2], found[3]); }
int number(void) { return 0xA20F; }
"""

CALLS = """
import ctypes, json, sys
library = ctypes.CDLL(sys.argv[1])
found = (ctypes.c_uint * 4).in_dll(library, "found")
library.ask(7)
features = dict(zip(("ebx", "ecx", "edx"), found[1:]))
library.ask(0)
print(json.dumps({"features": features, "others": list(found), "number": library.number()}))
"""


def answers(library: Path, level: str) -> dict:
    """Return the answers that a library gets, at a level if one is named."""
    variables = {**os.environ, **({"LD_PRELOAD": str(limited_cpu._handler(level))} if level else {})}
    command = [sys.executable, "-c", CALLS, str(library)]
    found = json.loads(subprocess.run(command, env=variables, capture_output=True, check=True).stdout)
    return {**found, "features": found["features"] if not level else list(found["features"].values())}


def arguments(folder: Path, **other: object) -> argparse.Namespace:
    """Return the arguments of a run."""
    asked = {"results": folder, "own_bank": None, "gaps": [5], "rounds": 2, "seconds": 0.1, "limit": ""}
    return argparse.Namespace(**{**asked, **other})


def found(asked: argparse.Namespace) -> dict:
    """Return a row as a run would have measured it."""
    figures = [
        Figures("opbuild", 1, seconds=[1.0], with_gaps={5: [2.0]}, error=1e-7),
        Figures("onnxruntime", 1, seconds=[2.0], with_gaps={5: [4.0]}),
        Figures("mnn", 1, seconds=[0.1], with_gaps={5: [0.1]}, error=float("inf")),
        Figures("ncnn", 1, failure="it takes batches of one"),
    ]
    return {**field.row("GPT-2 next", figures), "settings": field.settings(asked)}


def test_what_was_measured_is_not_measured_again_unless_settings_differ(tmp_path: Path) -> None:
    """Also after a file was damaged only that network is measured."""
    asked = arguments(tmp_path / "results")
    assert field.remembered(asked, "GPT-2 next", 1) is None
    row = found(asked)
    field.remember(asked, row)
    assert field.remembered(asked, "GPT-2 next", 1) == row
    assert field.remembered(asked, "GPT-2 next", 2) is None
    assert field.remembered(arguments(asked.results, rounds=3), "GPT-2 next", 1) is None
    assert field.remembered(arguments(asked.results, limit="x86-64-v3"), "GPT-2 next", 1) is None
    field.place(asked.results, "GPT-2 next", 1).write_text("{")
    assert field.remembered(asked, "GPT-2 next", 1) is None


def test_only_peers_that_take_a_network_and_compute_it_count(tmp_path: Path) -> None:
    """The ratio is to ONNX Runtime, not to the fast wrong answer, and both others are shown as what they are."""
    row = found(arguments(tmp_path))
    assert row["ratios"] == {"0": 0.5, "5": 0.5}
    assert not row["wrong"]
    assert field.shown(row["runtimes"]["ncnn"]) == "not taken"
    assert field.shown(row["runtimes"]["mnn"]).endswith("wrong")


def test_columns_of_other_databases_are_no_peers() -> None:
    """Untuned opbuild is not what opbuild is compared with."""
    figures = [Figures("opbuild", 1, seconds=[1.0], error=0.0), Figures("opbuild untuned", 1, seconds=[2.0], error=0.0)]
    assert field.row("x", figures)["ratios"] == {}


def test_the_picture_has_each_network_and_its_ratio_in_order() -> None:
    """It is XML whatever a network is called, no bar leaves it, and it says which end is better."""
    picture = field_picture.drawn({"slow": 9.0, "a < b & c": 0.5}, "title")
    words = [each.text for each in ElementTree.fromstring(picture).iter() if each.text and each.text.strip()]
    bars = [word for word in words if word in ("title", "a < b & c", "0.50", "slow", "9.00")]
    assert bars == ["title", "a < b & c", "0.50", "slow", "9.00"]
    assert any("shorter is better" in word for word in words)


def test_at_a_lower_level_it_is_said_who_keeps_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime has no switch, and keeps to it where it can be told; opbuild with another database is no peer."""
    names = ["opbuild", "opbuild untuned", "onnxruntime", "openvino", "torch"]
    monkeypatch.setattr(limited_cpu, "environment", lambda runtime, level: {})
    monkeypatch.setattr(limited_cpu, "lacking", lambda: "cc not found")
    assert field.kept_to("x86-64-v3", names) == (
        "opbuild's code is for x86-64-v3; kept to it: OpenVINO, torch.compile; not: ONNX Runtime (cc not found)"
    )
    monkeypatch.setattr(limited_cpu, "environment", lambda runtime, level: {"A": "1"} if runtime in KEPT else {})
    monkeypatch.setattr(limited_cpu, "lacking", lambda: "")
    assert field.kept_to("x86-64-v3", names) == (
        "opbuild's code is for x86-64-v3; kept to it: ONNX Runtime, OpenVINO, torch.compile; not: none"
    )


@pytest.mark.skipif(platform.machine() != "x86_64" or bool(limited_cpu.lacking()), reason="needs cc and objdump")
def test_a_library_that_asks_the_processor_is_told_of_nothing_beyond_a_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that look like the instruction and are none stay as they are; other leaves are answered as they were."""
    monkeypatch.setattr(limited_cpu, "CACHE", tmp_path / "cache")
    source, library = tmp_path / "asks.c", tmp_path / "libasks.so"
    source.write_text(ASKS)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source], check=True)
    limited_cpu._place(library, tmp_path / "limited" / library.name)
    told = {level: answers(tmp_path / "limited" / library.name, level) for level in limited_cpu.HIDDEN}
    plain = answers(library, "")
    for level, bits in limited_cpu.HIDDEN.items():
        assert told[level]["features"] == [value & ~bits[name] for name, value in plain["features"].items()], level
        assert told[level]["others"] == plain["others"]
        assert told[level]["number"] == 0xA20F


def test_what_asks_for_nothing_is_linked(tmp_path: Path) -> None:
    """A package is not copied for the few libraries in it that ask."""
    (tmp_path / "text.so").write_text("no code")
    limited_cpu._place(tmp_path / "text.so", tmp_path / "limited" / "text.so")
    assert (tmp_path / "limited" / "text.so").is_symlink()
