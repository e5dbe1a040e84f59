"""LeNet on scikit-learn's digits in MindSpore's style, beside torch: losses, seconds, and what each change builds.

    python benchmarks/training.py                 # fifty steps beside eager torch
    python benchmarks/training.py --inductor      # and beside Inductor
    python benchmarks/training.py --starts        # seconds to the first step of a process, cold and warm
    python benchmarks/training.py --changes       # what is built of a training network after each change, and why

The trainings take turns at the same batches from the same weights. Needs scikit-learn (`pip install opbuild[bench]`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

import opbuild.mindspore as ms
from opbuild import api
from opbuild.mindspore import nn
from opbuild.report import Report

BATCH = 64
LAYERS = (("conv1", 1, 6), ("conv2", 6, 16), ("fc1", 64, 120), ("fc2", 120, 84), ("fc3", 84, 10))


class LeNet(nn.Cell):
    """LeNet-5 for images of 8 by 8."""

    def __init__(self, middle: int = 84) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, pad_mode="same", has_bias=True)
        self.conv2 = nn.Conv2d(6, 16, 3, pad_mode="same", has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.fc1, self.fc2, self.fc3 = nn.Dense(64, 120), nn.Dense(120, middle), nn.Dense(middle, 10)

    def construct(self, x: Any) -> Any:
        """Return ten logits an image."""
        x = self.pool(ms.ops.relu(self.conv1(x)))
        x = self.pool(ms.ops.relu(self.conv2(x)))
        x = ms.ops.relu(self.fc1(x.reshape(x.shape[0], -1)))
        return self.fc3(ms.ops.relu(self.fc2(x)))


class Wider(LeNet):
    """LeNet whose second convolution is one of 5 by 5."""

    def __init__(self) -> None:
        super().__init__()
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="same", has_bias=True)


class TorchLeNet(torch.nn.Module):
    """The same in torch, with the weights of one."""

    def __init__(self, net: LeNet) -> None:
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 6, 3, padding=1), torch.nn.Conv2d(6, 16, 3, padding=1)
        self.fc1, self.fc2, self.fc3 = (torch.nn.Linear(*each[1:]) for each in LAYERS[2:])
        with torch.no_grad():
            for name, *_ in LAYERS:
                getattr(self, name).weight.copy_(torch.tensor(getattr(net, name).weight.asnumpy()))
                getattr(self, name).bias.copy_(torch.tensor(getattr(net, name).bias.asnumpy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ten logits an image."""
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))  # type: ignore[no-any-return]


class Run(NamedTuple):
    """One training.

    Attributes:
        step: Takes images and labels, returns the loss.
        losses: Of the steps so far.
        seconds: Wall seconds of each step.
        busy: Processor seconds of each step.
    """

    step: Callable[[Any, Any], float]
    losses: list[float]
    seconds: list[float]
    busy: list[float]


def batches(count: int, size: int = BATCH) -> Iterator[tuple[Any, Any]]:
    """Yield batches of digits, in an order that is always the same."""
    digits = load_digits()
    images = (digits.images[:, None] / 16).astype(np.float32)
    random = np.random.default_rng(0)
    for _ in range(count):
        places = random.integers(0, len(images), size)
        yield images[places], digits.target[places].astype(np.int32)


def training(net: LeNet, optimizer: str = "Momentum", loss: Any = None) -> nn.Cell:
    """Return a step."""
    net.set_train()
    parameters = net.trainable_params()
    made = {"Momentum": lambda: nn.Momentum(parameters, 0.2, 0.9), "Adam": lambda: nn.Adam(parameters, 0.001)}
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss or nn.CrossEntropyLoss()), made[optimizer]())


def ours(net: LeNet) -> Run:
    """Return opbuild's training."""
    step = training(net)
    return Run(lambda x, y: float(step(ms.Tensor(x), ms.Tensor(y))), [], [], [])


def theirs(net: LeNet, through: Callable[..., Any]) -> Run:
    """Return torch's training, whose functions a function compiles."""
    model = TorchLeNet(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.2, 0.9)
    fast, update = through(lambda x, y: functional.cross_entropy(model(x), y)), through(optimizer.step)

    def step(x: Any, y: Any) -> float:
        optimizer.zero_grad()
        loss = fast(torch.tensor(x), torch.tensor(y).long())
        loss.backward()
        update()
        return float(loss.detach())

    return Run(step, [], [], [])


TRAININGS: dict[str, Callable[[LeNet], Run]] = {
    "opbuild": ours,
    "eager": lambda net: theirs(net, lambda function: function),
    "Inductor": lambda net: theirs(net, torch.compile),
}


def first_step(name: str) -> None:
    """Print the seconds from making a training to its first loss, and those of its second step."""
    ms.set_seed(1)
    x, y = next(batches(1))
    net, start = LeNet(), time.perf_counter()
    run = TRAININGS[name](net)
    run.step(x, y)
    first = time.perf_counter()
    run.step(x, y)
    print(first - start, time.perf_counter() - first)


def starts(folder: Path, threads: int, times: int = 3) -> None:
    """Print seconds to the first step of processes that start with empty caches, and with what these left."""
    print("| | cold, s | warm, s |\n|---|---:|---:|")
    for label, name, pack in (
        ("eager torch", "eager", "1"), ("opbuild", "opbuild", "1"),
        ("opbuild without its pack", "opbuild", "0"), ("Inductor", "Inductor", "1"),
    ):  # fmt: skip
        found: tuple[list[float], list[float]] = ([], [])
        for turn in range(times):
            own = folder / f"{name}_{pack}_{turn}"  # Inductor fails where a path has a space
            caches = {"MS_COMPILER_CACHE_PATH": own, "TORCHINDUCTOR_CACHE_DIR": own / "inductor"}
            variables = {**os.environ, **{key: str(path) for key, path in caches.items()}, "OPBUILD_PACK": pack}
            for seconds in found:
                command = [sys.executable, __file__, "--first", name, "--threads", str(threads)]
                done = subprocess.run(command, env=variables, stdout=subprocess.PIPE, text=True, check=True)
                seconds.append(float(done.stdout.split()[-2]))
        print(f"| {label} | {statistics.median(found[0]):.2f} | {statistics.median(found[1]):.2f} |", flush=True)


def beside_torch(steps: int, with_inductor: bool) -> None:
    """Train by all in turn, and print losses and times."""
    ms.set_seed(1)
    net = LeNet()
    runs = {name: TRAININGS[name](net) for name in ("eager", "opbuild", *["Inductor"] * with_inductor)}
    for x, y in batches(steps):
        for run in runs.values():
            wall, busy = time.perf_counter(), time.process_time()
            run.losses.append(run.step(x, y))
            run.seconds.append(time.perf_counter() - wall)
            run.busy.append(time.process_time() - busy)
    base = runs["eager"]
    for name, run in runs.items():
        apart = max(abs(a - b) / abs(b) for a, b in zip(run.losses, base.losses, strict=True))
        middle, ratio = statistics.median(run.busy[3:]), statistics.median(base.busy[3:])
        print(
            f"{name:9} loss {run.losses[0]:.5f} to {run.losses[-1]:.5f}, at most {apart:.1e} from eager; first step "
            f"{run.seconds[0]:.2f} s, a step {1e3 * middle:.2f} ms of a processor ({middle / ratio:.2f} of eager)"
        )


@contextmanager
def reports() -> Iterator[list[Report]]:
    """List the reports of the networks that are built inside."""
    found: list[Report] = []
    original = api.compile_graph

    def compile_graph(*args: Any, **kwargs: Any) -> Any:
        network = original(*args, **kwargs)
        found.append(network.report)
        return network

    api.compile_graph = compile_graph
    try:
        yield found
    finally:
        api.compile_graph = original


def changes() -> None:
    """Change a training network, part by part, and print what is built each time and of what types."""
    (x, y), (other_x, other_y) = next(batches(1)), next(batches(1, 40))
    one_hot = np.eye(10, dtype=np.float32)

    def first(net: LeNet, **options: Any) -> Callable[[], Any]:
        return lambda: training(net, **options)(ms.Tensor(x), ms.Tensor(y))

    rows: dict[str, Callable[[], Any]] = {
        "inference": lambda: LeNet().set_train(False)(ms.Tensor(x)),
        "training, Momentum": first(LeNet()),
        "the same again": first(LeNet()),
        "a dense layer of other width": first(LeNet(middle=100)),
        "a convolution of 5 by 5": first(Wider()),
        "Adam": first(LeNet(), optimizer="Adam"),
        "batches of 40": lambda: training(LeNet())(ms.Tensor(other_x), ms.Tensor(other_y)),
        "the mean squared error": lambda: training(LeNet(), loss=nn.MSELoss())(ms.Tensor(x), ms.Tensor(one_hot[y])),
    }
    reasons = dict[str, str]()
    print("| network | operators | built | seconds | what is built |\n|---|---:|---:|---:|---|")
    for name, build in rows.items():
        with reports() as found:
            start = time.perf_counter()
            build()
            seconds = time.perf_counter() - start
        operators = [each for report in found for each in report.operators]
        new = [each for each in operators if each.status == "built"]
        built = Counter(each.name.rsplit("_", 2)[0] for each in new)
        listed = ", ".join(f"{types} x {count}" if count > 1 else types for types, count in built.most_common(6))
        rest = len(new) - sum(count for _, count in built.most_common(6))
        more = f", {rest} more" if rest else ""
        print(f"| {name} | {len(operators)} | {len(new)} | {seconds:.2f} | {listed}{more} |", flush=True)
        if len(new) < 5:
            reasons.update({f"{name}: {each.name}": each.reason for each in new})
    print("", *(f"{name}: {reason}" for name, reason in reasons.items()), sep="\n")


def main() -> None:
    """Measure what is asked for, with a store of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--inductor", action="store_true", help="also beside Inductor, which needs a C++ compiler")
    parser.add_argument("--changes", action="store_true", help="what is built after each change, instead")
    parser.add_argument("--starts", action="store_true", help="seconds to the first step, cold and warm, instead")
    parser.add_argument("--first", choices=list(TRAININGS), help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    ms.set_context(mode=ms.GRAPH_MODE, runtime_num_threads=given.threads)
    if given.first:
        first_step(given.first)
        return
    with tempfile.TemporaryDirectory(prefix="opbuild-training-") as folder:
        os.environ["MS_COMPILER_CACHE_PATH"] = str(Path(folder))
        if given.starts:
            starts(Path(folder), given.threads)
        elif given.changes:
            os.environ["OPBUILD_PACK"] = "0"  # it has what common networks share
            changes()
        else:
            beside_torch(given.steps, given.inductor)


if __name__ == "__main__":
    main()
