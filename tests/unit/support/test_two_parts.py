"""A run that collects once: its fast tests, and its slow ones if none of those failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.until import PATIENCE

pytest.importorskip("xdist")

ROOT = Path(__file__).resolve().parents[3]
FILE = """
import os
import pytest

def end(part):
    if {bad!r} == "dead " + part:
        os._exit(9)
    assert {bad!r} != part

@pytest.mark.slow
def test_slow():
    open({name!r}, "w").close()
    end("slow")

def test_fast(): end("fast")
"""
CONFTEST = """
import pytest
from support.order import place

def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, place(item.nodeid)))

def pytest_xdist_make_scheduler(config, log):
    from support.two_parts import TwoParts
    return TwoParts(config, log)
"""


@pytest.mark.parametrize(
    ("bad", "status", "ran", "said"),
    [
        ("", 0, 8, "16 passed"),
        ("fast", 6, 0, "2 failed, 6 passed"),
        ("slow", 1, 8, "2 failed, 14 passed"),
        ("dead fast", 6, 0, "2 failed, 6 passed"),
        ("dead slow", 1, 8, "2 failed, 14 passed"),
    ],
)
def test_slow_tests_of_a_run_wait_for_its_fast_ones(bad: str, status: int, ran: int, said: str, tmp_path: Path) -> None:
    """Each runs once; the status tells a run without its slow tests from one in which they failed.

    A test in which its process dies has failed, and the others are run.
    """
    for folder in ("system", "unit"):
        for number in range(4):
            file = tmp_path / "tests" / folder / f"test_{folder}{number}.py"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(FILE.format(name=f"{folder}{number}.ran", bad="" if number else bad))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\nmarkers = slow\npythonpath = {ROOT / 'tests'}\n")
    command = [sys.executable, "-m", "pytest", "--numprocesses=2", "--dist=loadfile", "--no-loadscope-reorder", "tests"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, len([*tmp_path.glob("*.ran")])) == (status, ran), done.stdout
    assert said in done.stdout
