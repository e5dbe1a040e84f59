"""The rules: one function an operator of ATen, by the name of its overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

RULES: dict[str, Callable[..., Any]] = {}
"""Rules by overload, such as ``aten.add.Tensor``. A rule gets a ``Writing`` and the operator's arguments: tensors as
``Value``, element types by numpy's names, None for devices, layouts and memory formats. It returns a ``Value``, or a
tuple of those and of None for results that are not computed."""

R = TypeVar("R", bound=Callable[..., Any])


def rule(*overloads: str) -> Callable[[R], R]:
    """Register a rule for some overloads, named without ``aten.``, or with ``prims.``."""

    def register(function: R) -> R:
        for overload in overloads:
            name = overload if overload.startswith("prims.") else f"aten.{overload}"
            if name in RULES:
                raise ValueError(f"{name} has two rules")
            RULES[name] = function
        return function

    return register
