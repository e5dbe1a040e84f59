"""Warm starts: a network that was built before starts in a new process without the compiler and the model's reader."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from support import networks
from support.kept_kernels import SOURCE
from support.processes import build_and_run, environment

pytestmark = pytest.mark.usefixtures("kept_objects")


@pytest.fixture(scope="module")
def cache(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which SqueezeNet was built."""
    folder = tmp_path_factory.mktemp("warm")
    opbuild.compile(networks.light_path("squeezenet"), cache_path=folder).wait_until_stored()
    return folder


def test_a_new_process_loads_neither_halide_nor_onnx(cache: Path) -> None:
    """F66: everything comes from the stored network; its operators count as reused and the output is the same."""
    path = networks.light_path("squeezenet")
    x = networks.light_input("squeezenet")
    here = opbuild.compile(path, cache_path=cache)
    there = build_and_run(path, cache, {here.inputs[0].name: x}, OPBUILD_FORBID_COMPILE="1")
    assert there.image
    assert there.built == []
    assert sorted(there.reused) == sorted(operator.name for operator in here.report.operators)
    assert there.loaded == []
    np.testing.assert_array_equal(there.outputs[0], here(x))


LOADED = """
import sys
import numpy
before = set(sys.modules)
import opbuild
assert opbuild.compile(sys.argv[1], cache_path=sys.argv[2]).report.image
print(*(set(sys.modules) - before))
"""


LEFT_OUT = {
    "dataclasses", "pathlib", "resource", "signal", "threading", "typing_extensions", "urllib.parse", "numpy.typing",
    "opbuild.platform.files.held", "opbuild.frontend.onnx_model", "opbuild.frontend.wire", "opbuild.lowering",
    "opbuild.pipeline.stages", "opbuild.pipeline.segmented", "opbuild.platform.installed",
}  # fmt: skip
"""What only a build, a failure or a size that is open needs."""

MOST = 96
"""Modules of opbuild that a start may load; it loads 90, or 95 where the network's kernels were compiled here."""


def test_a_start_loads_nothing_that_only_a_build_or_a_failure_needs(cache: Path) -> None:
    """Each module is a quarter of a millisecond of 25."""
    command = [sys.executable, "-c", LOADED, str(networks.light_path("squeezenet")), str(cache)]
    alone = environment(PYTHONPATH=str(SOURCE))  # nothing else is loaded
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=alone)
    loaded = done.stdout.split()
    assert not LEFT_OUT.intersection(loaded)
    assert sum(name.partition(".")[0] == "opbuild" for name in loaded) <= MOST


def test_the_store_can_be_moved(cache: Path, tmp_path: Path) -> None:
    """F37: a copy of the folder elsewhere starts the network too, though its files have other states."""
    shutil.copytree(cache, tmp_path / "copy")
    net = opbuild.compile(networks.light_path("squeezenet"), cache_path=tmp_path / "copy", forbid_compile=True)
    assert net.report.image


def test_a_start_reads_each_stored_file_and_writes_none(cache: Path) -> None:
    """F55: on the hit path the store is only read: no file is made, changed or removed."""

    def state() -> dict[str, int]:
        return {str(path): path.stat().st_ctime_ns for path in sorted(cache.rglob("*"))}

    opbuild.compile(networks.light_path("squeezenet"), cache_path=cache)
    before = state()
    assert opbuild.compile(networks.light_path("squeezenet"), cache_path=cache).report.image
    assert state() == before


def test_weights_are_mapped_and_shared_between_signatures(cache: Path) -> None:
    """Another input size packs no large weights again: the folder of weights gets no new bytes for the same layers."""
    weights = cache / "rank_0" / "network_meta" / "weights"
    before = {path.name for path in weights.glob("*.bin")}
    path = networks.light_path("squeezenet")
    net = opbuild.compile(path, cache_path=cache)
    name = net.inputs[0].name
    other = opbuild.compile(path, cache_path=cache, input_shapes={name: net.inputs[0].shape})
    assert other.report.image
    assert {path.name for path in weights.glob("*.bin")} == before
    maps = Path("/proc/self/maps").read_text(errors="surrogateescape")
    assert all(name in maps for name in before)


OWN_THREADS = """
import os, sys
import numpy as np
import opbuild

def tasks():
    return len(os.listdir("/proc/self/task"))

model, cache = sys.argv[1:]
x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
one = opbuild.compile(model, cache_path=cache, num_threads=1)
one(x)
before = tasks()
three = opbuild.compile(model, cache_path=cache, num_threads=3)
three(x)
both = tasks()
one(x)
np.testing.assert_allclose(one(x), three(x), rtol=1e-5, atol=1e-7)
print(both - before, tasks() - before)
"""


def test_two_networks_in_one_process_run_with_their_own_threads(cache: Path, tmp_path: Path) -> None:
    """``num_threads`` belongs to the network: one with a single thread starts none, another keeps its three.

    In a process of its own, which has no threads of other networks, and in which nothing is built.
    """
    model = tmp_path / "mlp.onnx"
    onnx.save(networks.mlp(batch=64, sizes=(64, 1024, 512, 10)), model)
    opbuild.compile(model, cache_path=cache, num_threads=1).wait_until_stored()
    command = [sys.executable, "-c", OWN_THREADS, str(model), str(cache)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["2", "2"]
