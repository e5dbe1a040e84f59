"""The pack and training: what torch hands over of the networks that its structures name needs no kernel besides."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from opbuild.graph.types import Graph  # noqa: E402
from opbuild.kernel.opdesc import OpDesc  # noqa: E402
from opbuild.lowering.lower import lower  # noqa: E402
from opbuild.pipeline import steps  # noqa: E402
from opbuild.store.pack import PACKS, Pack, PackFile  # noqa: E402
from opbuild.target.host import host_level  # noqa: E402
from opbuild.target.level import BY_NAME  # noqa: E402
from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import report, reset  # noqa: E402
from support.until import until_built_behind  # noqa: E402

training = pytest.importorskip("torch_training", reason="the benchmarks are not there")

LEVELS = sorted(path.name for path in PACKS.iterdir() if path.is_dir())

SGD = partial(torch.optim.SGD, lr=1e-3)
MOMENTUM = partial(SGD, momentum=0.9, weight_decay=1e-4)
ADAM, ADAMW = partial(torch.optim.Adam, lr=1e-4), partial(torch.optim.AdamW, lr=1e-4)


class Layer(nn.Module):
    """A layer of a BERT whose queries, keys and values are three products."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """Return the layer's result."""
        q, k, v = (each(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for each in self.parts[:3])
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)
        x = self.norms[0](self.parts[3](mixed.reshape(x.shape)) + x)
        return self.norms[1](self.narrow(functional.gelu(self.wide(x))) + x)


class Apart(nn.Module):
    """A small BERT of such layers, whose padding is masked or not."""

    def __init__(self, masked: bool, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.masked = masked
        self.tokens, self.places, self.norm = nn.Embedding(100, width), nn.Embedding(64, width), nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(2))
        self.head = nn.Linear(width, 100)
        self.register_buffer("numbers", torch.arange(64)[None])

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return a number for each token at each place."""
        batch, seq = ids.shape
        mask = (ids != 0)[:, None, None, :].expand(batch, 1, seq, seq) if self.masked else None
        x = self.norm(self.tokens(ids) + self.places(self.numbers[:, :seq]))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def lenet() -> nn.Module:
    """Return LeNet."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip


def images(channels: int, side: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random images and their classes."""
    return torch.rand(count, channels, side, side), torch.randint(0, 10, (count,))


def tokens(count: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random tokens, and others to be predicted."""
    return torch.randint(0, 100, (count, length)), torch.randint(0, 100, (count, length))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], Callable[..., Any]]] = {
    "two convolutions": (training.digits, lambda: images(1, 28, 32), MOMENTUM),
    "LeNet": (lenet, lambda: images(1, 28, 64), ADAM),
    "ResNet-18": (partial(training.resnet, training.Basic, (2,) * 4, 64), lambda: images(3, 64, 8), SGD),
    "ResNet-50": (
        partial(training.resnet, training.Bottleneck, (2,) * 4, 256),  # further blocks bring no kernels
        lambda: images(3, 64, 4),
        partial(SGD, momentum=0.9),
    ),
    "BERT": (partial(training.Bert, 256, 2, 100, 32, 4), lambda: tokens(4, 32), ADAMW),
    "BERT, three products": (partial(Apart, False), lambda: tokens(4, 32), ADAM),
    "BERT, three products, masked": (partial(Apart, True), lambda: tokens(4, 32), ADAMW),
}


@pytest.fixture
def lowered(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """What is lowered from now on."""
    found: list[Graph] = []
    original = steps.lower_tuned

    def lower_tuned(graph: Graph, setup: Any) -> Any:
        found.append(graph)
        return original(graph, setup)

    monkeypatch.setattr(steps, "lower_tuned", lower_tuned)
    return found


@cache
def packed(level: str) -> set[OpDesc]:
    """Return the kernels of a level's pack."""
    pack = Pack(level)
    files = [file for family in pack.families() if isinstance(file := pack.file(family), PackFile)]
    return {OpDesc.from_components(each) for file in files for each in file.descriptors()}


@pytest.mark.slow
@pytest.mark.skipif(host_level().name not in LEVELS, reason=f"there is no pack for {host_level()}")
@pytest.mark.usefixtures("with_pack")
@pytest.mark.parametrize("name", NETWORKS)
def test_first_steps_of_training_compile_nothing(name: str, lowered: list[Graph], tmp_path: Path) -> None:
    """Two steps of each network and optimizer, from an empty store: all is in the pack, and in that of each level."""
    torch.compiler.reset()
    reset()
    make, batch, optimizer = NETWORKS[name]
    model = make().train()
    update = optimizer(model.parameters())

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    options = {"cache_path": tmp_path, "num_threads": 1}
    fast, step = (torch.compile(each, backend=backend, options=options) for each in (loss, update.step))
    for _ in range(2):
        update.zero_grad()
        fast(*batch()).backward()
        step()
    until_built_behind()
    assert report().built == 0
    assert not list(tmp_path.rglob("*.o"))
    assert len(lowered) >= 3
    for level in LEVELS:
        needed = {desc for graph in lowered for desc in lower(graph, BY_NAME[level]).descriptors()}
        assert not needed - packed(level), level
