"""A network of one host call with a large and a small constant, as the first release with this format stored it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from opbuild.kernel.networks import NetworkKey

STORED = Path(__file__).parents[1] / "data" / "stored_network"
SIZE = 16384
TARGET = "x86-64-linux-avx2"
WEIGHT = "ce66e8b195da4131a8c01b5983726bc93f69266938758a524cf6d2197b229d2c"
KEY = NetworkKey(
    "Old network",
    {"model": "m", "inputs": [["x", "float32", [SIZE]]], "num_threads": 2, "target": TARGET},
    lambda: "halide-1",
)


def store_network(folder: Path) -> None:
    """Put its files into a folder of networks."""
    shutil.copytree(STORED, folder)
    (folder / "weights" / f"{WEIGHT}.bin").write_bytes(np.arange(SIZE, dtype=np.float32).tobytes())
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
