"""Random orders of events on the pool of threads (``pool_events.c``): networks open, run and close, processes fork.

The suite tries some orders; with ``OPBUILD_FUZZ=1000`` in the environment so many.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from opbuild import native
from support.fuzzing import CAMPAIGN, SEED
from support.pools import HERE

NATIVE = Path(native.__file__).parent
PROGRAM = Path(__file__).with_name("pool_events.c")
SANITIZER = "-fsanitize=thread"


def compiled(folder: Path, *flags: str) -> Path:
    """Return the program, compiled with the pool."""
    compiler = shutil.which("cc")
    if compiler is None or not HERE:
        pytest.skip("there is no C compiler, or no pool for this machine")
    sources = [str(PROGRAM), str(NATIVE / "opbuild_pool.c")]
    command = [compiler, "-O1", "-g", "-Wall", "-Wextra", "-Werror", *flags, f"-I{NATIVE}", *sources]
    command += ["-o", str(folder / "program"), "-lpthread"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if SANITIZER in flags and ("tsan" in done.stderr or "unsupported" in done.stderr):
        pytest.skip("the C compiler has no thread sanitizer")
    assert done.returncode == 0, done.stderr
    return folder / "program"


def run_events(program: Path, callers: int, seeds: int, forks: bool) -> None:
    """Try so many orders; most take a twentieth of a second, with forks or the sanitizer more."""
    command = [str(program), str(callers), str(SEED % 2**25), str(seeds), str(int(forks))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60 + 5 * seeds)
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run on this kernel")
    print(f"{callers} callers, {seeds} orders: {done.stdout.strip()}")
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    assert int(done.stdout.split()[0]) > seeds * callers


@pytest.mark.slow
@pytest.mark.timeout(120 + 20 * CAMPAIGN)
@pytest.mark.parametrize("callers", [1, 5])
def test_loops_are_whole_in_any_order_of_events(tmp_path: Path, callers: int) -> None:
    """Each task runs once, no network gets more than its threads, children have their own, none is left in the end."""
    run_events(compiled(tmp_path), callers, CAMPAIGN or 20, forks=True)


@pytest.mark.timeout(120 + 20 * CAMPAIGN)
@pytest.mark.slow
def test_the_pool_has_no_data_race_in_any_order_of_events(tmp_path: Path) -> None:
    """The C compiler's thread sanitizer sees what no result shows."""
    run_events(compiled(tmp_path, SANITIZER), 4, CAMPAIGN or 10, forks=False)
