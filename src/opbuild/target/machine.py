"""Machine: the numbers that schedules and choices look at; nothing else knows a processor.

What reaches a key depends on ``Machine.of(level)`` alone, so that all machines of a level share kernels. What this host
adds (``target.host.here``: its caches, its cores, what waking a thread costs) decides only when a kernel is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from opbuild.platform.records import dataclass
from opbuild.target.level import Level

WAKING = 2500
"""Nanoseconds of work on one core from which on it pays to wake a second thread, where nothing better is known."""


@dataclass(frozen=True)
class Machine:
    """A machine, as far as code and its use depend on it.

    Attributes:
        lanes: float32 elements of a vector register.
        registers: Vector registers.
        l1: Bytes of a core's first-level data cache.
        l2: Bytes of a core's second-level cache.
        waking: Nanoseconds of work on one core from which on waking a second thread pays.
        dot: Products of 8-bit numbers that one instruction adds up, unsigned ones by signed ones, exactly.
        halves: Whether one instruction adds up two products of 8-bit numbers in 16 bits, where sums saturate.
        pairs: Whether one instruction adds up two products of bfloat16.
        cores: Cores that this process may use; 1 where only the level is known.
    """

    lanes: int
    registers: int
    l1: int
    l2: int
    waking: int = WAKING
    dot: int = 2
    halves: bool = False
    pairs: bool = False
    cores: int = 1

    @staticmethod
    def of(level: Level) -> Machine:
        """Return the machine that stands for all of a level."""
        return _of_level(level.name)

    def tasks(self, work: int, threads: int) -> int:
        """Return into how many tasks a call is divided that takes ``work`` nanoseconds on one core."""
        return threads if work >= self.waking else 1

    def vectors(self, elements: int) -> int:
        """Return the registers that so many adjacent float32 elements fill."""
        return -(-elements // self.lanes)


KIB = 1024
_SSE = {"lanes": 4, "registers": 16, "l1": 32 * KIB, "l2": 256 * KIB}
_AVX2 = {"lanes": 8, "registers": 16, "l1": 32 * KIB, "l2": 512 * KIB, "halves": True}
_AVX512 = {"lanes": 16, "registers": 32, "l1": 32 * KIB, "l2": 1024 * KIB}
_NEON = {"lanes": 4, "registers": 32, "l1": 32 * KIB, "l2": 512 * KIB}

_OF_LEVEL: Mapping[str, Mapping[str, Any]] = {
    "x86-64": _SSE,
    "x86-64-v2": _SSE,
    "x86-64-v3": _AVX2,
    "x86-64-v4": _AVX512,
    "x86-64-v4-bf16": {**_AVX512, "dot": 4, "pairs": True},
    "armv8-a": _NEON,
    "armv8.2-a-dotprod": _NEON,
    "rv64gc": _SSE,
}


@lru_cache(maxsize=len(_OF_LEVEL))
def _of_level(name: str) -> Machine:
    return Machine(**_OF_LEVEL[name])
