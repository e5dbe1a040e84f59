"""Ctrl-C while a program of the user's is in a call of opbuild: ``KeyboardInterrupt`` there, without frames of opbuild.

The suite interrupts each call once; ``OPBUILD_FUZZ=400`` each one 20 times, at any moments.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import onnx
import pytest

import opbuild
from support import networks
from support.fuzzing import CAMPAIGN, SEED
from support.interrupted import left_running
from support.processes import environment
from support.until import until

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

PROGRAM = """
import itertools, os
import numpy as np
import opbuild
{imports}
image = np.ones((1, 3, 224, 224), np.float32)
{before}
open("ready", "w").close()
for number in itertools.count():
    os.environ["XDG_CACHE_HOME"] = cache = os.path.abspath(f"cache{{number}}")
    {call}
"""

CALLS = {
    "compile": ("", 'opbuild.compile("net.onnx", cache_path=cache)'),
    "start": ('opbuild.compile("net.onnx", cache_path="kept")', 'opbuild.compile("net.onnx", cache_path="kept")'),
    "first import": ("", 'opbuild.compile("net.onnx", cache_path=cache)'),
    "call": ('net = opbuild.compile("net.onnx", cache_path="kept")', "net(image)"),
    "run": ('net = opbuild.compile("net.onnx", cache_path="kept")', "net.run(None, {net.inputs[0].name: image})"),
    "new sizes": (
        'net = opbuild.compile("open.onnx", cache_path="kept", workers=1)',
        "net(np.ones((number + 1, 8), np.float32))",
    ),
    "profile": ('net = opbuild.compile("net.onnx", cache_path="kept")', "net.profile(runs=3)"),
    "session": ("", 'InferenceSession("net.onnx")'),
    "session's run": (
        'session = InferenceSession("net.onnx"); name = session.get_inputs()[0].name',
        "session.run(None, {name: image})",
    ),
    "warm": ("", 'opbuild.warm(["net.onnx"], cache_path=cache)'),
    "offline": ("", 'opbuild.export("net.onnx", "net.om", config=Config.from_environment(cache_path=cache))'),
    "load": (
        'opbuild.export("net.onnx", "net.om", config=Config.from_environment(cache_path="kept"))',
        'opbuild.load("net.om")',
    ),
}
"""What is done first, and the call that is interrupted."""

IMPORTS = "from opbuild.onnxruntime import InferenceSession; from opbuild.config import Config; opbuild.compile"

OWN_FRAMES = 2
"""Frames that may be shown beside the user's: those of the functions that he called."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the calls take, and a cache in which the network is built."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(networks.light("squeezenet"), folder / "net.onnx")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["n", 8]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Softmax", ["x"], ["y"])], "open", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
              folder / "open.onnx")  # fmt: skip
    opbuild.compile(folder / "net.onnx", cache_path=folder / "kept").wait_until_stored()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_interrupted_ends_at_the_callers_line(name: str, models: Path, tmp_path: Path) -> None:
    """The traceback has the user's line and the function that it calls, no other text; and nothing is left running."""
    draw = random.Random(f"{name} {SEED}")
    for number in range(max(1, CAMPAIGN // 20)):
        folder = tmp_path / str(number)
        shutil.copytree(models / "kept", folder / "kept")
        for model in models.glob("*.onnx"):
            (folder / model.name).symlink_to(model)
        _interrupt(name, folder, draw.uniform(0, 2.0))


def _interrupt(name: str, folder: Path, seconds: float) -> None:
    before, call = CALLS[name]
    imports = "" if name == "first import" else IMPORTS
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(imports=imports, before=before, call=call)],
        cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        env=environment(TMPDIR=str(folder), XDG_CACHE_HOME=str(folder / "cache")), start_new_session=True,
    )  # fmt: skip
    assert until((folder / "ready").exists)
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    said = process.communicate(timeout=120)[1]
    lines = said.splitlines()
    frames = [line for line in lines if line.startswith("  File ") and '"<string>"' not in line]
    assert lines[-1] == "KeyboardInterrupt", said
    assert len(frames) <= OWN_FRAMES, said
    assert said.count("Traceback") == 1, said
    assert "Exception ignored" not in said, said
    assert until(lambda: not left_running(folder), 10), name
