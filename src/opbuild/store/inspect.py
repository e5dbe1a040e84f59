"""Looking at an entry without knowing who asks for it: the content of its files, and whether they are unchanged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.files.trust import ENTRY, RECORD, SignatureError, parse_json
from opbuild.kernel.entry import MILLISECONDS, SUFFIXES, Entry, check_entry_signature, read_entry
from opbuild.kernel.key import KEY_FORMAT, Key, key_digest
from opbuild.kernel.reason import Reason
from opbuild.platform.records import dataclass
from opbuild.store.blobs import ABSENT, Blobs, LocalBlobs
from opbuild.store.items import REFUSED, reason_of


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


def summarize(blobs: Blobs, name: str) -> Summary:
    """Return a summary of an entry's records; fields that cannot be read are left empty."""
    info, record = _json(blobs, f"{name}.info"), _json(blobs, f"{name}.json")
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


def read(blobs: LocalBlobs, name: str, key: Key | None = None) -> Entry | Reason:
    """Return the entry of a name, checked byte for byte, or its problem.

    Args:
        blobs: Where it lies.
        name: The entry's name.
        key: What it must be the entry of; None: what its own ``.info`` asks for.
    """
    contents: dict[str, bytes] = {}
    for suffix in reversed(SUFFIXES):  # the commit mark first
        data = blobs.get(name + suffix, ENTRY[suffix])
        if isinstance(data, Reason):
            is_absent = data.code == ABSENT
            return _beside(blobs, name, suffix) if is_absent else data._replace(text=data.text.replace(name, "", 1))
        contents[suffix] = bytes(data)
    entry = check(name, contents, key)
    if isinstance(entry, Entry):
        try:
            check_entry_signature(entry, blobs.trust)
        except SignatureError as error:
            return reason_of(error)
    return entry


def check(name: str, contents: Mapping[str, bytes], key: Key | None = None) -> Entry | Reason:
    """Return the entry that the contents of three files, by suffix, make, or its problem.

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


def _beside(blobs: LocalBlobs, name: str, missing: str) -> Reason:
    present = [suffix for suffix in SUFFIXES if blobs.has(name + suffix)]
    if not present:
        return Reason(ABSENT, "not in the store")
    return Reason("incomplete", f"{missing} is missing beside {' and '.join(present)}")


def _json(blobs: Blobs, name: str) -> dict[str, Any]:
    data = blobs.get(name, RECORD)
    try:
        return {} if isinstance(data, Reason) else _mapping(parse_json(bytes(data)))
    except ValueError:
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
