"""Packs of networks in segments and of what ran with a cache: an empty store compiles nothing, wherever data lead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.cli.main import main
from support.processes import environment
from support.segment_networks import NETWORKS, ON_HOST, network
from support.small_network import make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

TESTS = Path(__file__).parents[1]

RUN = """
import sys, numpy as np, opbuild
from support.segment_networks import feeds, network, same
for name in sys.argv[1:]:
    net = opbuild.compile(f"{name}.onnx")
    for given in feeds(name):
        same(network(name), given, net.run(given))
    print(name, net.built, *net.report.host)
"""

DECODE = """
import numpy as np, opbuild
net = opbuild.compile("grown.onnx")
for past in (20, 21, 22, 29):
    rows = np.random.default_rng(past).standard_normal((1, 2, past, 8)).astype(np.float32)
    x = np.ones((1, 1, 32), np.float32)
    given = {"x": x, "k": x[:, :, :16], "v": x[:, :, :16], "past_k": rows, "past_v": rows}
    found = net.run(given | {"last": np.array([past], np.int32), "total": np.array([past + 1], np.int32)})
    assert found["new_k"].shape == (1, 2, past + 1, 8)
    np.testing.assert_array_equal(found["new_k"][:, :, :past], rows)
print(net.built, dict(net.report.host))
"""

MODULE = """
import sys, torch
class Chosen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.first, self.second = torch.nn.Linear(6, 8), torch.nn.Linear(8, 4)
    def forward(self, x):
        y = torch.relu(self.first(x))
        return torch.softmax(self.second(torch.sinh(y[torch.nonzero(y.sum(1) > 1.5).squeeze(1)])), -1)
import opbuild.torch
model = Chosen().eval()
compiled = torch.compile(model, backend="opbuild")
with torch.no_grad():
    for rows in map(int, sys.argv[1:]):
        x = torch.rand(rows, 6, generator=torch.Generator().manual_seed(rows))
        torch.testing.assert_close(compiled(x), model(x))
print(opbuild.torch.report().built)
"""


def run(folder: Path, program: str, *arguments: str, **variables: str) -> str:
    """Return the output of a process that waits for all kernels, with a cache of its own."""
    own = {"OPBUILD_CACHE": str(folder / "empty"), "OPBUILD_FIRST": "wait", **variables}
    path = f"{TESTS}:{environment()['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, env=environment(PYTHONPATH=path) | own,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def forbidden(pack: str) -> dict[str, str]:
    """Return the variables of a process that has a pack alone, not the release's."""
    return {"OPBUILD_PACK": f"0:{pack}", "OPBUILD_FORBID_COMPILE": "1"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, where the release has no pack."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPBUILD_PACK", "0")
    return tmp_path


@pytest.mark.slow
def test_segments_that_data_lead_to_are_packed(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Branches, turns, counts of elements: in numpy there is only what stands at breaks."""
    for name in NETWORKS:
        onnx.save(network(name), f"{name}.onnx")
    models = [f"{name}.onnx" for name in NETWORKS]
    assert main(["pack", *models, "--all", "--cache_path", "made", "-o", "my.pack"]) == 0
    assert "segments" not in capfd.readouterr().err
    said = {
        name: (built, host)
        for name, built, *host in map(str.split, run(folder, RUN, *NETWORKS, **forbidden("my.pack")).splitlines())
    }
    for name in NETWORKS:
        assert (said[name][0], {*said[name][1]}) == ("0", ON_HOST.get(name, set())), name


def test_warmed_segments_start_where_compiling_is_forbidden(folder: Path) -> None:
    """Their kernels are stored, without the networks: these are put together where data lead to them."""
    for name in ("data", "branches"):
        onnx.save(network(name), f"{name}.onnx")
    assert main(["warm", "data.onnx", "branches.onnx", "--cache_path", "empty"]) == 0
    assert run(folder, RUN, "data", "branches", OPBUILD_FORBID_COMPILE="1") == "data 0 NonZero\nbranches 0\n"


@pytest.mark.slow
def test_a_cache_that_grows_is_packed_with_the_length_that_it_grows_to(folder: Path) -> None:
    """The number of all tokens is an input: made-up ones are beyond what is there, as it is."""
    caches = {name: [1, 2, "past", 8] for name in ("past_k", "past_v")}
    shapes = {"x": [1, 1, 32], "k": [1, 1, 16], "v": [1, 1, 16], **caches}
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    ports += [helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in ("last", "total")]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "new_k", "new_v")]
    node = helper.make_node(
        "GroupQueryAttention", [*shapes, "last", "total"], ["y", "new_k", "new_v"], domain="com.microsoft",
        num_heads=4, kv_num_heads=2,
    )  # fmt: skip
    graph = helper.make_graph([node], "grown", ports, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), "grown.onnx")
    sizes = "past_k:1,2,20,8;past_v:1,2,20,8"
    assert main(["pack", "grown.onnx", "--shape", sizes, "--all", "--cache_path", "made", "-o", "my.pack"]) == 0
    assert run(folder, DECODE, **forbidden("my.pack")) == "0 {}\n"


@pytest.mark.slow
def test_what_ran_with_a_cache_is_packed(folder: Path) -> None:
    """A module of torch that data break, run once: another process compiles nothing, also at another size."""
    pytest.importorskip("torch", reason="the back end of torch.compile needs torch")
    assert int(run(folder, MODULE, "5", "9", OPBUILD_CACHE="used")) > 0
    assert main(["pack", "--stored", "--all", "--cache_path", "used", "-o", "my.pack"]) == 0
    assert run(folder, MODULE, "5", "9", "20", **forbidden("my.pack")) == "0\n"


def test_a_cache_is_packed_beside_models(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Both are said; a cache in which nothing ran, without a model, is refused."""
    small = make_small_network(folder)
    onnx.save(network("top"), "top.onnx")
    assert main(["pack", "--stored", "--cache_path", "none", "-o", "my.pack"]) == 2
    assert "has no kernel for" in capfd.readouterr().err
    assert main(["compile", "top.onnx", "--cache_path", "used"]) == 0
    arguments = ["--shape", "x:64,256", "--stored", "--all", "--cache_path", "used", "-o", "my.pack"]
    assert main(["pack", small.path.name, *arguments]) == 0
    assert f"1 model and the cache {folder / 'used' / 'rank_0'}" in capfd.readouterr().out
    assert main(["pack", "--show", "my.pack"]) == 0
    said = capfd.readouterr().out
    assert f"of {small.path.name}, what ran with a cache" in said
    assert {"reduce", "matmul"} <= {*said.split()}
