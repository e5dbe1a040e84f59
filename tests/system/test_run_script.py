# ruff: noqa: E501 - scripts and cases stay on one line
"""``opbuild run SCRIPT.py``: unmodified scripts, the files they leave, exit codes and error texts."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.preloaded import Ended
from support.processes import environment

pytestmark = pytest.mark.usefixtures("kept_objects")

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "test_square.py"

FROM_IMPORTS = """
import numpy
from mindspore import Tensor, context, nn, ops
import mindspore.common.dtype as mstype
from mindspore.common.initializer import Normal, initializer
import mindspore.ops.operations as P

context.set_context(mode=context.GRAPH_MODE, device_target="Ascend")

class Power(nn.Cell):
    def __init__(self):
        super(Power, self).__init__()
        self.op = P.Square()

    def construct(self, value):
        return self.op(value)

if __name__ == "__main__":
    assert initializer(Normal(), (2, 3), mstype.float32).shape == (2, 3)
    print("output: ", Power()(Tensor(numpy.asarray([1, 4, 9], numpy.float32))))
"""

THROUGH_MS = """
import mindspore.nn as nn
import mindspore.ops as ops
import mindspore as ms
import numpy as np

ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend")

class Squared(nn.Cell):
    def __init__(self):
        super().__init__()
        self.square = ops.Square()

    def construct(self, x):
        return self.square(x)

def main():
    print("output: ", Squared()(ms.Tensor(np.array([1.0, 4.0, 9.0], dtype=np.float32))))

main()
"""


def variables(**more: str) -> dict[str, str]:
    """Return this process's environment without the variables that would move the store, and some more."""
    moving = {"RANK_ID", "MS_COMPILER_CACHE_PATH", "DEVICE_ID"} - more.keys()
    given = environment(**{"PYTHONDONTWRITEBYTECODE": "1", **more})
    return {name: value for name, value in given.items() if name not in moving}


@pytest.fixture
def opbuild_run(process):
    """Return a function that runs ``opbuild run`` in a folder."""

    def run(folder: Path, *arguments: str | Path, **more: str) -> Ended:
        return process.run("opbuild.__main__", ["run", *map(str, arguments)], folder, variables(**more))

    return run


def started(folder: Path, script: Path, **more: str) -> Ended:
    """Run a script in a process of its own, from its start."""
    command = [sys.executable, "-m", "opbuild", "run", str(script)]
    done = subprocess.run(command, cwd=folder, env=variables(**more), capture_output=True, text=True, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)


def written(folder: Path, name: str, text: str) -> Path:
    """Write a script beside the folder it will run in."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Return a new empty folder."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


LOADED = """
import os, sys
if "OPBUILD_FORBID_COMPILE" in os.environ:
    assert not {"halide", "onnx"} & set(sys.modules), "loaded"
"""


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Ended]:
    """Run the example in a new empty folder; return it, the script, and what it said."""
    folder = tmp_path_factory.mktemp("ran")
    text = EXAMPLE.read_text(encoding="utf-8") + LOADED
    script = written(tmp_path_factory.mktemp("example"), "script.py", text)
    return folder, script, started(folder, script)


@pytest.mark.slow
@pytest.mark.parametrize("text", [FROM_IMPORTS, THROUGH_MS], ids=["from", "ms"])
def test_a_script_may_import_as_it_likes(tmp_path, example, text, opbuild_run):
    """Another script with the same operator prints its result where the first one ran, and compiles nothing."""
    done = opbuild_run(example[0], written(tmp_path, "script.py", text), OPBUILD_FORBID_COMPILE="1")
    assert done.code == 0, done.errors
    assert re.search(r"output:\s+\[ 1\. 16\. 81\.\]", done.output)
    assert done.errors.count("\n") == 1
    assert "Ascend" in done.errors


def test_a_script_prints_its_result_and_leaves_three_files(example):
    """In a new empty folder; the .json holds the object's SHA-256.

    The second run compiles nothing, and starts without the compiler and without the model reader.
    """
    folder, script, first = example
    assert first.code == 0, first.errors
    assert re.search(r"output:\s+\[ 1\. 16\. 81\.\]", first.output)
    assert first.errors.count("\n") == 1
    assert "Ascend" in first.errors
    files = sorted(path.name for path in (folder / "rank_0" / "kernel_meta").iterdir())
    stem = files[0].removesuffix(".info")
    assert re.fullmatch(r"square_\d+_0", stem)
    assert files == [f"{stem}.info", f"{stem}.json", f"{stem}.o"]
    record = json.loads((folder / "rank_0" / "kernel_meta" / f"{stem}.json").read_text(encoding="utf-8"))
    assert (
        record["sha256"] == hashlib.sha256((folder / "rank_0" / "kernel_meta" / f"{stem}.o").read_bytes()).hexdigest()
    )
    second = started(folder, script, OPBUILD_FORBID_COMPILE="1")
    assert (second.code, second.output) == (0, first.output), second.errors


def test_rank_and_cache_path_move_the_files(tmp_path, empty, opbuild_run):
    """RANK_ID and MS_COMPILER_CACHE_PATH name the folder; the working folder stays empty; DEVICE_ID ends the names."""
    cache = tmp_path / "elsewhere"
    done = opbuild_run(empty, EXAMPLE, RANK_ID="3", MS_COMPILER_CACHE_PATH=str(cache), DEVICE_ID="5")
    assert done.code == 0, done.errors
    assert list(empty.iterdir()) == []
    names = sorted(path.suffix for path in (cache / "rank_3" / "kernel_meta").glob("square_*_5.*"))
    assert names == [".info", ".json", ".o"]
    assert len(list((cache / "rank_3" / "kernel_meta").iterdir())) == 3


def test_a_forbidden_compile_is_one_clear_error(empty, opbuild_run):
    """The message names the operator and ends with the exit code of a build error; no traceback."""
    done = opbuild_run(empty, EXAMPLE, OPBUILD_FORBID_COMPILE="1")
    assert done.code == 5
    assert "square" in done.errors.lower()
    assert "Traceback" not in done.errors


def test_the_script_sees_its_arguments_its_folder_and_main(tmp_path, empty, opbuild_run):
    """sys.argv, sys.path[0] and __name__ are those that Python would give it; options after it are its own."""
    written(tmp_path, "beside.py", "VALUE = 42\n")
    script = written(
        tmp_path,
        "script.py",
        "import sys, beside\nprint(__name__, sys.argv[1:], beside.VALUE, sys.path[0], __file__)\n",
    )
    done = opbuild_run(empty, script, "a", "--repeat", "-x")
    assert done.code == 0, done.errors
    assert done.output.strip() == f"__main__ ['a', '--repeat', '-x'] 42 {tmp_path} {script}"


def test_an_exception_of_the_script_is_shown_as_python_shows_it(tmp_path, empty, opbuild_run):
    """The traceback begins in the script, and the exit code is 1."""
    script = written(tmp_path, "script.py", "def wrong():\n    return {}['key']\n\nwrong()\n")
    done = opbuild_run(empty, script)
    plain = subprocess.run([sys.executable, str(script)], cwd=empty, capture_output=True, text=True, check=False)
    assert done.code == plain.returncode == 1
    assert done.errors == plain.stderr


@pytest.mark.parametrize(("call", "code"), [("sys.exit(7)", 7), ("sys.exit()", 0), ("sys.exit('bye')", 1), ("pass", 0)])
def test_the_exit_code_is_the_scripts(tmp_path, empty, call, code, opbuild_run):
    """What the script gives to sys.exit."""
    done = opbuild_run(empty, written(tmp_path, "script.py", f"import sys\n{call}\n"))
    assert done.code == code
    assert ("bye" in done.errors) == ("bye" in call)


def test_an_error_of_opbuild_is_one_message_with_the_line(tmp_path, empty, opbuild_run):
    """A network that cannot be traced: what, where in the script, what to do; no traceback."""
    text = THROUGH_MS.replace("return self.square(x)", "return x if x.sum() > 0 else -x")
    done = opbuild_run(empty, written(tmp_path, "script.py", text))
    assert done.code == 3
    assert "Traceback" not in done.errors
    assert re.search(r"script\.py:\d+, in construct", done.errors)
    assert "ops.where" in done.errors


def test_a_script_may_catch_errors_as_mindspores(tmp_path, empty, opbuild_run):
    """ValueError and TypeError catch what MindSpore would raise as such."""
    text = (
        "import mindspore as ms\nfor call in (lambda: ms.set_context(foo=1), lambda: ms.ops.add(ms.Tensor([1, 2]), ms.Tensor([1] * 3)),"
        "\n             lambda: ms.ops.Square()('x')):\n    try:\n        call()\n    except (ValueError, TypeError) as error:\n"
        "        print(type(error).__mro__[-4].__name__ != '', 'caught')\n"
    )
    done = opbuild_run(empty, written(tmp_path, "script.py", text))
    assert done.output.count("caught") == 3, done.errors


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("import mindspore.rewrite as rewrite", "mindspore.rewrite"),
        ("from mindspore import boost", "mindspore.boost"),
        ("from mindspore.nn import LAMB", "mindspore.nn.LAMB"),
        ("import mindspore as ms; ms.ops.no_such_name", "mindspore.ops.no_such_name"),
    ],
)
def test_a_missing_part_of_mindspore_says_so(tmp_path, empty, line, name, opbuild_run):
    """One line that says whose it is and what to do, for modules and names alike; it was a traceback."""
    done = opbuild_run(empty, written(tmp_path, "script.py", line + "\n"))
    assert done.code == 3
    assert f"opbuild has no {name}:" in done.errors
    assert "script.py:1" in done.errors
    assert "Traceback" not in done.errors


def test_a_missing_script_is_an_option_error(empty, opbuild_run):
    """Exit code 2, with the name."""
    done = opbuild_run(empty, "nothing.py")
    assert done.code == 2
    assert "nothing.py" in done.errors


@pytest.mark.slow
def test_in_pynative_mode_operators_are_built_one_by_one(tmp_path, empty, opbuild_run):
    """Each operator leaves its own three files, and a second run builds none."""
    text = THROUGH_MS.replace("GRAPH_MODE", "PYNATIVE_MODE").replace(
        "return self.square(x)", "return -self.square(x) * x"
    )
    script = written(tmp_path, "script.py", text)
    first = opbuild_run(empty, script)
    assert first.code == 0, first.errors
    assert "[  -1.  -64. -729.]" in first.output
    assert len(list((empty / "rank_0" / "kernel_meta").glob("*.o"))) == 3
    assert opbuild_run(empty, script, OPBUILD_FORBID_COMPILE="1").output == first.output


def test_a_syntax_error_is_shown_as_python_shows_it(tmp_path, empty, opbuild_run):
    """The place in the script and nothing of opbuild."""
    done = opbuild_run(empty, written(tmp_path, "broken.py", "x = (1,\n"))
    assert done.code == 1
    assert "broken.py" in done.errors
    assert "SyntaxError" in done.errors
    assert "run_script.py" not in done.errors
