"""``opbuild launch`` with real processes: what ranks get, what is seen of them, and how they end together."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opbuild.errors import RankError
from opbuild.ranks.hub import Hub
from opbuild.ranks.launcher import RankJob, launch
from support.until import is_gone, until

PLACE = """
import os, sys
print(*(os.environ[name] for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID")), os.getcwd(), *sys.argv[1:])
print("to stderr", file=sys.stderr)
"""

FAILS = """
import os, sys, time
if os.environ["RANK_ID"] == "2":
    print("error (input): input 'x' is missing", file=sys.stderr)
    print("  hint: give it", file=sys.stderr)
    sys.exit(4)
time.sleep(600)
"""

WAITS = """
import os, pathlib, subprocess, time
child = subprocess.Popen(["sleep", "600"])
print("pids", os.getpid(), child.pid, flush=True)
pathlib.Path("here" + os.environ["RANK_ID"]).touch()
if os.environ.get("KILLED") == os.environ["RANK_ID"]:
    while len(list(pathlib.Path().glob("here*"))) < int(os.environ["RANK_SIZE"]):
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
time.sleep(600)
"""


class Launched:
    """A launcher that runs, and what its ranks say."""

    def __init__(self, folder: Path, *arguments: str, files: int = 0, **variables: str) -> None:
        (folder / "tmp").mkdir(exist_ok=True)
        limited = ["sh", "-c", f'ulimit -n {files} && exec "$@"', "sh"] if files else []
        self.folder = folder
        self.process = subprocess.Popen(
            [*limited, sys.executable, "-m", "opbuild", "launch", *arguments],
            cwd=folder,
            env=os.environ | {"TMPDIR": str(folder / "tmp")} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pids(self, ranks: int) -> list[int]:
        """Wait until each rank has said its process and its child's."""
        found: list[int] = []
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if "pids" in line:
                found += map(int, line.split("pids")[1].split())
            if len(found) == 2 * ranks:
                return found
        raise AssertionError(self.process.communicate())

    def end(self) -> tuple[int, str, str]:
        """Wait for the end; return exit code, output and errors."""
        out, err = self.process.communicate(timeout=200)
        return self.process.returncode, out, err

    def left(self) -> list[str]:
        """Return the folders of jobs that are there."""
        return [path.name for path in (self.folder / "tmp").glob("opbuild-job-*")]


@pytest.fixture
def launched(tmp_path: Path) -> Iterator[Callable[..., Launched]]:
    """Return a function that launches a script's text with options in front of it and arguments behind."""
    started: list[Launched] = []

    def start(script: str, *options: str, arguments: tuple[str, ...] = (), **variables: str) -> Launched:
        (tmp_path / "script.py").write_text(script)
        started.append(Launched(tmp_path, *options, "script.py", *arguments, **variables))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def gone(pids: list[int]) -> bool:
    """Return whether processes end within half a minute."""
    return until(lambda: all(map(is_gone, pids)))


def test_each_rank_knows_its_place_and_each_line_its_rank(launched: Callable[..., Launched], tmp_path: Path) -> None:
    """Ranks have RANK_ID, RANK_SIZE, DEVICE_ID and the script's arguments; output and errors stay apart."""
    job = launched(PLACE, "-n", "3", arguments=("--n", "a b", "-n"))
    code, out, err = job.end()
    assert code == 0
    assert sorted(out.splitlines()) == [f"[rank {k}] {k} 3 {k} {tmp_path} --n a b -n" for k in range(3)]
    assert sorted(err.splitlines()) == [f"[rank {k}] to stderr" for k in range(3)]
    assert job.left() == []


def test_with_per_device_dirs_each_rank_works_in_its_own_folder(
    launched: Callable[..., Launched], tmp_path: Path
) -> None:
    """Rank k runs in device<k>, wherever the script is; a second job finds the folders there."""
    for _ in range(2):
        code, out, _ = launched(PLACE, "--per-device-dirs", "--num-ranks", "2").end()
        assert (code, sorted(line.split()[5] for line in out.splitlines())) == (
            0,
            [f"{tmp_path}/device0", f"{tmp_path}/device1"],
        )


def test_the_first_failure_ends_all_with_its_message_and_exit_code(launched: Callable[..., Launched]) -> None:
    """Rank 2 ends with 4 and an error block: so does the job, at once, and names it."""
    code, _, err = launched(FAILS, "-n", "4").end()
    assert code == 4
    assert err.splitlines()[-2:] == [
        "error (rank): rank 2 failed with exit code 4: input 'x' is missing",
        "  hint: give it",
    ]


def test_a_killed_rank_ends_the_job_and_is_named(launched: Callable[..., Launched]) -> None:
    """Its exit code is that of a shell, and no process of any rank is left (F63)."""
    job = launched(WAITS, "-n", "3", KILLED="1")
    pids = job.pids(3)
    code, _, err = job.end()
    assert (code, err.splitlines()[-2]) == (137, "error (rank): rank 1 was killed by SIGKILL")
    assert gone(pids)
    assert job.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_ended_launcher_leaves_nothing_behind(launched: Callable[..., Launched], number: signal.Signals) -> None:
    """Ctrl-C, SIGTERM or kill -9: ranks and what they started end, and the job's folder is removed."""
    job = launched(WAITS, "-n", "2")
    pids = job.pids(2)
    assert len(job.left()) == 1
    job.process.send_signal(number)
    code, _, _ = job.end()
    assert code == (-9 if number == signal.SIGKILL else 128 + number)
    assert gone(pids)
    assert until(lambda: not job.left()), job.left()


def test_a_job_whose_output_nobody_reads_ends(launched: Callable[..., Launched]) -> None:
    """As under ``| head``: when the reader is gone, so are the ranks, without a traceback."""
    job = launched("import time\nwhile True: print('x' * 1000, flush=True); time.sleep(0.01)", "-n", "2")
    assert job.process.stdout is not None
    job.process.stdout.readline()
    job.process.stdout.close()
    assert job.process.wait(60) == 1
    assert "Traceback" not in job.process.stderr.read()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["script.py"], "num_ranks"),
        (["-n", "0", "script.py"], "0"),
        (["-n", "two", "script.py"], "two"),
        (["-n", "2"], "SCRIPT.py"),
        (["-n", "2", "missing.py"], "missing.py"),
        (["-n", "2", "--wrong", "script.py"], "wrong"),
    ],
)
def test_a_wrong_option_is_named(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started, and the exit code is 2."""
    from opbuild.cli.main import main

    assert main(["launch", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_hub_that_fails_ends_the_job_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher looks at it looks at its ranks, which would wait for what no longer answers."""

    def fail(*_: object) -> None:
        raise OSError(errno.ENFILE, "too many files")

    script = tmp_path / "waits.py"
    script.write_text("from opbuild.mindspore.communication import init; init(); import time; time.sleep(600)")
    monkeypatch.setattr(Hub, "_accept", fail)
    with pytest.raises(RankError, match=r"the ranks cannot meet any more: OSError: .*too many files"):
        launch(RankJob(script, (), 2, environment=os.environ))


def test_ranks_whose_connections_are_more_than_may_be_open_are_not_started(tmp_path: Path) -> None:
    """They are counted before any is started, and the error names the limit."""
    (tmp_path / "waits.py").write_text(WAITS)
    launched = Launched(tmp_path, "-n", "200", "waits.py", files=100)
    _, errors = launched.process.communicate()
    assert launched.process.returncode == 7
    assert "error (rank): no ranks can be started" in errors
    assert "ulimit -n" in errors
