"""The environment of a process: where artifacts are kept if nobody says where, and which rank it is."""

from __future__ import annotations

import os
from collections.abc import Mapping

from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

NAME = "opbuild"


class DefaultFolder(NamedTuple):
    """A folder that nobody has named, absolute and perhaps not there; and a warning about it, or an empty text."""

    folder: Path
    warning: str = ""


def user_place(env: Mapping[str, str], *, known_users: bool = True) -> DefaultFolder:
    """Return the user's own store: ``$XDG_CACHE_HOME/opbuild``, else ``~/.cache/opbuild``.

    A user who has no home (a container with a numeric user id) gets the working folder: not a shared temporary one,
    since who writes to the folder decides what code runs.
    """
    caches = env.get("XDG_CACHE_HOME", "").strip()
    if caches.startswith("/"):  # the standard says to ignore a relative one
        return DefaultFolder(Path(caches) / NAME)
    home = _home_folder(env, known_users)
    if home is not None:
        return DefaultFolder(home / ".cache" / NAME)
    return _working_folder(".", "XDG_CACHE_HOME or OPBUILD_CACHE")


def atc_place(env: Mapping[str, str], *, known_users: bool = True) -> DefaultFolder:
    """Return ATC's folder of operators: ``$ASCEND_CACHE_PATH/kernel_cache``, else that of ``~/atc_data``."""
    given = env.get("ASCEND_CACHE_PATH", "").strip()
    if given:
        return DefaultFolder(Path(given) / "kernel_cache")
    home = _home_folder(env, known_users)
    if home is not None:
        return DefaultFolder(home / "atc_data" / "kernel_cache")
    return _working_folder("atc_data/kernel_cache", "HOME or op_compiler_cache_dir")


def _working_folder(below: str, names: str) -> DefaultFolder:
    """Return a folder in the working folder, and a warning; ``names`` is the setting that could name another."""
    try:
        folder = Path(os.path.abspath(below))
    except OSError:  # the working folder was removed: who opens the store finds that, and says it
        return DefaultFolder(Path(below))
    return DefaultFolder(
        folder, f"there is no home folder, so what is built is kept in {folder} ({names} can name another)"
    )


def _home_folder(env: Mapping[str, str], known_users: bool) -> Path | None:
    """Return the user's home folder, None if there is none."""
    home = env.get("HOME", "").strip()
    if not home.startswith("/") and known_users:
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            return None
    return Path(home) if home.startswith("/") else None


STARTERS = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""Rank, number of ranks and rank on this host, as MPICH and its relatives, Open MPI and Slurm name them."""


def started_rank(variables: Mapping[str, str]) -> tuple[int, int, int]:
    """Return rank, number of ranks and rank on this host; ``(0, 1, 0)`` for a process that was started alone."""
    for names in STARTERS:
        rank, size, local = (variables.get(name, "").strip() for name in names)
        if rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
            return int(rank), int(size), int(local if local.isdecimal() else rank)
    return 0, 1, 0
