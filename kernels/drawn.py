"""Structures drawn from libraries of models: how they are named, where they lie, and which of them a pack may not know.

    <library>/<architecture>/<part>/<exporter>/<form>      transformers/bert/masked/torchscript/float32

``benchmarks/structures`` exports them into a folder, each with its inputs and its family beside it. Half of the
architectures, chosen by a hash of their names, are held out: packs are judged by them and never made for them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

FAMILIES = ("encoders", "decoders", "vision", "audio", "diffusion", "detectors")


def name_hash(name: str) -> int:
    """Return a number that depends on a name alone, on every machine."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def architecture(name: str) -> str:
    """Return the architecture of a structure: its library and the name that it has there."""
    return "/".join(name.split("/")[:2])


WRITTEN = ("bert", "convnext", "efficientnet", "gpt2", "llama", "mobilenet_v2", "mobilenet_v3", "mobilenetv2",
           "mobilenetv3", "resnet", "vision_transformer", "vit")  # fmt: skip
"""Architectures that ``kernels.models`` writes itself, as the libraries call them: the pack knows them."""


def held_out(name: str) -> bool:
    """Return whether a structure is kept from packs; all parts and forms of an architecture are, or none."""
    own = architecture(name)
    return own.partition("/")[2] not in WRITTEN and name_hash(own) % 2 == 1


def exported(folder: Path) -> dict[str, Path]:
    """Return the models that were exported into a folder, by name."""
    paths = sorted(folder.rglob("*.onnx"))
    return {path.relative_to(folder).with_suffix("").as_posix(): path for path in paths}


def family(path: Path) -> str:
    """Return the family of an exported model."""
    return str(json.loads(path.with_suffix(".json").read_text())["family"])


def for_packs(folder: Path) -> dict[str, Path]:
    """Return the models in a folder that a pack may be made for, by name."""
    return {name: path for name, path in exported(folder).items() if not held_out(name)}


def extents(path: Path) -> dict[str, int]:
    """Return the extents of an exported model's inputs that its file leaves open, as they were when it was traced."""
    with np.load(path.with_suffix(".npz")) as feeds:
        return {
            each.dim_param: extent
            for value in onnx.load(path, load_external_data=False).graph.input
            for each, extent in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=True)
            if each.dim_param
        }


def as_traced(path: Path) -> Iterator[onnx.ModelProto]:
    """Yield an exported model with the extents with which it was traced."""
    model, sizes = onnx.load(path), extents(path)
    for value in model.graph.input:
        for each in value.type.tensor_type.shape.dim:
            if each.dim_param:
                each.dim_value = sizes[each.dim_param]
    yield model
