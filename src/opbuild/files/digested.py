"""Memory of which a digest was taken in parts: whoever asks for the digest of one of them again need not read it.

Nobody may write to it. What is known of it ends with it: the same place may be other memory then.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

from opbuild.config import available_cores
from opbuild.files.mapping import Array
from opbuild.platform.background import parallel_map
from opbuild.platform.digest import blake3_of

_ALONE = 2**16
"""Bytes of a part from which it is worth handing to a thread."""

_THREADS = 2
"""Threads at most that take digests: what is to be loaded for a model is loaded meanwhile."""

_Place = tuple[int, int]
_known: dict[_Place, tuple[weakref.ref[Array], str]] = {}


def digest_parts(contents: Array, places: Sequence[tuple[int, int]]) -> list[str]:
    """Return the BLAKE3 of parts of memory, and know them from now on.

    Args:
        contents: The memory, ``uint8``; who uses a part of it keeps this array alive.
        places: Beginning and length of each part.
    """
    data, start = contents.data, contents.__array_interface__["data"][0]

    def take(place: tuple[int, int]) -> str:
        begin, size = place
        return blake3_of(data[begin : begin + size])

    large = sorted((place for place in places if place[1] >= _ALONE), key=lambda place: -place[1])
    taken = dict(zip(large, parallel_map(take, large, min(_THREADS, available_cores()), "opbuild-digest"), strict=True))
    digests = [taken.get(place) or take(place) for place in places]
    here = [(start + begin, size) for begin, size in places]
    owner = weakref.ref(contents, lambda gone: _forget(here, gone))
    _known.update({place: (owner, digest) for place, digest in zip(here, digests, strict=True)})
    return digests


def digest_of(array: Array) -> str:
    """Return the BLAKE3 of contiguous ``uint8``, taken now if it is not known."""
    owner, digest = _known.get((array.__array_interface__["data"][0], array.nbytes), (None, ""))
    return digest if owner is not None and owner() is not None else blake3_of(array.data)


def forget(contents: Array) -> None:
    """Drop the digests of memory that somebody may have written to."""
    start = contents.__array_interface__["data"][0]
    for place in [place for place in list(_known) if start <= place[0] < start + contents.nbytes]:
        _known.pop(place, None)


def _forget(places: Sequence[_Place], owner: weakref.ref[Array]) -> None:
    """Drop the digests of memory that is gone, but for places that are known anew."""
    for place in places:
        if _known.get(place, (None,))[0] is owner:
            del _known[place]
