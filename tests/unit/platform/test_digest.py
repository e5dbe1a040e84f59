"""BLAKE3 where it can have no threads: in a fork, and under a limit on processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from blake3 import blake3

from opbuild.platform import digest
from support.forked import in_fork

DATA = bytes(range(256)) * 80_000


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_takes_digests() -> None:
    """A worker that was forked after a network was built does not wait for threads of its parent for ever."""
    wanted = digest.blake3_of(DATA)
    assert in_fork(lambda: digest.blake3_of(DATA)) == wanted


LIMITED = """
import os, resource, sys, threading
from opbuild.platform.digest import blake3_of
if os.geteuid() == 0:
    user = 300_000 + os.getpid()
    os.setgroups([]); os.setgid(user); os.setuid(user)
resource.setrlimit(resource.RLIMIT_NPROC, (int(sys.argv[1]), int(sys.argv[1])))
data, found, together = bytes(range(256)) * 80_000, [], threading.Barrier(int(sys.argv[1]))
def work():
    together.wait()
    found.append(blake3_of(data))
threads = [threading.Thread(target=work) for _ in range(int(sys.argv[1]) - 1)]
for thread in threads:
    thread.start()
work()
for thread in threads:
    thread.join()
print(*set(found))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="the limit counts all processes of the user")
@pytest.mark.parametrize("processes", [1, 2, 3])
def test_a_limit_on_processes_leaves_one_thread(processes: int) -> None:
    """Where no thread may be started, those that ask do the work; two at once ended in a ``PanicException`` (F65)."""
    prepare = f"import sys; sys.path[:0] = {sys.path!r}"
    command = [sys.executable, "-c", prepare + LIMITED, str(processes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == (blake3(bytes(range(256)) * 80_000).hexdigest(), "")


def test_pieces_have_the_digest_of_the_whole() -> None:
    """Whatever the pieces are."""
    assert digest.blake3_of_parts([DATA[:7], memoryview(DATA)[7:]]) == digest.blake3_of(DATA)
