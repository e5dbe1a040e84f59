"""Torch's own operators: what was compiled whole still is, and nothing fails."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the back end of torch.compile needs torch")
pytest.importorskip("expecttest", reason="torch's samples of its operators need expecttest")

from fuzzing import CAMPAIGN, SEED

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = json.loads((ROOT / "tests" / "golden" / "torch_op_db.json").read_text(encoding="utf-8"))
PAGE = ROOT / "docs" / "reference" / "torch_operators.md"

CHOSEN = 25
"""Operators that the suite tries; a campaign tries all."""

WITH_GRADIENTS = 8
"""Operators of which the suite tries gradients, too."""

STATES = ("compiled whole", "partitioned", "failed")


@pytest.mark.timeout(3300)
def test_no_operator_of_torch_becomes_worse_than_what_is_written_down(tmp_path: Path) -> None:
    """Some operators by the seed, all in a campaign: what was compiled whole still is, and none fails."""
    names = sorted(WRITTEN["operators"])
    chosen = names if CAMPAIGN else random.Random(SEED).sample(names, CHOSEN)
    script, result = Path(__file__).with_name("torch_op_db.py"), tmp_path / "found.json"
    command = [sys.executable, str(script), "--exact", "--json", str(result), "--cache", str(tmp_path), *chosen]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=3000)
    found = json.loads(result.read_text(encoding="utf-8"))
    assert sorted(found) == sorted(chosen)
    worse = {
        name: each for name, each in found.items() if STATES.index(each[0]) > STATES.index(WRITTEN["operators"][name])
    }
    assert worse == {}
    assert [name for name, each in found.items() if each[0] == "failed"] == []


@pytest.mark.timeout(3300)
def test_no_gradient_of_an_operator_of_torch_is_wrong(tmp_path: Path) -> None:
    """One sample of some operators by the seed, of all in a campaign, forward and backward."""
    names = sorted(WRITTEN["operators"])
    chosen = names if CAMPAIGN else random.Random(SEED).sample(names, WITH_GRADIENTS)
    script, result = Path(__file__).with_name("torch_op_db.py"), tmp_path / "found.json"
    command = [sys.executable, str(script), "--gradients", "--exact", "--samples", "1", "--json", str(result)]
    command += ["--cache", str(tmp_path), *chosen]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=3000)
    found = json.loads(result.read_text(encoding="utf-8"))
    assert set(found) <= set(chosen)
    assert {name: each for name, each in found.items() if each[0] == "failed"} == {}


def test_what_is_written_down_is_what_the_page_of_the_documentation_shows() -> None:
    """The counts of the golden file are those of its operators and of the page; none failed."""
    states = list(WRITTEN["operators"].values())
    assert WRITTEN["counts"] == {state: states.count(state) for state in STATES}
    assert WRITTEN["counts"]["failed"] == 0
    text = PAGE.read_text(encoding="utf-8")
    for state, count in WRITTEN["counts"].items():
        assert f"| {state} | {count} |" in text
    assert all(f"`{name}`" in text for name in WRITTEN["operators"])
