"""Settings: the only module that reads the environment.

Arguments win over the environment, the environment over defaults. ``Config.from_environment`` is called once a build,
so a script that sets a variable before it compiles is obeyed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opbuild.errors import OptionError


@dataclass(frozen=True)
class Config:
    """What the environment and the caller decided, validated.

    Attributes:
        cache_path: Folder that holds ``rank_<id>`` folders (``MS_COMPILER_CACHE_PATH``, default the working directory).
        rank_id: This process's rank (``RANK_ID``, default 0).
        device_id: The device that builds; the number at the end of file names (``DEVICE_ID``, default 0).
        forbid_compile: Any compile is an error (``OPBUILD_FORBID_COMPILE=1``).
        workers: Operators compiled at once (``MS_BUILD_PROCESS_NUM``, 1 to 24; default the cores this process may use).
        num_threads: Threads that run one network (``OPBUILD_NUM_THREADS``; default the cores this process may use).
        compile_timeout: Seconds after which one compile counts as hung (``OPBUILD_COMPILE_TIMEOUT``, default 300).
        linker: Path of the linker to use (``OPBUILD_LINKER``), empty to search for one.
    """

    cache_path: Path = field(default_factory=lambda: Path("."))
    rank_id: int = 0
    device_id: int = 0
    forbid_compile: bool = False
    workers: int = 1
    num_threads: int = 1
    compile_timeout: float = 300.0
    linker: str = ""

    @property
    def rank_folder(self) -> Path:
        """The folder of this rank, absolute; ``kernel_meta`` and ``network_meta`` are in it."""
        return Path(os.path.abspath(self.cache_path)) / f"rank_{self.rank_id}"

    @property
    def kernel_meta(self) -> Path:
        """Where operators are stored."""
        return self.rank_folder / "kernel_meta"

    @property
    def network_meta(self) -> Path:
        """Where network images are stored."""
        return self.rank_folder / "network_meta"

    @staticmethod
    def from_environment(
        *,
        cache_path: str | os.PathLike[str] | None = None,
        forbid_compile: bool | None = None,
        workers: int | None = None,
        num_threads: int | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> Config:
        """Read the settings.

        Args:
            cache_path: Overrides ``MS_COMPILER_CACHE_PATH``.
            forbid_compile: Overrides ``OPBUILD_FORBID_COMPILE``.
            workers: Overrides ``MS_BUILD_PROCESS_NUM``.
            num_threads: Overrides ``OPBUILD_NUM_THREADS``.
            environ: Read instead of the process's environment, for tests.

        Raises:
            OptionError: If a value is not allowed; the message names the option, the value and what is allowed.
        """
        env = os.environ if environ is None else environ
        cores = available_cores()
        if workers is None:
            workers = _integer(env, "MS_BUILD_PROCESS_NUM", cores if cores < 24 else 24, 1, 24)
        elif workers < 1:
            raise OptionError(f"workers is {workers}", "give an integer of at least 1")
        if num_threads is None:
            num_threads = _integer(env, "OPBUILD_NUM_THREADS", cores, 1, 1024)
        elif not 1 <= num_threads <= 1024:
            raise OptionError(f"num_threads is {num_threads}", "give an integer from 1 to 1024")
        return Config(
            cache_path=Path(cache_path) if cache_path is not None else Path(env.get("MS_COMPILER_CACHE_PATH") or "."),
            rank_id=_integer(env, "RANK_ID", 0, 0, 2**31 - 1),
            device_id=_integer(env, "DEVICE_ID", 0, 0, 2**31 - 1),
            forbid_compile=_flag(env, "OPBUILD_FORBID_COMPILE") if forbid_compile is None else forbid_compile,
            workers=workers,
            num_threads=num_threads,
            compile_timeout=float(_integer(env, "OPBUILD_COMPILE_TIMEOUT", 300, 1, 86400)),
            linker=env.get("OPBUILD_LINKER", ""),
        )


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


def _integer(env: Mapping[str, str], name: str, default: int, least: int, greatest: int) -> int:
    text = env.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= greatest:
        raise OptionError(f"{name} is {text!r}", f"it must be an integer from {least} to {greatest}")
    return value


def _flag(env: Mapping[str, str], name: str) -> bool:
    text = env.get(name, "").strip().lower()
    if text in ("", "0", "false", "no", "off"):
        return False
    if text in ("1", "true", "yes", "on"):
        return True
    raise OptionError(f"{name} is {env[name]!r}", "it must be 0 or 1")


def compiler_environment() -> dict[str, str]:
    """Return the environment in which compilers run: fixed, so that equal operators give equal objects everywhere.

    Only what the interpreter itself needs to start and to find its libraries is taken over.
    """
    kept = ("LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPYCACHEPREFIX", "TMPDIR")
    fixed = {"LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {name: os.environ[name] for name in kept if name in os.environ} | fixed
