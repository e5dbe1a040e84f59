"""Tensors on devices where opbuild computes nothing: the back end says so."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode

from opbuild.errors import TargetError, UnsupportedOperatorError
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.torch.backend import opbuild
from opbuild.torch.saving import save


@pytest.mark.parametrize("device", ["cuda:1", "xpu"])
def test_a_tensor_of_another_device_is_refused(device: str) -> None:
    """Without that all would be torch's, and nothing but the report would tell; so is a second GPU beside the first."""
    with FakeTensorMode():
        given = [torch.empty(2, device=each) for each in ("cuda:0", device, "cpu")]
    with pytest.raises(TargetError, match=f"on cuda:0, and tensors of the graph are on {device}") as caught:
        opbuild(fx.symbolic_trace(torch.nn.ReLU()), given)
    assert "on_error" in (caught.value.hint or "")


def test_a_tensor_on_a_gpu_is_refused_where_no_driver_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is compiled, in the words of the device."""
    monkeypatch.setattr("opbuild.runtime.devices.cuda.driver.LIBRARY", "libof.no.driver")
    monkeypatch.setattr(CLASS, "_device", CudaDevice())
    with FakeTensorMode():
        given = [torch.empty(2, device="cuda")]
    with pytest.raises(TargetError, match=r"computes nothing on the GPU .* there is no NVIDIA driver here") as caught:
        opbuild(fx.symbolic_trace(torch.nn.ReLU()), given)
    assert "move the model" in (caught.value.hint or "")


def test_a_module_on_a_gpu_is_not_saved(tmp_path: Path) -> None:
    """What is saved says nothing of devices."""
    with FakeTensorMode():
        module = torch.nn.ReLU()
        module.register_buffer("scale", torch.empty(2, device="cuda"))
    with pytest.raises(UnsupportedOperatorError, match="a module on a GPU"):
        save(tmp_path / "module", module, (torch.empty(2),))


def test_a_graph_on_another_device_may_be_left_to_torch() -> None:
    """By the option, with a warning; torch's own tensor of no memory stands for such a device."""
    compiled = torch.compile(torch.nn.ReLU(), backend="opbuild", options={"on_error": "eager"})
    with pytest.warns(UserWarning, match="tensors of the graph are on meta: torch computes them"):
        result = compiled(torch.empty(2, 3, device="meta"))
    assert (result.device.type, tuple(result.shape)) == ("meta", (2, 3))
