"""Make the banks that the release brings for machines like this one, from what tuning finds in networks of field.py.

There is one for each level whose code runs here and is worth building: this machine's own and lower ones, which serve
builds for these levels here and machines that have no more but are like it else. A run that is ended goes on where it
was: what was found stays in the folder. The user's own bank is not touched.

    python benchmarks/shipped_bank.py [NETWORK ...] [--levels x86-64-v3 ...] [--threads 1 2] [--minutes 15]
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

from opbuild.config import TUNE_BANK, Config
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.tuned import is_current
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.machine_class import shipped_database
from opbuild.store.tuning_database import line_of, parse_database, read_database
from opbuild.target.host import host_level
from opbuild.tuning.tuner import worth_building

NETWORKS = (
    "ResNet-50", "MobileNet-v2", "LSTM 2x256", "MiniLM 32", "EfficientNet-b0", "squeezenet", "BERT-base 128",
    "MiniLM 128", "GPT-2 128",
)  # fmt: skip


def main() -> int:
    """Tune each network at each level with each number of threads, and write what is faster into the package."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    networks = [name for name in NETWORKS if name in field_networks.NETWORKS]
    parser.add_argument("networks", nargs="*", default=networks, metavar="NETWORK")
    levels = [level.name for level in worth_building(host_level())]
    parser.add_argument("--levels", nargs="+", default=levels, choices=levels, metavar="LEVEL", help=", ".join(levels))
    parser.add_argument("--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1}))
    parser.add_argument("--minutes", type=float, default=15.0, help="for each level")
    parser.add_argument("--folder", type=Path, default=Path("build/bank"), help="where what was found is kept")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    (folder / "bank").mkdir(parents=True, exist_ok=True)
    for level in arguments.levels:
        code = tuned_at(level, arguments, folder)
        if code:
            return code
        written(level, folder)
    return 0


def tuned_at(level: str, arguments: argparse.Namespace, folder: Path) -> int:
    """Tune each network at one level within its minutes; return the first exit code that is not 0."""
    ends = time.monotonic() + 60 * arguments.minutes
    runs = [(name, threads) for name in arguments.networks for threads in arguments.threads]
    for place, (name, threads) in enumerate(runs):
        seconds = int((ends - time.monotonic()) / (len(runs) - place))
        if seconds < 1:
            print(f"the time is up before {name}, {level}, threads: {threads}: run it again, it goes on")
            break
        print(f"{name}, {level}, threads: {threads}, at most {seconds} s", flush=True)
        code = tuned(name, level, threads, seconds, folder)
        if code:
            return code
    return 0


def tuned(name: str, level: str, threads: int, seconds: int, folder: Path) -> int:
    """Tune one network into the folder's bank; return the exit code of ``opbuild tune``."""
    environment = {**os.environ, "TUNE_BANK_PATH": str(folder / "bank"), "OPBUILD_SHIPPED_BANK": "0"}
    with tempfile.TemporaryDirectory() as models:
        path, data = field_networks.written(name, Path(models))
        shapes = ";".join(f"{key}:{','.join(map(str, array.shape))}" for key, array in data.items())
        command = [sys.executable, "-m", "opbuild", "tune", str(path), "--budget", f"{seconds}s"]
        command += ["--shape", shapes, "--target", level]
        command += ["--num_threads", str(threads), "--cache_path", str(folder / "cache")]
        return subprocess.run(command, env=environment, check=False).returncode


def written(level: str, folder: Path) -> None:
    """Write what is faster at a level into the package; what is as the tables have it is left out.

    What the package has of other machines with such caches stays, while it is of these sources.
    """
    setup = set_up(Config.from_environment(cache_path=folder / "cache"), level, None)
    found = [
        record
        for record in read_database(folder / "bank" / TUNE_BANK, PRIVATE).latest().values()
        if record.level == level and is_current(record, setup)
    ]
    path = shipped_database(level)
    machines = {(record.machine, record.system) for record in found}
    others = [
        record
        for record in parse_database(path.read_bytes() if path.exists() else b"", PRIVATE).latest().values()
        if (record.machine, record.system) not in machines and is_current(record, setup)
    ]
    records = [record for record in (*others, *found) if record.is_tuned]
    if not records:
        print(f"nothing is faster at {level} than what the tables have: no bank is written")
        return
    path.write_bytes(b"".join(line_of(each, PRIVATE) + b"\n" for each in records))
    print(f"{len(records)} records in {path}, {len(records) - sum(each.is_tuned for each in found)} of other machines")


if __name__ == "__main__":
    sys.exit(main())
