"""The rules: one function an operator of ATen, by the name of its overload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from opbuild.platform.registry import Registry

RULES: Registry[Callable[..., Any]] = Registry(
    "rule",
    f"{__package__}.rules",
    others=("elementwise", "matrix", "movement", "recurrent", "reduction", "window", "backward", "normalization"),
)
"""Rules by namespace and overload, such as ``add.Tensor`` of ``aten``. A rule gets a ``StepBuilder`` and the operator's
arguments: tensors as ``Value``, element types by numpy's names, None for devices, layouts and memory formats. It
returns a ``Value``, or a tuple of those and of None for results that are not computed."""

R = TypeVar("R", bound=Callable[..., Any])


def rule(*overloads: str, domain: str = "aten") -> Callable[[R], R]:
    """Register a rule for some overloads."""

    def register(function: R) -> R:
        RULES.register(*overloads, domain=domain)(function)
        return function

    return register


def rule_of(target: str) -> Callable[..., Any] | None:
    """Return the rule of an overload with its namespace, such as ``aten.add.Tensor``; None if there is none."""
    domain, _, overload = target.partition(".")
    return RULES.get((domain, overload))
