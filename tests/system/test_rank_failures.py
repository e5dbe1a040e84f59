"""A rank ends, hangs or does something else while gradients of the others travel beside computation."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.until import until

pytestmark = pytest.mark.usefixtures("with_pack", "kept_objects")

SCRIPT = """
import os, signal, threading, time
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import context, nn, ops
from mindspore.communication import get_rank, init

ms.set_context(mode=ms.GRAPH_MODE)
init()
rank = get_rank()
context.set_auto_parallel_context(parallel_mode="data_parallel", all_reduce_fusion_config=[2, 4])
ms.set_seed(1)
net = nn.SequentialCell(nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8))
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
x = ms.Tensor(np.ones((4, 8), np.float32))
for number in range(3):
    step(x, x)
    if number == 1:
        assert "opbuild-ranks" in [each.name for each in threading.enumerate()]
        Path(f"reached.{os.getpid()}").touch()
        if rank == 1 and os.environ["ENDS"] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif rank == 1 and os.environ["ENDS"] == "hangs":
            time.sleep(600)
        elif rank == 1 and os.environ["ENDS"] == "differs":
            ops.AllReduce()(ms.Tensor(np.ones(3, np.float32)))
print("done")
"""


def _start(folder: Path, ends: str, **variables: str) -> subprocess.Popen[str]:
    (folder / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "opbuild", "launch", "-n", "2", "train.py"]
    environment = os.environ | {"ENDS": ends} | variables
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "code", "said"),
    [
        ("killed", 128 + 9, "rank 1 was killed by SIGKILL"),
        ("hangs", None, "no rank made progress for 2 s on the way to AllReduce(sum) of float32[72]: missing is rank 1"),
        ("differs", None, "rank 0: AllReduce(sum) of float32[72]; rank 1: AllReduce(sum) of float32[3]"),
    ],
)
def test_the_others_say_which_rank_it_was(tmp_path: Path, ends: str, code: int | None, said: str) -> None:
    """As where nothing runs beside: the job ends, within the limit, and names the operator and the rank."""
    process = _start(tmp_path, ends, HCCL_EXEC_TIMEOUT="2")
    out, err = process.communicate(timeout=200)
    assert said in err
    assert ends == "killed" or "(train.py:" in err
    assert "_base.py" not in err
    assert process.returncode not in (0, None)
    assert code in (None, process.returncode)
    assert "done" not in out


@pytest.mark.slow
def test_ctrl_c_ends_ranks_whose_gradients_travel(tmp_path: Path) -> None:
    """The rank that waits does so in two threads; neither keeps it."""
    process = _start(tmp_path, "hangs")
    assert until(lambda: len(list(tmp_path.glob("reached.*"))) == 2, 120)
    pids = [int(path.suffix[1:]) for path in tmp_path.glob("reached.*")]
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20)
