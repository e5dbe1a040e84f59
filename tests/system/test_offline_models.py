"""Offline models end to end: built, loaded where neither halide nor onnx can be imported, and run from C.

The suite takes one light network; ``make campaign`` two.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.config import Config
from opbuild.errors import OptionError, ShapeError, TargetError, UnsupportedOperatorError
from opbuild.offline.format import VERSION
from opbuild.target.host import host_problem, resolve_level
from support import commands, networks
from support.comparison import onnxruntime_output, relative_error
from support.fuzzing import CAMPAIGN
from support.processes import WITHOUT_COMPILER, environment

pytestmark = pytest.mark.usefixtures("kept_objects")

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "src" / "opbuild" / "native"

_LOAD = (
    WITHOUT_COMPILER
    + """
import numpy as np, opbuild
net = opbuild.load(sys.argv[1])
np.savez(sys.argv[3], **{str(i): v for i, v in enumerate(net.run(dict(np.load(sys.argv[2]))).values())})
"""
)


@pytest.fixture(scope="module")
def config(shared_store: Path) -> Config:
    """One store for all builds of this module, and for those of other real networks."""
    return Config(cache_path=shared_store, workers=2, num_threads=2)


def small() -> onnx.ModelProto:
    """A network with an open batch: convolution, pooling and a matrix."""
    rng = np.random.default_rng(0)
    kernel = (rng.standard_normal((32, 8, 3, 3)) * 0.1).astype(np.float32)
    matrix = rng.standard_normal((32, 1000)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "m"], ["e"]),
        helper.make_node("Identity", ["e"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, 14, 14])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1000])],
        [numpy_helper.from_array(kernel, "w"), numpy_helper.from_array(matrix, "m")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def run_elsewhere(path: Path, feeds: dict[str, networks.Array]) -> networks.Array:
    """Return the first output, from a process in which neither halide nor onnx can be imported."""
    given, results = path.with_suffix(".in.npz"), path.with_suffix(".out.npz")
    np.savez(given, **feeds)
    command = [sys.executable, "-c", _LOAD, str(path), str(given), str(results)]
    done = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(results) as stored:
        return np.asarray(stored["0"])


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"] if CAMPAIGN else ["shufflenet"])
def test_a_light_network_runs_from_its_file_without_halide_and_onnx(name: str, config: Config, tmp_path: Path) -> None:
    """Within 1e-3 of ONNX Runtime, in a process that can import neither."""
    model = networks.light(name)
    feeds = networks.random_input(model)
    path = opbuild.export(model, tmp_path / name, config=config)
    assert path == tmp_path / f"{name}.om"
    assert relative_error(run_elsewhere(path, feeds), onnxruntime_output(model, feeds)) < 1e-3


def test_one_file_serves_several_batches(config: Config, tmp_path: Path) -> None:
    """The call picks by the input's shape; a further variant costs less than its weights; others are refused."""
    one = opbuild.export(small(), tmp_path / "one", config=config, input_shapes={"x": (1, 8, 14, 14)})
    shapes = [{"x": (batch, 8, 14, 14)} for batch in (1, 2, 4)]
    many = opbuild.export(small(), tmp_path / "many", config=config, variants=shapes)
    assert many.stat().st_size < 1.5 * one.stat().st_size
    net = opbuild.load(many)
    for shape in shapes:
        x = np.random.default_rng(1).standard_normal(shape["x"]).astype(np.float32)
        assert relative_error(net(x), onnxruntime_output(small(), {"x": x})) < 1e-3
    with pytest.raises(ShapeError, match="3,8,14,14") as caught:
        net(np.zeros((3, 8, 14, 14), np.float32))
    assert caught.value.hint == "it serves x:1,8,14,14 or x:2,8,14,14 or x:4,8,14,14"


def test_a_file_for_older_processors_runs_on_this_one(config: Config, tmp_path: Path) -> None:
    """``x86-64-linux-avx2`` on any machine that has AVX2."""
    if host_problem(resolve_level("x86-64-linux-avx2")):
        pytest.skip("this machine has no AVX2")
    path = opbuild.export(
        small(), tmp_path / "avx2", config=config, target="x86-64-linux-avx2", input_shapes={"x": (1, 8, 14, 14)}
    )
    x = np.random.default_rng(1).standard_normal((1, 8, 14, 14)).astype(np.float32)
    assert relative_error(opbuild.load(path)(x), onnxruntime_output(small(), {"x": x})) < 1e-3


def test_an_open_shape_is_asked_for_and_writes_nothing(config: Config, tmp_path: Path) -> None:
    """The message names the input; so does a folder that is not there."""
    with pytest.raises(ShapeError, match="'x' has an open shape"):
        opbuild.export(small(), tmp_path / "open", config=config)
    with pytest.raises(OptionError, match="no folder"):
        opbuild.export(small(), tmp_path / "absent" / "file", config=config)
    assert list(tmp_path.iterdir()) == []


def test_an_operator_that_needs_onnx_is_refused_by_name(config: Config, tmp_path: Path) -> None:
    """What runs only in onnx's reference evaluator cannot run where onnx is not."""
    model = small()
    for name, value in (("r", np.zeros((1, 4), np.float32)), ("i", np.zeros(1, np.int64))):
        model.graph.initializer.append(numpy_helper.from_array(value, name))
    model.graph.node.append(helper.make_node("RoiAlign", ["x", "r", "i"], ["z"], name="regions"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
    with pytest.raises(UnsupportedOperatorError, match=r"RoiAlign \(regions\)"):
        opbuild.export(model, tmp_path / "x", config=config, input_shapes={"x": (1, 8, 14, 14)})
    assert list(tmp_path.iterdir()) == []


def test_the_command_runs_a_file(config: Config, tmp_path: Path) -> None:
    """``opbuild run X.om`` takes data, writes outputs, and refuses options of builds."""
    path = opbuild.export(small(), tmp_path / "m", config=config, input_shapes={"x": (1, 8, 14, 14)})
    x = np.random.default_rng(1).standard_normal((1, 8, 14, 14)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    given = ["--input", f"x={tmp_path}/x.npy", "--output_dir", tmp_path / "out", "--runs", "2"]
    done = commands.opbuild("run", path, *given)
    assert done.code == 0, done.errors
    assert "latency: median" in done.output
    assert relative_error(np.load(tmp_path / "out" / "y.npy"), onnxruntime_output(small(), {"x": x})) < 1e-3
    wrong = commands.opbuild("run", path, "--workers", "2")
    assert wrong.code == 2
    assert "--workers" in wrong.errors


# From C


def compile_program(compiler: str, folder: Path, *changes: tuple[str, str]) -> Path:
    """Compile the program of docs/guides/c.md, with some of its text replaced."""
    found = re.search(r"```c\n(.*?)```", (ROOT / "docs" / "guides" / "c.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    source = found[1]
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    (folder / "run.c").write_text(source, encoding="utf-8")
    program = folder / "run"
    sources = [str(folder / "run.c"), *map(str, sorted(NATIVE.glob("*.c")))]
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}"]
    command = [compiler, *flags, *sources, "-o", str(program), "-ldl", "-lpthread", "-lm"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The guide's program for this machine."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    return compile_program(compiler, tmp_path_factory.mktemp("c"))


def run_in_c(command: list[str], model: Path, x: networks.Array, shape: tuple[int, ...]) -> networks.Array:
    """Return the output of the guide's program."""
    given, result = model.with_suffix(".in"), model.with_suffix(".out")
    x.tofile(given)
    done = subprocess.run([*command, str(model), str(given), str(result)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.fromfile(result, np.float32).reshape(shape)


@pytest.mark.slow
def test_the_program_of_the_guide_gives_what_python_gives(program: Path, config: Config, tmp_path: Path) -> None:
    """A network with every kind of buffer and parallel kernels, from C: the same bits."""
    model = networks.light("squeezenet")
    (x,) = networks.random_input(model).values()
    path = opbuild.export(model, tmp_path / "squeezenet", config=config)
    expected = opbuild.load(path)(x)
    np.testing.assert_array_equal(run_in_c([str(program)], path, x, expected.shape), expected)


def test_a_kernel_of_several_outputs_gives_from_c_what_it_gives_from_python(
    program: Path, config: Config, tmp_path: Path
) -> None:
    """An LSTM reads at each step what it wrote at the one before: the same bits, called again as well."""
    rng = np.random.default_rng(5)
    shapes = {"w": (2, 80, 8), "r": (2, 80, 20)}
    weights = [numpy_helper.from_array((rng.standard_normal(s) / 4).astype(np.float32), n) for n, s in shapes.items()]
    node = helper.make_node("LSTM", ["x", "w", "r"], ["", "", "y"], hidden_size=20, direction="bidirectional")
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in (("x", (9, 3, 8)), ("y", (2, 3, 20)))
    )
    graph = helper.make_graph([node], "recurrent", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = opbuild.export(model, tmp_path / "recurrent", config=config)
    values = rng.standard_normal((9, 3, 8)).astype(np.float32)
    network = opbuild.load(path)
    expected = network(values)
    np.testing.assert_array_equal(network(values), expected)
    np.testing.assert_array_equal(run_in_c([str(program)], path, values, expected.shape), expected)


def test_a_model_that_c_copied_outlives_its_file(program: Path, config: Config, tmp_path: Path) -> None:
    """Cut in place before its first run; a mapping ends the program with SIGBUS."""
    path = opbuild.export(small(), tmp_path / "m", config=config, input_shapes={"x": (1, 8, 14, 14)})
    x = np.random.default_rng(1).standard_normal((1, 8, 14, 14)).astype(np.float32)
    expected = opbuild.load(path)(x)
    (tmp_path / "c").mkdir()
    changes = (
        ("#include <stdio.h>", "#define _GNU_SOURCE\n#include <stdio.h>\n#include <unistd.h>"),
        ("words[1], 0, 0, why", "words[1], 0, OPBUILD_COPY_WEIGHTS, why"),
        ("    if (opbuild_run", "    if (truncate(words[1], 0) != 0) return 2;\n    if (opbuild_run"),
    )
    cutting = compile_program(str(shutil.which("cc")), tmp_path / "c", *changes)
    np.testing.assert_array_equal(run_in_c([str(cutting)], path, x, expected.shape), expected)


def test_c_refuses_what_it_cannot_run_with_a_message(program: Path, config: Config, tmp_path: Path) -> None:
    """Nothing there, no model, cut, changed, for another machine, with an operator of Python's: a message, no crash."""
    fixed = {"x": (1, 8, 14, 14)}
    path = opbuild.export(small(), tmp_path / "m", config=config, input_shapes=fixed)
    data = path.read_bytes()
    changed, swapped = bytearray(data), bytearray(data)
    changed[-10] ^= 1
    swapped[70] ^= 1
    cases = [
        (b"", "not an offline model"),
        (b"text" * 100, "not an offline model"),
        (data[:50], "not an offline model"),
        (data[:-1], "damaged"),
        (bytes(changed), "digest"),
        (bytes(swapped), "digest"),
        (data[:8] + bytes([VERSION + 1]) + data[9:], f"version {VERSION + 1}"),
        (data[:8] + bytes([5]) + data[9:], "version 5 of the format, this library reads 6 to"),
    ]
    for content, said in cases:
        path.write_bytes(content)
        done = subprocess.run([str(program), str(path)], check=False, capture_output=True, text=True)
        assert done.returncode == 1, content[:20]
        assert said in done.stderr
    path.unlink()
    done = subprocess.run([str(program), str(path)], check=False, capture_output=True, text=True)
    assert "cannot be read" in done.stderr
    os.mkfifo(path)
    for other in (path, tmp_path):
        done = subprocess.run([str(program), str(other)], check=False, capture_output=True, text=True, timeout=60)
        assert "it is no file" in done.stderr


def test_c_runs_the_stored_size_of_a_file_of_ranges(program: Path, config: Config, tmp_path: Path) -> None:
    """One signature, in the middle of the ranges, which mode 6 shows; Python runs the other sizes of the same file."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 24])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 24])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = opbuild.export(model, tmp_path / "rows", config=config, ranges={"x": [(2, 8), 24]})
    x = np.random.default_rng(1).standard_normal((5, 24)).astype(np.float32)
    np.testing.assert_array_equal(run_in_c([str(program)], path, x, (5, 24)), np.maximum(x, 0))
    np.testing.assert_array_equal(opbuild.load(path)(x[:3]), np.maximum(x[:3], 0))
    shown = commands.opbuild("export", "--mode=6", f"--om={path}").output
    assert "x:2~8,24" in shown
    assert "run from C: x:5,24" in shown


def test_c_names_the_operators_that_run_in_python_only(program: Path, config: Config, tmp_path: Path) -> None:
    """An operator that opbuild evaluates in numpy is no reason to refuse the file, but C cannot run it."""
    model = double_model()
    path = opbuild.export(model, tmp_path / "host", config=config)
    x = np.arange(4, dtype=np.float64).reshape(2, 2)
    np.testing.assert_allclose(run_elsewhere(path, {"x": x}), np.linalg.det(2 * x))
    done = subprocess.run([str(program), str(path)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "run in Python only: Det (on_the_host)" in done.stderr


def test_c_names_the_node_at_which_a_network_is_cut(program: Path, config: Config, tmp_path: Path) -> None:
    """What follows is bound when the shapes are known, in Python."""
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["f"], name="where"), helper.make_node("Abs", ["f"], ["y"])],
        "parts",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = opbuild.export(model, tmp_path / "parts", config=config)
    done = subprocess.run([str(program), str(path)], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "depend on data or values (NonZero where): it runs in Python only" in done.stderr


def double_model() -> onnx.ModelProto:
    """A determinant of twice a matrix of float64, which no kernel serves."""
    graph = helper.make_graph(
        [
            helper.make_node("Sum", ["x", "x"], ["t"]),
            helper.make_node("Det", ["t"], ["y"], name="on_the_host"),
        ],
        "host",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


ARM = {
    "small": (small, "armv8-a"),
    "an old spelling": (small, "arm-64-linux"),
    "layers": (partial(networks.mlp, 7, (64, 200, 96, 10)), "armv8-a"),
    "squeezenet": (lambda: networks.with_input_shape(networks.light("squeezenet"), (1, 3, 64, 64)), "armv8-a"),
    "resnet50": (partial(networks.resnet50_any_size, 64, 64), "armv8-a"),
}
"""Networks, and what they are compiled for: registers of four lanes, 32 of them."""


@pytest.mark.parametrize("name", ARM)
def test_a_file_for_arm_runs_under_an_emulator(name: str, config: Config, tmp_path: Path) -> None:
    """Built here, refused by this machine, right under qemu."""
    emulator, compiler = shutil.which("qemu-aarch64"), shutil.which("aarch64-linux-gnu-gcc")
    if emulator is None or compiler is None:
        pytest.skip("there is no qemu-aarch64 (qemu-user) or no aarch64-linux-gnu-gcc")
    make, level = ARM[name]
    model = make()
    shapes = {"x": (1, 8, 14, 14)} if make is small else {}
    path = opbuild.export(model, tmp_path / "arm", config=config, target=level, input_shapes=shapes)
    with pytest.raises(TargetError, match="it is for armv8"):
        opbuild.load(path)
    (port,) = model.graph.input
    shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shapes.get("x", shape)).astype(np.float32)
    expected = onnxruntime_output(model, {port.name: x})
    program = compile_program(compiler, tmp_path)
    got = run_in_c([emulator, "-L", "/usr/aarch64-linux-gnu", str(program)], path, x, expected.shape)
    assert relative_error(got, expected) < 1e-3
