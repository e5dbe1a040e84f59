"""Modules that two processes make alike, and their inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn


class Small(nn.Module):
    """Two layers, and a function that no rule computes; it counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Any, *, bias: Any = None) -> Any:
        """Return a dictionary of results."""
        self.calls.add_(1)
        y = self.second(torch.relu(self.first(x)))
        return {"y": y if bias is None else y + bias, "left": torch.special.bessel_j0(y)}


class Plain(nn.Module):
    """One layer and Relu."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.layer = nn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        """Return one result."""
        return torch.relu(self.layer(x))


def rows(count: int) -> torch.Tensor:
    """Return random rows."""
    return torch.rand(count, 6, generator=torch.Generator().manual_seed(count))


def options(store: Path) -> dict[str, Any]:
    """Return options of a build with one thread."""
    return {"cache_path": str(store), "num_threads": 1}
