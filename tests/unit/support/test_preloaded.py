"""How tests run commands: in their own process, which stays as it was, and in forks, which begin clean."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from opbuild.version import __version__
from support import commands
from support.preloaded import Preloaded


def test_a_command_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    """Its words come back apart, in its folder and with its variables; none of them, nor a stream, is left behind."""
    before = sys.stdout, sys.stderr, Path.cwd(), dict(os.environ), os.fstat(1), os.fstat(2)
    done = commands.opbuild("--version", folder=tmp_path)
    assert done == (0, f"opbuild {__version__}\n", "")
    refused = commands.opbuild("compile", "nothing.onnx", folder=tmp_path, RANK_ID="first")
    assert (refused.code, refused.output) == (2, "")
    assert "RANK_ID is 'first'" in refused.errors
    assert (sys.stdout, sys.stderr, Path.cwd(), dict(os.environ), os.fstat(1), os.fstat(2)) == before


CHANGES = """
import os, sys
sys.modules["changed"] = os
print(os.getcwd(), os.environ.get("OWN"), "changed" in list(sys.modules)[:-1], sys.argv[1:])
os.environ["OWN"] = "changed"
print("said", file=sys.stderr)
sys.exit(int(sys.argv[1]))
"""


def test_each_fork_begins_as_the_process_did(process: Preloaded, tmp_path: Path) -> None:
    """With its own folder, variables, words and exit code; a signal that ends it is told, and the next one runs."""
    for code in (3, 0):
        done = process.run("-c", [CHANGES, str(code)], tmp_path, {"PATH": "/bin"})
        assert done == (code, f"{tmp_path} None False ['{code}']\n", "said\n")
    killed = process.run("-c", ["import os; os.kill(os.getpid(), 9)"], tmp_path, os.environ)
    assert killed.code == -signal.SIGKILL
    done = process.run("opbuild.__main__", ["--version"], tmp_path, os.environ)
    assert done == (0, f"opbuild {__version__}\n", "")
