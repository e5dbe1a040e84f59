"""Training through ``torch.compile(backend="opbuild")``, beside eager torch and Inductor.

For each network, model and optimizer's step compiled, the three take turns at the same batches from the same weights.
Printed are the losses of all, which must agree, seconds to the first step, the middle of the processor seconds of a
step, and operators built and left to torch. ``--store`` keeps what is built, so that a second run is a warm start.

    python benchmarks/torch_training.py                 # one thread
    python benchmarks/torch_training.py --steps 50 BERT
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from torch_networks import conv

import opbuild.torch

Batch = tuple[torch.Tensor, torch.Tensor]


class Basic(nn.Module):
    """ResNet-18's block of two convolutions."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False), nn.BatchNorm2d(wider),
        )  # fmt: skip
        shortcut = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))
        self.shortcut = nn.Identity() if channels == wider else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut."""
        return functional.relu(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    """ResNet-50's block of three convolutions."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        inner = wider // 4
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, wider, 1, bias=False), nn.BatchNorm2d(wider),
        )  # fmt: skip
        shortcut = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))
        self.shortcut = nn.Identity() if channels == wider else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(block: Callable[[int, int, int], nn.Module], counts: Sequence[int], width: int) -> nn.Module:
    """Return a ResNet of so many blocks in each stage; ``width`` are the channels that the first stage returns."""
    blocks, channels = list[nn.Module](), 64
    for number, count in enumerate(counts):
        for index in range(count):
            blocks.append(block(channels, width << number, 2 if number and not index else 1))
            channels = width << number
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class Excitation(nn.Module):
    """EfficientNet's weights of channels, from the means of ``few`` sums of them."""

    def __init__(self, channels: int, few: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, few, 1), nn.Conv2d(few, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale the channels."""
        pooled = functional.adaptive_avg_pool2d(x, 1)
        return x * torch.sigmoid(self.up(functional.silu(self.down(pooled))))


class Inverted(nn.Module):
    """The block of MobileNet-v2, and with ``excites`` that of EfficientNet: a depthwise convolution between others."""

    def __init__(self, channels: int, wider: int, out: int, size: int, stride: int, *, act: Any, excites: bool) -> None:
        super().__init__()
        wide = channels * wider
        layers = [conv(channels, wide, 1, act=act)] if wider > 1 else []
        layers += [conv(wide, wide, size, stride, wide, act=act)]
        layers += [Excitation(wide, channels // 4)] if excites else []
        self.body = nn.Sequential(*layers, conv(wide, out, 1, act=None))
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the input where the shapes allow it."""
        return x + self.body(x) if self.adds else self.body(x)


MOBILENET = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3), (6, 96, 3, 1, 3), (6, 160, 3, 2, 3),
    (6, 320, 1, 1, 3),
)  # fmt: skip
EFFICIENTNET = (
    (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)  # fmt: skip
"""How much wider, output channels, blocks, stride and kernel of each stage."""


def inverted(plan: Sequence[tuple[int, int, int, int, int]], *, act: Any, excites: bool) -> nn.Module:
    """Return MobileNet-v2 or EfficientNet-b0."""
    blocks, channels = [conv(3, 32, 3, 2, act=act)], 32
    for wider, out, count, stride, size in plan:
        for index in range(count):
            step = 1 if index else stride
            blocks.append(Inverted(channels, wider, out, size, step, act=act, excites=excites))
            channels = out
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 10))
    return nn.Sequential(*blocks, conv(channels, 1280, 1, act=act), *head)


def digits() -> nn.Module:
    """Return a network for images of digits."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(32 * 144, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


class Bert(nn.Module):
    """A BERT that predicts tokens; a small one, if nothing is said."""

    def __init__(self, width: int = 256, layers: int = 4, tokens: int = 2000, length: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.rand(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, tokens)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a number for each token at each place."""
        found: torch.Tensor = self.head(self.layers(self.tokens(x) + self.places))
        return found


def _images(channels: int, side: int, count: int) -> Batch:
    return torch.rand(count, channels, side, side), torch.randint(0, 10, (count,))


def _tokens(count: int, length: int) -> Batch:
    return torch.randint(0, 2000, (count, length)), torch.randint(0, 2000, (count, length))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Batch], Callable[..., Any]]] = {
    "digits": (digits, lambda: _images(1, 28, 32), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
    "ResNet-18": (
        partial(resnet, Basic, (2, 2, 2, 2), 64),
        lambda: _images(3, 64, 8),
        lambda p: torch.optim.SGD(p, lr=5e-4),
    ),
    "ResNet-50": (
        partial(resnet, Bottleneck, (3, 4, 6, 3), 256),
        lambda: _images(3, 128, 4),
        lambda p: torch.optim.SGD(p, lr=5e-4, momentum=0.9),
    ),
    **{
        f"{name} of {side} by {side}": (
            partial(inverted, plan, act=act, excites=excites),
            partial(_images, 3, side, count),
            lambda p: torch.optim.SGD(p, lr=5e-4, momentum=0.9),
        )
        for name, plan, act, excites in (
            ("MobileNet-v2", MOBILENET, nn.ReLU6, False),
            ("EfficientNet-b0", EFFICIENTNET, nn.SiLU, True),
        )
        for side, count in ((64, 8), (128, 4))
    },
    "BERT": (Bert, lambda: _tokens(8, 64), lambda p: torch.optim.AdamW(p, lr=1e-4)),
    "BERT-base of 2 layers": (
        partial(Bert, 768, 2, 2000, 128, 12),
        lambda: _tokens(4, 128),
        lambda p: torch.optim.AdamW(p, lr=1e-4),
    ),
}


class Run(NamedTuple):
    """One training.

    Attributes:
        step: Takes a batch, returns the loss.
        losses: Of the steps so far.
        seconds: Wall seconds of each step.
        busy: Processor seconds of each step.
    """

    step: Callable[[Batch], float]
    losses: list[float]
    seconds: list[float]
    busy: list[float]


def training(name: str, through: Callable[..., Any]) -> Run:
    """Return a training from given weights, whose functions a function compiles."""
    torch.manual_seed(1)
    make, _, optimizer = NETWORKS[name]
    model = make().train()
    steps = optimizer(model.parameters())

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    fast, update = through(loss), through(steps.step)

    def step(batch: Batch) -> float:
        steps.zero_grad()
        value = fast(*batch)
        value.backward()
        update()
        return float(value.detach())

    return Run(step, [], [], [])


def measure(name: str, runners: dict[str, Callable[..., Any]], count: int) -> None:
    """Train one network by all, in turn, and print what came out."""
    torch.compiler.reset()
    opbuild.torch.reset()
    torch.manual_seed(2)
    batches = [NETWORKS[name][1]() for _ in range(4)]
    runs = {which: training(name, through) for which, through in runners.items()}
    for number in range(count):
        for run in runs.values():
            wall, busy = time.perf_counter(), time.process_time()
            run.losses.append(run.step(batches[number % len(batches)]))
            run.seconds.append(time.perf_counter() - wall)
            run.busy.append(time.process_time() - busy)
    found = opbuild.torch.report()
    print(f"{name}: {found.built} operators built, {found.partitioned.total()} left to torch")
    base = runs["eager"]
    for which, run in runs.items():
        middle, ratio = (
            statistics.median(run.busy[3:]),
            statistics.median(run.busy[3:]) / statistics.median(base.busy[3:]),
        )
        apart = max(abs(a - b) / abs(b) for a, b in zip(run.losses, base.losses, strict=True))
        print(
            f"  {which:9} loss {run.losses[0]:.5f} to {run.losses[-1]:.5f}, at most {apart:.1e} from eager; "
            f"first step {run.seconds[0]:.1f} s, a step {1e3 * middle:.1f} ms of a processor ({ratio:.2f} of eager)"
        )


def main() -> None:
    """Measure the networks that are asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NETWORK")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--store", help="folder of the store (default: one that is removed again)")
    parser.add_argument("--no-inductor", action="store_true", help="leave Inductor out, which needs a C++ compiler")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory(prefix="opbuild-training-") as folder:
        options = {"cache_path": given.store or folder, "num_threads": given.threads}
        runners: dict[str, Callable[..., Any]] = {
            "eager": lambda function: function,
            "opbuild": lambda function: torch.compile(function, backend="opbuild", options=options),
        }
        if not given.no_inductor:
            runners["Inductor"] = torch.compile
        for name in given.networks:
            measure(name, runners, given.steps)


if __name__ == "__main__":
    main()
