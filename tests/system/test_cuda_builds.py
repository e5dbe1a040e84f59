"""Networks for GPUs built where there is none: what is stored, what is reused, what is damaged. Nothing is run."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.backend.triton.cubin import Cubin
from opbuild.errors import TargetError
from opbuild.runtime.devices.cuda import driver
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support import damage

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]


@pytest.fixture(autouse=True)
def everything_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies cost nothing, so that the smallest network goes to the GPU, of which there is no driver."""
    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda family: DeviceCost())
    monkeypatch.setattr(driver, "LIBRARY", "libcuda-that-is-not-there.so.1")
    monkeypatch.setattr(CLASS, "_device", None)


def write(folder: Path) -> Path:
    """Write a model of three kernels and return its path."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[1, 0]),
        helper.make_node("Exp", ["c"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [6, 64]), ("y", [64, 6]))
    ]
    weights = numpy_helper.from_array(np.linspace(0, 1, 64, dtype=np.float32), "w")
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "chain.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def warmed(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and its cache with it built for GPUs."""
    folder = tmp_path_factory.mktemp("warmed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CLASS, "copy_cost", DeviceCost)
        patch.setattr(CLASS, "kernel_cost", lambda family: DeviceCost())
        patch.setattr(driver, "LIBRARY", "libcuda-that-is-not-there.so.1")
        patch.setattr(CLASS, "_device", None)
        (report,) = opbuild.warm([write(folder)], targets=["cuda"], cache_path=folder / "cache")
    assert report.level.endswith("with cuda:sm_90a")
    return folder


def built_again(folder: Path, cache: Path) -> list[str]:
    """Warm a cache once more and return the types of the operators that were compiled."""
    (report,) = opbuild.warm([folder / "chain.onnx"], targets=["cuda"], cache_path=cache)
    return sorted(
        each.name.rpartition("_")[0].rpartition("_")[0] for each in report.operators if each.status == "built"
    )


def test_a_network_for_gpus_is_built_where_there_is_none(warmed: Path, tmp_path: Path) -> None:
    """Its kernels and its code are in the store; to run it there must be a GPU, and the error says so."""
    cache = tmp_path / "cache"
    shutil.copytree(warmed / "cache", cache)
    binaries = [*(cache / "rank_0" / "kernel_meta").glob("*.o")]
    assert len(binaries) == 3
    assert [*(cache / "rank_0" / "network_meta").glob("chain*.so")]
    assert built_again(warmed, cache) == []
    with pytest.raises(TargetError, match="no NVIDIA driver"):
        opbuild.compile(warmed / "chain.onnx", target="cuda", cache_path=cache, forbid_compile=True)


def test_the_digest_of_the_compiler_is_remembered(warmed: Path) -> None:
    """Its library has 415 MB, which no start is to read again."""
    assert (warmed / "cache" / "rank_0" / "network_meta" / "compiler_cuda.json").is_file()


OF_ENTRY = [
    ("exp_*.o", damage.flip(0.02)),
    ("exp_*.o", damage.flip(0.5)),
    ("exp_*.o", damage.cut(lambda size: size - 1)),
    ("exp_*.json", lambda path: path.write_text(path.read_text().replace('"warps": 4', '"warps": 8'))),
    ("exp_*.json", lambda path: path.write_text(path.read_text().replace('"cubin"', '"object"'))),
    ("exp_*.info", Path.unlink),
]


@pytest.mark.parametrize(("which", "how"), OF_ENTRY)
def test_a_damaged_kernel_is_compiled_again_and_no_other(
    which: str, how: damage.Damage, warmed: Path, tmp_path: Path
) -> None:
    """How it is launched counts, too: with other numbers it would write anywhere."""
    cache = tmp_path / "cache"
    shutil.copytree(warmed / "cache", cache)
    (victim,) = (cache / "rank_0" / "kernel_meta").glob(which)
    before = victim.read_bytes()
    how(victim)
    assert not victim.exists() or victim.read_bytes() != before
    for path in (cache / "rank_0" / "network_meta").glob("chain*"):
        path.unlink()
    assert built_again(warmed, cache) == ["exp"]
    assert victim.read_bytes() == before or which.endswith(".json")


def test_each_stored_kernel_is_sound(warmed: Path) -> None:
    """As whoever reads a store checks it."""
    import json

    for path in (warmed / "cache" / "rank_0" / "kernel_meta").glob("*.o"):
        record = json.loads(path.with_suffix(".json").read_text())
        found = Cubin.symbols(path.read_bytes(), record["launch"])
        assert found.defined == (record["kernelName"],)
