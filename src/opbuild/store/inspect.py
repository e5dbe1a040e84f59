"""Looking at an entry without knowing who asks for it: what its files say, and whether they are what was written."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from opbuild.files.trust import ENTRY, PRIVATE, RECORD, SignatureError, Trust, parse_json
from opbuild.kernel.entry import MILLISECONDS, SUFFIXES, Entry, check_entry_signature, read_entry
from opbuild.kernel.key import KEY_FORMAT, Key, key_digest
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store.items import REFUSED, read_quietly, reason_of


@dataclass(frozen=True)
class Summary:
    """One entry as its records describe it, unchecked.

    Attributes:
        op_types: The operator's types, joined.
        target: The level that it is for.
        variant: How it is computed.
        milliseconds: How long compiling took.
        components: The key's components.
        node: The node that first asked for it.
    """

    op_types: str
    target: str
    variant: str
    milliseconds: float
    components: dict[str, Any]
    node: str

    @property
    def is_of_another_release(self) -> bool:
        """Whether a release of opbuild stored it whose keys mean something else, so that no build finds it."""
        return bool(self.components) and self.components.get("format") != KEY_FORMAT


def summarize(folder: Path, name: str) -> Summary:
    """Return what an entry's records say; what can not be read is left empty."""
    info, record = _json(folder / f"{name}.info"), _json(folder / f"{name}.json")
    components = _mapping(_mapping(info.get("key")).get("components"))
    types, milliseconds = components.get("op_types"), record.get(MILLISECONDS)
    return Summary(
        op_types=" ".join(map(str, types)) if isinstance(types, list) else "",
        target=str(components.get("target", "")),
        variant=" ".join(f"{key}={value}" for key, value in _mapping(components.get("variant")).items()),
        milliseconds=float(milliseconds) if isinstance(milliseconds, (int, float)) else 0.0,
        components=components,
        node=str(_mapping(info.get("op_info")).get("full_name", "")),
    )


ReadFile = Callable[[Path, int], bytes]
"""Returns the contents of a file, which can have so many bytes at most."""


def read(
    folder: Path, name: str, trust: Trust = PRIVATE, *, key: Key | None = None, read_file: ReadFile | None = None
) -> Entry | Reason:
    """Return the entry of a name, checked byte for byte, or what is wrong with it.

    Args:
        folder: Where its files are.
        name: The entry's name.
        trust: Whose files are believed.
        key: What it must be the entry of; None: what its own ``.info`` asks for.
        read_file: Reads a file; default without changing the time of its last use.
    """
    contents: dict[str, bytes] = {}
    for suffix in reversed(SUFFIXES):  # the commit mark first
        try:
            path = folder / (name + suffix)
            contents[suffix] = read_file(path, ENTRY[suffix]) if read_file else read_quietly(path, ENTRY[suffix], trust)
        except OSError as error:
            reason = reason_of(error, suffix)
            return _beside(folder, name, suffix) if reason.code == "incomplete" else reason
    entry = check(name, contents, key)
    if isinstance(entry, Entry):
        try:
            check_entry_signature(entry, trust)
        except SignatureError as error:
            return reason_of(error)
    return entry


def check(name: str, contents: Mapping[str, bytes], key: Key | None = None) -> Entry | Reason:
    """Return the entry that the contents of three files, by suffix, make, or what is wrong with them.

    Codes of the reason are those of a look-up, and ``other-format`` for an entry of another release of opbuild.
    """
    try:
        object_, info, record = (contents[suffix] for suffix in SUFFIXES)
        asked, came_out = parse_json(info), parse_json(record)
        if key is None:
            components = asked["key"]["components"]
            if components["format"] != KEY_FORMAT:
                return Reason("other-format", f"it has the key format {components['format']} of another release")
            key = Key(components, key_digest(components))
            if name.rpartition("_")[0] != key.stem:
                return Reason("other-key", f"its key belongs to {key.stem}")
        return read_entry(key, name, object_, asked, came_out)
    except REFUSED:
        return Reason("damaged", "a record is not what was written")


def _beside(folder: Path, name: str, missing: str) -> Reason:
    present = [suffix for suffix in SUFFIXES if os.path.lexists(folder / (name + suffix))]
    if not present:
        return Reason("absent", "not in the store")
    return Reason("incomplete", f"{missing} is missing beside {' and '.join(present)}")


def _json(path: Path) -> dict[str, Any]:
    try:
        return _mapping(parse_json(read_quietly(path, RECORD)))
    except (OSError, ValueError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
