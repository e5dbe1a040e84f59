"""A process that forks while another thread of it imports, builds or calls for the first time: the child works too.

The suite tries some moments; ``OPBUILD_FUZZ=100`` so many of each thing that the thread does.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from support.fuzzing import CAMPAIGN, SEED
from support.processes import environment

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

MOMENTS = CAMPAIGN or 2

PROGRAM = """
import faulthandler, os, sys, threading, time
import opbuild  # before it is loaded nothing of it can wait
seconds = float(sys.argv[1])
{before}
def work():
    {work}
other = threading.Thread(target=work)
other.start()
time.sleep(seconds)
child = os.fork()
if child == 0:
    faulthandler.dump_traceback_later(60, exit=True)
    work()
    print("done", flush=True)
    os._exit(0)
status = os.waitpid(child, 0)[1]
other.join()
sys.exit(os.waitstatus_to_exitcode(status))
"""

COMPILE = 'import opbuild; import numpy; net = opbuild.compile("net.onnx", cache_path="cache"); '

WORKS = {
    "first import": ("", "import opbuild; opbuild.compile; opbuild.warm; opbuild.load", 0.6),
    "first build": ("", COMPILE + "net(numpy.ones((3, 64), 'f'))", 1.2),
    "build after an import": ("import opbuild.api", COMPILE + "net(numpy.ones((3, 64), 'f'))", 1.0),
    "first call": (COMPILE, "net(numpy.ones((3, 64), 'f'))", 0.2),
    "calls of new sizes": (
        COMPILE,
        "[net(numpy.ones((n, 64), 'f')) for n in range(1, 40)]",
        0.4,
    ),
    "session": (
        "",
        "from opbuild.onnxruntime import InferenceSession; import numpy; "
        "InferenceSession('net.onnx').run(None, {'x': numpy.ones((2, 64), 'f')})",
        1.2,
    ),
    "MindSpore": (
        "",
        "import numpy; from opbuild.mindspore import Tensor, nn; nn.ReLU()(Tensor(numpy.ones((3, 3), 'f')))",
        1.2,
    ),
}
"""What is done before, what a thread and the child of the fork do, and in how many seconds the fork comes."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a model."""
    x, y = (helper.make_tensor_value_info(name, 1, ["n", 64]) for name in "xy")
    weights = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [x], [y], [weights])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "net.onnx"
    )
    return tmp_path


@pytest.mark.slow
@pytest.mark.usefixtures("kept_objects")
@pytest.mark.parametrize("name", WORKS)
def test_the_child_of_a_fork_does_what_another_thread_had_begun(name: str, folder: Path) -> None:
    """It waits for no lock that a thread of the parent has; nor does the parent."""
    before, work, latest = WORKS[name]
    program, draw = PROGRAM.format(before=before, work=work), random.Random(f"{name} {SEED}")
    for number in range(MOMENTS):
        place, seconds = folder / str(number), draw.uniform(0, latest)
        place.mkdir()
        (place / "net.onnx").symlink_to(folder / "net.onnx")
        variables = {name: str(place / "own") for name in ("XDG_CACHE_HOME", "MS_COMPILER_CACHE_PATH")}
        ran = subprocess.run(
            [sys.executable, "-c", program, str(seconds)], cwd=place, env=environment(**variables),
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout.split()[-1:]) == (0, ["done"]), (
            f"after {seconds} s: {ran.stdout}{ran.stderr}"
        )
