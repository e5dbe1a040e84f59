"""Small modules of torch, with random weights and statistics as trained networks have them."""

from __future__ import annotations

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions beside a shortcut, as ResNet has them."""

    def __init__(self, channels: int, wider: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, wider, 3, stride, 1, bias=False),
            nn.BatchNorm2d(wider),
            nn.ReLU(),
            nn.Conv2d(wider, wider, 3, 1, 1, bias=False),
            nn.BatchNorm2d(wider),
        )
        shortcut = nn.Sequential(nn.Conv2d(channels, wider, 1, stride, bias=False), nn.BatchNorm2d(wider))
        self.shortcut = nn.Identity() if channels == wider and stride == 1 else shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """The stem, two blocks and the head of a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.stem(x))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class Encoder(nn.Module):
    """Tokens, positions and layers of a BERT."""

    def __init__(self, layers: int = 2, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(100, width)
        self.places = nn.Embedding(64, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, 2) for _ in range(layers))

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.norm(self.tokens(tokens) + self.places(places))
        if mask is not None:
            mask = (1.0 - mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x


class Layer(nn.Module):
    """Attention and two products, each with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.parts = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.joined = nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        batch, length, width = x.shape
        heads = (batch, length, self.heads, width // self.heads)
        query, key, value = (part(x).view(heads).transpose(1, 2) for part in self.parts)
        found = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        x = self.first(x + self.joined(found.transpose(1, 2).reshape(batch, length, width)))
        return self.second(x + self.narrow(nn.functional.gelu(self.wide(x))))


def ready(module: nn.Module, seed: int = 1) -> nn.Module:
    """Return a module for inference, with statistics that are not those of an untrained one."""
    generator = torch.Generator().manual_seed(seed)
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d):
            each.running_mean.normal_(generator=generator)
            each.running_var.uniform_(0.5, 2, generator=generator)
    return module.eval()
