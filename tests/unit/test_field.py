"""The benchmark of the field: pieces that are merged, and which times count."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from opbuild.bench.measure import Figures

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import field_picture

field = pytest.importorskip("field", reason="the benchmarks' packages (extra bench) are not installed")


def arguments(folder: Path, **other: object) -> argparse.Namespace:
    """Return what a run is asked."""
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


def test_columns_of_other_banks_are_no_peers() -> None:
    """Untuned opbuild is not what opbuild is compared with."""
    figures = [Figures("opbuild", 1, seconds=[1.0], error=0.0), Figures("opbuild untuned", 1, seconds=[2.0], error=0.0)]
    assert field.row("x", figures)["ratios"] == {}


def test_the_picture_has_each_network_and_its_ratio_in_order() -> None:
    """It is XML whatever a network is called, and no bar leaves it."""
    picture = field_picture.drawn({"slow": 9.0, "a < b & c": 0.5}, "title")
    words = [each.text for each in ElementTree.fromstring(picture).iter() if each.text and each.text.strip()]
    assert words == ["title", "a < b & c", "0.50", "slow", "9.00"]


def test_at_a_lower_level_it_is_said_who_keeps_to_it() -> None:
    """ONNX Runtime has no switch; opbuild with other banks is nobody's peer."""
    said = field.kept_to("x86-64-v3", ["opbuild", "opbuild untuned", "onnxruntime", "openvino", "torch"])
    assert said == "opbuild's code is for x86-64-v3; kept to it: OpenVINO, torch.compile; not: ONNX Runtime"
