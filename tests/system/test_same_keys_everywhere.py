"""A key depends on nothing but its operator: not on the process, its hash seed, its user, its folder or its rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from support.fuzzing import CAMPAIGN

SCRIPT = f"""
import sys
sys.path[:0] = {sys.path!r}
import random
from support.samples import conv, disk_builder
from opbuild.config import Config
from opbuild.kernel.opdesc import OpDesc
from dataclasses import replace
desc = conv(3, b=1, a=2, c="x")
items = list(desc.attrs.items())
random.shuffle(items)
desc = replace(OpDesc.from_components(desc.components()), attrs=dict(items))
with disk_builder(Config.from_environment()) as builder:
    print(builder.key(desc).sha256)
"""


def digest_in(folder: Path, **environment: str) -> str:
    """Return the key's digest in a new process."""
    folder.mkdir(parents=True, exist_ok=True)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return ran.stdout.strip()


def test_processes_of_any_hash_seed_agree(tmp_path: Path) -> None:
    """Hash seeds, dictionary orders and processes give one key (F40)."""
    assert len({digest_in(tmp_path, PYTHONHASHSEED=str(seed)) for seed in range(CAMPAIGN or 3)}) == 1


def test_users_folders_ranks_and_locales_agree(tmp_path: Path) -> None:
    """HOME, USER, TMPDIR, PATH, locale, working folder, rank, device and job are not in the key (F43, F44, F46)."""
    plain = digest_in(tmp_path / "a")
    odd = digest_in(
        tmp_path / "b" / "c",
        HOME=str(tmp_path / "nowhere"),
        USER="somebody",
        TMPDIR=str(tmp_path),
        PATH="/bin",
        LC_ALL="C",
        RANK_ID="3",
        DEVICE_ID="5",
        RANK_SIZE="8",
        HOSTNAME="pod-7",
        OPBUILD_NUM_THREADS="1",
    )
    assert plain == odd
