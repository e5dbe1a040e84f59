"""Trying many seeds in processes of their own: what crashes or hangs is counted, and the rest goes on."""

from __future__ import annotations

import faulthandler
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support import campaign

HANGS_AFTER = 60
"""Seconds in which one seed must be done; most take a tenth of one."""

MEMORY = 6 * 2**30
"""Bytes of address space that a seed may add to what the test has."""

FAULTS = ("wrong", "foreign", "crash", "hang")
"""Outcomes that are faults of opbuild: other numbers, exceptions that are not its own, dead processes, no end."""


Check = Callable[[int], "tuple[str, str] | str | None"]
"""Takes a seed. Returns an outcome in a word, one of ``FAULTS`` if it is one, and what to say of it, if there is
something; nothing: it is right. What fails an assertion is wrong, what raises anything else foreign."""


@dataclass
class Tally:
    """What became of the seeds.

    Attributes:
        outcomes: How often each outcome was.
        faults: What is to be known of each fault: seed, outcome, and what it said.
        remarks: What was said of other outcomes, without its numbers, and how often.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    remarks: Counter[str] = field(default_factory=Counter)
    faults: list[tuple[int, str, str]] = field(default_factory=list)

    def add(self, seed: int, outcome: str, said: str) -> None:
        """Count one seed."""
        self.outcomes[outcome] += 1
        if outcome in FAULTS:
            self.faults.append((seed, outcome, said))
            print(f"seed {seed}: {outcome}: {said}", file=sys.__stderr__, flush=True)
        elif said:
            self.remarks[f"{outcome}: {re.sub('[0-9]+', '#', said)[:200]}"] += 1

    def __str__(self) -> str:
        total = sum(self.outcomes.values())
        counts = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items()))
        return "\n".join([f"{total} tried: {counts}", *(f"  {n} x {said}" for said, n in self.remarks.most_common(20))])


def try_seeds(name: str, check: Check, seeds: Iterable[int], processes: int = 1) -> Tally:
    """Call a function with each seed and return what became of them.

    Args:
        name: What is tried; printed with the counts, and the class in a campaign's table.
        check: Takes a seed.
        seeds: What to try.
        processes: How many to try at once; 0: each in this process, for what uses threads that a fork has not.
    """
    tally = _try(name, check, seeds, processes) if processes else _tried_here(check, seeds)
    print(f"{name}: {tally}", file=sys.__stderr__, flush=True)
    campaign.count(name, tally.outcomes)
    return tally


def outcome_of(check: Check, seed: int) -> tuple[str, str]:
    """Return the outcome of a seed, and its message."""
    try:
        found = check(seed)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return "wrong" if isinstance(error, AssertionError) else "foreign", traceback.format_exc()
    return found if isinstance(found, tuple) else (found or "right", "")


def _tried_here(check: Check, seeds: Iterable[int]) -> Tally:
    tally = Tally()
    for seed in seeds:
        tally.add(seed, *outcome_of(check, seed))
    return tally


def _try(name: str, check: Check, seeds: Iterable[int], processes: int = 1) -> Tally:
    tally, todo = Tally(), iter(list(seeds))
    running: dict[int, _Worker] = {}
    shown = time.monotonic()
    while True:
        while len(running) < processes:
            worker = _start(check, todo)
            if worker is None:
                break
            running[worker.pipe] = worker
        if not running:
            break
        for pipe in select.select(list(running), [], [], 1)[0]:
            if not running[pipe].read(tally):
                running.pop(pipe).end(tally)
        for worker in running.values():
            worker.end_if_it_hangs()
        if time.monotonic() - shown > 60:
            shown = time.monotonic()
            print(f"{name}: {tally}", file=sys.__stderr__, flush=True)
    return tally


BATCH = 50
"""Seeds that one process tries before the next takes over: nothing that it left in memory hides a fault for ever."""


def _start(check: Check, todo: Iterator[int]) -> _Worker | None:
    batch = [seed for _, seed in zip(range(BATCH), todo, strict=False)]
    if not batch:
        return None
    get, put = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(get)
        _work(check, batch, put)
    os.close(put)
    return _Worker(get, child, batch, check)


def _work(check: Check, batch: list[int], pipe: int) -> None:
    os.setsid()  # what hangs ends with all that it started
    faulthandler.enable()
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        for seed in batch:
            os.write(pipe, f"?{seed}\n".encode())
            outcome, said = outcome_of(check, seed)
            os.write(pipe, f"={outcome}\t{said.encode('unicode_escape').decode()[:30000]}\n".encode())
    finally:
        os._exit(0)


@dataclass
class _Worker:
    pipe: int
    process: int
    seeds: list[int]
    check: Check
    text: str = ""
    seed: int = -1
    since: float = field(default_factory=time.monotonic)
    hangs: bool = False

    def read(self, tally: Tally) -> bool:
        """Take in what the process said; return whether it may say more."""
        data = os.read(self.pipe, 65536)
        *lines, self.text = (self.text + data.decode()).split("\n")
        for line in lines:
            if line.startswith("?"):
                self.seed, self.since = int(line[1:]), time.monotonic()
            else:
                outcome, _, said = line[1:].partition("\t")
                tally.add(self.seed, outcome, said.encode().decode("unicode_escape"))
                self.seeds.remove(self.seed)
        return bool(data)

    def end_if_it_hangs(self) -> None:
        if time.monotonic() - self.since > HANGS_AFTER:
            self.hangs = True
            os.killpg(self.process, signal.SIGKILL)

    def end(self, tally: Tally) -> None:
        """Count the seed that ended the process, and try those after it."""
        os.close(self.pipe)
        _, status = os.waitpid(self.process, 0)
        if not self.seeds:
            return
        seed, *rest = self.seeds
        tally.add(seed, "hang" if self.hangs else "crash", f"the process ended with {status:#x}")
        if rest:
            again = _try("rest of a batch", self.check, rest)
            tally.outcomes += again.outcomes
            tally.remarks += again.remarks
            tally.faults += again.faults
