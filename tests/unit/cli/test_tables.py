"""Tables of commands in a terminal of 80 characters: what is copied or compared stays whole."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from opbuild.cli import run_model, tables
from opbuild.report import OperatorReport, Report

NAME = "globalaveragepool_11039065742693424692_0"
NEAREST = "conv_add_relu_13965829513668124313_0"


def _printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, *rows: object) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    console = tables.Console(width=width)
    for row in rows:
        console.print(row)
    return capsys.readouterr().out


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("status", ["reused", "built"])
def test_names_of_operators_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, status: str
) -> None:
    """They were cut into two lines, and the operator that differs ended in an ellipsis."""
    monkeypatch.setattr(tables, "output_console", lambda: tables.Console(width=width))
    reason = f"variant parallel true -> false since {NEAREST}"
    report = Report("net", (OperatorReport(NAME, status, reason, ("node_17", "node_18"), 1234.0),))
    printed = _printed(monkeypatch, capsys, width, tables.operators_table(report))
    lines = printed.splitlines()
    assert NAME in printed
    assert NEAREST in "".join(line[len(NAME) :].replace(status, "").strip() for line in lines) or NEAREST in printed
    assert "…" not in printed
    assert ("ms" in lines[0]) == (status == "built")
    assert all(lines)
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_statistics_of_outputs_are_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    """At 80 characters a number lost its exponent: 6.77207e-08 was shown as 6.77207e and an ellipsis."""
    outputs = {"gpu_0/softmax_1": np.array([[-1.234567e-8, 0.001, np.inf, 2.0]], np.float32)}
    printed = _printed(monkeypatch, capsys, width, run_model._statistics(outputs, width))
    assert {"-1.235e-08", "2", "1"} <= set(printed.split())
    assert "…" not in printed
    assert ("gpu_0/softmax_1" in printed) == (width >= 60)
    assert ("mean" in printed) == (width >= 80)


def test_text_and_dictionaries_are_shown_by_what_numbers_they_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Names of classes were read as numbers; they are written as text, and sequences as JSON."""
    outputs = {
        "label": np.array(["red", "green"], object),
        "scores": [{"red": 0.25, "green": 0.75}, {"red": 0.5, "green": 0.5}],
    }
    printed = _printed(monkeypatch, capsys, 100, run_model._statistics(outputs, 100))
    assert {"text[2]", "sequence[2]", "0.25", "0.75"} <= set(printed.split())
    run_model.write_outputs(outputs, tmp_path)
    assert np.load(tmp_path / "label.npy").tolist() == ["red", "green"]
    assert json.loads((tmp_path / "scores.json").read_text()) == outputs["scores"]
