"""Random networks on a device with memory of its own, against the CPU; ``OPBUILD_FUZZ=500`` tries so many."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from generated.random_networks import make_network
from generated.test_random_networks import difference
from generated.test_random_updates import random_updates
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.source import GraphSource
from opbuild.session import Session
from support import fake_device
from support.fuzzing import check_seeds
from support.tiers import spans

DEVICE = fake_device.CLASS.open()
Outcome = tuple[str, str]
pytestmark = pytest.mark.usefixtures("kept_objects", "_late")


@pytest.fixture
def _late() -> Iterator[None]:
    """The device is as late as it was before, whatever a test did."""
    before = DEVICE.patience
    yield
    DEVICE.patience = before


def all_of(results: Any) -> tuple[Any, ...]:
    """Return the outputs of a network as a tuple."""
    return results if isinstance(results, tuple) else (results,)


def try_network(seed: int, folder: Path, device: Any = DEVICE, target: str = fake_device.NAME) -> Outcome:
    """Run the network of a seed on both, twice, and once more as it is stored; how late the device is is drawn."""
    network = make_network(seed)
    if not all(np.isfinite(each).all() for each in network.feeds.values() if each.dtype.kind == "f"):
        return "special", ""  # what numpy makes of infinities is not what kernels do
    path, device.patience = folder / f"{seed}.onnx", seed * 7 % 5 or 1 << 20
    onnx.save(network.model, path)
    try:
        on_cpu = opbuild.compile(path, cache_path=folder)
        wanted = all_of(on_cpu(**network.feeds))
    except OpbuildError as error:
        return "refused", f"{error}"
    with np.errstate(all="ignore"):
        on_device = opbuild.compile(path, cache_path=folder, target=target)
        launched = len(device.launched)
        runs = [all_of(on_device(**network.feeds)) for _ in range(2)]
        stored = opbuild.compile(path, cache_path=folder, target=target, forbid_compile=True)
        runs.append(all_of(stored(**network.feeds)))
    for results in runs:
        for port, got, right in zip(network.model.graph.output, results, wanted, strict=True):
            said = difference(got, right, 2 * network.noise.get(port.name, 0.0))
            if said:
                return "wrong", f"output {port.name} {said}\n{onnx.printer.to_text(network.model)[:4000]}"
    return ("on the device" if len(device.launched) > launched else "on the CPU"), ""


def try_updates(seed: int, config: Config) -> Outcome | None:
    """Run a network whose outputs replace inputs on both."""
    DEVICE.patience = seed % 4 or 1 << 20
    graph, random = random_updates(seed), np.random.default_rng(seed)
    shapes = tuple(graph.types[name].shape for name in graph.inputs)
    sessions = (Session(set_up(config, target, None)) for target in (None, fake_device.NAME))
    on_cpu, on_device = (each.bind(GraphSource(graph, is_stored=True), shapes).executor for each in sessions)
    for _ in range(2):
        given = [np.asarray(random.standard_normal(graph.types[name].shape), np.float32) for name in graph.inputs]
        one, other = ([each.copy() for each in given] for _ in range(2))
        wanted, found = on_cpu.run(one), on_device.run(other)
        for left, right in zip((*wanted, *one), (*found, *other), strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-3, atol=1e-4)
        assert all(any(each is array for array in other) for each in found[: len(graph.updates)])
    return None


@pytest.mark.parametrize("seeds", spans(8, 2))
def test_random_networks_give_on_a_device_what_they_give_on_the_cpu(seeds: range, tmp_path: Path) -> None:
    """Whatever it has kernels for, in whatever order it does what it was asked for late."""
    tally = check_seeds("networks on a device", lambda seed: try_network(seed, tmp_path), seeds)
    assert tally.outcomes["on the device"] > len(seeds) / 3, tally


@pytest.mark.parametrize("seeds", spans(8, 2))
def test_what_replaces_inputs_does_so_from_a_device(seeds: range, config: Config) -> None:
    """The caller's arrays hold the results when the call returns."""
    check: Callable[[int], Outcome | None] = lambda seed: try_updates(seed, config)  # noqa: E731
    check_seeds("updates from a device", check, seeds)
