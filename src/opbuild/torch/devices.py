"""The device of a graph: where its tensors are, and whether opbuild computes there."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from opbuild.errors import TargetError
from opbuild.target.devices import device_class
from opbuild.torch.settings import Settings

HOST = torch.device("cpu")


def settings_for(inputs: Sequence[Any], settings: Settings) -> Settings:
    """Return the settings for the device of a graph's inputs: the GPU where any is there, else the CPU.

    Raises:
        TargetError: If opbuild computes nothing there; with ``on_error="eager"`` it is a warning, and torch computes
            what is on such a device.
    """
    try:
        return settings._replace(device=_device_of(inputs))
    except TargetError as error:
        if settings.on_error == "raise":
            raise
        warnings.warn(f"{error.message}: torch computes them", stacklevel=4)
        return settings


def _device_of(inputs: Sequence[Any]) -> str:
    found = {each.device for each in inputs if isinstance(each, torch.Tensor)} - {HOST}
    if not found:
        return HOST.type
    others = sorted({str(each) for each in found if each.type != "cuda" or each.index not in (None, 0)})
    if others:
        text = (
            f"opbuild's back end computes on the CPU and on cuda:0, and tensors of the graph are on {', '.join(others)}"
        )
        hint = "CUDA_VISIBLE_DEVICES says which GPU is the first; or leave it to torch: options={'on_error': 'eager'}"
        raise TargetError(text, hint)
    try:
        device_class("cuda").require()
    except TargetError as error:
        text = f"opbuild computes nothing on the GPU where tensors of the graph are: {error.message}"
        hint = "move the model and what it is given to the CPU, or leave it to torch: options={'on_error': 'eager'}"
        raise TargetError(text, hint) from error
    return "cuda"
