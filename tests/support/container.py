"""A container's surroundings: one folder, read-only, as the image, volumes in it, a user of its own and no home.

The root is read-only, ``/tmp`` too unless it is a volume, and ``/dev/shm`` has the 64 MB that container engines give
it. The network is this machine's, and so are the processes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

USER = 10001

_ENTER = """set -e
folder=$1 user=$2 mounts=$3; shift 3
mount --make-rprivate /
mount --bind "$folder" /mnt
mount -t tmpfs -o mode=1777 none /tmp
mkdir -p "$folder"
mount --move /mnt "$folder"
mount -t tmpfs -o size=64m,mode=1777 none /dev/shm
eval "$mounts"
mount -o remount,bind,ro "$folder"
[ -e /tmp/writable ] || mount -o remount,ro /tmp
mount -o remount,bind,ro /
cd "$folder"
exec setpriv --reuid="$user" --regid="$user" --clear-groups --inh-caps=-all,+dac_read_search \
  --ambient-caps=+dac_read_search --bounding-set=-all,+dac_read_search env -u HOME -u TMPDIR -u XDG_CACHE_HOME "$@"
"""
"""The user keeps root's way through folders: the interpreter may be in one of root's."""


def inside(folder: Path, volumes: Mapping[str, str], command: Sequence[str]) -> list[str]:
    """Return the command that runs another in a container; skip the test where there can be none.

    Args:
        folder: The image, and the working folder.
        volumes: Options of file systems in memory: those that are mounted over folders of the image, ``/tmp``, which
            can be written to if it is named, and ``/dev/shm``.
        command: The program, by path, and its arguments.
    """
    lines = [
        f"mount -o remount,{options} {path}" if path[0] == "/" else f"mount -t tmpfs -o {options} none {folder / path}"
        for path, options in volumes.items()
    ]
    lines += ["touch /tmp/writable"] if "/tmp" in volumes else []
    enter = [str(shutil.which("unshare")), "--mount", "sh", "-c", _ENTER, "sh", str(folder), str(USER)]
    done = subprocess.run([*enter, "true", "true"], capture_output=True, text=True, check=False)
    if os.geteuid() or done.returncode:
        pytest.skip(f"a container's mounts and user need root: {done.stderr}")
    return [*enter, "; ".join(lines) or "true", *command]
