"""One thing is changed at a time, in real processes: what depends on it is built again, and no more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.backend.halide.driver import HalideCompiler
from support.kept_kernels import SOURCE
from support.processes import Outcome, build_and_run

HOSTILE = {
    "HL_TARGET": "host-debug",
    "HL_JIT_TARGET": "host-profile",
    "HL_LLVM_ARGS": "-opt-bisect-limit=3",
    "HL_DEBUG_CODEGEN": "1",
    "HL_PERMIT_FAILED_UNROLL": "1",
    "HL_NUM_THREADS": "1",
    "HL_COMPILER_STACK_SIZE": "1000000",
    "HL_RUNTIME_DROP_FUNCS": "halide_malloc",
    "LLVM_PROFILE_FILE": "/nonexistent/profile",
    "PYTHONHASHSEED": "77",
    "PYTHONOPTIMIZE": "2",
    "LC_ALL": "C",
    "LANG": "tr_TR.UTF-8",
    "TZ": "Pacific/Kiritimati",
    "USER": "somebody",
    "HOSTNAME": "pod-7f9c",
    "JOB_ID": "job-123",
}
"""Variables of the compiler and of the process, none of which may reach an object or a key."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of three operators of three families."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["s"], axis=-1, name="soft"),
        helper.make_node("ReduceMax", ["s"], ["r"], keepdims=1, name="largest"),
        helper.make_node("Sub", ["s", "r"], ["y"], name="less"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 32]) for name in "xy")
    graph = helper.make_graph(nodes, "three", [x], [y])
    path = tmp_path_factory.mktemp("model") / "three.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of opbuild's sources, to be edited."""
    folder = tmp_path_factory.mktemp("checkout") / "src"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory, model: Path, checkout: Path) -> Path:
    """A cache in which the copied opbuild built the network."""
    folder = tmp_path_factory.mktemp("cache")
    first = run(model, folder, checkout)
    assert families(first) == {"softmax", "reducemax", "sub"}
    return folder


def run(model: Path, cache: Path, checkout: Path, **variables: str) -> Outcome:
    """Build and run the network in a process with the copied opbuild."""
    feeds = {"x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(8, 32)}
    return build_and_run(model, cache, feeds, PYTHONPATH=str(checkout), **variables)


def families(outcome: Outcome) -> set[str]:
    """Return the operator types that a process compiled, as file names begin with."""
    return {str(name).partition("_")[0] for name, *_ in outcome.built}


def objects(cache: Path) -> dict[str, bytes]:
    """Return the objects of a cache by name."""
    return {path.name: path.read_bytes() for path in cache.rglob("*.o")}


@pytest.mark.slow
def test_touched_moved_and_elsewhere_is_a_hit(model: Path, cache: Path, checkout: Path, tmp_path: Path) -> None:
    """F41, F43, F44, F46: a fresh checkout elsewhere, other user, home, locale and job start the stored network."""
    moved = tmp_path / "another checkout" / "src"
    shutil.copytree(checkout, moved)
    for path in moved.rglob("*.py"):
        os.utime(path, (1, 1))
    home = {"HOME": str(tmp_path), "TMPDIR": str(tmp_path), "DEVICE_ID": "5"}
    outcome = run(model, cache, moved, OPBUILD_FORBID_COMPILE="1", **home, **HOSTILE)
    assert outcome.image
    assert outcome.built == []


@pytest.mark.slow
def test_no_variable_reaches_the_compiler(model: Path, cache: Path, checkout: Path, tmp_path: Path) -> None:
    """F26, F28: objects are the same byte for byte, and a library that LD_LIBRARY_PATH offers instead is not loaded."""
    decoy = tmp_path / "decoy"
    decoy.mkdir()
    library = HalideCompiler.library()
    assert library is not None
    (decoy / library.name).write_bytes(b"not a library")
    outcome = run(model, tmp_path / "cold", checkout, LD_LIBRARY_PATH=str(decoy), TMPDIR=str(tmp_path), **HOSTILE)
    assert len(outcome.built) == 3
    assert objects(tmp_path / "cold") == objects(cache)


@pytest.mark.slow
def test_an_edited_operator_is_built_again_alone(model: Path, cache: Path, checkout: Path) -> None:
    """F30, F46: one schedule is edited under its old size and time; the network is put together again of the others.

    What defines the same is not built again.
    """
    path = checkout / "opbuild" / "families" / "softmax" / "halide.py"
    original, stat = path.read_bytes(), path.stat()
    for old, new, built in ((b'"""', b"'''", set()), (b'== "stack"', b'== "heaps"', {"softmax"})):
        edited = original.replace(old, new, 2)
        assert len(edited) == len(original)
        assert edited != original
        path.write_bytes(edited)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        outcome = run(model, cache, checkout)
        assert not outcome.image
        assert families(outcome) == built
        assert len(outcome.reused) == 3 - len(built)
    path.write_bytes(original)
    assert run(model, cache, checkout, OPBUILD_FORBID_COMPILE="1").image


def test_edited_lowering_builds_the_network_again_and_no_operator(model: Path, cache: Path, checkout: Path) -> None:
    """F30: what decides how a network is put together is in its image's key, and in no operator's."""
    path = checkout / "opbuild" / "lowering" / "lower.py"
    original = path.read_bytes()
    path.write_bytes(original + b"\n# edited\n")
    outcome = run(model, cache, checkout, OPBUILD_FORBID_COMPILE="1")
    path.write_bytes(original)
    assert not outcome.image
    assert outcome.built == []


@pytest.mark.slow
def test_a_model_of_equal_size_and_time_is_another_model(
    model: Path, cache: Path, checkout: Path, tmp_path: Path
) -> None:
    """F28, at the level of networks: bytes changed in place under the old times are noticed, whatever is remembered."""
    copied = Path(shutil.copy2(model, tmp_path / "three.onnx"))
    assert run(copied, cache, checkout).image
    stat = copied.stat()
    data = copied.read_bytes()
    assert data.count(b"ReduceMax") == 1
    copied.write_bytes(data.replace(b"ReduceMax", b"ReduceMin"))
    os.utime(copied, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    outcome = run(copied, cache, checkout)
    assert not outcome.image
    assert families(outcome) == {"reducemin"}
    x = np.linspace(-1, 1, 256, dtype=np.float64).reshape(8, 32)
    soft = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    np.testing.assert_allclose(outcome.outputs[0], soft - soft.min(), rtol=1e-5, atol=1e-6)
