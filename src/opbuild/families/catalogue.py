"""Which kernel families there are: every folder on this package's path is one. Nothing is listed by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from opbuild import families
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from opbuild.families.family import Dims, Family
    from opbuild.kernel.opdesc import OpDesc


def names() -> tuple[str, ...]:
    """Return the names of all families, sorted."""
    return _names(tuple(families.__path__))


@cache
def _names(folders: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted({path.parent.name for folder in folders for path in Path(folder).glob("*/__init__.py")}))


@cache
def find(name: str) -> Family:
    """Return the record of a family; one that knows nothing if there is none of this name: the runtime library's."""
    from opbuild.families.family import Family

    if name not in names():
        return Family(name, choose=dict)
    found: Family = import_module(f"opbuild.families.{name}.family").FAMILY
    return found


def with_implied(components: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a key's components with the attributes that its family implies, to compare it with others."""
    family, attrs = components.get("family"), components.get("attrs")
    implied = find(family).implied if isinstance(family, str) else {}
    return {**components, "attrs": {**implied, **attrs}} if implied and isinstance(attrs, Mapping) else components


def with_rank(desc: OpDesc, dims: Sequence[Dims]) -> Sequence[Dims]:
    """Return operands with dimensions of one element outside, where the kernel has more dimensions."""
    if not find(desc.family).any_rank:
        return dims
    rank = len(desc.outputs[0].dims)
    return [(*each, *((1, 0),) * (rank - len(each))) for each in dims]
