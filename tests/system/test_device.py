"""Networks on a class of devices that is registered from outside: memory of its own, calls that are done later."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.errors import InputError, RunError, TargetError
from opbuild.families.matmul import family as matmul
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering import implementations
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import IMPLEMENTATIONS, serves
from opbuild.lowering.matrix import Product, as_rows, epilogue_inputs
from opbuild.offline.plan import preview
from opbuild.runtime.timing import timing
from opbuild.target.devices import ConstantLayout, DeviceCost
from opbuild.target.host import parse_target
from support import damage, device_models, fake_device
from support.until import until

ROOT = Path(__file__).resolve().parents[2]
DEVICE = fake_device.CLASS.open()
TARGET = fake_device.NAME
pytestmark = pytest.mark.usefixtures("kept_objects")

DRAW = np.random.default_rng(3)
FEEDS: dict[str, tuple[Any, ...]] = {
    "perceptron": (DRAW.standard_normal((8, 16)).astype(np.float32),),
    "mini_lm": (np.arange(9)[np.newaxis] * 7, np.array([[1] * 7 + [0] * 2])),
    "convolutional": (DRAW.standard_normal((2, 3, 16, 16)).astype(np.float32),),
    "pooled": (DRAW.standard_normal((2, 3, 16, 16)).astype(np.float32),),
    "in_segments": (DRAW.standard_normal((4, 16)).astype(np.float32),),
}
FAMILIES = {
    "perceptron": {"matmul"},
    "mini_lm": {"copy", "elementwise", "gather", "layer_norm", "matmul", "softmax"},
    "convolutional": {"elementwise", "matmul", "reduce", "softmax"},
    "pooled": {"elementwise", "reduce", "softmax"},
    "in_segments": {"matmul", "reduce"},
}
"""The families of each network whose kernels run on the device, at least."""


@pytest.fixture(params=[0, 3, 1 << 30], ids=["at once", "three late", "as late as can be"])
def stream(request: pytest.FixtureRequest) -> Iterator[None]:
    """How late the device does what it is asked for."""
    before, DEVICE.patience = DEVICE.patience, request.param
    yield
    DEVICE.patience = before


TURNED = ConstantLayout("turned", lambda shape: shape[::-1], lambda array: array.T)


def write(folder: Path, name: str, *args: Any) -> Path:
    """Write a model into a folder and return its path."""
    path = folder / f"{name}.onnx"
    onnx.save(getattr(device_models, name)(*args), path)
    return path


def outputs(network: Any, feeds: tuple[Any, ...]) -> list[Any]:
    """Return the outputs of a network, as a list."""
    found = network(*feeds)
    return list(found) if isinstance(found, tuple) else [found]


def assert_alike(one: list[Any], other: list[Any]) -> None:
    """Compare what two devices gave."""
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def families_of(network: Any) -> set[str]:
    """Return the families whose kernels a network has on the device."""
    found = set()
    for runner in network.runners:
        kinds = zip(runner.record.steps.kinds, runner.record.devices_of_kinds, strict=True)
        found |= {runner.record.notes["kernels"][kind.symbol][0] for kind, device in kinds if device == TARGET}
    return found


@pytest.mark.parametrize("name", FEEDS)
def test_networks_run_on_the_device_cold_and_from_the_store(name: str, stream: None, tmp_path: Path) -> None:
    """What the device has kernels for runs there, the rest on the CPU; numbers are the CPU's, call after call."""
    path, feeds = write(tmp_path, name), FEEDS[name]
    wanted = outputs(opbuild.compile(path, cache_path=tmp_path), feeds)
    cold = opbuild.compile(path, cache_path=tmp_path, target=TARGET)
    assert_alike(outputs(cold, feeds), wanted)
    assert_alike(outputs(cold, feeds), wanted)
    assert families_of(cold) >= FAMILIES[name]
    assert cold.report.built
    warm = opbuild.compile(path, cache_path=tmp_path, target=TARGET, forbid_compile=True)
    assert warm.report.image
    assert warm.report.level.endswith(f"with {TARGET}:v1")
    assert_alike(outputs(warm, feeds), wanted)


@pytest.mark.parametrize(("name", "shape"), [("perceptron", (16,)), ("convolutional", (3, 16, 16))])
def test_a_network_of_any_size_runs_on_the_device_at_each(name: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """Further sizes compile nothing, also in the next process; memory on the device grows as the host's does."""
    path = write(tmp_path, name, "n")
    on_cpu, on_device = (opbuild.compile(path, cache_path=tmp_path, target=each) for each in (None, TARGET))
    for size in (2, 5, 1, 40, 5):
        feeds = (DRAW.standard_normal((size, *shape)).astype(np.float32),)
        assert_alike(outputs(on_device, feeds), outputs(on_cpu, feeds))
    again = opbuild.compile(path, cache_path=tmp_path, target=TARGET, forbid_compile=True)
    assert_alike(outputs(again, feeds), outputs(on_cpu, feeds))
    assert families_of(again) >= {"matmul"}


def test_calls_are_under_way_when_the_next_is_asked_for(tmp_path: Path) -> None:
    """Nobody waits for the device but who reads what it made: once a call, at its end."""
    network = opbuild.compile(write(tmp_path, "perceptron"), cache_path=tmp_path, target=TARGET)
    network(*FEEDS["perceptron"])
    DEVICE.launched.clear()
    DEVICE.longest, DEVICE.copied[:] = 0, [0, 0]
    network(*FEEDS["perceptron"])
    assert DEVICE.longest == 1 + len(DEVICE.launched) == 4
    assert DEVICE.copied == [8 * 16 * 4, 8 * 10 * 4]


def test_arrays_of_another_library_on_the_device_are_copied_there(stream: None, tmp_path: Path) -> None:
    """A class from outside says which these are; as inputs and outputs they do not come to the host.

    Where nobody gives an output, the class makes one there.
    """
    path = write(tmp_path, "perceptron")
    on_cpu, network = (opbuild.compile(path, cache_path=tmp_path, target=each) for each in (None, TARGET))
    ((values,), (port,)) = FEEDS["perceptron"], network.bound_outputs
    x, out = (fake_device.shared(np.asarray(each, np.float32)) for each in (values, np.zeros(port.shape)))
    DEVICE.copied[:] = [0, 0]
    made = network(x)
    assert network.run({network.inputs[0].name: x}, out={port.name: out})[port.name] is out
    assert DEVICE.copied == [0, 0]
    for each in (made, out):
        found = np.zeros(each.shape, each.dtype)
        DEVICE.read(each.memory.address, found)
        assert_alike([found], outputs(on_cpu, (values,)))
    with pytest.raises(InputError, match="element type int32, the network needs float32"):
        network(fake_device.shared(values.astype(np.int32)))


def test_a_profile_has_the_time_of_what_the_device_does(tmp_path: Path) -> None:
    """Each call is awaited before the next one's time begins; copies are calls, too."""
    network = opbuild.compile(write(tmp_path, "perceptron"), cache_path=tmp_path, target=TARGET)
    network(*FEEDS["perceptron"])
    DEVICE.longest = 0
    with timing() as timer:
        network(*FEEDS["perceptron"])
    assert DEVICE.longest == 1
    rows = [each.call.family for each in network.profile(runs=1).rows]
    assert rows == ["DeviceCopy", "matmul", "matmul", "matmul", "DeviceCopy"]
    assert len(timer.calls) == len(rows)


def test_the_device_is_given_no_blocks_of_channels(tmp_path: Path) -> None:
    """It takes plain values: what the CPU has in blocks is converted once, before it is copied, and nothing after."""
    network = opbuild.compile(write(tmp_path, "pooled"), cache_path=tmp_path, target=TARGET)
    rows = [each.call.family for each in network.profile(FEEDS["pooled"], runs=1).rows]
    images = [family for family in ("to_blocked", "pool", "from_blocked") for _ in range(2)]
    assert rows == [*images, "DeviceCopy", "elementwise", "reduce", "softmax", "DeviceCopy"]


@pytest.mark.parametrize(("copy", "families"), [(1e9, set()), (1.0, {"matmul"})])
def test_what_is_tiny_goes_to_the_device_only_where_copies_are_cheap(
    copy: float, families: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three small products stay where their input is; then the network is the CPU's own, packed weights and all."""
    path, feeds = write(tmp_path, "perceptron"), FEEDS["perceptron"]
    on_cpu = opbuild.compile(path, cache_path=tmp_path / "cpu")
    monkeypatch.setattr(fake_device.CLASS, "copy_cost", lambda: DeviceCost(copy))
    network = opbuild.compile(path, cache_path=tmp_path / "device", target=TARGET)
    assert_alike(outputs(network, feeds), outputs(on_cpu, feeds))
    assert families_of(network) == families
    if not families:
        one, other = (each.runners[0].record.notes["kernels"] for each in (network, on_cpu))
        assert one == other


def test_a_part_goes_to_the_device_that_is_worth_its_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the device computes faster goes, with what lies between; what it computes slower stays at the end."""
    path, feeds = write(tmp_path, "convolutional"), FEEDS["convolutional"]
    costs = {"reduce": DeviceCost(call=1e6), "softmax": DeviceCost(call=1e6)}
    monkeypatch.setattr(fake_device.CLASS, "kernel_cost", lambda family: costs.get(family, DeviceCost(byte=0.001)))
    monkeypatch.setattr(fake_device.CLASS, "copy_cost", lambda: DeviceCost(call=1.0))
    network = opbuild.compile(path, cache_path=tmp_path, target=TARGET)
    assert families_of(network) == {"copy", "elementwise", "matmul"}
    assert_alike(outputs(network, feeds), outputs(opbuild.compile(path, cache_path=tmp_path), feeds))


def test_weights_lie_as_the_device_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that reads them transposed gets them so, cold and from the store."""

    def constant(desc: OpDesc, number: int) -> ConstantLayout | None:
        return TURNED if desc.family == "matmul" and number == 1 else None

    monkeypatch.setattr(fake_device.CLASS, "constant", constant)
    for name in ("perceptron", "mini_lm"):
        path, feeds = write(tmp_path, name), FEEDS[name]
        wanted = outputs(opbuild.compile(path, cache_path=tmp_path), feeds)
        for forbids in (False, True):
            network = opbuild.compile(path, cache_path=tmp_path, target=TARGET, forbid_compile=forbids)
            assert_alike(outputs(network, feeds), wanted)


def test_a_family_may_have_an_implementation_of_the_device_s_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked before the CPU's, packs weights as it likes, and its calls run on the device whatever they cost."""
    registry = type(IMPLEMENTATIONS)("implementation", join=implementations._joined)
    implementations.operators()
    registry.update(IMPLEMENTATIONS)
    monkeypatch.setattr(implementations, "IMPLEMENTATIONS", registry)
    serves("lowering.Product", cost=0.1, where=lambda _, product: product.constant is not None, target=TARGET)(turned)
    monkeypatch.setattr(fake_device.CLASS, "copy_cost", lambda: DeviceCost(1e9))
    path, feeds = write(tmp_path, "perceptron"), FEEDS["perceptron"]
    network = opbuild.compile(path, cache_path=tmp_path, target=TARGET)
    assert families_of(network) == {"matmul"}
    assert_alike(outputs(network, feeds), outputs(opbuild.compile(path, cache_path=tmp_path), feeds))


def turned(lowering: Lowering, product: Product) -> None:
    """Emit a product of the device whose right operand lies transposed."""
    assert product.constant is not None
    name, is_turned = product.constant
    rows, (k, n) = as_rows(lowering, product), product.rhs.shape[-2:]

    def pack() -> Any:
        matrix = np.asarray(lowering.constant(name))
        return matrix.reshape(n, k) if is_turned else np.ascontiguousarray(matrix.reshape(k, n).T)

    weights = lowering.packed((name,), f"turned {is_turned}", (n, k), "float32", pack)
    given = tuple(
        Operand(each, "float32", (Dim(), Dim()), layout) for each, layout in (("lhs", "ND"), ("rhs", "turned"))
    )
    inputs = (*given, *epilogue_inputs(rows, inner=False))
    attrs = {"rhs": "rows", "epilogue": rows.expression}
    variant = {"rows": 1, "columns": 32, "stage": False}
    desc = matmul.FAMILY.desc(("MatMul",), inputs, (Operand("out", "float32", (Dim(), Dim())),), attrs, variant)
    desc = replace(desc, target=fake_device.CLASS.target().name)
    lowering.emit(desc, (rows.lhs, weights, *rows.operands, rows.out), (rows.node,))


def test_weights_are_on_the_device_once_and_go_with_the_last_network(tmp_path: Path) -> None:
    """They are uploaded when a network starts, shared by all that have them, and given back."""
    path, before = write(tmp_path, "mini_lm"), DEVICE.held
    opbuild.compile(path, cache_path=tmp_path, target=TARGET).wait_until_stored()
    assert DEVICE.held == before
    one = opbuild.compile(path, cache_path=tmp_path, target=TARGET)
    first = DEVICE.held - before
    other = opbuild.compile(path, cache_path=tmp_path, target=TARGET)
    second = DEVICE.held - before - first
    assert first > 10 * second > 0
    assert one.name == other.name
    del one, other
    assert DEVICE.held == before


def test_what_fails_on_the_device_is_told_where_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that fails long after it was asked for fails the run, with its kernel's name; the next run is right."""
    network = opbuild.compile(write(tmp_path, "perceptron"), cache_path=tmp_path, target=TARGET)
    wanted = outputs(network, FEEDS["perceptron"])
    with monkeypatch.context() as patch:
        patch.setattr(DEVICE, "ask", _failing(DEVICE.ask))
        with pytest.raises(RunError, match=r"matmul_add_relu_\d+__kernel0 failed: out of order"):
            network(*FEEDS["perceptron"])
    assert_alike(outputs(network, FEEDS["perceptron"]), wanted)


def _failing(ask: Callable[..., None]) -> Callable[..., None]:
    def failing(name: str, work: Callable[[], None]) -> None:
        def fail() -> None:
            raise ArithmeticError("out of order")

        ask(name, fail if name.startswith("matmul_add_relu") else work)

    return failing


def test_reports_say_what_the_cpu_runs_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cold, from the store and before a build; of a network that the device runs whole there is nothing to say."""
    path = write(tmp_path, "pooled")
    reports = [opbuild.compile(path, cache_path=tmp_path, target=TARGET).report for _ in range(2)]
    why = "fake has no kernels of the family"
    for report in (*reports, preview(path, target=parse_target(TARGET), portable=False)):
        assert report.stayed == {f"{family}: {why}": 2 for family in ("from_blocked", "pool", "to_blocked")}
        assert f"2 calls on the CPU: pool: {why}" in report.on_cpu
    assert not opbuild.compile(write(tmp_path, "perceptron"), cache_path=tmp_path, target=TARGET).report.stayed
    monkeypatch.setattr(fake_device.CLASS, "copy_cost", lambda: DeviceCost(1e9))
    dear = opbuild.compile(tmp_path / "perceptron.onnx", cache_path=tmp_path / "dear", target=TARGET).report
    assert dear.stayed == {"matmul: copies would take longer": 3}


def test_a_target_that_nobody_registered_is_refused(tmp_path: Path) -> None:
    """The message says what a target may be."""
    with pytest.raises(TargetError, match="there is no level 'unheard-of'"):
        opbuild.compile(write(tmp_path, "perceptron"), cache_path=tmp_path, target="unheard-of")


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and its cache with it built for the device."""
    folder = tmp_path_factory.mktemp("built")
    opbuild.compile(write(folder, "convolutional"), cache_path=folder / "cache", target=TARGET)
    return folder


def replacing(old: str, new: str) -> damage.Damage:
    """Return a damage that changes what a text says."""

    def replace(path: Path) -> None:
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return replace


OF_ENTRY = [
    ("kernel_meta/softmax*.o", damage.flip(0.5)),
    ("kernel_meta/softmax*.o", damage.cut(lambda size: size // 2)),
    ("kernel_meta/softmax*.o", damage.cut(lambda _: 0)),
    ("kernel_meta/softmax*.json", damage.flip(0.3)),
    ("kernel_meta/softmax*.json", replacing('"operands": 2', '"operands": 3')),
    ("kernel_meta/softmax*.json", replacing('"python"', '"object"')),
    ("kernel_meta/softmax*.info", Path.unlink),
]


@pytest.mark.parametrize(("which", "how"), OF_ENTRY)
def test_a_damaged_entry_of_the_device_is_built_again(
    which: str, how: damage.Damage, built: Path, tmp_path: Path
) -> None:
    """Whatever of it is damaged, how it is launched too; the others serve, and the next start is whole."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    rank = tmp_path / "cache" / "rank_0"
    how(next(rank.glob(which)))
    for path in (rank / "network_meta").glob("convolutional*"):
        path.unlink()
    for expected in (1, 0):
        network = opbuild.compile(built / "convolutional.onnx", cache_path=tmp_path / "cache", target=TARGET)
        assert network.report.built == expected
        wanted = opbuild.compile(built / "convolutional.onnx", op_compiler_cache_mode="disable")
        assert_alike(outputs(network, FEEDS["convolutional"]), outputs(wanted, FEEDS["convolutional"]))


@pytest.mark.parametrize("suffix", [".so", ".json", ".bin"])
@pytest.mark.parametrize("share", [0.0, 0.6, 1.0])
def test_a_damaged_network_of_the_device_is_put_together_again(
    suffix: str, share: float, built: Path, tmp_path: Path
) -> None:
    """From its operators; nothing is compiled."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    victims = [*(tmp_path / "cache" / "rank_0" / "network_meta").glob(f"convolutional*{suffix}")]
    for each in victims:
        damage.flip(share)(each)
    network = opbuild.compile(built / "convolutional.onnx", cache_path=tmp_path / "cache", target=TARGET)
    assert victims
    assert (network.report.built, network.report.image) == (0, False)
    wanted = opbuild.compile(built / "convolutional.onnx", op_compiler_cache_mode="disable")
    assert_alike(outputs(network, FEEDS["convolutional"]), outputs(wanted, FEEDS["convolutional"]))


HELD = """
import sys
import opbuild
from support import fake_device
opbuild.compile(sys.argv[1], cache_path=sys.argv[2], target=fake_device.NAME)
"""


def test_a_build_for_the_device_that_is_killed_loses_only_what_was_under_way(built: Path, tmp_path: Path) -> None:
    """``kill -9`` while one operator compiles: the others are there, and the next build compiles that one alone."""
    path, hold = built / "convolutional.onnx", tmp_path / fake_device.HOLD
    names = {each.name for each in (built / "cache" / "rank_0" / "kernel_meta").glob("*.json")}
    others = {name for name in names if not name.startswith("softmax")}
    hold.write_text("softmax")
    search = os.pathsep.join([str(tmp_path), str(ROOT / "tests"), str(ROOT), *sys.path])
    command = [sys.executable, "-c", HELD, str(path), str(tmp_path / "cache")]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": search})
    entries = tmp_path / "cache" / "rank_0" / "kernel_meta"
    try:
        assert until(lambda: {each.name for each in entries.glob("*.json")} == others)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    hold.unlink()
    network = opbuild.compile(path, cache_path=tmp_path / "cache", target=TARGET)
    lost = [each.name.split("_")[0] for each in network.report.operators if each.status == "built"]
    assert lost == ["softmax"]
    wanted = opbuild.compile(path, op_compiler_cache_mode="disable")
    assert_alike(outputs(network, FEEDS["convolutional"]), outputs(wanted, FEEDS["convolutional"]))
