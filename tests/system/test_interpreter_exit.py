"""Programs that end while opbuild works behind them: however they end, and whenever, nothing is said about it.

A script compiles a network of open sizes and calls it at some, so that kernels, programs and weights are made behind
the calls; then it ends in one of many ways, at a random moment.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import kept_kernels
from support.fuzzing import CAMPAIGN, check_seeds
from support.open_rows import model
from support.processes import environment
from support.until import children_of, is_gone, until

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

PROGRAM = """
import atexit, os, signal, sys, threading, time

def call(network, number=0):

    return network(np.ones(((20, 3, 4, 2, 33, 1, 16)[number % 7], 24), np.float32))[0, 0]

def serve():
    own = opbuild.compile(path)
    for number in range(100000):
        call(own, number // 3)

def end(way, count):
    if way == "atexit before":
        atexit.register(lambda: call(opbuild.compile(path)))
    print("ready", flush=True)
    network = opbuild.compile(path)
    if way == "atexit behind":
        atexit.register(lambda: [call(network, number) for number in range(4)])
    if way == "threads that end with the program":
        for _ in range(2):
            threading.Thread(target=serve, daemon=True).start()
        time.sleep(0.05 * count)
    if way == "threads that the program waits for":
        for number in range(3):
            threading.Thread(target=lambda n=number: [call(network, n) for _ in range(3)]).start()
    if way == "a pool of threads":
        from concurrent.futures import ThreadPoolExecutor
        pool = ThreadPoolExecutor(3)
        for number in range(6):
            pool.submit(call, network, number)
    for number in range(count):
        call(network, number // 2)
    time.sleep(float(sys.argv[4]))
    if sys.argv[6]:  # while something is made behind calls
        for _ in range(100):
            if any(each.name == "opbuild-improve" for each in threading.enumerate()):
                time.sleep(0.3)
                break
            time.sleep(0.01)
    if way == "_exit":
        os._exit(0)
    if way == "sys.exit":
        sys.exit(0)
    if way == "a fork":
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        call(network, 3)
        sys.exit(0)
    if way == "a process of multiprocessing":
        import multiprocessing
        child = multiprocessing.get_context("fork").Process(target=call, args=(network, 5))
        child.start()
        child.join()
    if way == "dropped":
        del network
    if way.startswith("SIG") or way.startswith("handler"):
        for number in range(100000):
            call(network, number // 4)

path, way, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
signal.signal(signal.SIGINT, signal.default_int_handler)
if way == "handler of SIGTERM":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
if way == "handler of SIGTERM that leaves at once":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
try:
    import numpy as np, opbuild
    from opbuild.backend.halide.driver import HalideCompiler
    if sys.argv[5] == "slow":
        HalideCompiler.import_string = "support.slow_compiler:SlowCompiler"
    end(way, count)
except KeyboardInterrupt:
    sys.exit(0)
"""

BY_SIGNAL = {
    "SIGTERM": signal.SIGTERM,
    "SIGHUP": signal.SIGHUP,
    "SIGINT": signal.SIGINT,
    "SIGKILL": signal.SIGKILL,
    "handler of SIGTERM": signal.SIGTERM,
    "handler of SIGTERM that leaves at once": signal.SIGTERM,
}
BY_ITSELF = (
    *("the last line", "_exit", "sys.exit", "a fork", "a process of multiprocessing", "dropped", "atexit before"),
    *("atexit behind", "threads that end with the program", "threads that the program waits for", "a pool of threads"),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A network whose other sizes have kernels that are better than those that are there at first."""
    path = tmp_path / "ending.onnx"
    path.write_bytes(model().SerializeToString())
    return path


def _ending(path: Path, folder: Path, seed: int) -> tuple[str, str]:
    """Let one program end; return what it said as a fault."""
    draw = random.Random(seed)
    way = draw.choice((*BY_SIGNAL, *BY_ITSELF))
    search = os.pathsep.join((kept_kernels.search_path(), str(kept_kernels.TESTS)))
    store = folder / str(draw.randrange(3) or seed)  # often one that earlier programs filled
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            PROGRAM,
            str(path),
            way,
            str(draw.randrange(9)),
            str(draw.random()),
            draw.choice(("slow", "")),
            draw.choice(("improving", "")),
        ],
        env=environment(XDG_CACHE_HOME=str(store), MS_BUILD_PROCESS_NUM="2", PYTHONPATH=search),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    children: list[int] = []
    if way in BY_SIGNAL:
        time.sleep(draw.choice((0.0, 0.3, 1.0, 3.0)) * draw.random())
        children = children_of(process.pid)
        process.send_signal(BY_SIGNAL[way])
    _, errors = process.communicate()
    usual = (0, -BY_SIGNAL[way]) if way in BY_SIGNAL else (0,)
    if errors or process.returncode not in usual:
        return "foreign", f"{way}: {process.returncode}: {errors.decode()}"
    if not until(lambda: all(map(is_gone, children)), 20.0):
        return "wrong", f"{way}: the compile server goes on"
    return "quiet", way


@pytest.mark.slow
def test_programs_end_without_a_word(path: Path, tmp_path: Path) -> None:
    """No warning, no traceback, no process that goes on: what was not finished is finished by the next program."""
    check_seeds("ends", lambda seed: _ending(path, tmp_path, seed), CAMPAIGN or 8, processes=2)


FAULTS = """
import atexit, glob, os, signal, sys, threading, time

def improving():
    return any(each.name == "opbuild-improve" for each in threading.enumerate())

def wait_at_the_end():  # behind what was registered later
    while sys.argv[2] == "ends" and improving():
        time.sleep(0.01)

atexit.register(wait_at_the_end)
import numpy as np
import opbuild
from opbuild.backend.halide.driver import HalideCompiler

network = opbuild.compile(sys.argv[1])
network(np.ones((20, 24), np.float32))
while any(each.name == "opbuild-further" for each in threading.enumerate()):
    time.sleep(0.01)
HalideCompiler.import_string = "support.slow_compiler:SlowCompiler"
for _ in range(2):
    network(np.ones((3, 24), np.float32))
def servers():
    for children in glob.glob("/proc/self/task/*/children"):
        for child in open(children).read().split():
            if b"opbuild.builder.server" in open(f"/proc/{child}/cmdline", "rb").read():
                yield int(child)

while improving():
    if sys.argv[2] == "ends" and any(open(f"/proc/{each}/task/{each}/children").read() for each in servers()):
        sys.exit(0)  # something is being compiled
    for server in servers() if sys.argv[2] == "kills" else ():
        os.kill(server, signal.SIGKILL)
    time.sleep(0.05)
"""


def _faults(path: Path, way: str) -> str:
    search = os.pathsep.join((kept_kernels.search_path(), str(kept_kernels.TESTS)))
    done = subprocess.run(
        [sys.executable, "-c", FAULTS, str(path), way],
        env=environment(XDG_CACHE_HOME=str(path.parent), PYTHONPATH=search),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.slow
def test_what_is_built_behind_while_the_program_ends_is_no_fault(path: Path) -> None:
    """The program's own functions at its end take seconds, in which the threads behind it go on."""
    assert _faults(path, "ends") == ""


@pytest.mark.slow
def test_a_server_that_is_killed_while_the_program_runs_is_told(path: Path) -> None:
    """Somebody who kills it again and again, as a lack of memory does: the size is served as before, and it is said."""
    said = _faults(path, "kills")
    assert "better kernels for ending at [(3, 24)] were not built" in said
    assert "the compile server ended with code -9" in said
