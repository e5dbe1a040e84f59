"""Ranks that communicate and wait for each other, under ``opbuild launch`` and under ``mpiexec``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.preloaded import Ended, Preloaded

pytestmark = pytest.mark.usefixtures("kept_objects")

ROOT = Path(__file__).resolve().parents[2]
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

needs_mpi = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="mpi4py and an mpiexec are not installed (the extra [mpi])",
)

COLLECTIVES = ROOT / "examples" / "all_reduce.py"
LAUNCH = (sys.executable, "-m", "opbuild", "launch", "-n")
MPI = (str(MPIEXEC), "-n")

SLOW = """
import os
from support.fake_compiler import FakeCompiler
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.events import ignore
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.host import host_level
from opbuild.mindspore import Tensor, ops
from opbuild.mindspore.communication import get_rank, init
from opbuild.ranks.progress import report_progress
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators

init()
rank = get_rank()
config = Config.from_environment()
variant = {"until": os.path.abspath("said")} if rank == 1 else {}
x = Operand("x", "float32", (Dim(stride=1),))
desc = OpDesc(("SlowOne",), "elementwise", (x,), (x,), variant=variant)
with Builder(Operators(Memory()), FakeCompiler(), host_level(), config, report_progress(config, ignore)) as builder:
    builder.build({desc: ("node",)}, "slow_net")
total = ops.AllReduce()(Tensor([1.0, float(rank)]))
print("total", total.asnumpy().tolist())
"""

DISAGREE = """
import sys
import numpy as np
from opbuild.mindspore import Tensor, ops
from opbuild.mindspore.communication import get_rank, init
init()
ops.AllReduce()(Tensor(np.ones(4 + (get_rank() == 1), np.float32)))
"""

DIES = """
import os, time
from opbuild.mindspore import Tensor, ops
from opbuild.mindspore.communication import get_rank, init
init()
if get_rank() == 1:
    os.kill(os.getpid(), 9)
ops.AllReduce()(Tensor([1.0]))
"""

UNUSED = """
import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, ops
from opbuild.mindspore.communication import get_rank, init
init()
ms.set_context(mode=ms.GRAPH_MODE)
class Net(nn.Cell):
    def construct(self, x):
        total = ops.AllReduce()(x)
        return total if get_rank() == 0 else ops.ReLU()(x)
print(Net()(Tensor([2.0])).asnumpy())
"""


def run(command: Sequence[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a job to its end."""
    return subprocess.run(
        command, cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a cache folder for the whole module: what one job builds the others find."""
    return str(tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow
def test_the_collectives_example_runs_under_launch(cache: str, tmp_path: Path) -> None:
    """It checks its results against numpy, and ends with 0; the documents run the other example."""
    done = run([*LAUNCH, "3", str(COLLECTIVES)], tmp_path, MS_COMPILER_CACHE_PATH=cache)
    assert done.returncode == 0, done.stderr
    assert "agree with numpy" in done.stdout


@needs_mpi
def test_the_collectives_example_runs_under_mpiexec(cache: str, tmp_path: Path) -> None:
    """The same results; ranks come from MPI's environment. A guide runs the other example so."""
    command = [*MPI, "2", sys.executable, "-m", "opbuild", "run", str(COLLECTIVES)]
    done = run(command, tmp_path, MS_COMPILER_CACHE_PATH=cache)
    assert done.returncode == 0, done.stderr
    assert "agree with numpy" in done.stdout


@pytest.mark.slow
def test_a_rank_that_compiles_longer_than_the_timeout_does_not_fail_the_others(tmp_path: Path) -> None:
    """HCCL_CONNECT_TIMEOUT=1 and a compile that lasts longer: the job succeeds, a line names rank and operator (F63).

    One warning says that 1 is outside the range. The compile ends when the line was read.
    """
    (tmp_path / "slow.py").write_text(SLOW)
    said = []
    with subprocess.Popen(
        [*LAUNCH, "2", "slow.py"], cwd=tmp_path, env=os.environ | {"HCCL_CONNECT_TIMEOUT": "1"}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        assert job.stderr is not None
        for line in job.stderr:
            said.append(line)
            if "waiting for rank 1, which builds slowone" in line:
                (tmp_path / "said").touch()
        results = job.stdout.read().splitlines()
    assert job.returncode == 0, said
    assert sorted(results) == [f"[rank {k}] total [2.0, 1.0]" for k in range(2)]
    assert (tmp_path / "said").exists(), said
    assert "".join(said).count("outside 120 to 7200") == 1


def test_ranks_that_disagree_end_with_an_error_that_says_how(tmp_path: Path) -> None:
    """Shapes that differ are named with their ranks; nobody hangs."""
    (tmp_path / "disagree.py").write_text(DISAGREE)
    done = run([*LAUNCH, "2", "disagree.py"], tmp_path)
    assert done.returncode == 7
    assert "rank 0: AllReduce(sum) of float32[4]; rank 1: AllReduce(sum) of float32[5]" in done.stderr.splitlines()[-2]


def test_a_killed_rank_ends_those_who_wait_for_it(tmp_path: Path) -> None:
    """Long before the timeout of 120 s the job is over and names the rank that died (F63)."""
    (tmp_path / "dies.py").write_text(DIES)
    done = run([*LAUNCH, "3", "dies.py"], tmp_path)
    assert done.returncode == 137
    assert done.stderr.splitlines()[-2] == "error (rank): rank 1 was killed by SIGKILL"


@needs_mpi
def test_a_failing_rank_ends_the_ranks_of_mpi(tmp_path: Path) -> None:
    """Under mpiexec the first failure is shown and ends all, with its exit code."""
    (tmp_path / "disagree.py").write_text(DISAGREE)
    done = run([*MPI, "2", sys.executable, "-m", "opbuild", "run", "disagree.py"], tmp_path)
    assert done.returncode == 7
    assert "rank 0: AllReduce(sum) of float32[4]; rank 1: AllReduce(sum) of float32[5]" in done.stderr


@pytest.mark.slow
def test_what_one_rank_does_not_use_it_still_computes_with_the_others(cache: str, tmp_path: Path) -> None:
    """A collective whose result a rank throws away stays in its network: the others wait for it."""
    (tmp_path / "unused.py").write_text(UNUSED)
    done = run([*LAUNCH, "2", "unused.py"], tmp_path, MS_COMPILER_CACHE_PATH=cache)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[rank 0] [4.]", "[rank 1] [2.]"]


def alone(process: Preloaded, folder: Path, **variables: str) -> Ended:
    """Run a script for several ranks in one process."""
    (folder / "dies.py").write_text(DIES)
    return process.run("opbuild.__main__", ["run", "dies.py"], folder, os.environ | variables)


def test_ranks_that_nothing_connects_say_how_to_start_them(process: Preloaded, tmp_path: Path) -> None:
    """RANK_SIZE alone is no job: the error names 'opbuild launch' and mpiexec."""
    done = alone(process, tmp_path, RANK_SIZE="2")
    assert done.code == 7
    assert "opbuild launch" in done.errors


def test_mpi_that_is_not_installed_is_named_with_its_extra(process: Preloaded, tmp_path: Path) -> None:
    """Under an mpiexec without mpi4py the error says what to install."""
    (tmp_path / "mpi4py.py").write_text("raise ImportError('No module named mpi4py')")
    done = alone(process, tmp_path, PMI_RANK="0", PMI_SIZE="2")
    assert done.code == 7
    assert "opbuild[mpi]" in done.errors


def test_one_process_is_a_job_of_one_rank(process: Preloaded, tmp_path: Path) -> None:
    """A script for many ranks runs alone too."""
    done = alone(process, tmp_path)
    assert done.code == 0, done.errors
