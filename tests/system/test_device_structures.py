"""Structures of networks on a class of devices that has kernels of all that they need: nothing is left to the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import opbuild
from kernels.transformer import FORMS, Sizes, bert, gpt2, llama, vit
from kernels.vision import resnet
from support import device_models, fake_device
from support.fake_device import kernels
from support.narrow_models import in_sixteen_bits

pytestmark = pytest.mark.usefixtures("kept_objects")
OPEN, NEXT = Sizes("batch", "seq"), Sizes("batch", 1, "past")
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bert": lambda: bert(OPEN, FORMS[0], 64, 4, layers=1),
    "bert of TorchScript": lambda: bert(OPEN, FORMS[3], 64, 4, layers=1),
    "gpt2": lambda: gpt2(OPEN, FORMS[3], 64, 4, layers=1),
    "gpt2 with a cache": lambda: gpt2(NEXT, FORMS[0], 64, 4, layers=1),
    "llama": lambda: llama(OPEN, FORMS[0], 64, 4, 2, layers=1),
    "llama with a cache": lambda: llama(NEXT, FORMS[0], 64, 4, 2, layers=1),
    "vit": lambda: vit(Sizes("batch", 4), FORMS[0], 64, 4, 8, layers=1),
    "resnet": lambda: resnet(("batch", 32, 32), (1, 1), wide=True),
}
SIZES = [{"batch": 1, "seq": 3, "past": 5}, {"batch": 2, "seq": 40, "past": 70}]


@pytest.fixture(autouse=True)
def all_families() -> Iterator[None]:
    """The device has kernels of more families meanwhile."""
    kernels.served.update(kernels.ALL)
    yield
    kernels.served.intersection_update(kernels.FEW)


def feeds_of(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return inputs of a model at a size."""
    draw, feeds = np.random.default_rng(1), dict[str, Any]()
    for value in model.graph.input:
        kind = value.type.tensor_type
        shape = [eval(each.dim_param, dict(sizes)) if each.dim_param else each.dim_value for each in kind.shape.dim]
        if value.name == "attention_mask":
            feeds[value.name] = np.ones(shape, np.int64)
        elif kind.elem_type == onnx.TensorProto.INT64:
            feeds[value.name] = draw.integers(0, 900, shape)
        else:
            feeds[value.name] = draw.standard_normal(shape).astype(np.float32)
    return feeds


@pytest.mark.parametrize("name", MODELS)
def test_a_structure_runs_whole_on_the_device(name: str, tmp_path: Path) -> None:
    """At several sizes it gives what ONNX Runtime gives; the CPU checks indices, and its kernels compute nothing."""
    model = device_models.with_weights(MODELS[name]())
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    right = onnxruntime.InferenceSession(path, options)
    network = opbuild.compile(path, cache_path=tmp_path, target=fake_device.NAME)
    for sizes in SIZES:
        feeds = feeds_of(model, sizes)
        for given, wanted in zip(network.run(feeds).values(), right.run(None, feeds), strict=True):
            np.testing.assert_allclose(given, wanted, rtol=2e-3, atol=2e-3)
    for runner in network.runners:
        assert {*runner.record.devices_of_kinds} == {fake_device.NAME}
        assert all(not call.computes for call in runner.record.steps.hosts)


@pytest.mark.parametrize("name", ["bert", "gpt2 with a cache", "llama", "resnet"])
def test_a_structure_of_sixteen_bits_runs_whole_on_the_device(name: str, tmp_path: Path) -> None:
    """At several sizes its numbers are those of float32, to so many digits."""
    model = device_models.with_weights(MODELS[name]())
    onnx.save(in_sixteen_bits(model, "float16"), tmp_path / "model.onnx")
    onnx.save(model, tmp_path / "right.onnx")
    right = opbuild.compile(tmp_path / "right.onnx", cache_path=tmp_path, target=fake_device.NAME)
    network = opbuild.compile(tmp_path / "model.onnx", cache_path=tmp_path, target=fake_device.NAME)
    for sizes in SIZES:
        feeds = feeds_of(model, sizes)
        narrow = {key: each.astype(np.float16) if each.dtype == np.float32 else each for key, each in feeds.items()}
        for given, wanted in zip(network.run(narrow).values(), right.run(feeds).values(), strict=True):
            np.testing.assert_allclose(given.astype(np.float32), wanted, atol=0.01 * np.abs(wanted).max())
    for runner in network.runners:
        assert {*runner.record.devices_of_kinds} == {fake_device.NAME}


@pytest.mark.parametrize(
    ("name", "families"),
    [
        ("gpt2 with a cache", "attention"),
        ("gpt2", "matmul"),
        ("bert", "attention softmax"),
        ("resnet", "window"),
        ("vit", "copy"),
    ],
)
def test_what_was_lowered_for_kernels_that_there_are_not_is_lowered_again(
    name: str, families: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that has kernels of a family, but not for these calls, leaves them to the CPU's own, at any size."""
    own = fake_device.CLASS.kernel
    monkeypatch.setattr(
        fake_device.CLASS, "kernel", lambda desc: None if desc.family in families.split() else own(desc)
    )
    model = device_models.with_weights(MODELS[name]())
    onnx.save(model, tmp_path / "model.onnx")
    right = opbuild.compile(tmp_path / "model.onnx", cache_path=tmp_path)
    network = opbuild.compile(tmp_path / "model.onnx", cache_path=tmp_path, target=fake_device.NAME)
    for sizes in SIZES:
        feeds = feeds_of(model, sizes)
        for given, wanted in zip(network.run(feeds).values(), right.run(feeds).values(), strict=True):
            np.testing.assert_allclose(given, wanted, rtol=2e-3, atol=2e-3)
    assert any({*runner.record.devices_of_kinds} != {fake_device.NAME} for runner in network.runners)
