"""BLAKE3 where it can have no threads: in a fork, and under a limit on processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from blake3 import blake3

from opbuild import digest

DATA = bytes(range(256)) * 20_000


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_takes_digests() -> None:
    """A worker that was forked after a network was built does not wait for threads of its parent for ever."""
    wanted = digest.fast(DATA)
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os._exit(digest.fast(DATA) != wanted)
    assert os.waitpid(child, 0)[1] == 0


LIMITED = """
import os, resource, sys
from opbuild.digest import fast
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(12345); os.setuid(12345)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
print(fast(bytes(range(256)) * 20_000))
"""


def test_a_limit_on_processes_leaves_one_thread() -> None:
    """Where no thread may be started, the thread that asks does the work (F65)."""
    prepare = f"import sys; sys.path[:0] = {sys.path!r}"
    done = subprocess.run([sys.executable, "-c", prepare + LIMITED], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == blake3(DATA).hexdigest(), done.stderr


def test_pieces_have_the_digest_of_the_whole() -> None:
    """Whatever the pieces are."""
    assert digest.fast_of([DATA[:7], memoryview(DATA)[7:]]) == digest.fast(DATA)
