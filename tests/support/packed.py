"""Objects of pack files, as tests ask for them."""

from __future__ import annotations

from opbuild.kernel.key import Key
from opbuild.store.pack import PackFile


def object_in(file: PackFile, key: Key) -> bytes | None:
    """Return the bytes of an object of a pack file; None if it has none.

    Raises:
        ValueError: If it is damaged.
    """
    found = file.artifact(key)
    return None if found is None else found.data
