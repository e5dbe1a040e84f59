"""Commands and functions beside ``compile`` for a class of devices: those that store, carry and explain know it.

Offline models and tuning are for CPUs alone, and say so.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.cli.page.render import gather
from opbuild.cli.store.sharing import RemoteCheck, named_remote
from opbuild.config import Config
from opbuild.errors import BuildError, InvalidModelError, OptionError, TargetError
from opbuild.offline import plan
from opbuild.target import devices
from opbuild.target.host import host_level, parse_target
from opbuild.tuning.tuner import tune_model
from support import device_models, fake_device
from support.fake_device.compiler import PythonCompiler

TARGET = fake_device.NAME
BOTH = f"{host_level()} with {TARGET}:v1"
FEEDS = np.random.default_rng(3).standard_normal((2, 3, 16, 16)).astype(np.float32)
pytestmark = pytest.mark.usefixtures("kept_objects")

Said = Callable[..., str]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small convolutional network, of which the device computes a part."""
    path = tmp_path_factory.mktemp("model") / "cnn.onnx"
    onnx.save(device_models.convolutional(), path)
    return path


@pytest.fixture(scope="module")
def built(kept_objects: None, model: Path) -> Path:
    """A cache in which it was built for the device."""
    opbuild.warm([model], targets=[TARGET], cache_path=model.parent / "built")
    return model.parent / "built"


@pytest.fixture
def warm(built: Path, tmp_path: Path) -> Path:
    """A copy of that cache."""
    return Path(shutil.copytree(built, tmp_path / "warm"))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Runs a command and returns what it printed."""

    def run(*arguments: str | Path, code: int = 0) -> str:
        capsys.readouterr()
        assert main([str(each) for each in arguments]) == code
        captured = capsys.readouterr()
        return captured.out + captured.err

    return run


def unregister(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a process that knows no class of devices."""
    monkeypatch.setattr(devices, "_PATHS", {})
    monkeypatch.setattr(devices, "_LOADED", {})


def unplug(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine that has no such device."""

    def refuse() -> None:
        raise TargetError("it is not plugged in", "plug it in")

    monkeypatch.setattr(fake_device.CLASS, "require", refuse, raising=False)


def assert_runs(model: Path, cache: Path, *, starts_stored: bool) -> None:
    """Start a network for the device from a cache, where nothing is compiled, and compare it with the CPU's."""
    network = opbuild.compile(model, cache_path=cache, target=TARGET, forbid_compile=True)
    assert (network.report.built, network.report.image, network.report.level) == (0, starts_stored, BOTH)
    wanted = opbuild.compile(model, op_compiler_cache_mode="disable")(FEEDS)
    np.testing.assert_allclose(network(FEEDS), wanted, rtol=1e-4, atol=1e-5)


# -- what is stored ----------------------------------------------------------------------------------------------------


def test_what_was_warmed_for_a_device_starts_there(model: Path, warm: Path) -> None:
    """The network, from what is stored."""
    assert_runs(model, warm, starts_stored=True)


def test_warming_for_a_device_serves_further_sizes(tmp_path: Path) -> None:
    """The kernels of the device are among those that are made for all sizes, also where an executor compiles."""
    onnx.save(device_models.perceptron("n"), tmp_path / "mlp.onnx")
    with ThreadPoolExecutor(1) as pool:
        (report,) = opbuild.warm(
            [tmp_path / "mlp.onnx"], shapes={"x": (8, 16)}, targets=[TARGET], cache_path=tmp_path, executor=pool
        )
    assert report.level == BOTH
    network, on_cpu = (
        opbuild.compile(tmp_path / "mlp.onnx", cache_path=tmp_path, target=each, forbid_compile=each is not None)
        for each in (TARGET, None)
    )
    for size in (8, 3):
        x = np.ones((size, 16), np.float32)
        np.testing.assert_allclose(network(x), on_cpu(x), rtol=1e-4, atol=1e-5)


def test_explain_tells_of_the_operators_of_both(model: Path, warm: Path, tmp_path: Path, said: Said) -> None:
    """Before they are built and after."""
    command = "explain", model, "--target", TARGET, "--cache_path"
    rows = {row["name"].split("_")[0]: row for row in json.loads(said(*command, warm, "--json"))}
    assert rows.keys() >= {"exp", "matmul", "maxpool", "reducel2", "softmax"}
    assert {row["reused"] for row in rows.values()} == {True}
    assert f"level {BOTH}" in said(*command, warm)
    text = said(*command, tmp_path / "empty")
    assert any("softmax" in line and "build  not in the store" in line for line in text.splitlines())


def test_explain_tells_where_a_devices_sources_changed_and_define_the_same(
    model: Path, warm: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's compiler is asked, not the CPU's."""
    monkeypatch.setattr(PythonCompiler, "sources_digest", lambda self, desc: "0" * 64)
    rows = json.loads(said("explain", model, "--target", TARGET, "--cache_path", warm, "--json"))
    why = {row["name"].split("_")[0]: row["why"] for row in rows}
    assert why["softmax"] == "sources changed, what they define did not"
    assert why["maxpool"] == "in the store"


def test_the_page_of_a_network_tells_copies_from_what_has_no_kernel(model: Path, warm: Path) -> None:
    """With the time of each of its calls, wherever it runs."""
    network = opbuild.compile(model, cache_path=warm, target=TARGET)
    layers = gather(network.report, network.runners, profile=network.profile(runs=1)).layers
    assert {layer.call.family for layer in layers} >= {"pool", "elementwise", "matmul", "softmax"}
    assert {layer.reason for layer in layers if layer.status == "host"} == {"a copy between devices"}
    assert all(layer.run is not None for layer in layers)


# -- what is carried ---------------------------------------------------------------------------------------------------


def test_a_pack_brings_a_devices_operators(
    model: Path, warm: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With those of the CPU beside it, and how they are launched; a build elsewhere compiles nothing."""
    pack = tmp_path / "my.pack"
    text = said("pack", model, "-o", pack, "--target", TARGET, "--all", "--cache_path", warm)
    assert f"{TARGET}:v1: " in text
    assert f"{host_level()}: " in text
    assert f"{TARGET}:v1: " in said("pack", "--show", pack)
    monkeypatch.setenv("OPBUILD_PACK", f"0:{pack}")
    network = opbuild.compile(model, cache_path=tmp_path / "empty", target=TARGET, forbid_compile=True)
    assert (network.report.built, network.report.image) == (0, False)
    assert {each.reason for each in network.report.operators} == {f"from the pack {pack}"}
    wanted = opbuild.compile(model, op_compiler_cache_mode="disable")(FEEDS)
    np.testing.assert_allclose(network(FEEDS), wanted, rtol=1e-4, atol=1e-5)


def test_a_pack_that_a_checkout_made_serves_a_device_in_a_release(
    model: Path, warm: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There sources have the digests of their code, whatever comments say: the pack has both."""
    pack = tmp_path / "my.pack"
    said("pack", model, "-o", pack, "--target", TARGET, "--all", "--cache_path", warm)
    monkeypatch.setenv("OPBUILD_PACK", f"0:{pack}")
    monkeypatch.setattr(PythonCompiler, "sources_digest", PythonCompiler.released_digest)
    network = opbuild.compile(model, cache_path=tmp_path / "empty", target=TARGET, forbid_compile=True)
    assert {each.reason for each in network.report.operators} == {f"from the pack {pack}"}


@pytest.mark.parametrize("only", [(), ("--model",), ("--model", "--network")])
def test_a_bundle_brings_a_devices_operators(
    only: tuple[str, ...], model: Path, warm: Path, tmp_path: Path, said: Said
) -> None:
    """With those of the CPU beside it; with its networks these start as they are."""
    options = [part for each in only for part in ((each, model) if each == "--model" else (each,))]
    text = said("cache", "export", tmp_path / "b", *options, "--target", TARGET, "--cache_path", warm)
    assert f"for {BOTH}" in text
    text = said("cache", "import", tmp_path / "b", "--cache_path", tmp_path / "other")
    assert f"for {BOTH}" in text
    assert "warning" not in text
    assert_runs(model, tmp_path / "other", starts_stored="--network" in only)


def test_a_level_s_bundle_leaves_a_devices_operators_out(warm: Path, tmp_path: Path, said: Said) -> None:
    """And says so."""
    text = said("cache", "export", tmp_path / "b", "--cache_path", warm)
    assert f"not exported: 9 operators for {TARGET}:v1" in text
    said("cache", "import", tmp_path / "b", "--cache_path", tmp_path / "other")
    text = said("cache", "export", tmp_path / "c", "--target", TARGET, "--cache_path", tmp_path / "other", code=5)
    assert f"has no operator for {BOTH}" in text


def test_a_devices_bundle_is_refused_where_there_is_no_such_device(
    warm: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or another architecture of it; nothing is imported."""
    said("cache", "export", tmp_path / "b", "--target", TARGET, "--cache_path", warm)
    monkeypatch.setattr(fake_device.FakeClass, "target", lambda self: devices.Target(TARGET, "v2"))
    text = said("cache", "import", tmp_path / "b", "--cache_path", tmp_path / "other", code=BuildError.exit_code)
    assert f"is for '{BOTH}': it is for {TARGET}:v1, and the device here is {TARGET}:v2" in text
    unregister(monkeypatch)
    text = said("cache", "import", tmp_path / "b", "--cache_path", tmp_path / "other", code=BuildError.exit_code)
    assert f"is for '{BOTH}': no class of devices '{TARGET}' is registered" in text
    assert not [*(tmp_path / "other").rglob("*.o")]


@pytest.mark.parametrize("is_named", [True, False])
def test_a_store_that_others_share_brings_a_devices_networks(
    is_named: bool, model: Path, warm: Path, tmp_path: Path, said: Said
) -> None:
    """Pushed and pulled by the model's name, or with all else for the device."""
    remote, models = (tmp_path / "remote").as_uri(), [model] if is_named else []
    text = said("push", model, remote, "--target", TARGET, "--cache_path", warm)
    assert "12 operators and 1 network written, 0 operators were there, " in text
    place = "--target", TARGET, "--cache_path", tmp_path / "other"
    text = said("pull", remote, *models, *place)
    assert "12 operators and 1 network taken" in text
    assert "warning" not in text
    assert_runs(model, tmp_path / "other", starts_stored=True)


def test_what_is_for_a_device_is_left_alone_in_a_shared_store_where_there_is_none(
    model: Path, warm: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A level's pull leaves it out, and who repairs the store does not take it for damaged."""
    remote = (tmp_path / "remote").as_uri()
    said("push", model, remote, "--target", TARGET, "--cache_path", warm)
    unregister(monkeypatch)
    text = said("pull", remote, "--cache_path", tmp_path / "other")
    assert "3 operators and 0 networks taken" in text
    assert "of the kind 'python', which no device here runs" in text
    opened = named_remote(Config(cache_path=warm, remote=remote), host_level(), reads_all=True)
    assert opened is not None
    assert [*RemoteCheck(opened).problems()] == []


# -- what is for CPUs alone --------------------------------------------------------------------------------------------


def test_no_offline_model_is_for_a_device(model: Path, tmp_path: Path, said: Said) -> None:
    """Builds, dry runs and checks of one say it, and what builds for the device."""
    with pytest.raises(OptionError, match=f"'{TARGET}', a class of devices, and offline models are for CPUs") as raised:
        opbuild.export(model, tmp_path / "cnn", target=TARGET)
    assert f"opbuild.compile(model, target='{TARGET}') builds for it" in str(raised.value.hint)
    atc = "atc", "--model", model, "--framework", "5", "--output", tmp_path / "cnn", "--soc_version", TARGET
    for more in ((), ("--dry_run",), ("--mode", "3")):
        assert "a class of devices, and offline models are for CPUs alone" in said(*atc, *more, code=2)
    assert not (tmp_path / "cnn.om").exists()


def test_an_offline_model_with_a_devices_code_is_refused(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is written; one that was, is not loaded."""
    monkeypatch.setattr(plan, "resolve_level", parse_target)
    opbuild.export(model, tmp_path / "cnn", target=TARGET)
    with pytest.raises(InvalidModelError, match=r"cnn\.om' cannot be used: its library is cut"):
        opbuild.load(tmp_path / "cnn.om")


def test_a_devices_calls_are_not_tuned(model: Path, tmp_path: Path, said: Said) -> None:
    """Nothing is measured, and the database stays as it is."""
    config = Config(cache_path=tmp_path)
    with pytest.raises(TargetError, match=f"calls on {TARGET}:v1 cannot be tuned: there are variants of CPUs' kernels"):
        tune_model(model, config, target=TARGET)
    text = said("tune", model, "--target", TARGET, "--cache_path", tmp_path, code=TargetError.exit_code)
    assert "leave --target out" in text
    assert not config.tune_bank.exists()


def test_a_level_may_be_named_beside_the_device() -> None:
    """As reports and bundles write it."""
    found: Any = parse_target(f"x86-64-v2 with {TARGET}")
    assert (found.name, found.names) == (f"x86-64-v2 with {TARGET}:v1", ("x86-64-v2", f"{TARGET}:v1"))
    assert parse_target(BOTH) == parse_target(TARGET)


def test_env_lists_the_classes_and_what_is_wrong_with_them(said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class whose devices are not here says why; where none is known there is no such line."""
    assert f"{TARGET}: {TARGET}:v1" in said("env")
    unplug(monkeypatch)
    assert f"{TARGET}: it is not plugged in" in said("env")
    unregister(monkeypatch)
    assert "devices" not in said("env")


def test_what_cannot_run_here_is_built_for_elsewhere_alone(
    model: Path, tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``compile`` says what is wrong and which command builds; ``explain`` and ``warm`` need no device."""
    unplug(monkeypatch)
    with pytest.raises(TargetError, match="it is not plugged in"):
        opbuild.compile(model, target=TARGET, cache_path=tmp_path)
    assert "to build" in said("explain", model, "--target", TARGET, "--cache_path", tmp_path)


def test_compile_and_explain_say_what_the_cpu_runs(model: Path, tmp_path: Path, said: Said) -> None:
    """One line a family, with the reason; nothing for the CPU alone."""
    for command in ("explain", "compile"):
        text = " ".join(said(command, model, "--target", TARGET, "--cache_path", tmp_path).split())
        assert f"on the CPU: pool: {TARGET} has no kernels of the family" in text
    assert "on the CPU" not in said("compile", model, "--cache_path", tmp_path)
