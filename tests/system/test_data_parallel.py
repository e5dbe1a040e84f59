"""Training on several ranks: the losses of one rank, one build a job, and a job that goes on after it was killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
needs_mpi = pytest.mark.skipif(
    MPIEXEC is None or find_spec("mpi4py") is None,
    reason="mpi4py and an mpiexec are not installed (the extra [mpi])",
)
pytestmark = pytest.mark.usefixtures("with_pack", "kept_objects")

SCRIPT = """
import os, signal
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
from mindspore import context, nn, ops
from mindspore.communication import get_group_size, get_rank, init
from mindspore.train import Callback, CheckpointConfig, Model, ModelCheckpoint

ms.set_context(mode=ms.GRAPH_MODE)
init()
rank, size = get_rank(), get_group_size()
context.set_auto_parallel_context(
    parallel_mode=context.ParallelMode.DATA_PARALLEL, gradients_mean=True, parameter_broadcast=True
)
ms.set_seed(1)
random = np.random.default_rng(0)
labels = random.integers(0, 8, 64).astype(np.int32)
images = random.standard_normal((64, 1, 8, 8)).astype(np.float32) * 0.3
images[np.arange(64), 0, labels] += 1.5
data = ds.NumpySlicesDataset({"image": images, "label": labels}, num_shards=size, shard_id=rank).batch(16 // size)
net = nn.SequentialCell(
    nn.Conv2d(1, 4, 3, pad_mode="same"), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(64, 10)
)
if "NORM" in os.environ:
    net[1] = nn.SequentialCell(nn.SyncBatchNorm(4), nn.ReLU())
if rank:
    net[4].weight.set_data(net[4].weight * 2)  # what rank 0 has counts
model = Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))


class Losses(Callback):
    def __init__(self):
        self.mean = ops.AllReduce()

    def step_end(self, run_context):
        state = run_context.original_args()
        if str(state.cur_step_num) == os.environ.get("KILLED_AT") and rank == size - 1:
            os.kill(os.getpid(), signal.SIGKILL)  # the others have said what was before, and do not come further
        loss = float(self.mean(state.net_outputs)) / size
        if rank == 0:
            print("loss", state.cur_step_num, loss, flush=True)


first = 0
saved = sorted(Path("saved").glob("*.ckpt"))
if saved:
    content = ms.load_checkpoint(str(saved[-1]))
    first = int(content.pop("epoch_num"))
    ms.load_param_into_net(model.train_network, content)
callbacks = [Losses()]
if rank == 0 and "SAVES" in os.environ:
    callbacks.append(ModelCheckpoint("net", "saved", CheckpointConfig(4, append_info=["epoch_num"])))
model.train(3, data, callbacks, initial_epoch=first)
print("weights", np.abs(net[4].weight.asnumpy()).sum().item().hex())
"""


def _run(
    folder: Path, ranks: int, *, by: str = "launch", goes_on: bool = False, **variables: str
) -> tuple[int, dict[int, float], list[str]]:
    """Return the exit code, the losses by step, and what each rank says of its weights."""
    if not goes_on:
        shutil.rmtree(folder / "saved", ignore_errors=True)
    script = folder / "train.py"
    script.write_text(SCRIPT)
    opbuild = [sys.executable, "-m", "opbuild"]
    commands = {
        "launch": [*opbuild, "launch", "-n", str(ranks), "train.py"],
        "mpiexec": [MPIEXEC or "", "-n", str(ranks), *opbuild, "run", "train.py"],
    }
    result = subprocess.run(
        commands[by], cwd=folder, env=os.environ | variables, capture_output=True, text=True, timeout=280, check=False
    )
    words = [line.split() for line in result.stdout.splitlines()]
    losses = {int(line[-2]): float(line[-1]) for line in words if line[-3:-2] == ["loss"]}
    weights = [line[-1] for line in words if line[-2:-1] == ["weights"]]
    assert result.returncode or len(weights) == ranks, result.stderr
    return result.returncode, losses, [result.stderr, *weights]


def _apart(found: dict[int, float], wanted: dict[int, float]) -> str:
    """Return how far losses are from others at most, of their size, in words."""
    greatest = max(abs(loss - wanted[step]) / wanted[step] for step, loss in found.items())
    return f"{len(found)} losses at most {greatest:.1e} from those of one"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all jobs run, one after the other."""
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[int, float]:
    """The losses of two ranks that start with nothing, and of one: they are equal; each operator is built once."""
    code, two, (_, *weights) = _run(folder, 2)
    assert code == 0
    assert len(two) == 12
    assert len(set(weights)) == 1
    objects = defaultdict(set)
    for path in folder.glob("rank_*/kernel_meta/*.o"):
        objects[path.stem.rpartition("_")[0]].add(path.stat().st_ino)
    assert objects
    assert {len(found) for found in objects.values()} == {1}
    held = {path.parts[-3]: len(list(path.parent.glob("*.o"))) for path in folder.glob("rank_*/kernel_meta/*.o")}
    print(f"\n2 ranks, cold: {len(objects)} objects, each built once, of which ranks hold {held}")
    code, one, _ = _run(folder, 1)
    assert code == 0
    np.testing.assert_allclose(list(two.values()), list(one.values()), rtol=1e-5, atol=1e-6)
    print("2 ranks:", _apart(two, one))
    return one


@pytest.mark.slow
def test_ranks_have_the_losses_of_one_with_the_same_global_batch(folder: Path, alone: dict[int, float]) -> None:
    """Four as two do; their weights are equal to the last bit, whatever they began with."""
    code, four, (_, *weights) = _run(folder, 4)
    assert code == 0
    assert len(set(weights)) == 1
    np.testing.assert_allclose(list(four.values()), list(alone.values()), rtol=1e-5, atol=1e-6)
    print("4 ranks:", _apart(four, alone))
    assert alone[12] < 0.8 * alone[1]


@pytest.mark.slow
def test_a_job_whose_rank_is_killed_goes_on_from_its_checkpoint(folder: Path, alone: dict[int, float]) -> None:
    """The job ends and says which rank; the next one compiles nothing, and its losses are those that were to come."""
    code, losses, (said, *_) = _run(folder, 2, SAVES="1", KILLED_AT="7")
    assert code == 128 + 9
    assert "rank 1" in said
    assert max(losses) == 6
    code, rest, _ = _run(folder, 2, goes_on=True, SAVES="1", OPBUILD_FORBID_COMPILE="1")
    assert code == 0
    assert list(rest) == list(range(5, 13))
    np.testing.assert_allclose(list(rest.values()), [alone[step] for step in rest], rtol=1e-5, atol=1e-6)
    print(f"killed at step {max(losses)}, compiled nothing, went on at step {min(rest)}:", _apart(rest, alone))


@pytest.mark.slow
def test_ranks_that_normalize_together_have_the_losses_of_one(folder: Path) -> None:
    """Their batches' statistics are those of the whole one, and gradients flow through them."""
    code, two, (said, *weights) = _run(folder, 2, NORM="1")
    assert code == 0, said
    assert len(set(weights)) == 1
    code, one, _ = _run(folder, 1, NORM="1")
    assert code == 0
    np.testing.assert_allclose(list(two.values()), list(one.values()), rtol=1e-5, atol=1e-6)
    print("2 ranks that normalize together:", _apart(two, one))


@needs_mpi
def test_mpi_connects_ranks_that_train(folder: Path, alone: dict[int, float]) -> None:
    """With ``mpiexec`` instead of the launcher."""
    code, two, (said, *_) = _run(folder, 2, by="mpiexec", OPBUILD_FORBID_COMPILE="1")
    assert code == 0, said
    np.testing.assert_allclose(list(two.values()), list(alone.values()), rtol=1e-5, atol=1e-6)
