"""The words of ``opbuild tune``: how long it takes, what was tried, gained and left; nothing is measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any

import pytest

from opbuild.cli.interrupt import INTERRUPTS
from opbuild.cli.main import main
from opbuild.families.family import TuningQuery
from opbuild.tuning import tuner
from opbuild.tuning.search import Finding
from opbuild.tuning.tuner import Row, TunedNetwork, TuningProgress
from support.small_network import make_small_network, small_model

NOTHING = Finding(None, False, 0.0, 0.0, inf, 0.0, 0)
FASTER = Finding({"rows": 2}, True, 2e-3, 1e-3, 0.5, 0.0, 24)
BEGINNING = TuningProgress("net", 1, 21, 0, 0, 187, 500.0)


def row(finding: Finding, *, known: bool = False) -> Row:
    """Return a distinct call of which something was found."""
    return Row(TuningQuery("matmul", "[1]"), ("product",), {"rows": 1}, finding, known, finding.choice or {"rows": 1})


class Tuning:
    """Stands for ``tune_model``.

    Attributes:
        results: The results of the models in order.
        asked: What it was asked with.
        meanwhile: Called after it told how far it is.
    """

    def __init__(self, *results: TunedNetwork) -> None:
        self.results, self.asked = list(results), list[dict[str, Any]]()
        self.meanwhile: Callable[[], object] = lambda: None

    def __call__(self, *_: Any, **options: Any) -> TunedNetwork:
        self.asked.append(options)
        options["tell"](BEGINNING)
        self.meanwhile()
        return self.results.pop(0)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model's file."""
    (tmp_path / "net.onnx").write_bytes(small_model().SerializeToString())
    return str(tmp_path / "net.onnx")


def said(monkeypatch: pytest.MonkeyPatch, tuning: Tuning, *arguments: str) -> int:
    """Run the command, and return its exit code."""
    monkeypatch.setattr(tuner, "tune_model", tuning)
    return main(["tune", *arguments])


def test_how_long_it_takes_is_said_before_anything_is_tried(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that the budget, five minutes for all models together, ends it before."""
    tuning = Tuning(*(TunedNetwork("net", "made", "x86-64", seconds=100.0) for _ in range(4)))
    assert said(monkeypatch, tuning, model, model) == 0
    assert [each["budget"] for each in tuning.asked] == [300.0, 200.0]
    first, second = capsys.readouterr().err.splitlines()
    assert first == (
        "net.onnx: 20 distinct calls to tune with 187 candidates, about 8 min 20 s; "
        "it ends after 5 min 00 s, --budget all tries all"
    )
    assert "it ends after 3 min 20 s" in second
    assert said(monkeypatch, tuning, model, "--budget", "all") == 0
    assert capsys.readouterr().err.splitlines()[0].endswith("187 candidates, about 8 min 20 s")
    assert said(monkeypatch, tuning, model, "--budget", "2h") == 0
    assert [each["budget"] for each in tuning.asked[2:]] == [inf, 7200.0]


def test_what_was_tried_and_gained_and_is_left_is_said_at_the_end(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the way to go on."""
    result = TunedNetwork(
        "net", "made", "x86-64", [row(FASTER), row(NOTHING), row(NOTHING, known=True)], skipped=4, tried=31, untried=2,
        untried_share=0.125, left=65.0, nodes=9, ended="the time is up", seconds=299.6, whole=[(2e-3, 1e-3)] * 24,
    )  # fmt: skip
    assert said(monkeypatch, Tuning(result), model) == 0
    told = capsys.readouterr().out
    assert (
        "2 distinct calls measured, 1 faster, 31 candidates tried, 1 known before, 4 left alone; 5 min 00 s\n"
        "the time is up: 2 distinct calls with 12% of the time untried; "
        "the next run goes on there, for about 1 min 05 s\n"
        "the whole network: 2.00 ms by the tables, 1.00 ms tuned"
    ) in told
    assert "nothing faster" not in told


def test_a_run_that_gains_nothing_says_so(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not where it measured nothing."""
    results = (TunedNetwork("net", "made", "x86-64", [row(NOTHING, known=known)], nodes=1) for known in (False, True))
    tuning = Tuning(*results)
    for expected in (True, False):
        assert said(monkeypatch, tuning, model) == 0
        assert ("nothing faster was found: the tables' choices stay" in capsys.readouterr().out) == expected


def test_ctrl_c_while_candidates_are_tried_shows_the_result_and_leaves_other_models(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends as an interrupted command does."""

    @contextmanager
    def asked(text: str) -> Any:
        assert "Ctrl-C once more" in text
        yield lambda: True

    monkeypatch.setattr(INTERRUPTS, "asking_first", asked)
    tuning = Tuning(TunedNetwork("net", "made", "x86-64", [row(FASTER)], tried=3, untried=1, ended="it was stopped"))
    tuning.meanwhile = lambda: None if tuning.asked[-1]["is_stopped"]() else pytest.fail("nobody asked")
    assert said(monkeypatch, tuning, model, model) == 130
    told = capsys.readouterr()
    assert "1 faster, 3 candidates tried" in told.out
    assert "it was stopped: 1 distinct call" in told.out
    assert told.err.splitlines()[-1] == "interrupted"


def test_recorded_sizes_are_tuned_each_until_the_time_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the models that the record names, beside those of ``--shape``; what was not begun is said."""
    path = make_small_network(tmp_path).path
    lines = [{"model": str(path), "digest": "d", "inputs": {"x": [rows, 256]}} for rows in (3, 4, 5)]
    record = tmp_path / "sizes.jsonl"
    record.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    tuning = Tuning(*(TunedNetwork("net", "made", "x86-64", seconds=100.0) for _ in range(3)))
    arguments = ["--recorded", str(record), "--shape", "x:6,256", "--cache_path", str(tmp_path / "cache")]
    assert said(monkeypatch, tuning, *arguments) == 0
    assert [each["input_shapes"] for each in tuning.asked] == [{"x": (rows, 256)} for rows in (3, 4, 5)]
    printed = capsys.readouterr()
    assert "small.onnx x:4,256: 20 distinct calls" in printed.err
    assert "the time is up: 1 network not begun" in printed.out
