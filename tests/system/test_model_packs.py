"""Model packs in processes of their own: first starts compile nothing, and later ones do not look at packs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.cli.main import main
from opbuild.store.pack import PACKS
from opbuild.target.host import host_level
from support.processes import environment
from support.small_network import SmallNetwork, make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

needs_pack = pytest.mark.skipif(not (PACKS / host_level().name).is_dir(), reason=f"there is no pack for {host_level()}")

_RUN = """
import json, sys
import numpy as np
import opbuild
net = opbuild.compile(sys.argv[1], input_shapes=json.loads(sys.argv[2]), num_threads=1)
rows = np.load(sys.argv[3])
outputs = net(rows)
np.save(sys.argv[4], outputs[0] if isinstance(outputs, (list, tuple)) else outputs)
print(json.dumps({
    "built": net.report.built,
    "image": net.report.image,
    "host": dict(net.report.host),
    "why": sorted({each.reason for each in net.report.operators}),
    "packs": sorted(name for name in sys.modules if name in ("opbuild.store.model_packs", "opbuild.store.archive")),
}))
"""


def started(model: Path, x: Any, tmp_path: Path, **variables: str) -> tuple[dict[str, Any], Any]:
    """Return the report and the output of a fresh process that must not compile."""
    data, answer = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(data, x)
    arguments = [str(model), json.dumps({"x": list(x.shape)}), str(data), str(answer)]
    own = {"OPBUILD_FORBID_COMPILE": "1", "OPBUILD_FIRST": "wait", "MS_COMPILER_CACHE_PATH": str(tmp_path / "store")}
    done = subprocess.run(
        [sys.executable, "-c", _RUN, *arguments],
        env=environment(**own) | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), np.load(answer)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network of two operators, for any number of rows."""
    return make_small_network(tmp_path_factory.mktemp("small"))


def test_with_its_pack_an_empty_store_compiles_nothing(small: SmallNetwork, tmp_path: Path) -> None:
    """Compiling is forbidden, and the release's pack is not there; a second start looks at no pack at all."""
    pack = tmp_path / "my.pack"
    arguments = ["--shape", "x:64,256", "--all", "--cache_path", str(tmp_path / "made")]
    assert main(["pack", str(small.path), "-o", str(pack), *arguments]) == 0
    variables = {"OPBUILD_PACK": f"0:{pack}"}
    report, y = started(small.path, small.x, tmp_path, **variables)
    assert (report["built"], report["image"]) == (0, False)
    assert report["why"] == [f"from the pack {pack}"]
    np.testing.assert_array_equal(y, small.y)
    report, y = started(small.path, small.x, tmp_path, **variables)
    assert (report["built"], report["image"], report["packs"]) == (0, True, [])
    np.testing.assert_array_equal(y, small.y)


def test_with_its_pack_another_size_compiles_nothing(small: SmallNetwork, tmp_path: Path) -> None:
    """Kernels that compute any size are in it, too; a warning says that they are slower than its own."""
    pack = tmp_path / "my.pack"
    arguments = ["--shape", "x:64,256", "--all", "--cache_path", str(tmp_path / "made")]
    assert main(["pack", str(small.path), "-o", str(pack), *arguments]) == 0
    report, y = started(small.path, small.x[:5], tmp_path, OPBUILD_PACK=f"0:{pack}", OPBUILD_FIRST="answer")
    assert (report["built"], report["host"]) == (0, {})
    np.testing.assert_allclose(y, small.y[:5], rtol=1e-5)


@needs_pack
def test_an_installed_wheel_is_found_behind_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the release's pack lacks is there once the wheel is installed, in the environment that Python runs."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    model, wheel, site = tmp_path / "odd.onnx", tmp_path / "my_models-1.0-py3-none-any.whl", tmp_path / "site"
    nodes = [
        helper.make_node("Sin", ["x"], ["a"]),
        helper.make_node("Atan", ["a"], ["b"]),
        helper.make_node("Mul", ["b", "a"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, 32)) for name in "xy"]
    graph = helper.make_graph(nodes, "odd", ports[:1], ports[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), model)
    assert main(["pack", str(model), "-o", str(wheel), "--cache_path", str(tmp_path / "made")]) == 0
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    path = os.pathsep.join([environment()["PYTHONPATH"], str(site)])
    x = np.sin(np.arange(8 * 32, dtype=np.float32)).reshape(8, 32)
    report, y = started(model, x, tmp_path, PYTHONPATH=path, OPBUILD_PACK="1")
    assert report["built"] == 0
    assert report["why"] == ["from the pack", "from the pack of my_models"]
    rows = np.exp(np.arctan(np.sin(x)) * np.sin(x))
    np.testing.assert_allclose(y, rows / rows.sum(-1, keepdims=True), rtol=1e-5)
