"""``opbuild explain`` after each kind of change, and bundles on a machine without the compiler, with real kernels."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from processes import SOURCE, environment

WITHOUT = """
import sys
from importlib import util
gone = {names}
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in gone:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Gone())
find_spec = util.find_spec
util.find_spec = lambda name, package=None: None if name.partition(".")[0] in gone else find_spec(name, package)
"""
"""A machine where some packages are not installed."""


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


def opbuild(
    folder: Path, *arguments: str, source: Path = SOURCE, without: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, perhaps from another copy of the sources or without some packages."""
    variables = {"PYTHONPATH": str(source), "MS_COMPILER_CACHE_PATH": "."}
    if without:
        (folder / "without").mkdir(exist_ok=True)
        names = set(without.split(","))
        (folder / "without" / "sitecustomize.py").write_text(WITHOUT.format(names=names))
        variables["PYTHONPATH"] = f"{folder / 'without'}:{source}"
    return subprocess.run(
        [sys.executable, "-m", "opbuild", *arguments],
        cwd=folder, env=environment(**variables), capture_output=True, text=True, check=False,
    )  # fmt: skip


EXPLAIN = """
import sys
from opbuild.cli.main import main
for name in sys.argv[1:]:
    assert main(["explain", name, "--json", "--num_threads", "2"]) == 0
    print("####", flush=True)
"""
"""Explains several models, without a process for each."""


def missing(said: str) -> dict[str, str]:
    """Return for each operator that ``opbuild explain --json`` would build its first node and the reason."""
    return {each["nodes"][0]: each["why"] for each in json.loads(said) if not each["reused"]}


def reasons(folder: Path, model: onnx.ModelProto, *arguments: str, source: Path = SOURCE) -> dict[str, str]:
    """Return what ``opbuild explain`` says of a model."""
    onnx.save(model, folder / "explained.onnx")
    done = opbuild(folder, "explain", "explained.onnx", "--json", "--num_threads", "2", *arguments, source=source)
    assert done.returncode == 0, done.stderr
    return missing(done.stdout)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: nobody edits it while these tests run."""
    folder = tmp_path_factory.mktemp("source")
    shutil.copytree(SOURCE / "opbuild", folder / "opbuild", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    """A folder in which ``net.onnx`` was built."""
    folder = tmp_path_factory.mktemp("built")
    onnx.save(network(), folder / "net.onnx")
    done = opbuild(folder, "build", "net.onnx", "--num_threads", "2", source=source)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def explained(built: Path, source: Path) -> dict[str, dict[str, str]]:
    """What explain says of the same network and of changed ones; it writes nothing."""
    changed: dict[str, dict[str, Any]] = {
        "same": {}, "kernel": {"kernel": 5}, "dtype": {"dtype": TensorProto.DOUBLE}, "rows": {"rows": 300},
    }  # fmt: skip
    for name, how in changed.items():
        onnx.save(network(**how), built / f"{name}.onnx")
    before = sorted(built.rglob("rank_0/**/*"))
    done = subprocess.run(
        [sys.executable, "-c", EXPLAIN, *(f"{name}.onnx" for name in changed)],
        cwd=built, env=environment(PYTHONPATH=str(source), MS_COMPILER_CACHE_PATH="."),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(built.rglob("rank_0/**/*")) == before
    said = done.stdout.split("####\n")[:-1]
    return dict(zip(changed, map(missing, said), strict=True))


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


def test_an_edit_of_one_operators_source_is_named(built: Path, source: Path, tmp_path: Path) -> None:
    """Only operators that the edited file defines are new."""
    edited = shutil.copytree(source, tmp_path / "edited")
    with (edited / "opbuild/families/softmax/schedule.py").open("a") as file:
        file.write("# not used here\n")
    with (edited / "opbuild/families/global_pool/definition.py").open("a") as file:
        file.write("# an edit\n")
    ((node, why),) = reasons(built, network(), source=edited).items()
    assert node == "pool"
    assert why.startswith("source of GlobalAveragePool ")


def test_another_target_is_named(built: Path, source: Path) -> None:
    """Every operator is new, and the target is why, also where each target has a folder of its own."""
    found = reasons(built, network(), "--soc_version", "arm-64-linux", source=source)
    assert set(found) >= {"conv", "pool", "product", "exp"}
    triple = "-".join(json.loads(_first_info(built).read_text())["key"]["components"]["target"].split("-")[:3])
    arguments = ("--op_compiler_cache_dir", "targets", "--soc_version", "arm-64-linux")
    target = built / "targets" / json.loads(_first_info(built).read_text())["key"]["components"]["target"]
    shutil.copytree(built / "rank_0" / "kernel_meta", target)
    assert reasons(built, network(), *arguments, source=source) == found
    named = [why for why in found.values() if why.startswith(f"target {triple} -> arm-64-linux since ")]
    assert len(named) >= len(found) - 1  # a narrower machine may need another variant of the rest
    assert all(why.startswith(("target ", "variant ", "attrs.")) for why in found.values())


def test_a_damaged_object_is_named(built: Path, source: Path, tmp_path: Path) -> None:
    """The one operator whose object was changed is to be built, and its digest is why; verify says the same."""
    shutil.copytree(built / "rank_0", tmp_path / "rank_0")
    path = next((tmp_path / "rank_0" / "kernel_meta").glob("conv_*.o"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert list(reasons(tmp_path, network(), source=source).items()) == [
        ("conv", "the object's digest differs from the one in .json")
    ]
    done = opbuild(tmp_path, "cache", "verify", source=source)
    assert done.returncode == 1
    assert f"operator {path.stem}: the object's digest differs" in done.stdout
    assert opbuild(tmp_path, "cache", "verify", "--repair", source=source).returncode == 0
    assert reasons(tmp_path, network(), source=source) == {"conv": "not in the store"}


def _first_info(folder: Path) -> Path:
    return next((folder / "rank_0" / "kernel_meta").glob("*.info"))


@pytest.fixture(scope="module")
def bundles(built: Path, source: Path) -> dict[str, Path]:
    """The whole cache, and the network alone ready to start."""
    for name, arguments in (("all", ()), ("net", ("--model", "net.onnx", "--network", "--num_threads", "2"))):
        done = opbuild(built, "cache", "export", f"{name}.bundle", *arguments, source=source)
        assert done.returncode == 0, done.stderr
    return {name: built / f"{name}.bundle" for name in ("all", "net")}


@pytest.fixture
def machine(tmp_path: Path, built: Path) -> Path:
    """Another machine's folder, with the model."""
    shutil.copy(built / "net.onnx", tmp_path)
    return tmp_path


def test_every_operator_of_a_bundle_hits_without_the_compiler(
    bundles: dict[str, Path], machine: Path, source: Path
) -> None:
    """Where halide is not installed, a model whose operators were imported builds; what is missing is named (F71)."""
    options: dict[str, Any] = {"source": source, "without": "halide"}
    refused = opbuild(machine, "build", "net.onnx", "--num_threads", "2", **options)
    assert refused.returncode == 5
    assert "the compiler halide is not installed" in refused.stderr
    done = opbuild(machine, "cache", "import", str(bundles["all"]), **options)
    assert done.returncode == 0, done.stderr
    done = opbuild(machine, "build", "net.onnx", "--num_threads", "2", **options)
    assert done.returncode == 0, done.stderr
    assert "0 operators built, " in done.stdout
    onnx.save(network(kernel=5), machine / "changed.onnx")
    refused = opbuild(machine, "build", "changed.onnx", "--num_threads", "2", **options)
    assert refused.returncode == 5
    assert "1 operator would have to be compiled" in refused.stderr
    assert "attrs.kernel [3,3] -> [5,5]" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_network_in_a_bundle_starts_without_compiler_and_reader(
    bundles: dict[str, Path], machine: Path, built: Path, source: Path
) -> None:
    """With --network neither halide nor onnx is needed, and the outputs are those of the machine that built it."""
    options: dict[str, Any] = {"source": source, "without": "halide,onnx"}
    done = opbuild(machine, "cache", "import", str(bundles["net"]), **options)
    assert done.returncode == 0, done.stderr
    arguments = ("run", "net.onnx", "--num_threads", "2", "--repeat", "1", "--output_dir", "out")
    done = opbuild(machine, *arguments, **options)
    assert done.returncode == 0, done.stderr
    assert "0 operators built, " in done.stdout
    assert opbuild(built, *arguments, source=source).returncode == 0
    for path in (built / "out").iterdir():
        np.testing.assert_array_equal(np.load(machine / "out" / path.name), np.load(path))


def test_stats_count_what_builds_found(built: Path, source: Path, tmp_path: Path) -> None:
    """Misses by reason and hits of builds are summed; a start from the stored network adds nothing."""
    shutil.copytree(built / "rank_0", tmp_path / "rank_0")
    shutil.copy(built / "net.onnx", tmp_path)

    def stats() -> Any:
        return json.loads(opbuild(tmp_path, "cache", "stats", "--json", source=source).stdout)

    before = stats()
    assert before["misses"] == {"absent": before["stored"]["operators"]["count"]}
    opbuild(tmp_path, "build", "net.onnx", "--num_threads", "2", source=source)
    assert stats()["hits"] == before["hits"]
    onnx.save(network(kernel=5), tmp_path / "changed.onnx")
    assert opbuild(tmp_path, "build", "changed.onnx", "--num_threads", "2", source=source).returncode == 0
    after = stats()
    assert after["misses"]["changed"] == 1
    assert after["hits"] > 0
    assert after["saved_ms"] > 0
