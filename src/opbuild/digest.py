"""Digests: SHA-256 for what users compare, BLAKE3 for what only opbuild reads, because it is several times faster."""

from __future__ import annotations

from os import PathLike

from blake3 import blake3


def sha256(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 hexadecimal digits."""
    import hashlib  # loads OpenSSL, which a network that is already built never needs

    return hashlib.sha256(data).hexdigest()


def fast(data: bytes | memoryview) -> str:
    """Return the BLAKE3 digest of ``data`` as 64 hexadecimal digits."""
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update(data)
    return hasher.hexdigest()


def fast_file(path: str | PathLike[str]) -> str:
    """Return the BLAKE3 digest of a file, mapped rather than read.

    Raises:
        OSError: If the file can not be read.
    """
    hasher = blake3(max_threads=blake3.AUTO)
    hasher.update_mmap(path)
    return hasher.hexdigest()
