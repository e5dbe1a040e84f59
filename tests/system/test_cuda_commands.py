"""Commands for NVIDIA's GPUs where there is neither a GPU nor a driver, and where Triton is missing, too."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.kernel.entry import UNCHANGED
from support.elsewhere import elsewhere
from support.kept_kernels import SOURCE
from support.preloaded import Ended

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
WARM = ["warm", "net.onnx", "--target", "cuda"]
EXPLAIN = ["explain", "net.onnx", "--target", "cuda"]
COMPILE = ["compile", "net.onnx", "--target", "cuda"]
NO_TRITON = "the compiler triton is not installed\n  hint: pip install 'opbuild[gpu]'\n"


def network() -> onnx.ModelProto:
    """Return a product and a softmax, large enough that the GPU is worth the copies."""
    weight = numpy_helper.from_array(np.full((4096, 4096), 0.01, np.float32), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Softmax", ["p"], ["y"], axis=-1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 4096]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(folder: Path, *commands: list[str], source: Path = SOURCE, without: tuple[str, ...] = ()) -> list[Ended]:
    """Run commands in a process whose machine has no driver; none may end with a traceback."""
    done = elsewhere(folder, *commands, source=source, without=without, OPBUILD_PACK="0", CUDA_VISIBLE_DEVICES="")
    assert not [each for each in done if "Traceback" in each.output + each.errors]
    return done


@pytest.fixture(scope="module")
def built(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a network that was warmed for a GPU."""
    folder = tmp_path_factory.mktemp("built")
    onnx.save(network(), folder / "net.onnx")
    (done,) = run(folder, WARM)
    assert done.code == 0, done.errors
    assert "with cuda:sm_90a: 2 operators" in done.output
    assert "2 operators compiled" in done.output
    return folder


def test_commands_say_what_a_machine_without_a_driver_can_do(built: Path) -> None:
    """What builds and explains goes on; what runs, or is for CPUs alone, is refused in plain words."""
    other = ["bench", "net.onnx", "--target", "cuda"]
    warm, explain, compiled, bench, env = run(built, WARM, EXPLAIN, COMPILE, other, ["env"])
    assert (warm.code, explain.code, env.code) == (0, 0, 0)
    assert "0 operators compiled" in warm.output
    assert explain.output.count("in the store") == 2
    assert "0 operators to build, 2 to reuse" in explain.output
    assert compiled.code == 5
    assert "there is no NVIDIA driver here" in compiled.errors
    assert "hint: run it where there is an NVIDIA H100" in compiled.errors
    assert bench.code == 5
    assert "there is no NVIDIA driver here" in bench.errors
    assert "cuda: there is no NVIDIA driver here" in env.output


@pytest.mark.parametrize("command", ["report", "profile", "run"])
def test_commands_that_know_no_target_say_so(command: str, built: Path) -> None:
    """As for any option that there is not."""
    (done,) = run(built, [command, "net.onnx", "--target", "cuda"])
    assert done.code == 2
    assert "there is no option '--target'" in done.errors


def test_without_triton_what_is_stored_is_found_and_nothing_else_is_built(built: Path, tmp_path: Path) -> None:
    """The error names the command that installs it."""
    shutil.copy(built / "net.onnx", tmp_path)
    for done in run(tmp_path, WARM, EXPLAIN, without=("triton",)):
        assert done.code == 5
        assert done.errors.endswith(NO_TRITON)
    warm, explain = run(built, WARM, EXPLAIN, without=("triton",))
    assert warm.code == explain.code == 0
    assert "0 operators compiled" in warm.output
    assert explain.output.count("in the store") == 2


def test_an_edit_that_changes_no_kernel_compiles_nothing(built: Path, tmp_path: Path) -> None:
    """A comment, and a local variable under another name; one that changes it compiles that family's alone."""
    shutil.copytree(built, tmp_path / "net")
    edited = tmp_path / "edited"
    shutil.copytree(SOURCE / "opbuild", edited / "opbuild", ignore=shutil.ignore_patterns("__pycache__"))
    file = edited / "opbuild/families/softmax/triton.py"
    text = file.read_text()
    file.write_text(
        text.replace("grid = [", "tiles = [").replace("parameters, grid,", "parameters, tiles,") + "# an edit\n"
    )
    explain, warm, again = run(tmp_path / "net", EXPLAIN, WARM, EXPLAIN, source=edited)
    assert explain.output.count(UNCHANGED) == 1
    assert "0 operators to build, 2 to reuse" in explain.output
    assert "0 operators compiled" in warm.output
    assert again.output.count("in the store") == 2
    file.write_text(file.read_text().replace("warps=8 if axis == 0 else 4", "warps=4 if axis == 0 else 8"))
    explain, warm = run(tmp_path / "net", EXPLAIN, WARM, source=edited)
    assert "1 operator to build, 1 to reuse" in explain.output
    assert "source of Softmax " in explain.output
    assert "1 operator compiled" in warm.output
