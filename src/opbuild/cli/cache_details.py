"""What ``opbuild cache show`` says of one operator or network."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from opbuild.cli.echoing import echo
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import counted, size

if TYPE_CHECKING:
    from opbuild.cache.folder import Cache, Description
    from opbuild.store.items import Item

_LISTED = ("operators", "key")
"""Fields whose parts are lines of their own."""


def details_of(cache: Cache, item: Item) -> dict[str, Any]:
    """Return what there is to say of an item, as ``--json`` shows it."""
    from opbuild.cache.folder import folder_of, problem_of
    from opbuild.store.inspect import summarize

    problem = problem_of(item, cache.trust)
    details: dict[str, Any] = {
        "name": item.name,
        "state": "sound" if problem is None else problem.text,
        "files": [Path(file).name for file in item.files if Path(file).exists()],
        "bytes": item.nbytes,
        "last use": datetime.fromtimestamp(item.last_use, timezone.utc).isoformat(timespec="seconds"),
    }
    if item.kind == "operator":
        summary = summarize(folder_of(item), item.name)
        return details | {"asked by": summary.node, "compile ms": summary.milliseconds, "key": summary.components}
    described = cache.describe(item)
    return details if isinstance(described, Reason) else details | _of_network(described)


def _of_network(network: Description) -> dict[str, Any]:
    def ports(each: Any) -> list[dict[str, Any]]:
        return [{"name": name, "dtype": type_.dtype, "shape": list(type_.shape)} for name, type_ in each]

    return {
        "network": network.network,
        "target": network.target,
        "inputs": ports(network.inputs),
        "outputs": ports(network.outputs),
        "weights": {"count": len(network.weights), "bytes": sum(network.weights.values())},
        "host": dict(network.host),
        "operators": {name: list(nodes) for name, nodes in network.operators},
    }


def print_details(details: dict[str, Any]) -> None:
    """Print what ``details_of`` returned, a line a field; of a key and of operators a line a part."""
    for field, value in details.items():
        if field not in _LISTED:
            lines = _lines(field, value)
            echo("\n".join(f"{'' if number else field:<14} {line}" for number, line in enumerate(lines)))
            continue
        if field == "operators":
            echo(f"{field:<14} {len(value)}")
        width = max(map(len, value), default=0)
        for part, content in value.items():
            echo(f"  {part:<{width}}  {_nodes(content) if field == 'operators' else _plain(content)}".rstrip())


def _lines(field: str, value: Any) -> list[str]:
    if field == "bytes":
        return [f"{value} ({size(value)})"]
    if field in ("inputs", "outputs"):
        return [f"{port['name']}  {port['dtype']}[{','.join(map(str, port['shape']))}]" for port in value] or ["none"]
    if field == "weights":
        return [f"{counted(value['count'], 'packed weight')}, {size(value['bytes'])}"]
    if field == "host":
        return [", ".join(f"{count} x {name}" for name, count in value.items()) or "nothing"]
    return value if field == "files" else [_plain(value)]


def _nodes(names: list[str]) -> str:
    """Return the nodes that an operator computes: the first, and how many more."""
    return "" if not names else names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else canonical_json(value)
