"""The same training programs under MindSpore and under opbuild: losses of each step, and checkpoints both ways.

    python benchmarks/mindspore_training.py --mindspore /path/to/python [NETWORK ...] [--steps 50]

The Python that is named has MindSpore 2.10. It makes the weights and saves them; both load that file, train on the same
batches, and save what they have; then each loads the other's file, with the states of the optimizer, and takes a step.
Needs scikit-learn for its digits (`pip install opbuild[bench]`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RATES = {"lenet": 0.2, "resnet18": 0.01, "transformer": 0.05}
SIZES = {"lenet": 64, "resnet18": 8, "transformer": 8}


def written_batches(name: str, steps: int, folder: Path) -> None:
    """Write the batches of a network: digits, made images with a class each, made sentences."""
    random, size = np.random.default_rng(0), SIZES[name]
    count = steps + 1
    if name == "lenet":
        from sklearn.datasets import load_digits

        digits = load_digits()
        places = random.integers(0, len(digits.images), (count, size))
        x, y = (digits.images[places][:, :, None] / 16).astype(np.float32), digits.target[places]
    elif name == "resnet18":
        y = random.integers(0, 10, (count, size))
        x = 0.3 * random.standard_normal((count, size, 3, 32, 32)).astype(np.float32)
        x[np.arange(count)[:, None], np.arange(size), 0, 3 * y] += 1.5
    else:
        x = random.integers(0, 50, (count, size, 16)).astype(np.int32)
        y = x[:, :, 0] % 10
    np.savez(folder / "batches.npz", x=x, y=y.astype(np.int32))


def lenet() -> Any:
    """Return LeNet-5 for images of 8 by 8, written with what ``mindspore`` is where this runs, as the others."""
    from mindspore import nn, ops

    class LeNet(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 6, 3, pad_mode="same", has_bias=True)
            self.conv2 = nn.Conv2d(6, 16, 3, pad_mode="same", has_bias=True)
            self.pool = nn.MaxPool2d(2, 2)
            self.fc1, self.fc2, self.fc3 = nn.Dense(64, 120), nn.Dense(120, 84), nn.Dense(84, 10)

        def construct(self, x):
            x = self.pool(ops.relu(self.conv1(x)))
            x = self.pool(ops.relu(self.conv2(x)))
            x = ops.relu(self.fc1(x.reshape(x.shape[0], -1)))
            return self.fc3(ops.relu(self.fc2(x)))

    return LeNet()


def resnet18() -> Any:
    """Return ResNet-18 with a quarter of the channels, for images of 32 by 32."""
    from mindspore import nn, ops

    class Block(nn.Cell):
        def __init__(self, before, after, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(before, after, 3, stride, pad_mode="pad", padding=1)
            self.norm1 = nn.BatchNorm2d(after)
            self.conv2 = nn.Conv2d(after, after, 3, pad_mode="pad", padding=1)
            self.norm2 = nn.BatchNorm2d(after)
            self.short = None
            if before != after:
                self.short = nn.SequentialCell(nn.Conv2d(before, after, 1, stride), nn.BatchNorm2d(after))

        def construct(self, x):
            y = self.norm2(self.conv2(ops.relu(self.norm1(self.conv1(x)))))
            return ops.relu(y + (x if self.short is None else self.short(x)))

    class ResNet18(nn.Cell):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 16, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(16)
            sizes = (
                (16, 16, 1),
                (16, 16, 1),
                (16, 32, 2),
                (32, 32, 1),
                (32, 64, 2),
                (64, 64, 1),
                (64, 128, 2),
                (128, 128, 1),
            )
            self.blocks = nn.SequentialCell(*(Block(*each) for each in sizes))
            self.last = nn.Dense(128, 10)

        def construct(self, x):
            return self.last(self.blocks(ops.relu(self.norm(self.conv(x)))).mean((2, 3)))

    return ResNet18()


def transformer() -> Any:
    """Return two layers of attention over sentences of 16 words."""
    from mindspore import nn, ops

    class Layer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm((32,)), nn.LayerNorm((32,))
            self.q, self.k, self.v, self.o = nn.Dense(32, 32), nn.Dense(32, 32), nn.Dense(32, 32), nn.Dense(32, 32)
            self.up, self.down = nn.Dense(32, 64), nn.Dense(64, 32)

        def heads(self, x):
            return x.reshape(x.shape[0], x.shape[1], 4, 8).transpose(0, 2, 1, 3)

        def construct(self, x):
            y = self.norm1(x)
            q, k, v = self.heads(self.q(y)), self.heads(self.k(y)), self.heads(self.v(y))
            share = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) / 8**0.5, -1)
            x = x + self.o(ops.matmul(share, v).transpose(0, 2, 1, 3).reshape(x.shape))
            return x + self.down(ops.gelu(self.up(self.norm2(x)), approximate="none"))

    class Transformer(nn.Cell):
        def __init__(self):
            super().__init__()
            self.words = nn.Embedding(50, 32)
            self.layers = nn.SequentialCell(Layer(), Layer())
            self.norm, self.last = nn.LayerNorm((32,)), nn.Dense(32, 10)

        def construct(self, x):
            return self.last(self.norm(self.layers(self.words(x))).mean(1))

    return Transformer()


def trained(name: str, folder: Path, own: str, start: str, steps: int) -> None:
    """Train from a file of weights, save, and print the losses; runs under either package."""
    import mindspore as ms
    from mindspore import nn

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.set_seed(1)

    def made():
        net = {"lenet": lenet, "resnet18": resnet18, "transformer": transformer}[name]()
        optimizer = nn.Momentum(net.trainable_params(), RATES[name], 0.9)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
        step.set_train()
        return net, step

    batches = np.load(folder / "batches.npz")

    def loss(step, number):
        return float(step(ms.Tensor(batches["x"][number]), ms.Tensor(batches["y"][number])).asnumpy())

    net, step = made()
    if start == "new":
        ms.save_checkpoint(net, str(folder / "start.ckpt"))
    elif start == "start":
        missing, _ = ms.load_param_into_net(net, ms.load_checkpoint(str(folder / "start.ckpt")))
        assert not missing, missing
        losses = [loss(step, number) for number in range(steps)]
        ms.save_checkpoint(step, str(folder / f"{own}.ckpt"))
        print(json.dumps([*losses, loss(step, steps)]))
    else:
        missing, _ = ms.load_param_into_net(step, ms.load_checkpoint(str(folder / f"{start}.ckpt")))
        assert not missing, missing
        print(json.dumps(loss(step, steps)))


def main() -> None:
    """Run each training by both, print how far they are apart, and fail if it is more than 1e-4 of a loss."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("networks", nargs="*", default=list(SIZES))
    parser.add_argument("--mindspore", help="a Python that has MindSpore")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--trains", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trains:
        name, folder, own, start = given.trains
        trained(name, Path(folder), own, start, given.steps)
        return
    if not given.mindspore:
        parser.error("--mindspore names a Python that has MindSpore")
    commands = {"mindspore": [given.mindspore], "opbuild": [sys.executable, "-m", "opbuild", "run"]}
    print(
        "| network | losses | apart | steps within 1e-4 | its file here | ours there |\n|---|---|---:|---:|---:|---:|"
    )
    bad = False
    for name in given.networks:
        with tempfile.TemporaryDirectory(prefix="opbuild-mindspore-") as place:
            folder = Path(place)
            written_batches(name, given.steps, folder)

            def run(own: str, start: str, name: str = name, folder: Path = folder) -> str:
                words = ["--steps", str(given.steps), "--trains", name, str(folder), own, start]
                environment = {**os.environ, "MS_COMPILER_CACHE_PATH": str(folder), "GLOG_v": "3"}
                command = [*commands[own], str(Path(__file__).resolve()), *words]
                done = subprocess.run(
                    command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
                )
                return done.stdout.strip().rpartition("\n")[2]

            run("mindspore", "new")
            theirs, ours = (np.array(json.loads(run(own, "start"))) for own in commands)
            here, there = float(run("opbuild", "mindspore")), float(run("mindspore", "opbuild"))
        each = (np.abs(ours - theirs) / np.abs(theirs))[:-1]
        apart, early = each.max(), int(np.argmax(each > 1e-4)) or len(each)
        loads = [abs(here - theirs[-1]) / theirs[-1], abs(there - ours[-1]) / ours[-1]]
        bad = bad or max(apart, *loads) > 1e-4
        shown = f"{ours[0]:.4f} to {ours[-2]:.4f}"
        print(f"| {name} | {shown} | {apart:.1e} | {early} | {loads[0]:.1e} | {loads[1]:.1e} |", flush=True)
    if bad:
        raise SystemExit("a loss is more than 1e-4 of its size from MindSpore's")


if __name__ == "__main__":
    main()
