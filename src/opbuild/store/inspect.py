"""Looking at an entry without knowing who asks for it: what its files say, and whether they are what was written."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opbuild.files.most_bytes import ENTRY, RECORD
from opbuild.files.trust import PRIVATE, SignatureError, Trust, UntrustedError, parse_json
from opbuild.kernel.entry import MILLISECONDS, SUFFIXES, Entry, check_entry_signature, read_entry
from opbuild.kernel.interfaces import Reason
from opbuild.kernel.key import KEY_FORMAT, Key, key_digest

_QUIETLY = getattr(os, "O_NOATIME", 0)
"""Setting an access time back writes to the disk, for each of 150,000 files; not changing it does not."""


@dataclass(frozen=True)
class Summary:
    """One entry as its records describe it, unchecked.

    Attributes:
        op_types: The operator's types, joined.
        target: The machine that it is for.
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


def read(folder: Path, name: str, trust: Trust = PRIVATE) -> Entry | Reason:
    """Return the entry of a name, checked byte for byte against what its own ``.info`` asks for, or what is wrong.

    Codes of the reason are those of a look-up, and ``other-format`` for an entry of another release of opbuild.
    """
    contents = []
    for suffix in SUFFIXES:
        try:
            contents.append(read_quietly(folder / (name + suffix), ENTRY[suffix], trust))
        except FileNotFoundError:
            return Reason("incomplete", f"{suffix} is missing")
        except UntrustedError as error:
            return Reason("untrusted", f"{suffix} is not used: {error.strerror}")
        except OSError as error:
            code = "damaged" if error.errno == errno.EFBIG else "unreadable"
            return Reason(code, f"{suffix} can not be read: {error.strerror or error}")
    entry = check(name, *contents)
    try:
        if isinstance(entry, Entry):
            check_entry_signature(entry, trust)
    except SignatureError as error:
        return Reason(error.code, str(error))
    return entry


def check(name: str, object_: bytes, info: bytes, record: bytes) -> Entry | Reason:
    """Return the entry that three files' contents make, or what is wrong with them."""
    try:
        asked, came_out = parse_json(info), parse_json(record)
        components = asked["key"]["components"]
        if components["format"] != KEY_FORMAT:
            return Reason("other-format", f"it has the key format {components['format']} of another release")
        key = Key(components, key_digest(components))
        fits = name.rpartition("_")[0] == key.stem
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return Reason("damaged", "a record is not what was written")
    if not fits:
        return Reason("other-key", f"its key belongs to {key.stem}")
    try:
        entry = read_entry(key, name, object_, asked, came_out)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError, RecursionError):
        return Reason("damaged", ".info has no operator's key")
    return Reason("damaged", entry) if isinstance(entry, str) else entry


def read_quietly(path: Path, most: int, trust: Trust = PRIVATE) -> bytes:
    """Return a file's contents without changing its access time, by which ageing knows when it was last used.

    Raises:
        OSError: If it can not be read, has more than ``most`` bytes, or others can write to it.
    """
    before = path.stat()
    try:
        data = trust.read(path, most, _QUIETLY)
    except UntrustedError:
        raise
    except PermissionError:  # another user's file
        data = trust.read(path, most)
    with contextlib.suppress(OSError):
        after = path.stat()
        if after.st_atime_ns != before.st_atime_ns and after.st_mtime_ns == before.st_mtime_ns:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    return data


def _json(path: Path) -> dict[str, Any]:
    try:
        return _mapping(parse_json(read_quietly(path, RECORD)))
    except (OSError, ValueError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
