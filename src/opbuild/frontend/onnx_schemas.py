"""ONNX's schemas of its operators, in the operator sets of all its releases.

A schema never changes once it is released. So those of one release are kept beside this module, and are read in a
millisecond where that release of the onnx package is installed, which takes thirty to make its own. Any other one is
asked, as is the one that is installed for operators that are not in the table: its users may have registered some.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from operator import itemgetter
from typing import Any

from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.platform.sources import release_of

TABLE = Path(__file__).parent / "onnx_schemas.json"


class Schema(NamedTuple):
    """The schema of an operator in an operator set.

    Attributes:
        since: The version of the operator set that brought this schema.
        inputs: How many inputs there are, at least and at most.
        optional: Places of inputs that may be left out.
        outputs: How many outputs there are, at least and at most.
        attributes: The number of each attribute's kind.
        required: The attributes that may not be left out.
        has_function: Whether the operator is defined by others.
    """

    since: int
    inputs: tuple[int, int]
    optional: frozenset[int]
    outputs: tuple[int, int]
    attributes: Mapping[str, int]
    required: frozenset[str]
    has_function: bool


@lru_cache(maxsize=4096)
def schema(op_type: str, version: int, domain: str) -> Schema | None:
    """Return the schema that an operator has in a version of an operator set; None if it has none."""
    known = _table().get(domain, {}).get(op_type, ())
    found = [each for each in known if each[0] <= version]
    if found:
        since, inputs, optional, outputs, attributes, required, has_function = max(found, key=itemgetter(0))
        sets = frozenset(optional), frozenset(required)
        return Schema(since, tuple(inputs), sets[0], tuple(outputs), attributes, sets[1], has_function)
    if known:
        return None
    from onnx import defs

    try:
        return described(defs.get_schema(op_type, version, domain))
    except defs.SchemaError:
        return None


def is_defined(op_type: str, domain: str) -> bool:
    """Return whether onnx defines an operator in some operator set."""
    if _table():
        return op_type in _table().get(domain, {})
    return schema(op_type, newest_of(domain), domain) is not None


def described(found: Any) -> Schema:
    """Return the schema in an ``OpSchema`` of onnx; its enumerations are described nowhere."""
    return Schema(
        found.since_version,
        (found.min_input, found.max_input),
        frozenset(index for index, each in enumerate(found.inputs) if str(each.option.name) == "Optional"),
        (found.min_output, found.max_output),
        {name: int(attribute.type.value) for name, attribute in found.attributes.items()},
        frozenset(name for name, attribute in found.attributes.items() if attribute.required),
        found.has_function or found.has_context_dependent_function,
    )


@cache
def newest_opset() -> int:
    """Return the newest version of ONNX's own operator set that the installed onnx has."""
    if _table():
        return int(_content()["opset"])
    from onnx import defs

    return int(defs.onnx_opset_version())


@cache
def newest_of(domain: str) -> int:
    """Return the newest operator set of a domain that onnx has, 1 if it has none."""
    if known := _table().get(domain):
        return max(int(each[0]) for versions in known.values() for each in versions)
    from onnx import defs

    return max((each.since_version for each in defs.get_all_schemas() if each.domain == domain), default=1)


@cache
def _table() -> Mapping[str, Mapping[str, list[Any]]]:
    """Return the schemas by domain and operator; none if another release of onnx is installed."""
    content = _content()
    schemas: Mapping[str, Mapping[str, list[Any]]] = content["schemas"]
    return schemas if content["release"] == release_of("onnx") else {}


@cache
def _content() -> Mapping[str, Any]:
    content: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return content
