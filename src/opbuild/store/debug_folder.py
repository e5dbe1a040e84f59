"""The folder of debugging: files for people, which no build reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from opbuild.files.private import sweep
from opbuild.store.publish import publish_files


class DebugFolder:
    """Files in one folder. Threads and processes may share it.

    Args:
        folder: Created when the first file is written.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._swept = False

    def write(self, files: Sequence[tuple[str, bytes]]) -> str | None:
        """Write files, each whole or not at all; return None, or why the storage refused."""
        if not self._swept:
            sweep(self.folder)
            self._swept = True
        try:
            publish_files(self.folder, files)
        except OSError as error:
            return f"{self.folder}: {error.strerror or error}"
        return None
