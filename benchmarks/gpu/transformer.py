"""How large a transformer is: BERT, unless it is said otherwise. Nothing is loaded that a machine may lack."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How large a transformer is; ``shared`` are the heads of keys, which heads of queries share."""

    layers: int = 12
    hidden: int = 768
    heads: int = 12
    shared: int = 12
    inner: int = 3072
    words: int = 30522
    length: int = 128
