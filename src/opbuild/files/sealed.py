"""Sealed files: JSON that carries the digest of its own content and name, and if there is a key a signature of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.files.trust import PRIVATE, Trust, parse_json
from opbuild.platform.digest import blake3_of_parts
from opbuild.text.canonical import canonical_json

_HEAD, _MIDDLE, _TAIL = b'{"blake3":"', b'","content":', b"}\n"
_SIGNATURE, _SIGNED_TAIL = b',"signature":"', b'"}\n'
_DIGITS = 64


def seal(content: Mapping[str, Any], name: str, trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a sealed file.

    Args:
        content: What to store.
        name: The file's name: what is sound under one name is not under another, whose content it is not.
        trust: What it is signed with.
    """
    return seal_text(canonical_json(dict(content)).encode(), name, trust)


def seal_text(body: bytes, name: str, trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a sealed file, for a content that is JSON's text already."""
    digest = _digest(name, body)
    return _HEAD + digest.encode() + _MIDDLE + body + _end(trust.sign("sealed", name, digest))


def unseal(data: bytes, name: str, trust: Trust = PRIVATE) -> Any:
    """Return the content that ``seal`` wrote into the file of this name.

    Raises:
        SignatureError: If there is a key, and it is not signed with it under this name.
        ValueError: If it is damaged, or was written under another name.
    """
    start, end, signature = len(_HEAD) + _DIGITS + len(_MIDDLE), -len(_TAIL), ""
    if data.endswith(_SIGNED_TAIL):  # a content is an object, and ends with another sign
        digits = len(data) - len(_SIGNED_TAIL) - _DIGITS
        end, signature = digits - len(_SIGNATURE), data[digits : digits + _DIGITS].decode(errors="replace")
    body = data[start:end]
    digest = _digest(name, body) if data.startswith(_HEAD) else ""
    if data[:start] != _HEAD + digest.encode() + _MIDDLE or data[end:] != _end(signature):
        raise ValueError("its record is damaged, or was written for another file")
    trust.check_signature(signature, "sealed", name, digest)
    return parse_json(body)


def _digest(name: str, body: bytes) -> str:
    return blake3_of_parts([name.encode(errors="surrogateescape"), b"\n", body])


def _end(signature: str) -> bytes:
    return _SIGNATURE + signature.encode(errors="replace") + _SIGNED_TAIL if signature else _TAIL
