"""One operator as bytes: a line of JSON with name and sizes, then the entry's three files."""

from __future__ import annotations

import json

from opbuild.files.trust import ENTRY, parse_json
from opbuild.kernel.entry import SUFFIXES, Entry
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.store.inspect import check
from opbuild.store.items import REFUSED


def packed(entry: Entry) -> bytes:
    """Return an entry as bytes."""
    contents = [content for _, content in entry.files()]
    head = json.dumps({"name": entry.name, "sizes": [len(content) for content in contents]})
    return b"".join([head.encode(), b"\n", *contents])


def unpacked(body: bytes, stem: str, key: Key | None = None) -> Entry | Reason:
    """Return an entry, checked byte for byte, or its problem.

    Args:
        body: What ``packed`` returned.
        stem: The entry's name without device.
        key: What it must be the entry of; None: what its own ``.info`` asks for.
    """
    try:
        name, files = _split(body)
    except REFUSED:
        return Reason("damaged", "it is no operator")
    if name.rpartition("_")[0] != stem:
        return Reason("other-key", f"it is {name[:100]}")
    return check(name, files, key)


def _split(body: bytes) -> tuple[str, dict[str, bytes]]:
    """Return an entry's name and its files by suffix.

    Raises:
        ValueError: If it is none; or ``KeyError``, ``TypeError``.
    """
    head, _, rest = body.partition(b"\n")
    said = parse_json(head)
    name, sizes = str(said["name"]), [int(size) for size in said["sizes"]]
    files, start = {}, 0
    for suffix, size in zip(SUFFIXES, sizes, strict=True):
        if not 0 <= size <= ENTRY[suffix]:
            raise ValueError(f"{suffix} has {size} bytes")
        files[suffix] = rest[start : start + size]
        start += size
    if start != len(rest):
        raise ValueError("the sizes are not those of the files")
    return name, files
