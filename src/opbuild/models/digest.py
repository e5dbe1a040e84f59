"""The digest of a model: of the message without its large tensors, and of each of these.

A tensor's digest says later what its weights were packed to, so every byte is digested once.
"""

from __future__ import annotations

from opbuild.files.mapping import Array
from opbuild.platform.digest import blake3_of
from opbuild.platform.records import NamedTuple
from opbuild.text.canonical import canonical_json

FORM = 3
"""How digests are taken. A cache remembers them: when this code gives a model another one, this is counted up."""


class Digested(NamedTuple):
    """The digest of a serialised model, and the message that remains of it without its large tensors."""

    digest: str
    message: bytes


def digest_model(contents: Array) -> Digested:
    """Return the digest of a serialised model, ``uint8``; those of its large tensors are known while it is there."""
    from opbuild.files.held import digest_parts  # a start from what is remembered never needs them
    from opbuild.frontend.wire import without_large_tensors

    message, places = without_large_tensors(contents.data)
    tensors = [[*place, digest] for place, digest in zip(places, digest_parts(contents, places), strict=True)]
    return Digested(blake3_of(canonical_json([blake3_of(message), tensors]).encode()), message)
