"""``opbuild explain`` after each kind of change, and bundles on a machine without the compiler, with real kernels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.kernel.entry import UNCHANGED
from support.commands import opbuild as run
from support.elsewhere import elsewhere
from support.kept_kernels import SOURCE
from support.preloaded import Ended


def network(kernel: int = 3, dtype: int = TensorProto.FLOAT, rows: int = 4) -> onnx.ModelProto:
    """Return a small network: a strided convolution, a pool, a product and an operator that has every float type."""
    rng = np.random.default_rng(0)
    window = rng.standard_normal((16, 16, kernel, kernel)).astype(np.float32)
    matrix = rng.standard_normal((64, 64)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], name="conv", kernel_shape=[kernel] * 2,
                             pads=[kernel // 2] * 4, strides=[2, 2]),
            helper.make_node("GlobalAveragePool", ["a"], ["y"], name="pool"),
            helper.make_node("MatMul", ["m", "b"], ["z"], name="product"),
            helper.make_node("Exp", ["e"], ["f"], name="exp"),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 16, 16)),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, (rows, 64)),
            helper.make_tensor_value_info("e", dtype, (1000,)),
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in
         (("y", TensorProto.FLOAT), ("z", TensorProto.FLOAT), ("f", dtype))],
        [numpy_helper.from_array(window, "w"), numpy_helper.from_array(matrix, "b")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def opbuild(folder: Path, *commands: Sequence[str]) -> list[Ended]:
    """Run commands in a folder, one after the other."""
    return [run(*words, folder=folder, MS_COMPILER_CACHE_PATH=".") for words in commands]


def explain(model: str, *arguments: str) -> list[str]:
    """Return the command that explains a model, for programs."""
    return ["explain", model, "--json", *arguments]


BUILD = ["compile", "net.onnx", "--num_threads", "2"]


def missing(said: str) -> dict[str, str]:
    """Return for each operator that ``opbuild explain --json`` would build its first node and the reason."""
    return {each["nodes"][0]: each["why"] for each in json.loads(said) if not each["reused"]}


@pytest.fixture(scope="module")
def built(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which ``net.onnx`` was built."""
    folder = tmp_path_factory.mktemp("built")
    onnx.save(network(), folder / "net.onnx")
    (done,) = opbuild(folder, BUILD)
    assert done.code == 0, done.errors
    return folder


@pytest.fixture(scope="module")
def explained(built: Path) -> dict[str, dict[str, str]]:
    """What explain says of the same network and of changed ones; it writes nothing."""
    changed: dict[str, dict[str, Any]] = {
        "same": {}, "kernel": {"kernel": 5}, "dtype": {"dtype": TensorProto.DOUBLE}, "rows": {"rows": 300},
    }  # fmt: skip
    for name, how in changed.items():
        onnx.save(network(**how), built / f"{name}.onnx")
    before = sorted(built.rglob("rank_0/**/*"))
    done = opbuild(built, *(explain(f"{name}.onnx") for name in changed))
    assert sorted(built.rglob("rank_0/**/*")) == before
    return dict(zip(changed, (missing(each.output) for each in done), strict=True))


def test_nothing_changed_nothing_to_explain(explained: dict[str, dict[str, str]]) -> None:
    """What was built is reused, as explain says."""
    assert explained["same"] == {}


def test_a_kernel_size_is_named(explained: dict[str, dict[str, str]]) -> None:
    """Only the convolution is new, and its kernel size is why (F69)."""
    ((node, why),) = explained["kernel"].items()
    assert node == "conv"
    assert why.startswith("attrs.kernel [3,3] -> [5,5] since conv_")


def test_a_dtype_is_named(explained: dict[str, dict[str, str]]) -> None:
    """Only the operator that changed its type is new, and the type is why."""
    ((node, why),) = explained["dtype"].items()
    assert node == "exp"
    assert "dtype float32 -> float64 since exp_" in why


def test_an_input_shape_that_needs_another_variant_is_named(explained: dict[str, dict[str, str]]) -> None:
    """A product of many rows takes another schedule; the shape itself is in no key."""
    ((node, why),) = explained["rows"].items()
    assert node == "product"
    assert why.startswith("variant ")
    assert " -> " in why


OTHERWISE = """
_before = define

def define(desc):
    definition = _before(desc)
    definition.inputs[0].dim(0).set_estimate(0, 64)
    return definition
"""


@pytest.mark.slow
def test_an_edit_of_one_operators_source_is_named(built: Path, tmp_path: Path) -> None:
    """Only operators that the edited file defines otherwise are new; of the others it is said that they are not."""
    edited = tmp_path / "edited"
    shutil.copytree(SOURCE / "opbuild", edited / "opbuild", ignore=shutil.ignore_patterns("__pycache__"))
    with (edited / "opbuild/families/softmax/halide.py").open("a") as file:
        file.write("# not used here\n")
    with (edited / "opbuild/families/global_pool/halide.py").open("a") as file:
        file.write("# an edit\n")
    (done,) = elsewhere(built, explain("net.onnx"), source=edited)
    assert not missing(done.output)
    assert UNCHANGED in done.output
    with (edited / "opbuild/families/global_pool/halide.py").open("a") as file:
        file.write(OTHERWISE)
    (done,) = elsewhere(built, explain("net.onnx"), source=edited)
    ((node, why),) = missing(done.output).items()
    assert node == "pool"
    assert why.startswith("source of GlobalAveragePool ")


def test_another_level_is_named(built: Path) -> None:
    """Every operator is new, and the level is why, also where each level has a folder of its own."""
    level = json.loads(_first_info(built).read_text())["key"]["components"]["target"]
    shutil.copytree(built / "rank_0" / "kernel_meta", built / "levels" / level)
    other = ("--target", "armv8-a")
    commands = explain("net.onnx", *other), explain("net.onnx", "--op_compiler_cache_dir", "levels", *other)
    found, each_apart = (missing(done.output) for done in opbuild(built, *commands))
    assert set(found) >= {"conv", "pool", "product", "exp"}
    assert each_apart == found
    named = [why for why in found.values() if why.startswith(f"target {level} -> armv8-a since ")]
    assert len(named) >= len(found) - 1  # a narrower machine may need another variant of the rest
    assert all(why.startswith(("target ", "variant ", "attrs.")) for why in found.values())


def test_a_damaged_object_is_named(built: Path, tmp_path: Path) -> None:
    """The one operator whose object was changed is to be built, and its digest is why; verify says the same."""
    shutil.copytree(built / "rank_0", tmp_path / "rank_0")
    shutil.copy(built / "net.onnx", tmp_path)
    path = next((tmp_path / "rank_0" / "kernel_meta").glob("conv_*.o"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    verify = ["cache", "verify"]
    why = explain("net.onnx")
    before, verified, repaired, after = opbuild(tmp_path, why, verify, [*verify, "--repair"], why)
    assert missing(before.output) == {"conv": "the object's digest differs from the one in .json"}
    assert verified.code == 1
    assert f"operator {path.stem}: the object's digest differs" in verified.output
    assert repaired.code == 0
    assert missing(after.output) == {"conv": "not in the store"}


def _first_info(folder: Path) -> Path:
    return next((folder / "rank_0" / "kernel_meta").glob("*.info"))


@pytest.fixture(scope="module")
def bundles(built: Path) -> dict[str, Path]:
    """The whole cache, and the network alone ready to start."""
    network_alone = ("--model", "net.onnx", "--network")
    commands = ["cache", "export", "all.bundle"], ["cache", "export", "net.bundle", *network_alone]
    for done in opbuild(built, *commands):
        assert done.code == 0, done.errors
    return {name: built / f"{name}.bundle" for name in ("all", "net")}


@pytest.fixture
def machine(tmp_path: Path, built: Path) -> Path:
    """Another machine's folder, with the model."""
    shutil.copy(built / "net.onnx", tmp_path)
    return tmp_path


def test_every_operator_of_a_bundle_hits_without_the_compiler(bundles: dict[str, Path], machine: Path) -> None:
    """Where halide is not installed, a model whose operators were imported builds; what is missing is named (F71)."""
    onnx.save(network(kernel=5), machine / "changed.onnx")
    take = ["cache", "import", str(bundles["all"])]
    changed = ["compile", "changed.onnx", "--num_threads", "2"]
    refused, taken, done, lacking = elsewhere(machine, BUILD, take, BUILD, changed, without={"halide"})
    assert refused.code == 5
    assert "the compiler halide is not installed" in refused.errors
    assert taken.code == 0, taken.errors
    assert done.code == 0, done.errors
    assert "0 operators built, " in done.output
    assert lacking.code == 5
    assert "1 operator would have to be compiled" in lacking.errors
    assert "attrs.kernel [3,3] -> [5,5]" in lacking.errors
    assert "Traceback" not in lacking.errors


def test_a_network_in_a_bundle_starts_without_compiler_and_reader(
    bundles: dict[str, Path], machine: Path, built: Path
) -> None:
    """With --network neither halide nor onnx is needed, and the outputs are those of the machine that built it."""
    take = ["cache", "import", str(bundles["net"])]
    call = ["run", "net.onnx", "--num_threads", "2", "--runs", "1", "--output_dir", "out"]
    taken, done = elsewhere(machine, take, call, without={"halide", "onnx"})
    assert (taken.code, done.code) == (0, 0), taken.errors + done.errors
    assert "0 operators built, " in done.output
    (done,) = opbuild(built, call)
    assert done.code == 0, done.errors
    for path in (built / "out").iterdir():
        np.testing.assert_array_equal(np.load(machine / "out" / path.name), np.load(path))


def test_stats_count_what_builds_found(built: Path, tmp_path: Path) -> None:
    """Misses by reason and hits of builds are summed; a start from the stored network adds nothing."""
    shutil.copytree(built / "rank_0", tmp_path / "rank_0")
    shutil.copy(built / "net.onnx", tmp_path)

    onnx.save(network(kernel=5), tmp_path / "changed.onnx")
    stats = ["cache", "stats", "--json"]
    changed = ["compile", "changed.onnx", "--num_threads", "2"]
    first, _, second, built_now, third = opbuild(tmp_path, stats, BUILD, stats, changed, stats)
    before, started, after = (json.loads(done.output) for done in (first, second, third))
    assert before["misses"] == {"absent": before["stored"]["operators"]["count"]}
    assert started["hits"] == before["hits"]
    assert built_now.code == 0, built_now.errors
    assert after["misses"]["changed"] == 1
    assert after["hits"] > 0
    assert after["saved_ms"] > 0
