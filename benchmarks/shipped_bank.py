"""Make the bank that the release brings for machines like this one, from what tuning finds in the networks of field.py.

A run that is ended goes on where it was: what was found stays in the folder. The user's own bank is not touched.

    python benchmarks/shipped_bank.py [NETWORK ...] [--threads 1 2] [--minutes 15]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import field_networks

from opbuild.config import TUNE_BANK
from opbuild.files.trust import PRIVATE
from opbuild.kernel.host import host_level
from opbuild.store.bank import line_of, read_bank
from opbuild.store.shipped import shipped_bank

NETWORKS = ("ResNet-50", "MobileNet-v2", "LSTM 2x256", "MiniLM 32", "EfficientNet-b0", "squeezenet", "BERT-base 128")


def main() -> int:
    """Tune each network with each number of threads, and write what is faster into the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [name for name in NETWORKS if name in field_networks.NETWORKS]
    parser.add_argument("networks", nargs="*", default=names, metavar="NETWORK")
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--minutes", type=float, default=15.0, help="for all of them together")
    parser.add_argument("--folder", type=Path, default=Path("build/bank"), help="where what was found is kept")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    (folder / "bank").mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * arguments.minutes
    runs = [(name, threads) for name in arguments.networks for threads in arguments.threads]
    for place, (name, threads) in enumerate(runs):
        seconds = int((ends - time.monotonic()) / (len(runs) - place))
        if seconds < 1:
            print(f"the time is up before {name}, threads: {threads}: run it again, it goes on")
            break
        print(f"{name}, threads: {threads}, at most {seconds} s", flush=True)
        code = tuned(name, threads, seconds, folder)
        if code:
            return code
    written(folder)
    return 0


def tuned(name: str, threads: int, seconds: int, folder: Path) -> int:
    """Tune one network into the folder's bank; return the exit code of ``opbuild tune``."""
    environment = {**os.environ, "TUNE_BANK_PATH": str(folder / "bank"), "OPBUILD_SHIPPED_BANK": "0"}
    with tempfile.TemporaryDirectory() as models:
        path, data = field_networks.written(name, Path(models))
        shapes = ";".join(f"{key}:{','.join(map(str, array.shape))}" for key, array in data.items())
        command = [
            sys.executable,
            "-m",
            "opbuild",
            "tune",
            str(path),
            "--budget",
            f"{seconds}s",
            "--input_shape",
            shapes,
        ]
        command += ["--num_threads", str(threads), "--cache_path", str(folder / "cache")]
        return subprocess.run(command, env=environment, check=False).returncode


def written(folder: Path) -> None:
    """Write what is faster at this machine's level into the package; what is as the tables have it is left out."""
    level = host_level().name
    records = [
        record
        for record in read_bank(folder / "bank" / TUNE_BANK, PRIVATE).latest().values()
        if record.is_tuned and record.level == level
    ]
    if not records:
        print("nothing is faster than what the tables have: no bank is written")
        return
    path = shipped_bank(level)
    path.write_bytes(b"".join(line_of(each, PRIVATE) + b"\n" for each in records))
    print(f"{len(records)} records in {path}")


if __name__ == "__main__":
    sys.exit(main())
