"""Services that run for long: networks by the thousand without the cyclic collector, and a cache that is cleared.

The suite runs some dozens of each; ``OPBUILD_FUZZ=10000`` compiles so many, and serves ten times as many calls. What is
done is counted: a machine that is busy takes longer for it.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from support import kept_kernels
from support.fuzzing import CAMPAIGN, SEED
from support.processes import environment
from support.small_network import small_model

pytestmark = [pytest.mark.usefixtures("kept_objects"), *([pytest.mark.timeout(14400)] if CAMPAIGN else [])]

COMPILES = CAMPAIGN or 150
DESCRIPTORS = 64
"""As many as the process may have open: far fewer than networks."""

CALLS = 10 * CAMPAIGN or 240
"""That the service serves, in ``LEVELS`` parts of as many, after each of which its memory is looked at."""

LEVELS = 20

MEBIBYTE = 2**20

MANY = """
import gc, json, resource, sys
import numpy as np
import opbuild
from support.uncollected import held, resident

gc.disable()
path, count, descriptors = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
x = np.ones((2, 256), np.float32)

def once(number):
    network = opbuild.compile(path, input_shapes={"x": (-1, 256)} if number % 2 else {"x": (2, 256)})
    network(x)
    if number % 8 == 7:
        network(x[:1])

for number in range(50):
    once(number)
begin = {**held(), "resident": resident()}
for number in range(count):
    once(number)
for each in (begin, {**held(), "resident": resident()}):
    print(json.dumps(each))
"""

SERVICE = """
import json, random, sys, threading
import numpy as np
import opbuild
from support.uncollected import held, resident

path, count, levels, seed = sys.argv[1], *map(int, sys.argv[2:])
weights = np.load(path + ".npy")
shared = opbuild.compile(path, input_shapes={"x": (-1, 256)})
calls, wrong = iter(range(count)), []

def right(network, size, draw):
    x = np.full((size, 256), draw.random(), np.float32)
    h = x @ weights
    e = np.exp(h - h.max(1, keepdims=True))
    return np.allclose(network(x), e / e.sum(1, keepdims=True), atol=1e-4)

def serve(number):
    draw = random.Random(seed + number)
    for call in calls:
        if call % (count // levels) == 0:
            level = {**held(), "resident": resident(), "calls": call}
            print(json.dumps(level) + "\\n", end="", flush=True)  # in one piece beside other threads
        network = opbuild.compile(path, input_shapes={"x": (-1, 256)}) if draw.random() < 0.05 else shared
        if not right(network, draw.randint(1, 400), draw):
            wrong.append(number)

threads = [threading.Thread(target=serve, args=(number,)) for number in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not wrong, wrong
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network of a product with a file of weights beside it."""
    path = tmp_path / "small.onnx"
    network = small_model()
    onnx.save(network, path)
    np.save(f"{path}.npy", numpy_helper.to_array(network.graph.initializer[0]))
    return path


def _started(script: str, *arguments: object, cache: Path) -> subprocess.Popen[str]:
    search = os.pathsep.join((kept_kernels.search_path(), str(kept_kernels.TESTS)))
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        env=environment(XDG_CACHE_HOME=str(cache), PYTHONPATH=search),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _said(process: subprocess.Popen[str]) -> list[dict[str, int]]:
    out, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.slow
def test_networks_by_the_thousand_leave_nothing_though_nothing_collects(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of networks that were made, called and dropped each would leave descriptors; few may be open at once."""
    begin, end = _said(_started(MANY, model, COMPILES, DESCRIPTORS, cache=tmp_path))
    with capsys.disabled():
        print(f"\n{COMPILES} compiles, no collector: {begin} at the start, {end} at the end")
    grown = {name: end[name] - begin[name] for name in begin}
    assert max(grown[name] for name in ("descriptors", "maps of files", "threads")) < COMPILES / 5
    assert grown["resident"] < 16 * MEBIBYTE


@pytest.mark.slow
def test_a_service_beside_a_cache_that_is_cleared_keeps_its_memory(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight threads at random sizes: right numbers, and after a third of the time it grows no more."""
    folder = tmp_path / "opbuild"
    process = _started(SERVICE, model, CALLS, LEVELS, SEED, cache=tmp_path)
    draw, done, levels = random.Random(SEED), Counter[str](), list[dict[str, int]]()
    cache = Cache.of(Config(cache_path=folder))
    for line in process.stdout or ():
        levels.append(json.loads(line))
        way = draw.choice(("clear", "prune", "verify", "remove"))
        done[way] += 1
        if way == "clear":
            cache.clear()
        elif way == "prune":
            cache.prune(max_bytes=draw.randint(0, 10**6))
        elif way == "verify":
            for problem in cache.problems():
                cache.repair(problem)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    assert _said(process) == []
    with capsys.disabled():
        print(f"\n{CALLS} calls of a service beside {dict(done)}:", *levels[:: LEVELS // 10], sep="\n  ")
    early, late = levels[LEVELS // 3 : 2 * LEVELS // 3], levels[-LEVELS // 3 :]
    for name, most in {"descriptors": 16, "maps of files": 32, "threads": 8, "resident": 24 * MEBIBYTE}.items():
        grown = min(each[name] for each in late) - max(each[name] for each in early)
        assert grown <= most, (name, levels)
