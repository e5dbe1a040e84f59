"""The functions that a descriptor's source text defines, for user-defined operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import halide as hl

from opbuild.errors import CompileError
from opbuild.graph.user_operators import SEPARATOR


def functions(source: str) -> dict[str, Any]:
    """Execute the source of user-defined operators and return its functions.

    The source comes from ``kernel.user_operators``, which took it from the user's own module in this process or in
    the one that asked for the build; ``hl``, ``math`` and ``np`` are in scope.

    Raises:
        CompileError: If the source cannot be executed.
    """
    import numpy as np  # takes a third of the server's start, and no other operator needs it

    scope: dict[str, Any] = {"hl": hl, "math": math, "np": np, "__name__": "opbuild_user_operator"}
    try:
        exec(compile(source, "<user-defined operator>", "exec"), scope)  # noqa: S102 - the user's own code, as text
    except Exception as error:
        raise CompileError(f"the source of a user-defined operator fails: {type(error).__name__}: {error}") from error
    return scope


def elementwise_functions(source: str) -> Mapping[str, Callable[..., Any]]:
    """Return the elementwise operators by the names that expressions use; they are in ``OPERATORS`` of the source."""
    found: dict[str, Callable[..., Any]] = {}
    for part in source.split(SEPARATOR) if source else ():
        found.update(functions(part)["OPERATORS"])
    return found
