"""Two hosts of a level, faked: they choose the same kernels, have the same keys, and start each other's networks."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.config import Config
from support import networks
from support.preloaded import Preloaded

_CPUINFO = Path(__file__).parent.parent / "data" / "cpuinfo"

_KEYS = """
import json, os, platform, sys
from opbuild.platform.paths import Path
cpuinfo, caches, model, cores = sys.argv[1:]
read = Path.read_text
Path.read_text = lambda self, *a, **b: read(Path(cpuinfo) if str(self) == "/proc/cpuinfo" else self, *a, **b)
os.sched_getaffinity = lambda _: set(range(int(cores)))
platform.machine = lambda: "x86_64"
from support.fake_compiler import FakeCompiler
from opbuild.backend.host.evaluate import evaluate
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.target import host
from opbuild.lowering.lower import lower
from opbuild.pipeline.stores import BuildNetworks
from opbuild.pipeline.setup import set_up
from opbuild.runtime.stored_network import StoredNetworks
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
host._CACHES = Path(caches)
level = host.host_level()
program = lower(optimize(load_model(model).bind({}, evaluate), evaluate), level)
builder = Builder(Operators(Memory()), FakeCompiler(), level, Config())
setup = set_up(Config.from_environment(), None, None)
image = BuildNetworks(setup, StoredNetworks(None, None)).key("net", "digest", {})
print(json.dumps({
    "level": str(level), "l1": host.host_machine().l1, "cores": host.host_machine().cores, "image": image.stem,
    "keys": [builder.key(desc).sha256 for desc in program.descriptors()],
}))
"""


def keys_on(process: Preloaded, processor: str, folder: Path, l1: str, cores: int) -> dict[str, Any]:
    """Return the facts of a process on a faked host: its level, its own facts, and all keys of a network."""
    index = folder / processor / "index0"
    index.mkdir(parents=True)
    for name, text in (("type", "Data"), ("level", "1"), ("size", l1)):
        (index / name).write_text(text, encoding="ascii")
    model = folder / "net.onnx"
    onnx.save(networks.light("squeezenet", random_weights=False), model)
    arguments = [str(_CPUINFO / f"{processor}.txt"), str(index.parent), str(model), str(cores)]
    done = process.run("-c", [_KEYS, *arguments], folder, os.environ)
    assert done.code == 0, done.errors
    found: dict[str, Any] = json.loads(done.output)
    assert (found["l1"], found["cores"]) == (int(l1[:-1]) * 1024, cores)
    return found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="levels are read from /proc/cpuinfo")
def test_hosts_of_one_level_have_equal_keys_whatever_their_caches_and_cores(process: Preloaded, tmp_path: Path) -> None:
    """Intel and AMD, with caches and cores of their own: one level, so the same operators and networks."""
    intel = keys_on(process, "sapphire_rapids", tmp_path, "48K", 2)
    amd = keys_on(process, "zen4", tmp_path, "32K", 64)
    other = keys_on(process, "haswell", tmp_path, "32K", 2)
    assert intel["level"] == amd["level"] == "x86-64-v4-bf16"
    assert len(intel["keys"]) >= 8
    assert intel["keys"] == amd["keys"]
    assert intel["image"] == amd["image"]
    assert not set(intel["keys"]) & set(other["keys"])
    assert other["image"] != intel["image"]


def test_a_network_is_one_for_every_number_of_threads(tmp_path: Path) -> None:
    """Built with two threads, it starts as it is stored with one, four and sixteen, and there is nothing to build."""
    model, feeds = networks.mlp(), {"x": np.ones((4, 64), np.float32)}
    first = opbuild.compile(model, cache_path=tmp_path, num_threads=2)
    expected = first(feeds)
    for threads in (1, 4, 16):
        again = opbuild.compile(model, cache_path=tmp_path, num_threads=threads)
        assert (again.report.image, again.report.built) == (True, 0)
        np.testing.assert_array_equal(again(feeds), expected)
    assert len(list(tmp_path.rglob("network_meta/network_*.json"))) == 1
    for path in tmp_path.rglob("network_meta/network_*.json"):
        path.unlink()
    assert opbuild.compile(model, cache_path=tmp_path, num_threads=16).report.built == 0


def test_an_offline_model_is_one_for_every_number_of_threads(tmp_path: Path) -> None:
    """Built where one thread or many would run it, it is the same file."""
    files = [
        opbuild.export(networks.mlp(), tmp_path / f"{threads}", config=Config(tmp_path, num_threads=threads))
        for threads in (1, 16)
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
