"""Networks of float16 and bfloat16 on a class of devices: there in 16 bits, with the CPU's numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.kernel.opdesc import OpDesc
from opbuild.runtime.devices.device import KernelCalls
from support import device_models, fake_device
from support.narrow_models import in_sixteen_bits

pytestmark = pytest.mark.usefixtures("kept_objects")
DEVICE = fake_device.CLASS.open()
TOLERANCES = {"float16": 4e-3, "bfloat16": 3e-2}
DRAW = np.random.default_rng(8)
FEEDS: dict[str, tuple[Any, ...]] = {
    "perceptron": (DRAW.standard_normal((8, 16)).astype(np.float32),),
    "mini_lm": (np.arange(9)[np.newaxis] * 7, np.array([[1] * 7 + [0] * 2])),
    "convolutional": (DRAW.standard_normal((2, 3, 16, 16)).astype(np.float32),),
}


def outputs(network: Any, feeds: list[Any]) -> list[Any]:
    """Return the outputs of a network, as a list."""
    found = network(*feeds)
    return list(found) if isinstance(found, tuple) else [found]


def compared(name: str, dtype: str, folder: Path) -> None:
    """Compare the outputs of a network of 16 bits on the device, cold and from the store, with the CPU's."""
    path = folder / f"{name}.onnx"
    onnx.save(in_sixteen_bits(getattr(device_models, name)(), dtype), path)
    feeds = [each.astype(numpy_dtype(dtype)) if each.dtype == np.float32 else each for each in FEEDS[name]]
    wanted, network = (opbuild.compile(path, cache_path=folder, target=each) for each in (None, fake_device.NAME))
    again = opbuild.compile(path, cache_path=folder, target=fake_device.NAME, forbid_compile=True)
    assert again.report.image
    for one in (network, again):
        for given, right in zip(outputs(one, feeds), outputs(wanted, feeds), strict=True):
            assert given.dtype == right.dtype == numpy_dtype(dtype)
            numbers = right.astype(np.float32)
            most = TOLERANCES[dtype] * np.abs(numbers).max()
            np.testing.assert_allclose(given.astype(np.float32), numbers, atol=most)


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """The names of all kernels that are made ready on the device, and the types of their operands."""
    found: list[tuple[str, list[str]]] = []
    prepare = DEVICE.prepare

    def noted(calls: KernelCalls) -> Any:
        ends = calls.ends.tolist()
        for kind, start, end in zip(calls.called.tolist(), [0, *ends], ends, strict=False):
            _, name, _ = calls.callees[kind].function
            found.append((name, [calls.dtypes[int(each)] for each in calls.dtype[start:end]]))
        return prepare(calls)

    monkeypatch.setattr(DEVICE, "prepare", noted)
    return found


@pytest.mark.parametrize("dtype", NARROW_FLOATS)
@pytest.mark.parametrize("name", FEEDS)
def test_networks_of_sixteen_bits_run_in_sixteen_bits(
    name: str, dtype: str, tmp_path: Path, launched: list[tuple[str, list[str]]]
) -> None:
    """Products take 16 bits, of weights that passes leave so; cold and from the store they give what the CPU gives."""
    compared(name, dtype, tmp_path)
    found = [types[:2] for kernel, types in launched if kernel.startswith("matmul")]
    assert [dtype, dtype] in found or name == "convolutional"
    assert name != "mini_lm" or all(types == [dtype] * 2 for types in found)


@pytest.mark.parametrize("family", ["matmul", "softmax", "layer_norm", "elementwise", "copy", "gather"])
def test_a_device_that_lacks_a_family_in_sixteen_bits_gives_the_same(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has no kernel for in 16 bits is float32 there, or the CPU's, with conversions where the two meet."""
    own: Callable[[OpDesc], OpDesc | None] = fake_device.CLASS.kernel

    def kernel(desc: OpDesc) -> OpDesc | None:
        is_narrow = {"float16", "uint16"} & {each.dtype for each in desc.operands}
        return None if desc.family == family and is_narrow else own(desc)

    monkeypatch.setattr(fake_device.CLASS, "kernel", kernel)
    compared("mini_lm", "float16", tmp_path)
