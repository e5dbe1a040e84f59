"""Random values. Those of a node with a seed are the same at each call; others are new."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Array, Node


def _generator(node: Node) -> np.random.Generator:
    seed = node.attrs.get("seed")
    return np.random.default_rng(None if seed is None else np.float32(seed).view(np.uint32).item())


def _dtype(node: Node, standard: str) -> np.dtype[Any]:
    return np.dtype(ONNX_DTYPES[int(node.attrs["dtype"])] if node.attrs.get("dtype") else standard)


@implements("RandomNormal", "RandomNormalLike")
def _normal(node: Node, inputs: Any) -> Sequence[Array]:
    shape, standard = _shape_and_dtype(node, inputs)
    mean, scale = float(node.attrs.get("mean", 0.0)), float(node.attrs.get("scale", 1.0))
    return (np.asarray(_generator(node).normal(mean, scale, shape)).astype(_dtype(node, standard)),)


@implements("RandomUniform", "RandomUniformLike")
def _uniform(node: Node, inputs: Any) -> Sequence[Array]:
    shape, standard = _shape_and_dtype(node, inputs)
    low, high = float(node.attrs.get("low", 0.0)), float(node.attrs.get("high", 1.0))
    dtype = _dtype(node, standard)
    found = np.asarray(_generator(node).uniform(low, high, shape)).astype(dtype)
    return (np.where(found == high, dtype.type(low), found),)  # rounding may reach the bound, which does not belong


def _shape_and_dtype(node: Node, inputs: Any) -> tuple[tuple[int, ...], str]:
    if inputs:
        return inputs[0].shape, str(inputs[0].dtype)
    return tuple(int(extent) for extent in node.attrs["shape"]), "float32"


@implements("Bernoulli")
def _bernoulli(node: Node, inputs: Any) -> Sequence[Array]:
    """Give 1 with the probability that each element is."""
    x = inputs[0]
    found = _generator(node).random(x.shape) < x
    return (np.asarray(found).astype(_dtype(node, str(x.dtype))),)


@implements("Multinomial")
def _multinomial(node: Node, inputs: Any) -> Sequence[Array]:
    """Draw classes by unnormalised logarithms of their probabilities: the greatest after adding Gumbel's noise."""
    x = inputs[0]
    noise = _generator(node).gumbel(size=(len(x), int(node.attrs.get("sample_size", 1)), x.shape[1]))
    return (np.argmax(x[:, None] + noise, -1).astype(_dtype(node, "int32")),)


@implements("Dropout")
def _dropout(node: Node, inputs: Any) -> Sequence[Array]:
    """Pass values on; in training leave some out, and scale the others so that their expectation stays."""
    x, ratio, training = (*inputs, None, None)[:3]
    rate = 0.5 if ratio is None else float(ratio.reshape(-1)[0])
    if training is None or not training.any() or not rate:
        return (x, np.broadcast_to(np.True_, x.shape))[: len(node.outputs)]
    kept = np.asarray(_generator(node).random(x.shape) >= rate)
    scale = x.dtype.type(1 / (1 - rate)) if rate < 1 else x.dtype.type(0)
    return (np.where(kept, x * scale, x.dtype.type(0)), kept)[: len(node.outputs)]
