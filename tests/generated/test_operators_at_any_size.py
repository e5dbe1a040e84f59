"""Every operator that has a kernel, at any size: one program serves all, and gives what ONNX Runtime gives.

A rule that does not know open extents makes nothing wrong, only slow: each size is lowered again, or built. So it is
looked for here. ``OPBUILD_FUZZ=200`` tries so many networks of each operator.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

import opbuild
from generated.opened import Opened, Sizes, opened
from generated.random_networks import Maker
from generated.random_operators import OPERATORS
from generated.random_signal import short_time, transform
from generated.test_random_networks import Array, difference, expected_of
from opbuild.errors import ModelError
from opbuild.kernel.free import FREE
from opbuild.program import HostCall
from opbuild.runtime.record import Record
from opbuild.runtime.symbolic import symbolic_of
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import few

SEEDS = range(SEED, SEED + (CAMPAIGN or 8))
SIZES = (37, 50, 24, 61)
"""Above all that makes other programs: a vector, a block, the extents that networks are made with."""

EACH = {operator.__name__: operator for kind in (*OPERATORS, (short_time, transform)) for operator in kind}

Case = tuple[Opened, Sizes, list[int]]


def sized(operator: Callable[[Maker], None], seed: int) -> Case | None:
    """Return an opened network and the sizes that it takes; None if these are not at least three."""
    network = opened(operator, seed)
    if network is None or has_open_window(network):
        return None
    try:
        sizes = Sizes.of(network)
    except ModelError:  # a shape in it that no other size has
        return None
    taken = [size for size in SIZES if takes(sizes, network, size)]
    return (network, sizes, taken) if len(taken) >= 3 else None


def has_open_window(network: Opened) -> bool:
    """Return whether the weights of a convolution have an open window: a kernel is for one."""
    graph = network.model.graph
    declared = {value.name: shape for value, shape in zip(graph.input, network.inputs, strict=True)}
    weights = [declared.get(node.input[1], ()) for node in graph.node if node.op_type in ("Conv", "ConvTranspose")]
    return any(FREE in shape[2:] for shape in weights)


def takes(sizes: Sizes, network: Opened, size: int) -> bool:
    """Return whether a network can be lowered at a size."""
    try:
        sizes.closed(network.shapes(size))
    except ModelError:
        return False
    return True


@pytest.mark.parametrize("name", few(EACH, 4))
def test_one_program_serves_all_sizes_of_an_operator(name: str) -> None:
    """What is lowered at the first size is right for others: no network has a program for each size."""
    found, narrow = 0, []
    for seed in SEEDS:
        case = sized(EACH[name], seed)
        if case is None:
            continue
        network, sizes, taken = case
        found += 1
        made = sizes.records([network.shapes(size) for size in taken])
        if len(made) == len(taken):
            narrow.append((seed, network.inputs))
    assert found, f"no network of {name} takes other sizes: try more seeds"
    assert not narrow, f"(seed, inputs): {narrow}"


def served(case: Case) -> Record | None:
    """Return the program that serves all sizes; None if there are several, or the host computes something."""
    network, sizes, taken = case
    shapes = [network.shapes(size) for size in taken]
    if any(isinstance(each, HostCall) for each in sizes.closed(shapes[0]).calls):
        return None
    made = sizes.records(shapes)
    return made[0] if len(made) == 1 else None


def results_at(network: Opened, taken: list[int]) -> list[tuple[Array, ...]]:
    """Return the results of ONNX Runtime at some sizes; none if it has no kernel for one, as for some of Resize."""
    try:
        return [expected_of(network.model, network.feeds(size)) for size in taken]
    except Fail:
        return []


@pytest.mark.slow
@pytest.mark.parametrize("name", few(EACH, 4))
def test_a_program_gives_what_onnx_runtime_gives(name: str, shared_store: Path) -> None:
    """The second size and those behind it are bound by numbers, build nothing, and are right.

    A network in which something is repeated is preferred.
    """
    cases = [case for seed in SEEDS if (case := sized(EACH[name], seed))]
    known = [(case, program) for case in cases if (program := served(case))]
    known.sort(key=lambda each: len(symbolic_of(each[1]).repetitions), reverse=True)
    found = ((network, taken, results_at(network, taken)) for (network, _, taken), _ in known)
    chosen = next((each for each in found if each[2]), None)
    assert chosen, f"all networks of {name} have a node on the host, or several programs: try more seeds"
    network, taken, wanted = chosen
    called = opbuild.compile(network.model, cache_path=shared_store, workers=2)
    for number, (size, expected) in enumerate(zip(taken, wanted, strict=True)):
        results = called(*network.feeds(size).values())
        results = results if isinstance(results, tuple) else (results,)
        if number:
            assert called.report.built == 0
            assert "specialised from" in called.report.image_reason
        for value, got, right in zip(network.model.graph.output, results, expected, strict=True):
            noise = network.network.noise.get(value.name, 0.0) * max(1.0, network.growth(size))
            assert difference(got, right, noise) is None, (network.inputs, size, value.name)
