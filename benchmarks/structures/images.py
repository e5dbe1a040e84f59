"""Candidates of timm and torchvision: of each module the two smallest networks by their names, and all detectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import timm
import torch
import torchvision
from timm.models import _registry

from benchmarks.structures.candidate import Candidate, Traced, Wrapped, checked_size

SMALL = ("test", "zepto", "atto", "femto", "pico", "nano", "xxs", "xxtiny", "tiny", "mini", "050", "0_5", "micro", "xs",
         "small", "18", "11", "b0", "x0", "_s", "_t")  # fmt: skip
"""What small networks have in their names, the smallest first."""
FREE_SIZE, DETECTED = 96, 128
"""Height and width of images where any will do: of classifiers, and of detectors."""
SIDES = {"vit": 224, "swin": 224, "inception": 299}
SSD_SIDES = {"ssdlite320": 320, "ssd300": 300}


def candidates() -> Iterator[Candidate]:
    """Yield the candidates."""
    for module, name in smallest(timm.list_models(), lambda name: _registry._model_to_module[name]):
        yield Candidate(f"timm/{module}/{name}", "vision", partial(_timm, name))
    by_kind: dict[str, list[str]] = defaultdict(list)
    for name in torchvision.models.list_models():
        by_kind[torchvision.models.get_model_builder(name).__module__.removeprefix("torchvision.models.")].append(name)
    for kind, names in sorted(by_kind.items()):
        if kind.startswith(("detection", "segmentation")):
            for name in names:
                yield Candidate(f"torchvision/{name}/{kind.split('.')[0]}", "detectors", partial(_torchvision, name))
        elif not kind.startswith(("quantization", "optical_flow")):
            for module, name in smallest(names, lambda _, kind=kind: kind):
                yield Candidate(f"torchvision/{module}/{name}", "vision", partial(_torchvision, name))


def smallest(names: Iterable[str], module_of: Any) -> Iterator[tuple[str, str]]:
    """Yield the two of each module that seem to be smallest, with the module."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[module_of(name)].append(name)
    for module, each in sorted(found.items()):
        for name in sorted(each, key=_rank)[:2]:
            yield module, name


def _rank(name: str) -> tuple[int, int, str]:
    return next((place for place, word in enumerate(SMALL) if word in name), len(SMALL)), len(name), name


def _timm(name: str) -> Traced:
    make = partial(timm.create_model, name, pretrained=False, exportable=True)
    module = checked_size(make)
    config = module.pretrained_cfg
    channels, height, width = config["input_size"]
    if not (config.get("fixed_input_size") or "vit" in name or "former" in name or "swin" in name):
        height = width = FREE_SIZE
    return _images(module, torch.randn(1, channels, height, width))


def _torchvision(name: str) -> Traced:
    kind = torchvision.models.get_model_builder(name).__module__
    if "detection" in kind:
        return _detector(name)
    module = checked_size(partial(torchvision.models.get_model, name, weights=None, **_without_weights(kind)))
    if "video" in kind:
        frames, side = (16, 224) if "mvit" in name else (8, 112)
        return Traced(Wrapped(module), {"frames": torch.randn(1, 3, frames, side, side)})
    side = next((size for word, size in SIDES.items() if word in name), FREE_SIZE)
    return _images(module, torch.randn(1, 3, side, side))


def _without_weights(kind: str) -> dict[str, Any]:
    return {"weights_backbone": None} if "segmentation" in kind or "detection" in kind else {}


def _detector(name: str) -> Traced:
    side = next((size for word, size in SSD_SIDES.items() if word in name), DETECTED)
    sizes = {} if "ssd" in name else {"min_size": DETECTED, "max_size": DETECTED}
    module = torchvision.models.get_model(name, weights=None, num_classes=11, weights_backbone=None, **sizes)
    return Traced(Wrapped(module.eval(), lambda inner, image: inner([image])), {"image": torch.rand(3, side, side)})


def _images(module: torch.nn.Module, images: torch.Tensor) -> Traced:
    return Traced(Wrapped(module), {"images": images}, {"images": {0: "batch"}})
