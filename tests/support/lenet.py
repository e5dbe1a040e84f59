"""LeNet in MindSpore's style and in torch, with the same weights, and made digits to train it on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import opbuild.mindspore as ms
from opbuild.mindspore import nn

from torch.nn import functional as F  # isort: skip

BATCH = 16


class LeNet(nn.Cell):
    """Two convolutions, a batch normalization, and two dense layers, for images of 8 by 8."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 6, 3, pad_mode="pad", padding=1)  # a bias would have no gradient but noise
        self.norm = nn.BatchNorm2d(6)
        self.second = nn.Conv2d(6, 12, 3, pad_mode="valid", has_bias=True)
        self.pool = nn.MaxPool2d(2, 2)
        self.third = nn.Dense(12, 20)
        self.last = nn.Dense(20, 10)

    def construct(self, x: Any) -> Any:
        """Return ten logits an image."""
        x = self.pool(ms.ops.relu(self.norm(self.first(x))))
        x = self.pool(ms.ops.relu(self.second(x)))
        return self.last(ms.ops.relu(self.third(x.reshape(x.shape[0], -1))))


class TorchLeNet(torch.nn.Module):
    """The same, with the weights of one."""

    def __init__(self, net: LeNet) -> None:
        super().__init__()
        self.first, self.norm = torch.nn.Conv2d(1, 6, 3, padding=1, bias=False), torch.nn.BatchNorm2d(6)
        self.second = torch.nn.Conv2d(6, 12, 3)
        self.third, self.last = torch.nn.Linear(12, 20), torch.nn.Linear(20, 10)
        with torch.no_grad():
            for name in ("first", "second", "third", "last"):
                own, given = getattr(self, name), getattr(net, name)
                own.weight.copy_(torch.tensor(given.weight.asnumpy()))
                if own.bias is not None:
                    own.bias.copy_(torch.tensor(given.bias.asnumpy()))

    def forward(self, x: Any) -> Any:
        """Return ten logits an image."""
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = F.max_pool2d(F.relu(self.second(x)), 2)
        return self.last(F.relu(self.third(x.flatten(1))))


def pair() -> tuple[LeNet, TorchLeNet]:
    """Return both, in training."""
    ms.set_seed(1)
    net = LeNet()
    net.set_train()
    return net, TorchLeNet(net)


def batch(step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the images of one step, each with a bright bar in the row that its class names, and their classes."""
    random = np.random.default_rng(step)
    labels = random.integers(0, 8, BATCH)
    images = random.standard_normal((BATCH, 1, 8, 8)).astype(np.float32) * np.float32(0.3)
    images[np.arange(BATCH), 0, labels] += 1.5
    return images, labels.astype(np.int32)


def torch_losses(net: TorchLeNet, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
    """Return torch's losses."""
    losses = []
    for step in range(steps):
        images, labels = map(torch.tensor, batch(step))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels.long())
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def losses(step: nn.Cell, steps: int) -> list[float]:
    """Return ours, of a ``TrainOneStepCell``."""
    return [float(step(*map(ms.Tensor, batch(number))).asnumpy()) for number in range(steps)]
