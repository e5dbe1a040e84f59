"""The debugging of operators in a build: splits the compiler's answer, names and describes the files."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opbuild.kernel.entry import Entry, record_bytes
from opbuild.kernel.key import Key

_STAGE = re.compile(r"^\s*(?:produce|consume) (\S+) ?\{")


def split_answer(header: Mapping[str, Any], payload: bytes) -> dict[str, bytes]:
    """Return the files of an answer by suffix: the object, and those of debugging."""
    files, begin = {}, 0
    for suffix, size in header["files"]:
        files[suffix] = payload[begin : begin + size]
        begin += size
    return files


def debug_files(
    entry: Entry, key: Key, nodes: Sequence[str], options: Collection[str], files: Mapping[str, bytes]
) -> list[tuple[str, bytes]]:
    """Return the names and contents of the files kept of one operator; the JSON record comes last.

    Args:
        entry: The operator.
        key: Its key.
        nodes: The model's nodes that it computes.
        options: What was asked for.
        files: What the compiler delivered, by suffix.
    """
    kept = {suffix: content for suffix, content in files.items() if suffix != ".o"}
    if "dump_loc" in options:
        kept["_loc.json"] = record_bytes(_location(entry, key, nodes, files.get(".stmt", b"")))
    if "dump_bin" in options:
        kept |= {".o": entry.object, ".json": record_bytes(entry.record)}
    return [(entry.name + suffix, content) for suffix, content in kept.items()]


def _location(entry: Entry, key: Key, nodes: Sequence[str], statements: bytes) -> dict[str, Any]:
    """Return the map from a kernel to the model: its nodes, its computation, the place of each stage in ``.stmt``."""
    stages: dict[str, list[int]] = {}
    for number, line in enumerate(statements.decode(errors="replace").splitlines(), 1):
        if found := _STAGE.match(line):
            stages.setdefault(found[1], []).append(number)
    return {
        "kernelName": entry.symbol,
        "nodes": list(nodes),
        "op_types": key.components["op_types"],
        "family": key.components["family"],
        "arguments": entry.record["arguments"],
        "stages": stages,
    }
