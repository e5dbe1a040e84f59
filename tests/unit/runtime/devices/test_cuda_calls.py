"""Calls on a GPU that is not there: parameters as the binary says, grids, and calls replayed as one graph."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from opbuild.errors import LinkError, RunError
from opbuild.runtime.devices.cuda.calls import Parameters
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.runtime.devices.device import Callee, KernelCalls
from opbuild.runtime.record import DimsTable
from support.fake_driver import ILLEGAL_ADDRESS, INVALID, UNKNOWN, FakeDriver, problems_of
from support.gpu_calls import Chain, artifact, kernels, made, numbers

LATE = [0, 3, 1 << 30]
GRAPH = ("cuGraphLaunch", "cuLaunchKernel")


@pytest.fixture(params=LATE, ids=["at once", "three late", "as late as can be"])
def driver(request: pytest.FixtureRequest) -> Iterator[FakeDriver]:
    """A driver that does late what it is asked for."""
    with problems_of(FakeDriver(kernels)) as fake:
        fake.patience = request.param
        yield fake


@pytest.mark.parametrize("joined", [False, True])
def test_calls_read_what_those_before_wrote_at_each_size(driver: FakeDriver, joined: bool) -> None:
    """Addresses, extents and strides are those of the size, one by one and as a graph."""
    chain = Chain(CudaDevice(driver), 5)
    for extent in (1, 31, 32, 33, 200):
        chain.fill(extent)
        for seed in range(3):
            x = numbers(extent, seed)
            assert np.array_equal(chain.run(x, joined), chain.wanted(x))
    assert driver.launched == ["twice", "again", "twice", "again", "twice"] * 15


def test_a_second_run_is_recorded_and_every_further_one_is_one_launch(driver: FakeDriver) -> None:
    """The first run launches each call, the second records them and launches the graph, as all later ones do."""
    chain, x = Chain(CudaDevice(driver), 4), numbers(50)
    chain.fill(50)
    for graphs, launches in ((0, 4), (1, 8), (2, 8), (3, 8)):
        assert np.array_equal(chain.run(x), chain.wanted(x))
        assert made(driver, GRAPH) == [graphs, launches]
    assert driver.handles["graph"] == 0
    assert driver.handles["instance"] == 1


def test_the_same_numbers_keep_the_graph_and_others_drop_it(driver: FakeDriver) -> None:
    """A size that comes again when another was in between is recorded again: its graph went."""
    chain = Chain(CudaDevice(driver), 3)
    for extent, graphs in ((40, 0), (40, 1), (40, 2), (41, 2), (41, 3), (40, 3), (40, 4)):
        chain.fill(extent)
        x = numbers(extent)
        assert np.array_equal(chain.run(x), chain.wanted(x))
        assert driver.called.count("cuGraphLaunch") == graphs
        assert driver.handles["instance"] <= 1


def test_parameters_lie_where_the_binary_says(driver: FakeDriver) -> None:
    """Whatever order, offsets and kinds of arguments there are; parameters that nobody is given stay 0."""
    draw = np.random.default_rng(5)
    device, names = CudaDevice(driver), ["a", "b", "c"]
    stated = [random_launch(draw, operands=3) for _ in names]
    module = device.load(device.link([artifact(name, **each) for name, each in zip(names, stated, strict=True)]))
    found = [module.kernel(name) for name in names]
    dims = DimsTable.of([((7, 1), (5, 9)), ((3, 0),), ((2, -4), (6, 1), (8, 2))])
    called, shape = np.array([2, 0, 1, 0]), np.array([0, 2, 1] * 4)
    calls = KernelCalls(
        [Callee(each, module, 1) for each in found], called, np.arange(3, 13, 3), dims, shape, [], shape * 0
    )
    parameters = Parameters(found, calls)
    pairs = np.array([(n + 2, 1000 * n + 7) for n in range(6)])
    addresses = draw.integers(1 << 40, 1 << 47, 12)
    assert parameters.fill(addresses, pairs)
    assert not parameters.fill(addresses, pairs)
    for number, kind in enumerate(called):
        launch = stated[kind]
        pointers = np.ctypeslib.as_array((ctypes.c_uint64 * len(launch["parameters"])).from_address(
            parameters.at[number]))  # fmt: skip
        base = pointers[0] - launch["parameters"][0][0]
        for place, (offset, size) in enumerate(launch["parameters"]):
            assert pointers[place] == base + offset
            got = int.from_bytes(ctypes.string_at(int(pointers[place]), size), "little", signed=True)
            assert got == wanted_value(launch, place, number, addresses, pairs, dims, shape)
        assert parameters.grids[number] == wanted_grid(launch, number, pairs, dims, shape)


def random_launch(draw: Any, operands: int) -> dict[str, Any]:
    """Return the launch of a kernel: its arguments in any order, whose operands have 2, 3 and 1 dimensions."""
    ranks = [2, 3, 1]
    every = [[kind, operand, dim] for operand in range(operands) for dim in range(ranks[operand])
             for kind in ("extent", "stride")] + [["address", operand, 0] for operand in range(operands)]  # fmt: skip
    arguments = [every[place] for place in draw.permutation(len(every))[: draw.integers(3, len(every))]]
    parameters, end = [], 0
    for size in [4 if kind == "extent" else 8 for kind, _, _ in arguments] + [8, 8]:
        end = -(-end // size) * size
        parameters.append([end, size])
        end += size
    grid = [[[0, 1, 2], [1, 2, 3]], [[2, 0, 16]], []][: draw.integers(1, 4)]
    return {"arguments": arguments, "parameters": parameters, "grid": grid, "shared": 0}


def wanted_value(launch: Any, place: int, number: int, addresses: Any, pairs: Any, dims: DimsTable, shape: Any) -> int:
    """Return the value of a call's parameter."""
    if place >= len(launch["arguments"]):
        return 0
    kind, operand, dim = launch["arguments"][place]
    argument = 3 * number + operand
    if kind == "address":
        return int(addresses[argument])
    return int(pairs[dims.first[shape[argument]] + dim, 0 if kind == "extent" else 1])


def wanted_grid(launch: Any, number: int, pairs: Any, dims: DimsTable, shape: Any) -> tuple[int, ...]:
    """Return the extents of a call's grid."""
    grid = [1, 1, 1]
    for axis, tiles in enumerate(launch["grid"]):
        for operand, dim, size in tiles:
            grid[axis] *= -(-int(pairs[dims.first[shape[3 * number + operand]] + dim, 0]) // size)
    return tuple(grid)


def test_a_call_with_nothing_to_compute_is_left_out(driver: FakeDriver) -> None:
    """The driver refuses a grid that is empty: none is launched, recorded neither."""
    chain = Chain(CudaDevice(driver), 3)
    chain.fill(0)
    for _ in range(3):
        for function, arguments in (chain.prepared.join(range(3)), *chain.prepared.steps):
            function(*arguments)
    chain.device.synchronize()
    assert "cuLaunchKernel" not in driver.called


@pytest.mark.parametrize(
    ("launch", "extent", "said"),
    [
        ({}, 2**31, "kernel twice is for extents of at most 2,147,483,647 on the GPU"),
        (
            {"grid": [[], [[1, 0, 1]]]},
            65_536,
            "kernel twice is for grids of at most 2,147,483,647 x 65,535 x 65,535 tiles",
        ),
        ({"grid": [[], [], [[1, 0, 2]]]}, 131_071, "kernel twice is for grids"),
        ({"grid": [[[1, 0, 1], [0, 0, 1], [1, 0, 1]]]}, 2**30, "kernel twice is for grids"),
    ],
)
def test_sizes_that_no_kernel_is_launched_with_are_refused(
    launch: dict[str, Any], extent: int, said: str, driver: FakeDriver
) -> None:
    """An extent is packed as 32 bits, and the driver knows grids of so many programs; what was packed before stays."""
    device = CudaDevice(driver)
    module = device.load(device.link([artifact("twice", **launch)]))
    dims, two = DimsTable.of([((1, 1),), ((1, 1),)]), np.array([0, 1])
    callee = Callee(module.kernel("twice"), module, 1)
    prepared = device.prepare(KernelCalls([callee], np.array([0]), np.array([2]), dims, two, ["int32"], two * 0))
    with pytest.raises(RunError, match=said):
        prepared.fill(two, np.array([[extent, 1]] * 2))
    prepared.fill(two, np.array([[1000, 1]] * 2))


@pytest.mark.parametrize("argument", [["extent", 2, 0], ["stride", 1, 1], ["address", 2, 0]])
def test_a_kernel_that_asks_for_operands_that_its_calls_lack_is_refused(
    argument: list[Any], driver: FakeDriver
) -> None:
    """Its launch data were made for other operands: it would read beside the table."""
    device = CudaDevice(driver)
    sizes = [
        [8 * place, 4 if kind == "extent" else 8] for place, kind in enumerate([argument[0], "address", "address"])
    ]
    module = device.load(device.link([artifact("twice", arguments=[argument], parameters=sizes)]))
    dims, two = DimsTable.of([((1, 1),), ((1, 1),)]), np.array([0, 1])
    callee = Callee(module.kernel("twice"), module, 1)
    with pytest.raises(LinkError, match="kernel twice is launched with operands that its calls lack"):
        device.prepare(KernelCalls([callee], np.array([0]), np.array([2]), dims, two, ["int32"], two * 0))


@pytest.mark.parametrize(
    ("function", "at"),
    [
        ("cuStreamBeginCapture_v2", 1),
        ("cuStreamEndCapture", 1),
        ("cuGraphInstantiateWithFlags", 1),
        ("cuLaunchKernel", 5),
        ("cuLaunchKernel", 7),
    ],
)
def test_calls_that_cannot_be_recorded_are_launched_one_by_one(function: str, at: int, driver: FakeDriver) -> None:
    """Recording failed once is not tried again at these numbers; results are right, and nothing is left behind."""
    chain = Chain(CudaDevice(driver), 4)
    chain.fill(60)
    driver.fail(function, INVALID, at)
    for seed in range(4):
        x = numbers(60, seed)
        assert np.array_equal(chain.run(x), chain.wanted(x))
    assert "cuGraphLaunch" not in driver.called
    assert driver.called.count("cuStreamBeginCapture_v2") == 1
    del chain
    assert driver.is_empty


@pytest.mark.parametrize("joined", [False, True])
def test_a_launch_that_fails_names_its_kernel(joined: bool, driver: FakeDriver) -> None:
    """The run fails; the next one is right."""
    chain, x = Chain(CudaDevice(driver), 4), numbers(10)
    chain.fill(10)
    driver.fail("cuLaunchKernel", INVALID, 2)
    said = r"kernel again cannot be launched: cuLaunchKernel: CUDA_ERROR_INVALID_VALUE \(1\)"
    with pytest.raises(RunError, match=said):
        chain.run(x, joined)
    assert np.array_equal(chain.run(x, joined), chain.wanted(x))


def test_a_graph_that_cannot_be_launched_is_an_error(driver: FakeDriver) -> None:
    """Not silently another result; the next launch of it serves."""
    chain, x = Chain(CudaDevice(driver), 4), numbers(10)
    chain.fill(10)
    chain.run(x)
    driver.fail("cuGraphLaunch", INVALID)
    with pytest.raises(RunError, match="calls cannot be replayed: cuGraphLaunch"):
        chain.run(x)
    assert np.array_equal(chain.run(x), chain.wanted(x))


@pytest.mark.parametrize("code", [ILLEGAL_ADDRESS, UNKNOWN])
@pytest.mark.parametrize("runs", [0, 1, 2])
def test_a_context_that_is_lost_serves_nobody_and_says_so(code: int, runs: int, driver: FakeDriver) -> None:
    """While calls are launched, recorded or replayed: the driver's name of the error, and what to do, at each call."""
    chain, x = Chain(CudaDevice(driver), 2), numbers(10)
    chain.fill(10)
    for _ in range(runs):
        chain.run(x)
    driver.fail("cuStreamEndCapture" if runs == 1 else "cuStreamSynchronize", code)
    with pytest.raises(RunError, match=rf"\({code}\)"):
        chain.run(x)
    for _ in range(2):
        with pytest.raises(RunError, match=rf"the GPU's context was lost before: .*\({code}\)") as raised:
            chain.run(x)
    assert "start it anew" in raised.value.hint


def test_a_kernel_that_reads_nowhere_is_named_where_it_alone_was_asked_for(driver: FakeDriver) -> None:
    """An error that comes late names the kernels that it may come from."""
    chain, x = Chain(CudaDevice(driver), 1), numbers(10)
    chain.fill(10, (1000, 1))
    said = r"kernel twice failed: cu\w+: CUDA_ERROR_ILLEGAL_ADDRESS \(700\), an illegal memory access"
    with pytest.raises(RunError, match=said):
        chain.run(x)
    other = Chain(CudaDevice(FakeDriver(kernels)), 4)
    other.fill(10, (1000, 1))
    with pytest.raises(RunError, match=r"one of 2 kernels failed \(twice, again\)"):
        other.run(x)
