"""A start that is seen from outside: its log where somebody asks for it, and nothing of it where nobody does."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.processes import environment
from support.small_network import SHAPE, SmallNetwork

START = f"""
import sys
import numpy as np, opbuild
net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], input_shapes={{"x": {SHAPE}}}, forbid_compile=True)
net(np.ones({SHAPE}, np.float32))
assert net.report.image
print(*sorted(name for name in sys.modules if name == "logging" or name.startswith("opbuild.monitoring")))
print({{name: number for name, number in opbuild.metrics().items() if number and not name.endswith("seconds")}})
"""


@pytest.fixture
def cache(small_network: SmallNetwork, tmp_path: Path) -> Path:
    """A store with the network."""
    return Path(shutil.copytree(small_network.cache, tmp_path / "cache"))


def started(
    small_network: SmallNetwork, cache: Path, before: str = "", **variables: str
) -> tuple[list[str], list[str]]:
    """Start the network in a process of its own; return the lines of both its streams."""
    command = [sys.executable, "-c", before + START, str(small_network.path), str(cache)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(**variables), check=True)
    return ended.stdout.splitlines(), ended.stderr.splitlines()


def test_a_start_that_nobody_watches_loads_nothing_for_it(small_network: SmallNetwork, cache: Path) -> None:
    """And says nothing; what it did is counted all the same."""
    (loaded, counted), said = started(small_network, cache)
    assert (loaded, said) == ("", [])
    assert counted == "{'operators_reused': 2, 'networks_loaded': 1, 'bindings_stored': 1}"


def test_a_program_that_has_loaded_logging_hears_nothing_new(small_network: SmallNetwork, cache: Path) -> None:
    """It has set nothing up: Python's last resort would print warnings for it."""
    (loaded, _), said = started(small_network, cache, "import logging\n")
    assert (loaded, said) == ("logging opbuild.monitoring opbuild.monitoring.log", [])


def test_the_variable_shows_a_start(small_network: SmallNetwork, cache: Path) -> None:
    """How the network became ready, in which size."""
    _, said = started(small_network, cache, OPBUILD_LOG="info")
    assert len(said) == 2
    ready, compiled = said
    size = ",".join(map(str, SHAPE))
    assert f" INFO opbuild.runtime: small is ready for x:{size}: stored, " in ready
    assert " INFO opbuild.pipeline: compile of small: " in compiled


def test_a_programs_own_configuration_counts(small_network: SmallNetwork, cache: Path) -> None:
    """Its level and its format, set before or after opbuild was loaded."""
    before = (
        "import logging\n"
        "logging.basicConfig(format='%(name)s', level=logging.WARNING)\n"
        "logging.getLogger('opbuild').setLevel(logging.DEBUG)\n"
        "logging.getLogger('opbuild.pipeline').setLevel(logging.ERROR)\n"
    )
    _, said = started(small_network, cache, before)
    assert said == ["opbuild.store", "opbuild.runtime"]


def test_a_level_that_is_none_is_an_error_of_the_command(small_network: SmallNetwork, cache: Path) -> None:
    """As for other variables."""
    command = [sys.executable, "-m", "opbuild", "run", str(small_network.path)]
    variables = environment(OPBUILD_LOG="loud")
    ended = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=cache, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "error (option): OPBUILD_LOG is 'loud'", "  hint: it must be debug or info or warning"
    ]  # fmt: skip
