"""A candidate: an architecture with a small configuration, as a module with inputs that exporters can trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

LARGEST = 60_000_000
"""Parameters that a structure has at most: its kernels are those of the small ones."""


@dataclass(frozen=True)
class Traced:
    """What exporters are given.

    Attributes:
        module: The module, called with the inputs in order; it returns a tuple of tensors.
        inputs: By name, in order.
        open_axes: Names of extents that may differ from call to call, by input and axis.
    """

    module: nn.Module
    inputs: Mapping[str, torch.Tensor]
    open_axes: Mapping[str, Mapping[int, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """One architecture, or one part of it.

    Attributes:
        name: ``<library>/<architecture>/<part>``.
        family: One of ``kernels.drawn.FAMILIES``.
        make: Returns it with random weights.
    """

    name: str
    family: str
    make: Callable[[], Traced]


class Wrapped(nn.Module):
    """A module that takes tensors and returns a tuple of tensors, whatever the one within takes and returns.

    Args:
        module: The module.
        call: Calls the module with the tensors.
    """

    def __init__(self, module: nn.Module, call: Callable[..., Any] = nn.Module.__call__) -> None:
        super().__init__()
        self.module, self.call = module, call

    def forward(self, *values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the tensors."""
        return tuple(tensors(self.call(self.module, *values)))


def by_name(module: nn.Module, inputs: Mapping[str, torch.Tensor], **fixed: Any) -> Wrapped:
    """Return a module that is called with its inputs in order, and passes them on by name with what is fixed."""
    names = tuple(inputs)
    return Wrapped(module, lambda inner, *values: inner(**dict(zip(names, values, strict=True)), **fixed))


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested tuples, lists, dictionaries and outputs."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from tensors(each)


def checked_size(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a module ready for inference; it is made without memory first, to be refused where it is too large."""
    with torch.device("meta"):
        count = sum(each.numel() for each in make().parameters())
    if count > LARGEST:
        raise ValueError(f"{count:,} parameters in its smallest configuration")
    return make().eval().requires_grad_(requires_grad=False)
