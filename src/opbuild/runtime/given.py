"""What a call is given: the arguments point at the caller's arrays, and the host backend has those, while it lasts."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from opbuild.graph.types import Array
from opbuild.runtime.buffers import address_of

Uses = tuple[int, Sequence[tuple[int, int]]]
"""The buffer of one of the caller's arrays, and which words of the arguments point how many bytes into it."""


class Given:
    """The caller's arrays among what one call at a time runs on.

    Args:
        headers: The arguments of kernels.
        uses: Of each of the caller's arrays, inputs first.
        arrays: What the host backend finds each buffer in.
        on_host: The buffers that it reads or writes.
    """

    def __init__(
        self, headers: Array, uses: Sequence[Uses], arrays: list[Array | None], on_host: Collection[int]
    ) -> None:
        self._words = headers.view(np.uint64).data  # to write a word takes half the time that numpy takes
        self._pointers = [(place, *each) for place, (_, own) in enumerate(uses) for each in own]
        self._arrays = arrays
        self._on_host = [(place, buffer) for place, (buffer, _) in enumerate(uses) if buffer in on_host]

    def attach(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
        """Point the arguments at the caller's arrays."""
        arrays, words = (*inputs, *outputs), self._words
        for place, word, offset in self._pointers:
            words[word] = address_of(arrays[place]) + offset
        for place, buffer in self._on_host:
            self._arrays[buffer] = arrays[place]

    def detach(self) -> None:
        """Let go of the caller's arrays."""
        for _, buffer in self._on_host:
            self._arrays[buffer] = None
