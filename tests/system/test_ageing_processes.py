"""Ageing by several processes at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from opbuild.store.inventory import survey
from opbuild.store.policy import MEGABYTE
from support.aged_entries import fill, left
from support.processes import environment

AGE = """
import sys
from pathlib import Path
from opbuild.store.ageing import age
from opbuild.store.policy import Policy
sys.stdin.readline()
folder = Path(sys.argv[1])
age(folder, folder / "network_meta", Policy(10, 40))
"""


@pytest.mark.slow
def test_eight_processes_age_one_folder_to_the_ratio(tmp_path: Path) -> None:
    """They choose the same victims: what should remain remains, exactly, and none fails (F22)."""
    names = fill(tmp_path, 50, 500)
    command = [sys.executable, "-c", AGE, str(tmp_path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, env=environment(), text=True) for _ in range(8)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
    assert [process.returncode for process in processes] == [0] * 8
    assert left(tmp_path) == names[-40:]
    assert survey(tmp_path, tmp_path / "network_meta").nbytes <= 4 * MEGABYTE
