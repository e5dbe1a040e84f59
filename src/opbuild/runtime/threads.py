"""A network's threads: a replacement for the thread pool of Halide's runtime, as an object to link (``threads.c``)."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

_MACHINES = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64"}


@lru_cache(maxsize=4)
def threads_object(triple: str) -> bytes | None:
    """Return a relocatable object with the functions of Halide's thread pool; None where Halide's own are to be kept.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    machine = _MACHINES.get(triple)
    if machine is None:
        return None
    return resources.files("opbuild").joinpath("runtime", f"threads_{machine}.o").read_bytes()
