"""Operators compiled to be debugged: what is delivered, what is checked, and what an error says."""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opbuild
from kernels.harness import Guarded, HalideBuffer, check_canaries, dims_of, guarded, guarded_like
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.config import Config
from opbuild.errors import RunError
from opbuild.kernel.debug import LEVELS
from opbuild.kernel.opdesc import Dim, OpDesc, Operand, runtime_desc
from opbuild.report import Report
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.devices.cpu.link import link, support_parts
from opbuild.runtime.devices.device import last_error
from opbuild.target.host import host_level
from support.forked import in_fork

hl = pytest.importorskip("halide")

TILE = 16
ROW = Dim(stride=1, min=TILE)
DOUBLE = OpDesc(
    op_types=("Add",),
    family="elementwise",
    inputs=(Operand("x", "float32", (ROW,)),),
    outputs=(Operand("out", "float32", (ROW,)),),
    attrs={"expression": ["add", ["arg", 0], ["arg", 0]]},
    variant={"width": TILE},
)
"""Its vectors are shifted inwards at the end of a row: a row below one vector is written from before its beginning."""

SOURCE = """
import halide as hl
import opbuild

@opbuild.operator("Beyond", domain="debug", shape=lambda x: (x.shape[0], x.shape[1] - 1))
def beyond(x):
    out, i, j = hl.Func("beyond"), hl.Var("i"), hl.Var("j")
    out[i, j] = x[i, j] + x[i + 2, j]
    return out

def in_threads(out, x):
    out.update().allow_race_conditions().parallel(out.rvars()[0])

@opbuild.operator("Racing", domain="debug", shape=lambda x: (4,), schedule=in_threads)
def racing(x):
    out, i, r = hl.Func("racing"), hl.Var("i"), hl.RDom([(0, x.dim(0).extent())], "r")
    out[i] = hl.f32(0)
    out[r.x % 4] = x[r.x]
    return out

@opbuild.operator("Picked", domain="debug", shape=lambda x, i: i.shape)
def picked(x, i):
    out, k = hl.Func("picked"), hl.Var("k")
    out[k] = x[hl.unsafe_promise_clamped(hl.cast(hl.Int(32), i[k]), 0, x.dim(0).extent() - 1)]
    return out
"""


def in_child(folder: Path, function: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
    """Compile in a fresh fork, as a build does; return the files by suffix."""
    folder.mkdir()
    in_fork(lambda: [(folder / f"k{suffix}").write_bytes(content) for suffix, content in function().items()])
    return {path.name[1:]: path.read_bytes() for path in folder.iterdir()}


def inspect(desc: OpDesc, folder: Path, options: Collection[str]) -> dict[str, bytes]:
    """Compile a descriptor with debug options."""
    return in_child(folder, lambda: dict(HalideCompiler.inspect(desc, "double__kernel0", host_level(), options)))


@cache
def runtime_object() -> bytes:
    """Return the compiler's runtime library."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        built = in_child(Path(folder) / "r", lambda: {".o": HalideCompiler.compile(runtime_desc(), "", host_level())})
    return built[".o"]


def call(object_: bytes, *operands: Guarded | np.ndarray) -> int:
    """Link an object and call its kernel; return what it returns."""
    library = Library(link([object_, *support_parts(host_level().triple).values(), runtime_object()]), 2)
    views = [operand.view if isinstance(operand, Guarded) else operand for operand in operands]
    buffers = [HalideBuffer.of(view, dims_of(view)) for view in views]
    return library.kernel("double__kernel0")(2, *(ctypes.byref(buffer) for buffer in buffers))


def test_level_one_delivers_the_object_that_every_build_gets(tmp_path: Path) -> None:
    """What is read is what runs: dumping changes no byte of the object, and each dump is the same (F54)."""
    plain = in_child(
        tmp_path / "plain", lambda: {".o": HalideCompiler.compile(DOUBLE, "double__kernel0", host_level())}
    )
    first, second = (inspect(DOUBLE, tmp_path / name, LEVELS[1]) for name in ("first", "second"))
    assert set(first) == {".o", ".stmt", ".ll"}
    assert first == second
    assert first[".o"] == plain[".o"]
    assert b"produce out" in first[".stmt"]
    assert b"@double__kernel0(" in first[".ll"]


def test_level_two_is_a_plain_loop_and_says_what_it_is_called_with(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No vectors are left in the code; a call shows its arguments; the values are those of the scheduled kernel."""
    files = inspect(DOUBLE, tmp_path / "two", LEVELS[2])
    assert b"ramp" in inspect(DOUBLE, tmp_path / "one", LEVELS[1])[".stmt"]
    assert b"ramp" not in files[".stmt"]
    assert b"double__kernel0:" in files[".s"]
    x, out = np.arange(3, dtype="f4"), guarded((3,))
    assert call(files[".o"], x, out) == 0
    np.testing.assert_array_equal(out.view, 2 * x)
    check_canaries(out)
    assert "Input Buffer x" in capfd.readouterr().err


def test_level_four_describes_what_is_computed(tmp_path: Path) -> None:
    """The compute description has the descriptor and each function's definition."""
    text = json.loads(inspect(DOUBLE, tmp_path / "four", LEVELS[4])["_compute.json"])
    assert text["kernelName"] == "double__kernel0"
    assert text["attrs"] == DOUBLE.attrs
    (function,) = text["functions"]
    assert function["name"].partition("$")[0] == "out"  # Halide counts names in a process
    assert function["arguments"] == ["i0"]
    assert "x" in function["values"][0]
    assert not function["values"][0].startswith("<halide")


def test_oom_turns_a_write_outside_a_buffer_into_an_error(tmp_path: Path) -> None:
    """A row below the tile: the plain kernel corrupts memory, the checked one touches nothing and names the index."""
    plain = inspect(DOUBLE, tmp_path / "plain", ())
    checked = inspect(DOUBLE, tmp_path / "oom", ("oom",))
    x, out = guarded_like(np.arange(5, dtype="f4")), guarded((5,))
    assert call(plain[".o"], x, out) == 0
    with pytest.raises(AssertionError, match="elements outside the array were written"):
        check_canaries(out)
    out = guarded((5,))
    before = out.memory.copy()
    assert call(checked[".o"], x, out) != 0
    assert re.search(r"out(\$\d+)? is accessed at -11, which is before the min \(0\) in dimension 0", last_error())
    np.testing.assert_array_equal(out.memory, before)
    x, out = guarded_like(np.arange(20, dtype="f4")), guarded((20,))
    assert call(checked[".o"], x, out) == 0
    np.testing.assert_array_equal(out.view, 2 * x.view)
    check_canaries(out)


def test_oom_refuses_a_null_address_and_a_wrong_type(tmp_path: Path) -> None:
    """What the descriptor promised of an argument is checked at each call."""
    checked = inspect(DOUBLE, tmp_path / "oom", ("oom",))
    assert call(checked[".o"], np.arange(20, dtype="i4"), guarded((20,))) != 0
    assert "x" in (said := last_error())
    assert "int32" in said


@pytest.fixture
def operators(tmp_path: Path) -> None:
    """Import the operators of ``SOURCE``."""
    import importlib.util

    (tmp_path / "debugged_operators.py").write_text(SOURCE)
    spec = importlib.util.spec_from_file_location("debugged_operators", tmp_path / "debugged_operators.py")
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.fixture(scope="module")
def cache_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all networks here: the runtime library is compiled once."""
    return tmp_path_factory.mktemp("cache")


def network(nodes: list[onnx.NodeProto], x: np.ndarray, outputs: list[str], *constants: np.ndarray) -> bytes:
    """Return a model whose input is ``x``, whose constants are ``c0``, ... and whose outputs have any shape."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        nodes,
        "debugged",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_value_info(name, onnx.TypeProto()) for name in outputs],
        [numpy_helper.from_array(value, f"c{index}") for index, value in enumerate(constants)],
    )
    for output in graph.output:
        output.type.tensor_type.elem_type = 1
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("debug", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString()


def debug_file(folder: Path, text: str) -> Path:
    """Write a file of ``op_debug_config``."""
    file = folder / "debug.cfg"
    file.write_text(text)
    return file


def reasons(report: Report) -> dict[str, str]:
    """Return the reasons of a report by operator type."""
    return {operator.name.split("_")[0]: operator.reason for operator in report.operators}


@pytest.mark.slow
@pytest.mark.usefixtures("operators")
def test_an_operator_that_reads_too_far_names_itself_its_node_and_the_index(tmp_path: Path, cache_path: Path) -> None:
    """Listed with oom, an operator whose shape function lies ends in one error; nothing of it is stored."""
    x = np.ones((3, 8), np.float32)
    model = network([helper.make_node("Beyond", ["x"], ["y"], "far", domain="debug")], x, ["y"])
    file = debug_file(tmp_path, "op_debug_config=oom\nop_debug_list=OpType::Beyond")
    net = opbuild.compile(model, cache_path=cache_path, op_debug_config=file)
    with pytest.raises(RunError) as caught:
        net(x)
    assert "kernel beyond_" in str(caught.value)
    assert "x0 is accessed at 8, which is beyond the max (7) in dimension 0" in str(caught.value)
    assert "far" in caught.value.hint
    assert reasons(net.report) == {"beyond": "it is debugged: oom"}
    assert list(cache_path.glob("rank_0/kernel_meta/beyond_*")) == []


@pytest.mark.usefixtures("operators")
def test_a_broken_promise_about_an_index_is_an_error_too(tmp_path: Path, cache_path: Path) -> None:
    """An index that comes from data is checked element by element, where it is used."""
    x, index = np.ones(8, np.float32), np.array([0, 7, 9], np.int32)
    model = network([helper.make_node("Picked", ["x", "c0"], ["y"], "pick", domain="debug")], x, ["y"], index)
    file = debug_file(tmp_path, "op_debug_config=oom\nop_debug_list=pick")
    net = opbuild.compile(model, cache_path=cache_path, op_debug_config=file)
    with pytest.raises(RunError, match=r"kernel picked_.*index 9 is outside of 0 to 7") as caught:
        net(x)
    assert "pick" in caught.value.hint


@pytest.mark.usefixtures("operators")
def test_check_flag_finds_tasks_that_depend_on_their_order(tmp_path: Path, cache_path: Path) -> None:
    """Two tasks that write one element: the error names the operator, its node and the element.

    One thread has the first run in order: of several the first tasks may end last, as they do in the second run.
    """
    x = np.arange(64, dtype=np.float32)
    model = network([helper.make_node("Racing", ["x"], ["y"], "race", domain="debug")], x, ["y"])
    file = debug_file(tmp_path, "op_debug_config=check_flag\nop_debug_list=race")
    net = opbuild.compile(model, cache_path=cache_path, op_debug_config=file, num_threads=1)
    with pytest.raises(RunError, match=r"kernel racing_.*argument 1 depends on the order .* index \[\d\]") as caught:
        net(x)
    assert "race" in caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize("text", ["op_debug_config=oom,check_flag", "op_debug_config=ccec_O0,check_flag"])
def test_sound_networks_run_as_ever_while_they_are_debugged(text: str, tmp_path: Path, cache_path: Path) -> None:
    """Winograd, kernels that move elements of other types, bools and strided operands pass every check."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 16, 30, 30)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "c0"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Transpose", ["b"], ["c"], "transpose", perm=[0, 2, 3, 1]),
        helper.make_node("Greater", ["c", "c1"], ["g"], "greater"),
        helper.make_node("Transpose", ["g"], ["t"], "move", perm=[0, 3, 1, 2]),
        helper.make_node("Gather", ["c", "c2"], ["p"], "gather", axis=3),
        helper.make_node("ReduceMax", ["p"], ["s"], "reduce", axes=[3], keepdims=0),
        helper.make_node("Where", ["t", "b", "x2"], ["y"], "where"),
        helper.make_node("Concat", ["x", "x"], ["x2"], "twice", axis=1),
    ]
    nodes = [*nodes[:7], nodes[8], nodes[7]]
    weights = (rng.standard_normal((32, 16, 3, 3)) / 12).astype(np.float32)
    constants = (weights, np.float32(0.5), np.array([3, -1, 0]))
    model = network(nodes, x, ["y", "s"], *constants)
    expected = opbuild.compile(model, cache_path=cache_path)(x)
    names = "conv,greater,gather,reduce,where,OpType::Transpose,OpType::Concat"
    file = debug_file(tmp_path, f"{text}\nop_debug_list={names}")
    net = opbuild.compile(model, cache_path=cache_path, op_debug_config=file)
    for found, wanted in zip(net(x), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    assert "conv" in reasons(net.report)
    assert sum("it is debugged" in reason for reason in reasons(net.report).values()) >= 5


def test_an_offline_model_checks_itself_where_its_weights_cannot_be_written(tmp_path: Path, cache_path: Path) -> None:
    """What was built with oom and check_flag keeps them; weights are mapped read-only, so only results are put back."""
    rng = np.random.default_rng(0)
    x, weights = rng.standard_normal((64, 80)).astype(np.float32), rng.standard_normal((80, 48)).astype(np.float32)
    model = network([helper.make_node("MatMul", ["x", "c0"], ["y"], "product")], x, ["y"], weights)
    file = debug_file(tmp_path, "op_debug_config=check_flag\nop_debug_list=product")
    config = Config.from_environment(cache_path=cache_path, op_debug_config=file)
    opbuild.export(model, tmp_path / "checked.om", config=config)
    net = opbuild.load(tmp_path / "checked.om")
    np.testing.assert_allclose(net(x), x @ weights, rtol=1e-4, atol=1e-4)
