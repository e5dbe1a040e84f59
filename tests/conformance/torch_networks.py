"""Small networks of the usual structures, with random weights: what ``torch_exports.py`` exports whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import nn

from conformance.torch_modules import Kind, floats, whole


class Logits(nn.Module):
    """A language or vision model that returns its first output alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> Any:
        """Return the first output."""
        return self.model(x, return_dict=False)[0]


class Residual(nn.Module):
    """A bottleneck block of a ResNet."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        middle = outside // 4
        self.body = nn.Sequential(
            nn.Conv2d(inside, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, outside, 1, bias=False), nn.BatchNorm2d(outside),
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the short cut."""
        return torch.relu(self.body(x) + self.short(x))


def resnet() -> nn.Module:
    """Return a ResNet of four bottleneck blocks."""
    stem = (nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    blocks = (Residual(16, 32, 1), Residual(32, 64, 2), Residual(64, 64, 1), Residual(64, 128, 2))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


class UNet(nn.Module):
    """Two levels down and up again, with short cuts."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 8), self._block(8, 16), self._block(16, 32)])
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([self._block(32, 16), self._block(16, 8)])
        self.last = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _block(inside: int, outside: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU(),
            nn.Conv2d(outside, outside, 3, padding=1), nn.ReLU(),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a map of classes."""
        kept = []
        for block in self.down[:-1]:
            kept.append(block(x))
            x = nn.functional.max_pool2d(kept[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([up(x), kept.pop()], 1))
        return self.last(x)


class Tagger(nn.Module):
    """A bidirectional LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.lstm = nn.LSTM(16, 24, num_layers=2, bidirectional=True, batch_first=True)
        self.last = nn.Linear(48, 9)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score for each word and tag."""
        return self.last(self.lstm(self.words(x))[0])


def bert() -> nn.Module:
    """Return a small BERT."""
    return Logits(transformers.BertModel(transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)))  # fmt: skip


def gpt2() -> nn.Module:
    """Return a small GPT-2."""
    config = transformers.GPT2Config(vocab_size=100, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False)
    return Logits(transformers.GPT2LMHeadModel(config))


def vit() -> nn.Module:
    """Return a small vision transformer."""
    return Logits(transformers.ViTModel(transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, image_size=32,
        patch_size=8)))  # fmt: skip


def llama() -> nn.Module:
    """Return a small Llama with grouped heads."""
    return Logits(transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, use_cache=False)))  # fmt: skip


def _of(name: str, make: Callable[[], nn.Module], *inputs: Callable[[], torch.Tensor]) -> Kind:
    return Kind(f"net_{name}", make, lambda: tuple(each() for each in inputs))


def _half(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().half()


def words() -> torch.Tensor:
    """Return two rows of words."""
    return whole(100, 2, 9)


def picture() -> torch.Tensor:
    """Return a picture of 64 by 64."""
    return floats(1, 3, 64, 64)


NETWORKS = [
    _of("resnet", resnet, picture),
    _of("resnet_float16", _half(resnet), lambda: picture().half()),
    _of("unet", UNet, picture),
    _of("lstm", Tagger, words),
    _of("bert", bert, words),
    _of("bert_float16", _half(bert), words),
    _of("gpt2", gpt2, words),
    _of("llama", llama, words),
    _of("vit", vit, lambda: floats(1, 3, 32, 32)),
]
