"""Tensors on other devices than the CPU: the back end says that it does not compute them."""

from __future__ import annotations

import pytest
import torch
from torch import fx
from torch._subclasses import FakeTensorMode

from opbuild.errors import TargetError
from opbuild.torch.backend import opbuild


def test_a_tensor_of_another_device_is_refused() -> None:
    """Without that all would be torch's, and nothing but the report would tell."""
    with FakeTensorMode():
        given = [torch.empty(2, device="cuda")]
    with pytest.raises(TargetError, match="computes on the CPU, and tensors of the graph are on cuda") as caught:
        opbuild(fx.symbolic_trace(torch.nn.ReLU()), given)
    assert "on_error" in (caught.value.hint or "")


def test_a_graph_on_another_device_may_be_left_to_torch() -> None:
    """By the option, with a warning; torch's own tensor of no memory stands for such a device."""
    compiled = torch.compile(torch.nn.ReLU(), backend="opbuild", options={"on_error": "eager"})
    with pytest.warns(UserWarning, match="tensors of the graph are on meta: torch computes them"):
        result = compiled(torch.empty(2, 3, device="meta"))
    assert (result.device.type, tuple(result.shape)) == ("meta", (2, 3))
