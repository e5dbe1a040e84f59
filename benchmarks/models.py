"""The nine networks that the benchmarks measure: those of the ``onnx`` package, with random weights.

The tests build the same networks; this file only finds that builder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from support.networks import bert, conv_to_5x5, light

NAMES = (
    "resnet50",
    "densenet121",
    "vgg19",
    "squeezenet",
    "inception_v1",
    "inception_v2",
    "shufflenet",
    "bvlc_alexnet",
    "zfnet512",
)


def network(name: str) -> onnx.ModelProto:
    """Return a network with random He weights and without its final Softmax, which would hide errors."""
    return light(name, random_weights=True, without_softmax=True)


def transformer() -> onnx.ModelProto:
    """Return four layers of BERT-base's structure with random weights, for 128 tokens."""
    return bert(layers=4, hidden=768, heads=12, seq=128, decomposed=False)


def one_layer_changed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of a network whose first 3x3 convolution is a 5x5 one."""
    return conv_to_5x5(model)


def write(name: str, folder: Path) -> Path:
    """Write a network to a file, and return its path."""
    path = folder / f"{name}.onnx"
    onnx.save(network(name), path)
    return path
