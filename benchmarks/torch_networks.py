"""Networks of torch with random weights, in a small size and in the one that people use; nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional


class Network(NamedTuple):
    """A network to measure.

    Attributes:
        module: The module, ready for inference.
        args: What it is called with, by the number of a size: 0 is the first, 1 another one.
        onnx: Whether the exporter to ONNX, the one that needs no further package, writes it.
    """

    module: nn.Module
    args: Callable[[int], tuple[Any, ...]]
    onnx: bool = True


# -- images ------------------------------------------------------------------------------------------------------------


def conv(channels: int, wider: int, size: int, stride: int = 1, groups: int = 1, act: Any = nn.ReLU) -> nn.Sequential:
    """Return a convolution with batch normalization and an activation."""
    layers = [nn.Conv2d(channels, wider, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(wider)]
    return nn.Sequential(*layers, *([act(inplace=True)] if act is not None else []))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wider = 4 * width
        self.body = nn.Sequential(
            conv(channels, width, 1), conv(width, width, 3, stride), conv(width, wider, 1, act=None)
        )
        same = channels == wider and stride == 1
        self.shortcut = nn.Identity() if same else conv(channels, wider, 1, stride, act=None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the shortcut."""
        return functional.relu(self.body(x) + self.shortcut(x))


def resnet(layers: tuple[int, ...], width: int) -> nn.Module:
    """Return a ResNet of bottlenecks."""
    blocks: list[nn.Module] = [conv(3, width, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = width
    for number, count in enumerate(layers):
        for index in range(count):
            blocks.append(Bottleneck(channels, width << number, 2 if number and not index else 1))
            channels = 4 * (width << number)
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


class Excitation(nn.Module):
    """MobileNet's weights of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, channels // 4, 1), nn.Conv2d(channels // 4, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scale the channels."""
        pooled = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.up(functional.relu(self.down(pooled))))


class Inverted(nn.Module):
    """MobileNet-v3's block."""

    def __init__(self, channels: int, wide: int, out: int, size: int, stride: int, excites: bool, act: Any) -> None:
        super().__init__()
        layers: list[nn.Module] = [conv(channels, wide, 1, act=act), conv(wide, wide, size, stride, wide, act=act)]
        layers += [Excitation(wide)] if excites else []
        self.body = nn.Sequential(*layers, conv(wide, out, 1, act=None))
        self.adds = stride == 1 and channels == out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the input where the shapes allow it."""
        return x + self.body(x) if self.adds else self.body(x)


_MOBILE = (
    (16, 16, 3, 1, False, nn.ReLU), (64, 24, 3, 2, False, nn.ReLU), (72, 24, 3, 1, False, nn.ReLU),
    (72, 40, 5, 2, True, nn.ReLU), (120, 40, 5, 1, True, nn.ReLU), (120, 40, 5, 1, True, nn.ReLU),
    (240, 80, 3, 2, False, nn.Hardswish), (200, 80, 3, 1, False, nn.Hardswish), (184, 80, 3, 1, False, nn.Hardswish),
    (480, 112, 3, 1, True, nn.Hardswish), (672, 112, 3, 1, True, nn.Hardswish), (672, 160, 5, 2, True, nn.Hardswish),
    (960, 160, 5, 1, True, nn.Hardswish),
)  # fmt: skip


def mobilenet(count: int) -> nn.Module:
    """Return the first blocks of MobileNet-v3 (large), and its head."""
    blocks: list[nn.Module] = [conv(3, 16, 3, 2, act=nn.Hardswish)]
    channels = 16
    for wide, out, size, stride, excites, act in _MOBILE[:count]:
        blocks.append(Inverted(channels, wide, out, size, stride, excites, act))
        channels = out
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6 * channels, 1280), nn.Hardswish())
    return nn.Sequential(
        *blocks, conv(channels, 6 * channels, 1, act=nn.Hardswish), *head, nn.Dropout(), nn.Linear(1280, 1000)
    )


class ConvNextBlock(nn.Module):
    """A depthwise convolution and two products with channels last."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width, 1, 1), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the scaled result."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.narrow(functional.gelu(self.wide(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


class ChannelNorm(nn.Module):
    """Layer normalization of the channels of images."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalize with channels last."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(layers: tuple[int, ...], widths: tuple[int, ...]) -> nn.Module:
    """Return a ConvNeXt."""
    blocks: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), ChannelNorm(widths[0])]
    for number, (count, width) in enumerate(zip(layers, widths, strict=True)):
        if number:
            blocks += [ChannelNorm(widths[number - 1]), nn.Conv2d(widths[number - 1], width, 2, 2)]
        blocks += [ConvNextBlock(width) for _ in range(count)]
    return nn.Sequential(
        *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 1000)
    )


class UNet(nn.Module):
    """Down and up again, with what was there on the way down beside it."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        widths = [width << number for number in range(depth)]
        pairs = list(zip([3, *widths], widths, strict=False))
        self.down = nn.ModuleList(nn.Sequential(conv(a, b, 3), conv(b, b, 3)) for a, b in pairs)
        backwards = list(zip(reversed(widths[1:]), reversed(widths[:-1]), strict=True))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in backwards)
        self.up = nn.ModuleList(nn.Sequential(conv(a, b, 3), conv(b, b, 3)) for a, b in backwards)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two classes a pixel."""
        kept = []
        for number, layer in enumerate(self.down):
            x = layer(x if not number else functional.max_pool2d(x, 2))
            kept.append(x)
        for grow, layer, beside in zip(self.grow, self.up, reversed(kept[:-1]), strict=True):
            x = layer(torch.cat([beside, grow(x)], 1))
        return self.head(x)


class Diffusion(nn.Module):
    """A block of a diffusion model's U-Net: a residual block with a time, attention, and twice the size."""

    def __init__(self, width: int, wider: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, width), nn.GroupNorm(8, wider)
        self.one, self.two = nn.Conv2d(width, wider, 3, padding=1), nn.Conv2d(wider, wider, 3, padding=1)
        self.time, self.shortcut = nn.Linear(width, wider), nn.Conv2d(width, wider, 1)
        self.norm, self.parts, self.joined = (
            nn.GroupNorm(8, wider),
            nn.Linear(wider, 3 * wider),
            nn.Linear(wider, wider),
        )
        self.larger = nn.Conv2d(wider, wider, 3, padding=1)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        y = self.one(functional.silu(self.first(x))) + self.time(functional.silu(time))[:, :, None, None]
        x = self.shortcut(x) + self.two(functional.silu(self.second(y)))
        batch, width, height, across = x.shape
        parts = self.parts(self.norm(x).flatten(2).transpose(1, 2)).view(batch, -1, 3, 4, width // 4)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        found = functional.scaled_dot_product_attention(query, key, value)
        joined = self.joined(found.transpose(1, 2).reshape(batch, -1, width))
        x = x + joined.transpose(1, 2).reshape(batch, width, height, across)
        return self.larger(functional.interpolate(x, scale_factor=2.0, mode="nearest"))


class Tagger(nn.Module):
    """Tokens, a bidirectional LSTM of two layers, and a class for each token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        self.recurrent = nn.LSTM(width, width, 2, batch_first=True, bidirectional=True)
        self.classes = nn.Linear(2 * width, 17)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the classes."""
        return self.classes(self.recurrent(self.tokens(tokens))[0])


# -- transformers ------------------------------------------------------------------------------------------------------


class First(nn.Module):
    """A module of transformers, of whose results the first is returned."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        """Return the first result."""
        return self.module(*args, return_dict=False)[0]


class WithCache(nn.Module):
    """A model of language that continues a text: keys and values of what came before are in a cache."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, tokens: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits of the next token, and what is to be kept."""
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(keys.shape[0]):
            cache.update(keys[layer], values[layer], layer)
        found = self.module(tokens, past_key_values=cache, use_cache=True)
        return found.logits, torch.stack([each.keys for each in cache.layers])


def _transformer(name: str, full: bool) -> Network:
    import transformers

    width, layers, heads = (768, 12, 12) if full else (64, 2, 4)
    sizes = {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads}
    lengths = (128, 160) if full else (20, 28)

    def tokens(size: int) -> tuple[torch.Tensor, ...]:
        return (torch.randint(0, 90, (1, lengths[size])),)

    if name == "BERT":
        config = transformers.BertConfig(**sizes, intermediate_size=4 * width, vocab_size=1000)
        model = transformers.BertModel(config)
        return Network(First(model), lambda size: (*tokens(size), torch.ones(1, lengths[size], dtype=torch.int64)))
    if name == "ViT":
        image = 224 if full else 64
        model = transformers.ViTModel(transformers.ViTConfig(**sizes, intermediate_size=4 * width, image_size=image))
        return Network(First(model), lambda size: (torch.rand(1 + size, 3, image, image),))
    if name == "GPT-2":
        config = transformers.GPT2Config(n_embd=width, n_layer=layers, n_head=heads, vocab_size=1000)
        return Network(First(transformers.GPT2LMHeadModel(config)), tokens, onnx=False)
    config = transformers.LlamaConfig(
        **sizes, intermediate_size=3 * width, vocab_size=1000, num_key_value_heads=heads // 2
    )
    shape = (layers, 1, heads // 2)

    def step(size: int) -> tuple[torch.Tensor, ...]:
        past = (torch.rand(*shape, lengths[size], width // heads) for _ in range(2))
        return (torch.randint(0, 90, (1, 1)), *past)

    return Network(WithCache(transformers.LlamaForCausalLM(config)), step, onnx=False)


def _image(module: nn.Module, side: int, other: int) -> Network:
    return Network(module, lambda size: (torch.rand(1, 3, *((other if size else side,) * 2)),))


def _diffusion(full: bool) -> Network:
    width, side = (320, 32) if full else (16, 8)

    def args(size: int) -> tuple[torch.Tensor, ...]:
        return torch.rand(1, width, side + 8 * size, side), torch.rand(1, width)

    return Network(Diffusion(width, 2 * width), args)


_NETWORKS: dict[str, Callable[[bool], Network]] = {
    "ResNet-50": lambda full: (
        _image(resnet((3, 4, 6, 3), 64), 224, 256) if full else _image(resnet((1, 1), 16), 64, 96)
    ),
    "MobileNet-v3": lambda full: _image(mobilenet(13 if full else 5), *((224, 256) if full else (64, 96))),
    "ConvNeXt": lambda full: (
        _image(convnext((3, 3, 9, 3), (96, 192, 384, 768)), 224, 256)
        if full
        else _image(convnext((1, 1), (16, 32)), 64, 96)
    ),
    "U-Net": lambda full: _image(UNet(64, 4), 128, 160) if full else _image(UNet(8, 2), 32, 48),
    "BERT": lambda full: _transformer("BERT", full),
    "ViT": lambda full: _transformer("ViT", full),
    "GPT-2": lambda full: _transformer("GPT-2", full),
    "Llama with a cache": lambda full: _transformer("Llama", full),
    "LSTM tagger": lambda full: Network(
        Tagger(256 if full else 32), lambda size: (torch.randint(0, 90, (1, 40 + 9 * size)),), onnx=False
    ),
    "diffusion block": _diffusion,
}

NAMES = tuple(_NETWORKS)


def make(name: str, *, full: bool = False) -> Network:
    """Return a network with weights and statistics that are the same in each process."""
    torch.manual_seed(7)
    network = _NETWORKS[name](full)
    for each in network.module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.running_mean.normal_(std=0.1)
            each.running_var.uniform_(0.5, 2)
    network.module.eval()
    return network
