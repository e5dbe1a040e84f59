"""Ctrl-C: an answer at once, one line at the end, no traceback, nothing left running, whatever a command is doing.

The suite interrupts each command once; ``make campaign`` at many moments.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import onnx
import pytest

import opbuild
from support import networks
from support.fuzzing import CAMPAIGN
from support.interrupted import PROGRAM, Interrupted, interrupt, left_running
from support.processes import environment
from support.until import until

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

SCRIPT = """
import time
import numpy as np
import mindspore
from mindspore import Tensor, nn
open("working", "w").close()
try:
    while True:
        nn.ReLU()(Tensor(np.ones((3, 3), np.float32)))
finally:
    open("closed", "w").close()
"""

COMMANDS: dict[str, tuple[list[str], float]] = {
    "build": (["compile", "net.onnx", "--workers", "1"], 2.5),
    "compile": (["export", "--model=net.onnx", "--output=out", "--workers=1"], 2.5),
    "run": (["run", "mlp.onnx", "--runs", "1000000"], 2.0),
    "bench": (["bench", "mlp.onnx", "--runtime", "opbuild", "--runtime", "onnxruntime"], 3.0),
    "tune": (["tune", "mlp.onnx"], 3.0),
    "explain": (["explain", "net.onnx"], 0.8),
    "report": (["report", "mlp.onnx", "--time", "-o", "page.html", "--trace", "trace.json"], 2.5),
    "profile": (["profile", "mlp.onnx", "--report", "page.html"], 2.5),
    "cache": (["cache", "verify"], 0.4),
    "help": (["--help"], 0.12),
    "wrong": (["compile", "nothing.onnx"], 0.3),
    "launch": (["launch", "-n", "2", "script.py"], 1.5),
    "warm": (["warm", "net.onnx"], 2.5),
}
"""Commands, and how long they take on a quiet machine: they are interrupted before."""

END = 3.0 if CAMPAIGN else 60.0
"""Seconds until the end on a machine that tests other things too; half a second is promised where it is quiet."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands take."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(networks.light("squeezenet"), folder / "net.onnx")
    onnx.save(networks.mlp(), folder / "mlp.onnx")
    (folder / "script.py").write_text(SCRIPT)
    return folder


@pytest.fixture(scope="module")
def stored(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which one of them is built."""
    cache = tmp_path_factory.mktemp("stored")
    opbuild.compile(models / "mlp.onnx", cache_path=cache)
    return cache


@pytest.fixture
def folder(tmp_path: Path, models: Path) -> Path:
    """A new folder with what the commands take."""
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    return tmp_path


def check(what: Interrupted, folder: Path, name: str) -> None:
    """Compare an ending with what is promised."""
    for path in folder.glob("page.html"):
        assert path.read_text().endswith("</html>"), name
    for path in folder.glob("trace.json"):
        assert json.loads(path.read_text())["traceEvents"], name
    if what.code != 130:  # it had done its work, or failed, before the signal came
        assert what.code in ((2,) if name.startswith("wrong") else (0, 3)), f"{name}: {what}"
        return
    assert what.said[-1].startswith("interrupted"), f"{name}: {what}"
    assert len([line for line in what.said if line.startswith("interrupted")]) == 1, f"{name}: {what}"
    assert not [line for line in what.said if "Traceback" in line or "Exception" in line], f"{name}: {what}"
    assert what.end < END, f"{name}: {what}"
    assert until(lambda: not left_running(folder), 5), name


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_interrupted_at_any_moment_ends_at_once_with_one_line(name: str, folder: Path) -> None:
    """130, ``stopping`` and one last line, no traceback - also while modules are loaded - and no process left (F03)."""
    arguments, seconds = COMMANDS[name]
    pick = random.Random(f"{name} {CAMPAIGN}")
    for number in range(max(1, CAMPAIGN // 20)):
        cache = str(folder / f"cache{number}")
        what = interrupt(arguments, folder, pick.uniform(0, seconds), MS_COMPILER_CACHE_PATH=cache,
                         ASCEND_CACHE_PATH=cache, XDG_CACHE_HOME=cache)  # fmt: skip
        check(what, folder, f"{name} {number}")


@pytest.mark.parametrize(
    "command", [["push", "mlp.onnx", "{}"], ["pull", "{}", "mlp.onnx"]], ids=lambda words: words[0]
)
@pytest.mark.parametrize("scheme", ["redis", "http"])
def test_who_waits_for_a_store_that_does_not_answer_is_let_go(
    command: list[str], scheme: str, folder: Path, stored: Path
) -> None:
    """``push`` and ``pull`` wait longer for a remote store than a build does, and not after Ctrl-C."""
    shutil.copytree(stored, folder / "cache")
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = folder / "asked"
        threading.Thread(target=lambda: (server.accept(), asked.touch()), daemon=True).start()
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"
        what = interrupt([word.format(url) for word in command], folder, asked,
                         MS_COMPILER_CACHE_PATH=str(folder / "cache"))  # fmt: skip
    assert what.code == 130, what
    check(what, folder, command[0])


def test_the_answer_does_not_wait_for_a_library_that_is_at_work(tmp_path: Path) -> None:
    """A function that does not return to the interpreter: it is said that the command stops, and then it ends."""
    (tmp_path / "sitecustomize.py").write_text(
        "import click\n"
        "def stuck(self, ctx):\n"
        "    import os, threading\n"
        "    os.write(2, b'working\\n')\n"
        "    open('working', 'w').close()\n"
        "    lock = threading.Lock()\n"
        "    lock.acquire()\n"
        "    while True:\n"
        "        try:\n"
        "            lock.acquire()\n"
        "        except KeyboardInterrupt:\n"
        "            pass\n"
        "click.Group.invoke = stuck\n"
    )
    sources = Path(networks.__file__).parents[1] / "src"
    what = interrupt(["env"], tmp_path, tmp_path / "working", PYTHONPATH=f"{tmp_path}:{sources}")
    assert what.said == ["working", "stopping", "interrupted"]
    assert (what.code, what.end < END) == (130, True)


@pytest.mark.slow
def test_a_second_ctrl_c_ends_at_once(folder: Path) -> None:
    """Who asks twice does not want to wait for files to be closed."""
    what = interrupt(["run", "mlp.onnx", "--runs", "1000000"], folder, 1.5, times=2, MS_COMPILER_CACHE_PATH="cache")
    assert what.code == 130
    assert what.said[-1].startswith("interrupted")
    assert "Traceback" not in " ".join(what.said)


def test_a_script_has_ctrl_c_to_itself(folder: Path) -> None:
    """A script that closes what it opened is not ended before it did: it gets ``KeyboardInterrupt``, as from Python."""
    what = interrupt(["run", "script.py"], folder, folder / "working", MS_COMPILER_CACHE_PATH="cache")
    assert (what.code, what.said) == (130, ["interrupted"])
    assert (folder / "closed").exists()


DROPPED = {
    "while a class is made": """
class Attribute:
    def __set_name__(self, owner, name):
        press()
class Owner:
    one = Attribute()
""",
    "in a destructor": """
class Last:
    def __del__(self):
        press()
Last()
""",
    "in a callback": """
import weakref
kept = threading.Event()
watched = weakref.ref(kept, lambda _: press())
del kept
""",
}
"""Places where Python makes another error of ``KeyboardInterrupt``, or drops it."""


@pytest.mark.parametrize("where", DROPPED)
def test_a_script_is_ended_by_ctrl_c_wherever_the_interpreter_is(where: str, tmp_path: Path) -> None:
    """No traceback, 130, and the script closes what it opened."""
    (tmp_path / "script.py").write_text(
        "import os, signal, threading, time\n"
        "def press():\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(1)\n"
        f"try:\n{textwrap.indent(DROPPED[where], '    ')}    time.sleep(60)\n"
        "finally:\n    open('closed', 'w').close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "run", "script.py"], cwd=tmp_path, env=environment(TMPDIR=str(tmp_path)),
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert (done.returncode, [line for line in done.stderr.splitlines() if line != "up"]) == (130, ["interrupted"])
    assert (tmp_path / "closed").exists()
