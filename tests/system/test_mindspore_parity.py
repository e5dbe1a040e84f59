"""The same expressions in opbuild and in the real MindSpore: results, shapes, element types, parameters' names.

The real package runs in its own interpreter: ``OPBUILD_TEST_MINDSPORE`` names it, else this one is asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from support import mindspore_worker
from support.mindspore_calls import differences
from support.mindspore_worker import Results
from support.processes import environment

WORKER = Path(mindspore_worker.__file__)
INTERPRETER = os.environ.get("OPBUILD_TEST_MINDSPORE", sys.executable)


@lru_cache(maxsize=1)
def why_not() -> str:
    """Return why the real MindSpore cannot be asked, or an empty text."""
    probe = subprocess.run([INTERPRETER, "-c", "import mindspore"], capture_output=True, text=True, check=False)
    return (
        "" if probe.returncode == 0 else f"{INTERPRETER} has no mindspore: set OPBUILD_TEST_MINDSPORE to one that has"
    )


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Run every case in the real package."""
    if why_not():
        pytest.skip(why_not())
    path = tmp_path_factory.mktemp("real") / "results.npz"
    done = subprocess.run(
        [INTERPRETER, str(WORKER), str(path)], cwd=path.parent, capture_output=True, text=True, check=False
    )
    assert path.exists(), done.stderr[-2000:]
    return Results(path)


def ours(folder: Path, *arguments: str) -> Results:
    """Run every case in opbuild."""
    path = folder / "results.npz"
    command = [sys.executable, "-m", "opbuild", "run", str(WORKER), str(path), *arguments]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return Results(path)


def compare(expected: Results, found: Results) -> list[str]:
    """Return a line for each case that differs."""
    problems = []
    for case, said in expected.said.items():
        if isinstance(said, dict):
            problems.append(f"{case}: the real package refuses: {said['error']}")
        elif isinstance(found.said[case], dict):
            problems.append(f"{case}: {found.said[case]['error']}")
        elif text := differences(expected.leaves(case), found.leaves(case)):
            problems.append(f"{case}: {text}")
    return problems


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [[], ["graph"]], ids=["pynative", "graph"])
def test_every_case_gives_what_mindspore_gives(real, tmp_path, mode):
    """Operators alone and as networks; layers with the same parameters."""
    problems = compare(real, ours(tmp_path, *mode))
    assert not problems, "\n".join(problems)
