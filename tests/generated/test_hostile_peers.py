"""Whoever connects where ranks meet, and whatever is said there: good ranks are served, or told at once why not.

Each seed has a hub in a process of its own, some ranks that add up numbers, and peers that say random bytes, lines,
changed JSON and huge numbers, stop in the middle, close one side, do not read, or take every descriptor.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from opbuild.config import Config
from opbuild.errors import RankError
from opbuild.ranks import hub
from opbuild.ranks.collective import Collective
from opbuild.ranks.hub import Hub, connect
from opbuild.ranks.local import LocalTransport
from support.fuzzing import HOSTILE, changed_json, check_seeds, to_bytes
from support.tiers import spans
from support.until import until

ROUNDS = 5
SUM = Collective("AllReduce", "float32", (3,), "sum")
Attack = Callable[[random.Random, Path, int], socket.socket]


def _said(draw: random.Random) -> bytes:
    """Return something to say, mostly no rank and no operation."""
    kind = draw.randrange(7)
    if kind == 0:
        return draw.randbytes(draw.randint(0, 300))
    if kind == 1:
        return (
            draw.choice((b"9" * 5000, b"-1", b"+0", b"0x0", "٣".encode(), b"1e3", b"00", b"", b" 0", b"\x1b[2J"))
            + b"\n"
        )
    if kind == 2:
        changes = [(draw.randint(0, 5), draw.randint(0, 99), draw.randint(0, 255)) for _ in range(3)]
        return to_bytes(changed_json({"rank": 0, "what": [1, {"a": "b"}]}, changes)) + b"\n"
    if kind == 3:
        return b"".join(b"[%s]\n" % to_bytes(draw.choice(HOSTILE)) for _ in range(draw.randint(1, 9)))
    if kind == 4:
        return b"\n" * draw.randint(1, 5000)
    return draw.choice((b"x", b"the meeting of all ranks", b"0")) * draw.choice((3, 70_000))


def _talk(draw: random.Random, folder: Path, size: int) -> socket.socket:
    link = connect(folder)
    link.settimeout(1.0)
    with contextlib.suppress(OSError):
        for _ in range(draw.randint(1, 4)):
            link.sendall(_said(draw))
    return link


def _half_close(draw: random.Random, folder: Path, size: int) -> socket.socket:
    link = _talk(draw, folder, size)
    with contextlib.suppress(OSError):
        link.shutdown(draw.choice((socket.SHUT_WR, socket.SHUT_RD)))
    return link


def _be_nobody(draw: random.Random, folder: Path, size: int) -> socket.socket:
    return connect(folder)


def _close(draw: random.Random, folder: Path, size: int) -> socket.socket:
    link = _talk(draw, folder, size)
    link.close()
    return link


BY_STRANGERS: list[Attack] = [_talk, _half_close, _be_nobody, _close]


@contextlib.contextmanager
def _hub(size: int, spare: int) -> Iterator[Path]:
    """Give a job's folder with a hub in a process that may have few descriptors more than its ranks need."""
    folder = Path(tempfile.mkdtemp())
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        hub.GRACE = 0.3
        most = len(os.listdir("/proc/self/fd")) + 3 + size + spare  # noqa: PTH208
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        Hub(folder, size)
        os.write(write, b"1")
        signal.pause()
        os._exit(0)
    os.close(write)
    try:
        assert os.read(read, 1) == b"1"
        yield folder
    finally:
        os.close(read)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)  # a rank may still say something


def _good_ranks(folder: Path, ranks: range, size: int, pause: float) -> tuple[list[threading.Thread], dict[int, str]]:
    """Start ranks that add up numbers; return their threads, and where each says what became of it."""
    outcomes: dict[int, str] = {}

    def work(rank: int) -> None:
        config = Config(rank_id=rank, rank_size=size, connect_timeout=1e6, exec_timeout=0.0)
        try:
            transport = LocalTransport(config, folder)
            for number in range(ROUNDS):
                found = transport.run(SUM, np.full(3, rank + number, np.float32))
                right = found.tolist() == [sum(range(size)) + size * number] * 3
                if not right:
                    outcomes[rank] = f"wrong: {found}"
                    return
                time.sleep(pause)
            outcomes[rank] = "right"
            transport.close()
        except RankError as error:
            outcomes[rank] = f"told: {error}"

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in ranks]
    for thread in threads:
        thread.start()
    return threads, outcomes


def _ended(threads: list[threading.Thread]) -> bool:
    return until(lambda: not any(thread.is_alive() for thread in threads), 40.0)


def _beside_strangers(seed: int) -> tuple[str, str]:
    """Have strangers beside good ranks, which must not notice."""
    draw = random.Random(seed)
    size = draw.randint(2, 4)
    with _hub(size, draw.choice((0, 1, 3, 100))) as folder:
        early = [draw.choice(BY_STRANGERS)(draw, folder, size) for _ in range(draw.choice((0, 1, 40)))]
        threads, outcomes = _good_ranks(folder, range(size), size, 0.01)
        late = [draw.choice(BY_STRANGERS)(draw, folder, size) for _ in range(draw.randint(1, 30))]
        if not _ended(threads):
            return "hang", f"{outcomes}"
        for link in (*early, *late):
            link.close()
    wrong = {rank: said for rank, said in outcomes.items() if said != "right"}
    return ("foreign", str(wrong)) if wrong else ("right", "")


def _with_a_bad_rank(seed: int) -> tuple[str, str]:
    """Let one rank say what no rank says, stop, or go away: the others end, and each tells why."""
    draw = random.Random(seed)
    size = draw.randint(2, 4)
    with _hub(size, draw.choice((0, 1, 3, 100))) as folder:
        threads, outcomes = _good_ranks(folder, range(size - 1), size, 0.0)
        link = connect(folder)
        link.sendall(b"%d\n" % (size - 1))
        way = draw.choice(("close", "half", "long", "ahead", "bytes"))
        if way in ("close", "half") or draw.random() < 0.5:  # it meets the others once; else it may be back for that
            link.sendall(b"the meeting of all ranks\n")
            assert link.recv(100)
        with contextlib.suppress(OSError):
            if way == "half":
                link.shutdown(socket.SHUT_WR)
            elif way == "long":
                link.sendall(b"x" * draw.randint(5000, 200_000))
            elif way == "ahead":
                link.sendall(b"something else\n" * 5000)
            elif way == "bytes":
                link.sendall(b"\x00\xff\n")
        if way == "close":
            link.close()
        has_ended = _ended(threads)
        link.close()
    if not has_ended:
        return "hang", f"{way}: {outcomes}"
    unclear = {rank: said for rank, said in outcomes.items() if f"rank {size - 1}" not in said}
    return ("foreign", f"{way}: {unclear}") if unclear else ("told", f"{way}")


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(15, 5))
def test_ranks_do_not_notice_strangers(seeds: range) -> None:
    """Whatever they say and however many there are, also where no more files may be open."""
    check_seeds("strangers where ranks meet", _beside_strangers, seeds, processes=2)


@pytest.mark.parametrize("seeds", spans(15, 5))
def test_a_rank_that_is_none_ends_the_job_with_the_reason(seeds: range) -> None:
    """Nobody waits for the time-out: each of the others names the rank."""
    check_seeds("ranks that are none", _with_a_bad_rank, seeds, processes=2)
