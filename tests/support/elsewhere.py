"""Commands of opbuild in another process: one with other sources, or on a machine that lacks some packages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

from support.kept_kernels import SOURCE
from support.preloaded import Ended
from support.processes import WITHOUT, environment

_COMMANDS = """
import json, sys
from opbuild.__main__ import main
for arguments in map(json.loads, sys.argv[1:]):
    sys.argv = ["opbuild", *arguments]
    code = main()
    for stream in (sys.stdout, sys.stderr):
        print("####", code, file=stream, flush=True)
"""
"""Runs several commands, without a process for each."""


def variables_without(packages: Collection[str], folder: Path, source: Path = SOURCE) -> dict[str, str]:
    """Return variables with which Python and what it starts find sources of opbuild, and some packages not."""
    place = folder / "-".join(("without", *sorted(packages)))  # for each its own: Python keeps what it compiled there
    place.mkdir(exist_ok=True)
    (place / "sitecustomize.py").write_text(WITHOUT.format(names=set(packages)))
    return {"PYTHONPATH": f"{place}:{source}"}


def elsewhere(
    folder: Path, *commands: Sequence[str], source: Path = SOURCE, without: Collection[str] = (), **variables: str
) -> list[Ended]:
    """Run commands in another process, one after the other; return what became of each.

    Args:
        folder: Where they run; their store is there, too.
        commands: What follows the program's name.
        source: The sources of opbuild.
        without: Packages that are not installed.
        variables: More of them.
    """
    place = environment(MS_COMPILER_CACHE_PATH=".", **variables_without(without, folder, source), **variables)
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, *map(json.dumps, commands)],
        cwd=folder, env=place, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs, errors = (re.split(r"^#### (\d+)\n", said, flags=re.MULTILINE) for said in (done.stdout, done.stderr))
    codes = list(map(int, outputs[1::2]))
    assert len(codes) == len(commands), done.stderr
    return list(map(Ended, codes, outputs[::2], errors[::2]))
