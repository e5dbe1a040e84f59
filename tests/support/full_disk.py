"""A disk that is really full: a file system of a few bytes, which only the program in it sees."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.processes import environment

_MOUNT = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


def python_on_a_small_disk(
    arguments: Sequence[str], folder: Path, size: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with a file system of a size in a folder; what is written there is gone afterwards."""
    unshare = [str(shutil.which("unshare")), "--user", "--map-root-user", "--mount", "sh", "-c"]
    folder.mkdir(exist_ok=True)
    try:
        subprocess.run([*unshare, _MOUNT, "sh", size, folder, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    return subprocess.run(
        [*unshare, _MOUNT, "sh", size, folder, sys.executable, *arguments],
        env=environment(**variables), capture_output=True, text=True, check=False,
    )  # fmt: skip
