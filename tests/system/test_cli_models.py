"""``opbuild compile`` and ``opbuild run`` on models: what they say, write and end with."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest

from support import commands, networks
from support.kept_kernels import SOURCE
from support.preloaded import Ended
from support.until import until

pytestmark = pytest.mark.usefixtures("kept_objects")


def opbuild(folder: Path, *arguments: str, **environment: str) -> Ended:
    """Run a command in ``folder``, which holds the store, with variables added to the environment."""
    return commands.opbuild(*arguments, folder=folder, **{"MS_COMPILER_CACHE_PATH": ".", **environment})


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    """Build ``mlp.onnx`` in an empty folder; return the folder and what the command said."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(networks.mlp(), folder / "mlp.onnx")
    done = opbuild(folder, "compile", "mlp.onnx")
    assert done.code == 0, done.errors
    return folder, done


@pytest.fixture(scope="module")
def built(first_build: tuple[Path, Ended]) -> Path:
    """Return a folder with ``mlp.onnx``, built by ``opbuild compile``."""
    return first_build[0]


def test_a_build_names_each_operator_with_its_reason(
    first_build: tuple[Path, Ended],
) -> None:
    """The table has the names of the files in kernel_meta; progress goes to the standard error as plain lines."""
    folder, done = first_build
    assert "operators built, 0 reused" in done.output
    objects = sorted(path.stem for path in folder.glob("rank_0/kernel_meta/*.o"))
    assert objects
    for name in objects:
        (line,) = (line for line in done.output.splitlines() if line.startswith(f"{name} "))
        assert " built " in line
        assert "not in the store" in line
    assert f"mlp: {len(objects)} of {len(objects)} operators to compile" in done.errors
    assert "\x1b" not in done.output + done.errors


def test_a_second_build_reuses_everything(built: Path) -> None:
    """Nothing is compiled where compiling is forbidden; the report says that all was reused."""
    done = opbuild(built, "compile", "mlp.onnx", "--forbid-compile")
    assert done.code == 0, done.errors
    assert "0 operators built, " in done.output


@pytest.mark.slow
def test_forbidden_compiles_fail_with_the_operator_and_the_reason(built: Path, tmp_path: Path) -> None:
    """In an empty folder a forbidden compile ends with exit code 5 and names what is missing; nothing is written."""
    for arguments, environment in ((["--forbid_compile"], {}), ([], {"OPBUILD_FORBID_COMPILE": "1"})):
        done = opbuild(tmp_path, "compile", str(built / "mlp.onnx"), *arguments, **environment)
        assert done.code == 5
        assert "\nerror (compile forbidden): " in done.errors
        assert "not in the store" in done.errors
        assert "Traceback" not in done.errors
        assert not list(tmp_path.glob("rank_0/kernel_meta/*"))


def test_a_model_runs_on_given_data_and_its_outputs_are_written(built: Path, tmp_path: Path) -> None:
    """What ``--output_dir`` receives is what the reference evaluator gives for the same ``--input``."""
    x = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    done = opbuild(built, "run", "mlp.onnx", "--input", f"x={tmp_path}/x.npy", "--output-dir", str(tmp_path / "out"))
    assert done.code == 0, done.errors
    assert "0 operators built" in done.output
    assert "latency: median " in done.output
    (expected,) = onnx.reference.ReferenceEvaluator(networks.mlp()).run(None, {"x": x})
    (file,) = (tmp_path / "out").iterdir()
    np.testing.assert_allclose(np.load(file), expected, rtol=1e-4, atol=1e-5)


def test_random_inputs_repeat_with_their_seed(built: Path, tmp_path: Path) -> None:
    """Two runs with one seed, in two processes, write the same bytes; another seed writes others."""
    written = []
    for index, seed in enumerate(("1", "1", "2")):
        out = str(tmp_path / str(index))
        arguments = ("run", "mlp.onnx", "--seed", seed, "--runs", "1", "--output_dir", out)
        if index:
            assert opbuild(built, *arguments).code == 0
        else:
            command = [sys.executable, "-m", "opbuild", *arguments]
            subprocess.run(command, check=True, cwd=built, env={**os.environ, "MS_COMPILER_CACHE_PATH": "."})
        written.append(next((tmp_path / str(index)).iterdir()).read_bytes())
    assert written[0] == written[1] != written[2]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "mlp.onnx", "--input", "z=x.npy"], 4, "has no input 'z'"),
        (["run", "mlp.onnx", "--input", "x=wrong.npy"], 4, "'x'"),
        (["run", "mlp.onnx", "--input", "x=missing.npy"], 2, "missing.npy"),
        (["compile", "mlp.onnx", "--shape", "y:1,2"], 3, "'y'"),
        (["compile", "mlp.onnx", "--shape", "x:1,two"], 2, "'two'"),
        (["compile", "garbage.onnx"], 3, "garbage.onnx"),
        (["compile", "nothing.onnx"], 2, "nothing.onnx"),
    ],
)
def test_what_is_wrong_is_one_block_with_a_hint(built: Path, arguments: list[str], code: int, said: str) -> None:
    """Each fault of model, option or data ends with its exit code, says what and what to do, and shows no traceback."""
    (built / "garbage.onnx").write_bytes(b"not a model" * 10)
    np.save(built / "wrong.npy", np.zeros((3, 3, 3), np.float32))
    np.save(built / "x.npy", np.zeros((4, 64), np.float32))
    ended, _, errors = opbuild(built, *arguments)
    assert ended == code, errors
    assert errors.startswith("error (")
    assert said in errors
    assert "\n  hint: " in errors
    assert "Traceback" not in errors


def test_a_wrong_variable_is_named(built: Path) -> None:
    """A variable with a value that is not allowed ends the command with exit code 2 and is named."""
    done = opbuild(built, "compile", "mlp.onnx", RANK_ID="first")
    assert done.code == 2
    assert "RANK_ID is 'first'" in done.errors


@pytest.mark.slow
def test_ctrl_c_in_a_build_is_quiet_and_loses_nothing(tmp_path: Path) -> None:
    """Ctrl-C ends with 130 and no traceback from any process; the next run completes the build (F03, F04)."""
    onnx.save(networks.bert(layers=1), tmp_path / "net.onnx")
    # A shell's background jobs, tests among them, start with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "opbuild", "compile", "net.onnx", "--workers", "1", "--cache_path", "."],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},  # it compiles, which takes longer than to take what is kept
    )  # fmt: skip
    signal.signal(signal.SIGINT, before)
    assert until(lambda: list(tmp_path.glob("rank_0/kernel_meta/*.json")), 120)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert opbuild(tmp_path, "compile", "net.onnx").code == 0


def test_env_shows_what_a_build_would_use(tmp_path: Path) -> None:
    """Target, compiler and folders, with the variables obeyed."""
    done = opbuild(tmp_path, "env", RANK_ID="3", MS_COMPILER_CACHE_PATH=str(tmp_path / "cache"))
    assert done.code == 0, done.errors
    shown = dict(line.split(None, 1) for line in done.output.splitlines())
    assert shown["operators"] == str(tmp_path / "cache" / "rank_3" / "kernel_meta")
    assert shown["compiler"].startswith("halide ")
    assert not (tmp_path / "cache").exists()


def test_a_build_of_an_open_shape_asks_for_it(tmp_path: Path) -> None:
    """Nothing can be built before the shapes are known: the command does not end as if it had built something."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 3])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["N", 3])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [out])
    onnx.save(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]),
        tmp_path / "open.onnx",
    )
    code, _, errors = opbuild(tmp_path, "compile", "open.onnx")
    assert code == 2
    assert "[?,3]" in errors
    assert "--shape" in errors
    for text in ("x:99999999999999999999,3", "x:2147483647,3"):
        code, _, errors = opbuild(tmp_path, "compile", "open.onnx", "--shape", text)
        assert code in (2, 3)
        assert errors.count("error (") == 1
    code, _, errors = opbuild(tmp_path, "compile", ".")
    assert (code, "is a folder" in errors) == (2, True)
