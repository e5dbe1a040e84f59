"""The environment of a rank that ``opbuild launch`` starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from opbuild.platform.places import STARTERS

PATHS = ("MS_COMPILER_CACHE_PATH", "ASCEND_CACHE_PATH", "ASCEND_WORK_PATH", "TMPDIR")
"""Variables that name a folder; a rank may work in another folder than the launcher."""

MOST_WORKERS = 24


def rank_environment(inherited: Mapping[str, str], rank: int, size: int, folder: Path, cores: int) -> dict[str, str]:
    """Return a rank's environment: the launcher's, the rank's place, and its share of the cores.

    Threads and workers are divided over the ranks unless variables say how many there are.

    Args:
        inherited: The launcher's environment.
        rank: The rank; its device has the same number.
        size: The number of ranks.
        folder: The job's folder.
        cores: The cores that the launcher may use.
    """
    env = {name: text for name, text in inherited.items() if not any(name in names for names in STARTERS)}
    for name in PATHS:
        if env.get(name, "").strip():
            env[name] = os.path.abspath(env[name])
    if env.get("PYTHONPATH"):
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(each) for each in env["PYTHONPATH"].split(os.pathsep))
    share = max(1, cores // size)
    threads = env.get("OMP_NUM_THREADS", "").strip()
    env.setdefault("OPBUILD_NUM_THREADS", threads if threads.isdecimal() and int(threads) else str(share))
    env.setdefault("OMP_NUM_THREADS", str(share))
    env.setdefault("MS_BUILD_PROCESS_NUM", str(min(share, MOST_WORKERS)))
    place = {"RANK_ID": rank, "RANK_SIZE": size, "DEVICE_ID": rank, "OPBUILD_JOB_DIR": folder}
    return env | {name: str(value) for name, value in place.items()}
