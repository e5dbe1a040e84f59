"""What torch writes out in simpler operators before the rules see it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch._decomp import core_aten_decompositions

from opbuild.frontend.torch.registry import RULES
from opbuild.frontend.torch.rules import load_rules


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the core decompositions, but of operators that have a rule of their own."""
    load_rules()
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for overload in list(table):
        if isinstance(overload, torch._ops.OpOverload) and str(overload) in RULES:
            del table[overload]
    return table
