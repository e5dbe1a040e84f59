"""Trees: how arguments and results are nested, as JSON of opbuild's own, whose reading imports and calls nothing.

    null                             a leaf
    {"list": [TREE, ...]}            and "tuple"
    {"dict": [[KEY, TREE], ...]}     and "ordered"
    {"class": [NAME, FIELDS, [TREE, ...]]}

A class counts if this process has registered it with torch's pytrees under that name, as transformers does with its
outputs; fields are what it is told of its own. Torch's form of trees, whose reading imports what it names, is not read.
"""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils import _pytree as pytree

from opbuild.errors import UnsupportedOperatorError

_LEAF = pytree.tree_structure(0)
_SEQUENCES: Mapping[str, Any] = {"list": list, "tuple": tuple}
_MAPPINGS: Mapping[str, Any] = {"dict": dict, "ordered": OrderedDict}
_NAMES = {kind: name for name, kind in (*_SEQUENCES.items(), *_MAPPINGS.items())}
_KEYS = (str, int, type(None))
_DEEPEST = 100


def tree_of(spec: Any) -> Any:
    """Return a structure as JSON.

    Raises:
        UnsupportedOperatorError: If it has what there is no form for.
    """
    tree = None if spec.is_leaf() else _tree(spec)
    try:
        is_same = spec_of(tree) == spec
    except ValueError:
        is_same = False
    if not is_same:
        raise _unsupported(spec.type)
    return tree


def _tree(spec: Any) -> Any:
    if spec.is_leaf():
        return None
    below = spec.children() if hasattr(spec, "children") else spec.children_specs  # torch 2.9 has these
    children, name = [_tree(each) for each in below], _NAMES.get(spec.type)
    if name in _SEQUENCES:
        return {name: children}
    if name in _MAPPINGS:
        return {name: [[key, each] for key, each in zip(spec.context, children, strict=True)]}
    kind = spec.context if spec.type is namedtuple else spec.type
    known = [name for name, each in _registered().items() if each is kind]
    if not known:
        raise _unsupported(kind)
    return {"class": [known[0], None if spec.type is namedtuple else spec.context, children]}


def spec_of(tree: Any, depth: int = 0) -> Any:
    """Return the structure that ``tree_of`` wrote.

    Raises:
        ValueError: If it is something else, or of a class that this process does not know.
    """
    if tree is None:
        return _LEAF
    if depth > _DEEPEST or not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError(f"this is no tree: {tree!r:.200}")
    ((name, found),) = tree.items()
    if not isinstance(found, list):
        raise ValueError(f"this is no tree: {tree!r:.200}")
    if name in _SEQUENCES:
        return _spec(_SEQUENCES[name], None, found, depth)
    if name in _MAPPINGS and all(
        isinstance(each, list) and len(each) == 2 and isinstance(each[0], _KEYS) for each in found
    ):
        keys = [key for key, _ in found]
        if len(set(keys)) == len(keys):
            return _spec(_MAPPINGS[name], keys, [each for _, each in found], depth)
    if name == "class" and len(found) == 3 and isinstance(found[2], list) and _is_fields(found[1]):
        name, fields, children = found
        return _class_spec(name, fields, children, depth)
    raise ValueError(f"this is no tree: {tree!r:.200}")


def _class_spec(name: Any, fields: Any, children: list[Any], depth: int) -> Any:
    kind = _registered().get(name) if isinstance(name, str) else None
    if kind is None:
        raise ValueError(f"this process knows no class {name!r:.200}: import what defines it first")
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        if fields is not None or len(children) != len(kind._fields):
            raise ValueError(f"{name!r:.200} has other fields")
        return _spec(namedtuple, kind, children, depth)
    return _spec(kind, fields, children, depth)


def _spec(kind: Any, context: Any, children: list[Any], depth: int) -> Any:
    make: Callable[..., Any] = pytree.TreeSpec
    return make(kind, context, [spec_of(each, depth + 1) for each in children])


def _registered() -> dict[str, type]:
    """Return the classes of this process by name whose trees have no reader of their own, which might run anything."""
    found = {}
    for name, kind in pytree.SERIALIZED_TYPE_TO_PYTHON_TYPE.items():
        reader = pytree.SUPPORTED_SERIALIZED_TYPES[kind].from_dumpable_context if isinstance(kind, type) else True
        if reader is None or (isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")):
            found[name] = kind
    return found


def _is_fields(fields: Any, depth: int = 0) -> bool:
    """Return whether these are texts and numbers in lists: the fields of a class."""
    if isinstance(fields, list) and depth < 2:
        return all(_is_fields(each, depth + 1) for each in fields)
    return isinstance(fields, _KEYS)


def _unsupported(kind: Any) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"arguments or results with {getattr(kind, '__name__', kind)} cannot be saved",
        "take and give tensors, lists, tuples, dictionaries, or classes that torch.utils._pytree knows by name; or "
        "use torch.compile for this model",
    )
