"""What opbuild sets for the whole process, each once."""

from __future__ import annotations

import ctypes
import os
from functools import lru_cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


@lru_cache(maxsize=1)
def keep_freed_memory() -> None:
    """Let the allocator keep what packing frees.

    glibc gives large blocks back to the system as soon as they are freed, and the next weight would fault in every page
    again: packing those of ResNet-50 takes 13,000 page faults instead of 27,000.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none and needs none
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, 64 * 2**20)
        mallopt(_M_TRIM_THRESHOLD, 256 * 2**20)


@lru_cache(maxsize=1)
def show_mathematics() -> None:
    """Make libm's functions visible to kernels."""
    for name in ("libm.so.6", "libm.so"):
        try:
            ctypes.CDLL(name, mode=os.RTLD_GLOBAL)
            break
        except OSError:
            continue
