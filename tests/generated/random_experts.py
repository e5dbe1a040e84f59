"""Random mixtures of experts of com.microsoft: all attributes that ONNX Runtime's kernels for CPUs take."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

ACTIVATIONS = ("relu", "gelu", "silu", "identity", "swiglu")


class Experts(NamedTuple):
    """One node with experts.

    Attributes:
        given: The model with all inputs of the node as inputs, which ONNX Runtime then takes as they are.
        model: The model with its weights as constants, or not.
        feeds: Values of the inputs of ``given``; those of ``model`` are among them.
    """

    given: onnx.ModelProto
    model: onnx.ModelProto
    feeds: dict[str, Array]


def packed(numbers: Array, bits: int) -> Array:
    """Return numbers of few bits as bytes, the first in the lowest bits of each."""
    count = 8 // bits
    room = -numbers.shape[-1] % count
    full = np.concatenate([numbers, np.zeros((*numbers.shape[:-1], room), np.uint8)], -1)
    full = full.reshape(*full.shape[:-1], -1, count)
    places = np.arange(count, dtype=np.uint8) * bits
    return np.bitwise_or.reduce(full << places.astype(np.uint8), -1).astype(np.uint8)


class _Drawn:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rng = np.random.default_rng(seed)

    def floats(self, *shape: int) -> Array:
        return self.rng.standard_normal(shape).astype(np.float32)

    def layer(self, experts: int, rows: int, columns: int) -> list[Array | None]:
        bias = self.floats(experts, rows) if self.draw.random() < 0.6 else None
        return [self.floats(experts, rows, columns), bias]

    def bits(
        self, experts: int, rows: int, columns: int, *, bits: int, block: int, has_zeros: bool
    ) -> tuple[list[Array | None], Array | None]:
        """Return weights, scales and a bias; and zero points, or none."""
        blocks = columns // block if block else 1
        most = 1 << bits
        weights = packed(self.rng.integers(0, most, (experts, rows, columns), np.uint8), bits)
        scales = (self.rng.random((experts, rows, blocks)) / most + 0.01).astype(np.float32)
        zeros = None
        if has_zeros:
            zeros = self.rng.integers(0, most, (experts, rows, blocks), np.uint8)
            zeros = packed(zeros if block else zeros[..., 0], bits)
        bias = self.floats(experts, rows) if self.draw.random() < 0.6 else None
        return [weights, scales if block else scales[..., 0], bias], zeros


def random_experts(seed: int) -> Experts:
    """Return the experts of a seed: of floats or of few bits, with weights that are known or not, of any few tokens."""
    drawn = _Drawn(seed)
    draw = drawn.draw
    quantized = draw.random() < 0.6
    experts, kind = draw.randint(1, 9), draw.choice(ACTIVATIONS)
    hidden, inner = (32 * draw.randint(1, 3) if quantized else draw.randint(1, 40) for _ in range(2))
    shape = (draw.randint(1, 4), hidden) if draw.random() < 0.5 else (draw.randint(1, 3), draw.randint(1, 5), hidden)
    tokens, twice = int(np.prod(shape[:-1])), 2 if kind == "swiglu" else 1
    attrs: dict[str, Any] = {"k": draw.randint(1, experts), "activation_type": kind}
    if draw.random() < 0.5:
        attrs["normalize_routing_weights"] = draw.randint(0, 1)
    if kind == "swiglu":
        attrs["swiglu_fusion"] = 1
        values = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": draw.choice((0.5, 7.0))}
        attrs |= {name: value for name, value in values.items() if draw.random() < 0.6}
    router = drawn.floats(tokens, experts)
    if draw.random() < 0.3:  # equal scores
        router = np.round(router)
    inputs: list[Array | None] = [drawn.floats(*shape), router]
    if quantized:
        bits = draw.choice((2, 4, 8))
        block = draw.choice((0, 16) if bits == 2 else (0, 16, 32))  # with others it may quantise tokens of 2 bits, too
        attrs["expert_weight_bits"] = bits
        if block:
            attrs["block_size"] = block
        # ONNX Runtime quantises weights of 4 bits again, if one layer has zero points and the other one has none.
        options: dict[str, Any] = {"bits": bits, "block": block, "has_zeros": draw.random() < 0.5}
        first, zeros1 = drawn.bits(experts, twice * inner, hidden, **options)
        second, zeros2 = drawn.bits(experts, hidden, inner, **options)
        inputs += [*first, *second, None, None, None, zeros1, zeros2, None]
        inputs.append(abs(drawn.floats(tokens, experts)) if draw.random() < 0.3 else None)
    else:
        inputs += [*drawn.layer(experts, twice * inner, hidden), *drawn.layer(experts, hidden, inner)]
        if draw.random() < 0.2 and attrs["k"] == 2:
            attrs["use_sparse_mixer"] = 1
    names = [f"i{index}" if value is not None else "" for index, value in enumerate(inputs)]
    node = helper.make_node("QMoE" if quantized else "MoE", names, ["y"], "experts", domain="com.microsoft", **attrs)
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    constants = {name for name in names[2:] if draw.random() < draw.choice((0.0, 0.8, 1.0, 1.0))}
    return Experts(_model(node, feeds, set()), _model(node, feeds, constants), feeds)


def _model(node: onnx.NodeProto, feeds: dict[str, Array], constants: set[str]) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
        if name not in constants
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in feeds.items() if name in constants]
    output = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, feeds["i0"].shape)
    graph = helper.make_graph([node], "experts", inputs, [output], tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)
