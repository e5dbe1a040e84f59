"""Networks are built and run in whatever surroundings: right, or an error of opbuild that names what is in the way.

Single surroundings first, each of which once broke something; then random ones. ``OPBUILD_FUZZ=20000`` tries many
more of these, and prints what became of them.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from support.forked import CanNotBeSetUpError
from support.fuzzing import CAMPAIGN
from support.small_network import SHAPE, SmallNetwork
from support.surroundings import Ended, Surroundings, run_in

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    *([pytest.mark.timeout(14400)] if CAMPAIGN else []),
]

SAMPLES = CAMPAIGN // 50 or 2
"""Random surroundings; each takes about a second."""

ERROR = 40
"""What a program adds to the exit code of an error of opbuild."""
WRONG = 99

PROGRAM = f"""
import sys
import numpy as np
import opbuild
from opbuild.errors import OpbuildError
kind, base = sys.argv[1:]
x, y = np.load(base + "/x.npy"), np.load(base + "/y.npy")
try:
    if kind == "om":
        network = opbuild.load(base + "/small.om")
    else:
        network = opbuild.compile(base + "/small.onnx", cache_path="cache", input_shapes={{"x": x.shape}})
    results = [network(x), network(x)]
except OpbuildError as error:
    try:
        print(f"error ({{type(error).__name__}}): {{error}}", file=sys.stderr, flush=True)
    except OSError:
        pass
    sys.exit({ERROR} + error.exit_code)
sys.exit(0 if all(np.array_equal(result, y) for result in results) else {WRONG})
"""

SCRIPT = """
import numpy as np, opbuild
x, y = np.load({base!r} + "/x.npy"), np.load({base!r} + "/y.npy")
network = opbuild.compile({base!r} + "/small.onnx", cache_path="cache", input_shapes={{"x": x.shape}})
assert np.array_equal(network(x), y), "wrong"
"""

OPBUILD = (sys.executable, "-m", "opbuild")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""numpy's own threads are not what is tested; where it can have none, it ends the process."""


@dataclass(frozen=True)
class Base:
    """A small network, built: the model, an input, the right output, the ``.om`` file and the cache."""

    folder: Path

    def run(self, kind: str, surroundings: Surroundings, folder: Path) -> Ended:
        """Do something with the network in surroundings.

        Args:
            kind: What; a name in ``KINDS``.
            surroundings: What the program finds.
            folder: A folder for it, which is made.
        """
        folder.mkdir(exist_ok=True)
        shown = ["--shape", f"x:{SHAPE[0]},{SHAPE[1]}"]
        model, offline = str(self.folder / "small.onnx"), str(self.folder / "small.om")
        if kind in ("warm", "relink"):
            shutil.copytree(self.folder / "cache", folder / "cache")
            if kind == "relink":
                shutil.rmtree(folder / "cache" / "rank_0" / "network_meta")
        if kind == "launch":
            (folder / "script.py").write_text(SCRIPT.format(base=str(self.folder)))
        command = {
            "build": [*OPBUILD, "compile", model, *shown, "--cache_path", "cache"],
            "compile": [*OPBUILD, "export", "--model", model, *shown, "--output", "out"],
            "run": [*OPBUILD, "run", offline, "--runs", "1"],
            "launch": [*OPBUILD, "launch", "-n", "2", "script.py"],
        }.get(kind, [sys.executable, "-c", PROGRAM, kind, str(self.folder)])
        variables = {**ONE_THREAD, "ASCEND_CACHE_PATH": str(folder / "cache"), **surroundings.variables}
        return run_in(replace(surroundings, variables=variables), command, folder)


KINDS = ("cold", "warm", "relink", "om", "build", "compile", "run", "launch")


@pytest.fixture(scope="module")
def base(small_network: SmallNetwork, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The small network, as files."""
    folder = tmp_path_factory.mktemp("base")
    shutil.copy2(small_network.path, folder / "small.onnx")
    np.save(folder / "x.npy", small_network.x)
    np.save(folder / "y.npy", small_network.y)
    shutil.copytree(small_network.cache, folder / "cache")
    config = Config(cache_path=folder / "cache", workers=2, num_threads=2)
    opbuild.compile(folder / "small.onnx", cache_path=folder / "cache", input_shapes={"x": SHAPE})
    opbuild.export(folder / "small.onnx", folder / "small.om", input_shapes={"x": SHAPE}, config=config)
    return Base(folder)


def outcome(ended: Ended, surroundings: Surroundings) -> str:
    """Return ``right`` or ``error``.

    Raises:
        AssertionError: If it is neither.
    """
    assert not ended.fault, ended.fault
    assert ended.code != WRONG, "wrong numbers"
    if ended.code == 0:
        return "right"
    assert ended.code in (*range(1, 8), *range(ERROR + 1, ERROR + 8)), ended
    silent = 2 in (*surroundings.closed, *surroundings.full) or "file-size" in surroundings.limits
    assert silent or "error (" in ended.errors, ended
    return "error"


def becomes(base: Base, kind: str, surroundings: Surroundings, folder: Path) -> str:
    """Do something in surroundings; return ``right``, or the error's text."""
    try:
        ended = base.run(kind, surroundings, folder)
    except CanNotBeSetUpError as error:
        pytest.skip(str(error))
    return "right" if outcome(ended, surroundings) == "right" else ended.errors


ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="another user, whose processes are counted, needs root")
USER = 200_000 + os.getpid() % 100_000
MB = 2**20


def test_a_caller_that_ignores_the_ends_of_children_builds(base: Base, tmp_path: Path) -> None:
    """With SIGCHLD ignored, as supervisors leave it, "the compiler cannot be loaded", and "reinstall opbuild"."""
    assert becomes(base, "cold", Surroundings(ignored=[signal.SIGCHLD]), tmp_path / "run") == "right"


@pytest.mark.slow
@ROOT
@pytest.mark.parametrize(
    ("kind", "processes", "said"),
    [
        ("om", 1, "right"), ("relink", 2, "right"), ("cold", 6, "right"),
        ("cold", 1, "ulimit -u, now 1"), ("launch", 2, "ulimit -u, now 2"),
    ],
)  # fmt: skip
def test_few_processes_are_enough_or_an_error_names_the_limit(
    base: Base, tmp_path: Path, kind: str, processes: int, said: str
) -> None:
    """``can't start new thread`` and BLAKE3's ``PanicException`` instead of a network with fewer threads (F65)."""
    surroundings = Surroundings(limits={"processes": processes}, user=USER)
    assert said in becomes(base, kind, surroundings, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "size"), [("cold", 1), ("relink", 10), ("om", 10)])
def test_a_low_limit_on_file_sizes_is_named(base: Base, tmp_path: Path, kind: str, size: int) -> None:
    """It was "the compiler crashed" or "the linker ended with code -25", and not a word of ``ulimit -f`` (F06)."""
    said = becomes(base, kind, Surroundings(limits={"file-size": size * 1024}), tmp_path / "run")
    assert f"ulimit -f, now {size} KB" in said


@pytest.fixture(scope="module")
def least_memory(tmp_path_factory: pytest.TempPathFactory) -> int:
    """Bytes of address space that a program with numpy and opbuild has."""
    code = "import numpy, opbuild.api; print(open('/proc/self/statm').read().split()[0])"
    ended = run_in(Surroundings(variables=ONE_THREAD), [sys.executable, "-c", code], tmp_path_factory.mktemp("memory"))
    return int(ended.output) * os.sysconf("SC_PAGESIZE")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "more", "said"), [("cold", 45, "ulimit -v"), ("cold", 400, "right"), ("om", 45, "right")]
)
def test_a_little_address_space_is_enough_or_an_error_names_the_limit(
    base: Base, least_memory: int, tmp_path: Path, kind: str, more: int, said: str
) -> None:
    """Threads took what was left: it hung, was aborted, or ended in a module that was half imported."""
    surroundings = Surroundings(limits={"address-space": least_memory + more * MB})
    assert said in becomes(base, kind, surroundings, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "surroundings", "said"),
    [
        ("run", Surroundings(full=[1]), "the output cannot be written: No space left on device"),
        ("build", Surroundings(full=[2]), "right"),
        ("run", Surroundings(closed=[0, 1, 2]), "right"),
    ],
    ids=["full-output", "full-errors", "nothing-open"],
)
def test_commands_do_without_standard_streams(
    base: Base, tmp_path: Path, kind: str, surroundings: Surroundings, said: str
) -> None:
    """A full or closed standard output ended in a traceback of the interpreter's or of another package's."""
    assert said in becomes(base, kind, surroundings, tmp_path / "run")


SIGNALS = [signal.SIGCHLD, signal.SIGPIPE, signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ, signal.SIGHUP, signal.SIGALRM]


def some(random: random.Random, values: list[int]) -> list[int]:
    """Return some of several values."""
    return random.sample(values, random.randint(1, len(values)))


def choices(random: random.Random, least_memory: int) -> dict[str, Callable[[], dict[str, object]]]:
    """Return by name what surroundings may have, each with random values."""
    found: dict[str, Callable[[], dict[str, object]]] = {
        "address-space": lambda: {"limits": {"address-space": least_memory + int(8 + random.random() ** 2 * 500) * MB}},
        "data": lambda: {"limits": {"data": 64 * MB + int(random.random() ** 2 * 500) * MB}},
        "file-size": lambda: {"limits": {"file-size": int(2 ** (random.random() * 20))}},
        "open-files": lambda: {"limits": {"open-files": random.randint(7, 30)}},
        "stack": lambda: {"limits": {"stack": random.randint(160, 1024) * 1024}},
        "ignored": lambda: {"ignored": some(random, [int(each) for each in SIGNALS])},
        "blocked": lambda: {"blocked": some(random, [int(each) for each in SIGNALS])},
        "closed": lambda: {"closed": some(random, [0, 1, 2])},
        "full": lambda: {"full": some(random, [1, 2])},
        "umask": lambda: {"umask": random.choice([0, 0o077, 0o777])},
        "unset": lambda: {"unset": random.choice([["HOME"], ["TMPDIR"], ["HOME", "TMPDIR", "PATH", "LANG"]])},
        "TMPDIR": lambda: {"variables": {"TMPDIR": "/no/such/folder"}},
    }
    if os.geteuid() == 0:
        found["processes"] = lambda: {"limits": {"processes": random.randint(1, 12)}, "user": USER}
        found["mounted"] = lambda: {"mounted": random.choice(["ro", "noexec", "size=4k", "size=300k", "nr_inodes=8"])}
    return found


def combined(parts: list[dict[str, object]]) -> Surroundings:
    """Return surroundings that have all of several parts; streams that are closed are not full."""
    values: dict[str, object] = {}
    for part in parts:
        for name, value in part.items():
            before = values.get(name)
            values[name] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    made = Surroundings(**values)  # type: ignore[arg-type]
    return replace(made, full=[each for each in made.full if each not in made.closed])


def tried(base: Base, kind: str, surroundings: Surroundings, folder: Path) -> tuple[str, str]:
    """Return the outcome of a job, and the problem of it or of the cache afterwards."""
    try:
        became = outcome(base.run(kind, surroundings, folder), surroundings)
    except CanNotBeSetUpError:
        return "not set up", ""
    except AssertionError as error:
        return "fault", str(error)
    if kind in ("cold", "warm", "relink", "build") and not surroundings.mounted:
        config = Config(cache_path=folder / "cache", trust_shared_cache=True)
        problems = list(Cache.of(config).problems()) if (folder / "cache").is_dir() else []
        if problems:
            return "fault", f"the cache is damaged: {problems}"
        if CAMPAIGN:
            again = base.run("again", Surroundings(variables={"OPBUILD_TRUST_SHARED_CACHE": "1"}), folder)
            if again.fault or again.code != 0:
                return "fault", f"the next build: {again}"
    return became, ""


@pytest.mark.slow
def test_random_surroundings(base: Base, least_memory: int, tmp_path: Path) -> None:
    """One to three things at once: right or a clear error, nothing left behind, a cache that is whole (F06, F54, F65).

    What fails is made smaller first: it is shown with only those of its surroundings that it needs.
    """
    seed = time.time_ns() if CAMPAIGN else 9
    generator = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for number in range(SAMPLES):
        possible = choices(generator, least_memory)
        names = generator.sample(sorted(possible), generator.randint(1, 3))
        parts = [possible[name]() for name in names]
        kind = generator.choice(KINDS)
        became, problem = tried(base, kind, combined(parts), tmp_path / f"{number}")
        for index in reversed(range(len(parts))) if problem else ():
            fewer = parts[:index] + parts[index + 1 :]
            _, smaller = tried(base, kind, combined(fewer), tmp_path / f"{number}.{index}")
            if smaller:
                parts, problem = fewer, smaller
        outcomes[f"{became} {kind}"] += 1
        made = combined(parts)
        shown = {each.name: getattr(made, each.name) for each in fields(made) if getattr(made, each.name)}
        assert not problem, f"seed {seed}, number {number}: {kind} in Surroundings(**{shown}): {problem}"
        shutil.rmtree(tmp_path / f"{number}", ignore_errors=True)
    if CAMPAIGN:
        print(f"\nsurroundings: {SAMPLES}: {dict(sorted(outcomes.items()))}", file=sys.__stderr__)
