"""Torch's own operators: what was compiled whole still is, and nothing fails."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("torch", reason="the back end of torch.compile needs torch")
pytest.importorskip("expecttest", reason="torch's samples of its operators need expecttest")

from support.fuzzing import CAMPAIGN, SEED

ROOT = Path(__file__).resolve().parents[2]
WRITTEN = json.loads((ROOT / "tests" / "golden" / "torch_op_db.json").read_text(encoding="utf-8"))
PAGE = ROOT / "docs" / "reference" / "torch_operators.md"

CHOSEN = sys.maxsize if CAMPAIGN else 18
"""So many operators are tried, in an order by the seed; of every third gradients, too."""

STATES = ("compiled whole", "partitioned", "failed")


RUNS = "import json, sys; from conformance.torch_op_db import main; [main(each) for each in json.loads(sys.argv[1])]"
"""One process for both: torch takes as long to load as a part of its operators to run."""


def _chosen(part: int = 1) -> list[str]:
    names = sorted(WRITTEN["operators"])
    random.Random(SEED).shuffle(names)
    return names[:CHOSEN:part]


class Runs(NamedTuple):
    """What became of some operators, and of gradients of some of them.

    Attributes:
        found: What became of them.
        gradients: What became of gradients.
    """

    found: dict[str, list[str]]
    gradients: dict[str, list[str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """What became of them."""
    folder = tmp_path_factory.mktemp("operators")
    results = [folder / "found.json", folder / "gradients.json"]
    common = [["--exact", "--cache", str(folder), "--json", str(result)] for result in results]
    both = [
        [*common[0], *_chosen()],
        [*common[1], "--gradients", "--samples", "1", *_chosen(1 if CAMPAIGN else 3)],
    ]
    command = [sys.executable, "-c", RUNS, json.dumps(both)]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests")))}
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=6000, env=place)
    return Runs(*(json.loads(result.read_text(encoding="utf-8")) for result in results))


@pytest.mark.slow
@pytest.mark.timeout(6600)
def test_no_operator_of_torch_becomes_worse_than_what_is_written_down(runs: Runs) -> None:
    """Some operators by the seed, all in a campaign: what was compiled whole still is, and none fails."""
    found = runs.found
    assert sorted(found) == sorted(_chosen())
    worse = {
        name: each for name, each in found.items() if STATES.index(each[0]) > STATES.index(WRITTEN["operators"][name])
    }
    assert worse == {}
    assert [name for name, each in found.items() if each[0] == "failed"] == []


@pytest.mark.slow
@pytest.mark.timeout(6600)
def test_no_gradient_of_an_operator_of_torch_is_wrong(runs: Runs) -> None:
    """One sample of some operators by the seed, of all in a campaign, forward and backward."""
    found = runs.gradients
    assert set(found) <= set(_chosen())
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
