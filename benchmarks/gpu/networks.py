"""Networks as users write them in torch, with random weights: what opbuild and ``torch.compile`` are given alike.

Their weights follow from names and shapes alone, so that whoever has the structure has the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformer import Size

Array = np.ndarray[Any, Any]


class Attention(nn.Module):
    """Scaled dot-product attention of heads, of which some share their keys."""

    def __init__(self, size: Size, *, causal: bool = False, rotary: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.size, self.causal, self.rotary = size, causal, rotary
        width = size.hidden // size.heads
        self.query = nn.Linear(size.hidden, size.hidden, bias=bias)
        self.key, self.value = (nn.Linear(size.hidden, size.shared * width, bias=bias) for _ in range(2))
        self.out = nn.Linear(size.hidden, size.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``[batch, length, hidden]``."""
        query, key, value = (
            each(x).unflatten(-1, (heads, -1)).transpose(1, 2)
            for each, heads in (
                (self.query, self.size.heads), (self.key, self.size.shared), (self.value, self.size.shared)
            )
        )  # fmt: skip
        if self.rotary:
            query, key = _rotated(query), _rotated(key)
        if self.size.shared != self.size.heads:
            key, value = (each.repeat_interleave(self.size.heads // self.size.shared, 1) for each in (key, value))
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.out(seen.transpose(1, 2).flatten(2))


def _rotated(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    places, number = (torch.arange(extent, dtype=torch.float32, device=x.device) for extent in (x.shape[-2], half))
    angles = places[:, None] * 10000.0 ** (-number / half)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), -1)


class Layer(nn.Module):
    """A layer of BERT (norms behind), or of GPT-2 and ViT (norms before)."""

    def __init__(self, size: Size, *, causal: bool = False, before: bool = False) -> None:
        super().__init__()
        self.attention, self.before = Attention(size, causal=causal), before
        self.norm_1, self.norm_2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.up, self.down = nn.Linear(size.hidden, size.inner), nn.Linear(size.inner, size.hidden)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next layer's input."""
        if self.before:
            x = x + self.attention(self.norm_1(x))
            return x + self.down(functional.gelu(self.up(self.norm_2(x))))
        x = self.norm_1(x + self.attention(x))
        return self.norm_2(x + self.down(functional.gelu(self.up(x))))


class RootMeanSquare(nn.Module):
    """Normalization by the root mean square, written out, as exporters want it."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Return values of the same type, computed in float32."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


class LlamaLayer(nn.Module):
    """A layer of Llama."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.attention = Attention(size, causal=True, rotary=True, bias=False)
        self.norm_1, self.norm_2 = (RootMeanSquare(size.hidden) for _ in range(2))
        self.gate, self.up = (nn.Linear(size.hidden, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next layer's input."""
        x = x + self.attention(self.norm_1(x))
        normal = self.norm_2(x)
        return x + self.down(functional.silu(self.gate(normal)) * self.up(normal))


class Text(nn.Module):
    """A transformer of text: what it makes of ``[batch, length]`` tokens."""

    def __init__(self, size: Size, layer: Callable[[Size], nn.Module], *, has_places: bool = True) -> None:
        super().__init__()
        self.words = nn.Embedding(size.words, size.hidden)
        self.places = nn.Embedding(size.length, size.hidden) if has_places else None
        self.layers = nn.ModuleList(layer(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return ``[batch, length, hidden]``."""
        x = self.words(tokens)
        if self.places is not None:
            x = x + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)


class Patches(nn.Module):
    """A vision transformer: classes of ``[batch, 3, 224, 224]``."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, size.hidden, 16, 16)
        self.places = nn.Parameter(torch.zeros(1, size.length, size.hidden))
        self.layers = nn.ModuleList(Layer(size, before=True) for _ in range(size.layers))
        self.norm, self.head = nn.LayerNorm(size.hidden), nn.Linear(size.hidden, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return ``[batch, 1000]``."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


class Bottleneck(nn.Module):
    """A block of ResNet-50, its norms folded into convolutions, as inference has them."""

    def __init__(self, inside: int, width: int, stride: int) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(inside, width, 1), nn.Conv2d(width, width, 3, stride, 1)
        self.three = nn.Conv2d(width, 4 * width, 1)
        changes = stride != 1 or inside != 4 * width
        self.shortcut = nn.Conv2d(inside, 4 * width, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the next block's input."""
        out = self.three(functional.relu(self.two(functional.relu(self.one(x)))))
        return functional.relu(out + (x if self.shortcut is None else self.shortcut(x)))


class ResNet(nn.Module):
    """ResNet-50: classes of ``[batch, 3, 224, 224]``."""

    def __init__(self, blocks: tuple[int, ...] = (3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, 2, 3)
        layers, inside = [], width
        for number, count in enumerate(blocks):
            for block in range(count):
                layers.append(Bottleneck(inside, width << number, 2 if number and not block else 1))
                inside = 4 * width << number
        self.layers, self.head = nn.ModuleList(layers), nn.Linear(inside, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return ``[batch, 1000]``."""
        x = functional.max_pool2d(functional.relu(self.first(images)), 3, 2, 1)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean((2, 3)))


class Inverted(nn.Module):
    """A block of MobileNet-v2, its norms folded into convolutions."""

    def __init__(self, inside: int, wider: int, outside: int, stride: int) -> None:
        super().__init__()
        width = inside * wider
        self.one = nn.Conv2d(inside, width, 1) if wider > 1 else None
        self.two, self.three = nn.Conv2d(width, width, 3, stride, 1, groups=width), nn.Conv2d(width, outside, 1)
        self.is_added = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """Return the next block's input."""
        wide = x if self.one is None else functional.relu6(self.one(x))
        out = self.three(functional.relu6(self.two(wide)))
        return x + out if self.is_added else out


class MobileNet(nn.Module):
    """MobileNet-v2: classes of ``[batch, 3, 224, 224]``.

    Args:
        plan: How much wider blocks are inside, their outputs, how many there are, and the stride of the first.
        last: Channels behind the last of them.
    """

    PLAN = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))

    def __init__(self, plan: Sequence[tuple[int, int, int, int]] = PLAN, last: int = 1280) -> None:
        super().__init__()
        layers, inside = [], 32
        self.first = nn.Conv2d(3, inside, 3, 2, 1)
        for wider, outside, count, stride in plan:
            for block in range(count):
                layers.append(Inverted(inside, wider, outside, 1 if block else stride))
                inside = outside
        self.layers, self.last, self.head = nn.ModuleList(layers), nn.Conv2d(inside, last, 1), nn.Linear(last, 1000)

    def forward(self, images: Tensor) -> Tensor:
        """Return ``[batch, 1000]``."""
        x = functional.relu6(self.first(images))
        for layer in self.layers:
            x = layer(x)
        return self.head(functional.relu6(self.last(x)).mean((2, 3)))


class Chain(nn.Module):
    """One operation several times, each on the result of the one before: then launches and copies do not count.

    Args:
        operation: ``product`` by a square matrix, ``attention`` of heads, or ``rows``: softmax and a norm.
        width: The innermost extent.
    """

    TIMES = 12

    def __init__(self, operation: str, width: int) -> None:
        super().__init__()
        self.operation, self.width = operation, width
        count = self.TIMES if operation == "product" else 0
        self.products = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))
        self.norm = nn.LayerNorm(width) if operation == "rows" else None

    def forward(self, x: Tensor) -> Tensor:
        """Return the means of the last result's outermost parts."""
        for number in range(self.TIMES):
            if self.operation == "product":
                x = self.products[number](x)
            elif self.operation == "attention":
                x = functional.scaled_dot_product_attention(x, x, x)
            elif self.norm is not None:
                x = self.norm(torch.softmax(x, -1))
        return x.flatten(1).mean(1)


@dataclass(frozen=True)
class Network:
    """A network: how it is made, and what it is given for a batch."""

    make: Callable[[], nn.Module]
    feed: Callable[[int], Array]


def _tokens(length: int, words: int) -> Callable[[int], Array]:
    return lambda batch: np.random.default_rng(batch).integers(0, words, (batch, length))


def _values(*shape: int) -> Callable[[int], Array]:
    return lambda batch: np.random.default_rng(batch).standard_normal((batch, *shape), np.float32)


def _images(size: int = 224) -> Callable[[int], Array]:
    return lambda batch: np.random.default_rng(batch).standard_normal((batch, 3, size, size), np.float32)


_GPT, _LLAMA = Size(words=50257), Size(8, 2048, 32, 8, 5632, 32000)
_SMALL = Size(2, 64, 2, 2, 128, 100, 16)

NETWORKS = {
    "BERT": Network(lambda: Text(Size(), Layer), _tokens(128, 30522)),
    "MiniLM": Network(lambda: Text(Size(6, 384, 12, 12, 1536), Layer), _tokens(128, 30522)),
    "GPT-2": Network(lambda: Text(_GPT, lambda size: Layer(size, causal=True, before=True)), _tokens(128, 50257)),
    "Llama": Network(lambda: Text(_LLAMA, LlamaLayer, has_places=False), _tokens(128, 32000)),
    "ViT": Network(lambda: Patches(Size(length=196)), _images()),
    "ResNet-50": Network(ResNet, _images()),
    "MobileNet-v2": Network(MobileNet, _images()),
}
"""By name, at the sizes that are measured."""

CHAINS = {
    **{f"product of {rows}": Network(lambda: Chain("product", 4096), _values(rows, 4096)) for rows in (16, 1024, 8192)},
    "attention of 512": Network(lambda: Chain("attention", 64), _values(96, 512, 64)),
    "attention of 2048": Network(lambda: Chain("attention", 128), _values(64, 2048, 128)),
    "rows of 1024": Network(lambda: Chain("rows", 1024), _values(65536, 1024)),
}
"""Single operations, for a batch of 1."""

SMALL = {
    "BERT": Network(lambda: Text(_SMALL, Layer), _tokens(16, 100)),
    "GPT-2": Network(lambda: Text(_SMALL, lambda size: Layer(size, causal=True, before=True)), _tokens(16, 100)),
    "Llama": Network(lambda: Text(Size(2, 64, 4, 2, 96, 100, 16), LlamaLayer, has_places=False), _tokens(16, 100)),
    "ResNet-50": Network(lambda: ResNet((1, 1), 8), _images(32)),
    "MobileNet-v2": Network(lambda: MobileNet(((1, 16, 1, 1), (2, 16, 2, 2)), 32), _images(32)),
    "product of 16": Network(lambda: Chain("product", 32), _values(16, 32)),
}
"""The same of a size that an interpreter computes."""


BLOCK = 1 << 20


def weights(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[tuple[str, Array]]:
    """Yield float32 weights by their names: scales of norms near 1, all else so small that values keep their size.

    A name's weights are so many random numbers as a block has, over and over: those of large networks are there soon.
    """
    for name, shape in shapes.items():
        size, inside = int(np.prod(shape)), int(np.prod(shape[1:])) or 1
        block = np.random.default_rng(crc32(name.encode())).standard_normal(min(size, BLOCK), np.float32)
        values = np.resize(block * np.float32(1 / np.sqrt(inside) if len(shape) > 1 else 0.02), shape)
        yield name, values + 1 if "norm" in name and name.endswith("weight") else values


def shapes_of(network: Network) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a network's weights by their names."""
    with torch.device("meta"):
        return {name: tuple(each.shape) for name, each in network.make().named_parameters()}


def made(network: Network, dtype: torch.dtype, device: str = "cpu") -> nn.Module:
    """Return a network with its weights, for inference."""
    with torch.device("meta"):
        module = network.make()
    state = {name: torch.from_numpy(values).to(dtype) for name, values in weights(shapes_of(network))}
    module.load_state_dict(state, assign=True)
    return module.eval().requires_grad_(False).to(device)


def fed(network: Network, batch: int, dtype: torch.dtype, device: str = "cpu") -> Tensor:
    """Return an input; floats of the network's type."""
    x = torch.from_numpy(network.feed(batch)).to(device)
    return x.to(dtype) if x.is_floating_point() else x


DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def selected(names: Sequence[str], *, small: bool) -> dict[str, Network]:
    """Return the networks of some names, or all."""
    networks = SMALL if small else {**NETWORKS, **CHAINS}
    return {name: each for name, each in networks.items() if not names or name in names}


def file_name(name: str, dtype: str) -> str:
    """Return the name of a network's file, without its suffix."""
    return f"{name.replace(' ', '_')}-{dtype}"


def write_weights(network: Network, dtype: str, path: Path) -> None:
    """Write the weights of a network in the order in which its file names them."""
    with path.open("wb") as file:
        for _, values in weights(shapes_of(network)):
            stored = torch.from_numpy(values).to(DTYPES[dtype])
            file.write(stored.reshape(-1).view(torch.uint8).numpy().tobytes())
