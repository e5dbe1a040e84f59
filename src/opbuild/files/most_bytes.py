"""How many bytes a file of each kind can have: whoever reads one looks first, so that a huge one costs nothing.

A file that grew (a sparse one takes no disk) would otherwise be read for minutes, or not fit into memory, at every
build. The limits lie far above what is written, and nothing larger is written.
"""

from __future__ import annotations

OBJECT = 64 * 2**20
"""An operator's object; they have some tens of kilobytes."""

RECORD = 16 * 2**20
"""An operator's ``.info`` or ``.json``; the source of a user's operator is in them."""

NETWORK = 256 * 2**20
"""The record of a stored network; some hundred bytes for each operator."""

MEMO = 16 * 2**20
"""What is only remembered: of models, files, weights and the compiler."""

LISTING = 256 * 2**20
"""The list of a bundle's files."""

ENTRY = {".o": OBJECT, ".info": RECORD, ".json": RECORD}
"""The files of an entry."""
