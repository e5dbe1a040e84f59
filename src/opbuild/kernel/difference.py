"""Difference: how one key differs from another, in the words in which people think of it.

What was changed is named, not what follows from it: attributes and element types come before the schedule's variant,
and the variant before the limits of the dimensions, which follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.platform.digest import blake3_of
from opbuild.text.canonical import canonical_json

_OTHER_FAMILY = 8
"""How far apart two kernel families are, in fields: what they compile is written in different files."""

_NO_COMPONENTS = (ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What comparing raises where a file holds other JSON than components of a key."""

_FAR = 10**6


def fields(components: Mapping[str, Any]) -> Mapping[str, str] | None:
    """Return a key's fields as canonical JSON, to measure its distance from many others; None if it is no key."""
    try:
        return {name: canonical_json(value) for name, value in _fields(components).items()}
    except _NO_COMPONENTS:
        return None


def distance(one: Mapping[str, str] | None, other: Mapping[str, str] | None) -> int:
    """Return the number of ``fields`` in which two keys differ; a level, a compiler and a source count as one each."""
    if one is None or other is None:
        return _FAR
    differing = (name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    return sum(_OTHER_FAMILY if name == "family" else 1 for name in differing)


def first_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """Return the first field in which a key differs from an older one, with both values; None if it does not.

    Args:
        old: Components of the older key.
        new: Components of the newer one; its values stand right of the arrow.
    """
    try:
        return _first_change(old, new)
    except _NO_COMPONENTS:
        return "key of an operator -> what is none"


def _first_change(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    whole = canonical_json(old), canonical_json(new)
    if whole[0] == whole[1]:  # so it is for every entry that is found
        return None
    before, after = _fields(old), _fields(new)
    names = [*after, *(name for name in before if name not in after)]
    changed = [name for name in names if not _equal(before, after, name)]
    if not changed:
        return f"key {_short(whole[0])} -> {_short(whole[1])}"
    name = min(changed, key=_rank)
    show = _SPECIAL.get(name)
    if show is not None:
        return show(old, new)
    return f"{_spelled(name)} {_shown(before.get(name))} -> {_shown(after.get(name))}"


def _fields(components: Mapping[str, Any]) -> dict[str, Any]:
    return dict(_flat("", components))


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value and path != "compiler":
        for name, item in value.items():
            yield from _flat(f"{path}.{name}".lstrip("."), item)
    elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            yield from _flat(f"{path}[{index}]", item)
    else:
        yield path, value


def _equal(one: Mapping[str, Any], other: Mapping[str, Any], name: str) -> bool:
    return name in one and name in other and canonical_json(one[name]) == canonical_json(other[name])


_ORDER = (
    "op_types",
    "attrs",
    ".dtype",
    "impl_mode",
    "source",
    "target",
    "compiler",
    "sources",
    "format",
    "family",
    "variant",
)


def _rank(name: str) -> int:
    for rank, part in enumerate(_ORDER):
        if name == part or name.startswith(f"{part}.") or (part == ".dtype" and name.endswith(part)):
            return rank
    return len(_ORDER)


def _spelled(name: str) -> str:
    return f"variant {name.removeprefix('variant.')}" if name.startswith("variant.") else name


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= 80 else f"{text[:60]}... [{_short(text)}]"


def _short(text: str) -> str:
    return blake3_of(text.encode())[:8]


def _compiler(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    before, after = old.get("compiler") or {}, new.get("compiler") or {}
    if (before.get("name"), before.get("version")) != (after.get("name"), after.get("version")):
        tail = f"{after.get('name')} {after.get('version')}"
        name = f"{before.get('name')} {before.get('version')}"
        same = before.get("name") == after.get("name")
        return f"compiler {name} -> {after.get('version') if same else tail}"
    digests = (str(before.get("digest"))[:8], str(after.get("digest"))[:8])
    return f"compiler {after.get('name')} {after.get('version')}, its bytes {digests[0]} -> {digests[1]}"


def _sources(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return f"source of {_first_type(new)} {str(old.get('sources'))[:8]} -> {str(new.get('sources'))[:8]}"


def _own_source(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    return f"source of {_first_type(new)} {_short(str(old.get('source')))} -> {_short(str(new.get('source')))}"


def _first_type(components: Mapping[str, Any]) -> str:
    types: Sequence[str] = components.get("op_types") or ["the operator"]
    return types[0]


_SPECIAL: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], str]] = {
    "compiler": _compiler,
    "sources": _sources,
    "source": _own_source,
}
