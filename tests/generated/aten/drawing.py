"""What calls of ATen's operators are drawn from: tensors with special numbers, shapes, and the makers of calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
NUMBERS = (*FLOATS, *INTEGERS)
ANY = (*NUMBERS, torch.bool)

SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 1.0, -1.0)
"""Numbers that rules treat apart, and the halves at which they round."""

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Draw(random.Random):
    """Draws what calls are made of."""

    def some(self, part: float = 0.5) -> bool:
        """Return whether something that happens in a part of the cases does."""
        return self.random() < part

    def shape(self, least: int = 0, most: int = 4, empty: float = 0.04) -> tuple[int, ...]:
        """Return a small shape; now and then an extent is 0."""
        found = [self.choice((1, 2, 3, 5, 7)) for _ in range(self.randint(least, most))]
        if found and self.some(empty):
            found[self.randrange(len(found))] = 0
        return tuple(found)

    def beside(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return a shape that broadcasts with another."""
        own = [1 if self.some(0.2) else extent for extent in shape]
        return tuple(own[self.randint(0, len(own)) if self.some(0.3) else 0 :])

    def tensor(
        self, shape: Sequence[int], dtype: torch.dtype = torch.float32, special: float = 0.2, spread: float = 3.0
    ) -> torch.Tensor:
        """Return random numbers, some of them special; integers stay small, but a few are the type's extremes."""
        made = torch.Generator().manual_seed(self.getrandbits(40))
        numbers = torch.randn(tuple(shape), generator=made, dtype=torch.float64) * spread
        if dtype is torch.bool:
            return numbers > 0
        chosen = torch.rand(tuple(shape), generator=made) < (special if self.some(0.7) else 0)
        kinds: Sequence[float] = SPECIAL
        if not dtype.is_floating_point:
            limits = torch.iinfo(dtype)
            numbers = numbers.round().clamp(limits.min, limits.max).to(dtype)
            kinds = (limits.min, limits.max, 0, 1)
            picks = torch.tensor(kinds, dtype=dtype)
        else:
            picks = torch.tensor(kinds, dtype=dtype)
            numbers = numbers.to(dtype)
        places = torch.randint(len(kinds), tuple(shape), generator=made)
        return self.laid_out(torch.where(chosen, picks[places], numbers))

    def plain(self, shape: Sequence[int], dtype: torch.dtype = torch.float32, spread: float = 1.0) -> torch.Tensor:
        """Return random numbers, none of them special."""
        return self.tensor(shape, dtype, 0.0, spread)

    def laid_out(self, value: torch.Tensor) -> torch.Tensor:
        """Return a tensor in another order of memory, now and then, or with gaps."""
        if value.dim() == 4 and self.some(0.2):
            return value.to(memory_format=torch.channels_last)
        if value.dim() > 1 and self.some(0.1):
            return value.transpose(0, 1).contiguous().transpose(0, 1)
        return value.repeat_interleave(2, -1)[..., ::2] if value.dim() and self.some(0.1) else value

    def indices(self, shape: Sequence[int], extent: int, negative: bool = True) -> torch.Tensor:
        """Return indices of a dimension, from the end too where they may be."""
        low = -extent if negative and self.some(0.4) else 0
        made = torch.Generator().manual_seed(self.getrandbits(40))
        return torch.randint(low, max(extent, 1), tuple(shape), generator=made)

    def axis(self, rank: int) -> int:
        """Return a dimension, counted from the front or from the end."""
        return self.randrange(-rank, rank) if rank else self.choice((0, -1))

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Return some dimensions."""
        found = self.sample(range(rank), self.randint(min(least, rank), rank))
        return [axis - rank if self.some(0.3) else axis for axis in found]

    def number(self) -> Any:
        """Return one of Python's numbers."""
        return self.choice((2, -1, 0, 1, 3, 0.5, -1.5, 0.0, 2.5, True, float("inf"), float("nan")))

    def whole(self) -> Any:
        """Return one of Python's integers."""
        return self.choice((1, 2, -1, 3, 0, -3, 7, True))

    def one_of(self, dtypes: Sequence[torch.dtype]) -> torch.dtype:
        """Return an element type."""
        return self.choice(dtypes)

    def flag(self) -> bool:
        """Return a truth value."""
        return self.some()


Make = Callable[[Draw], Call]

MAKERS: dict[str, Make] = {}
"""What draws a call of an operator, by the overload's name as ``RULES`` has it."""


def calls(*overloads: str) -> Callable[[Make], Make]:
    """Register what draws the calls of some overloads, named without ``aten.``."""

    def register(make: Make) -> Make:
        for overload in overloads:
            MAKERS[overload if overload.startswith("prims.") else f"aten.{overload}"] = make
        return make

    return register
