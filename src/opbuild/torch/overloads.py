"""Overloads by their names: which operators of torch a stored graph may call.

A file names what is called. Nothing that it names is looked up as an attribute before torch's dispatcher has confirmed
that there is such an operator, in one of the namespaces that count; what changes its arguments in place, or takes a
text that names something outside (a file), is refused, because no graph that is saved has it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch

from opbuild.errors import InvalidModelError

TORCHS = frozenset(("aten", "prims"))
"""Namespaces of torch's own operators, which every stored graph may call."""

_NAME = re.compile(r"([a-zA-Z]\w{0,99})\.(\w{1,199})\.([a-zA-Z]\w{0,99})", re.ASCII)
"""A namespace, an operator and its overload."""

_OUTSIDE = frozenset(("filename", "s"))
"""Texts that name a file (``from_file``), or are printed (``_print``); all others of torch's choose a mode."""

_CHECKS = frozenset(
    (
        "_assert_async",
        "_assert_scalar",
        "_assert_tensor_metadata",
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    )
)
"""Operators that have no result, and fail where something is not as it was when the module was saved."""


def overload(target: str, namespaces: Collection[str] | None = TORCHS) -> Any:
    """Return the overload that a text names, such as ``aten.add.Tensor``.

    Args:
        target: The text, whoever wrote it.
        namespaces: Where operators count; None: all that are registered in this process.

    Raises:
        InvalidModelError: If it names none that a stored graph may call.
    """
    parts = _NAME.fullmatch(target)
    if parts is None:
        raise InvalidModelError(f"{target!r:.200} is no name of an operator", "save the module again")
    space, name, kind = parts.groups()
    if namespaces is not None and space not in namespaces:
        hint = f"give namespaces=[{space!r}] if you trust the file and what registers these operators"
        raise InvalidModelError(f"it calls {target}, and only operators of {_listed(namespaces)} count", hint)
    if not _is_registered(f"{space}::{name}", "" if kind == "default" else kind):
        raise InvalidModelError(f"torch has no operator {target!r}", "import what registers it")
    found = getattr(getattr(getattr(torch.ops, space), name), kind)  # which is registered, so these are no others
    if not isinstance(found, torch._ops.OpOverload):
        raise InvalidModelError(f"{target!r} is no operator", "save the module again")
    if found._schema.is_mutable or (space in TORCHS and _reaches_outside(name, found._schema)):
        raise InvalidModelError(f"{target!r} does more than to compute a result", "save the module again")
    return found


def _is_registered(name: str, kind: str) -> bool:
    """Return whether the dispatcher has an operator; those of TorchScript alone, as ``aten::save``, do not count."""
    try:
        torch._C._dispatch_find_schema_or_throw(name, kind)
    except RuntimeError:
        return False
    return True


def _reaches_outside(name: str, schema: Any) -> bool:
    return (not schema.returns and name not in _CHECKS) or any(
        each.name in _OUTSIDE and str(each.type) == "str" for each in schema.arguments
    )


def _listed(namespaces: Collection[str]) -> str:
    return ", ".join(sorted(namespaces))
