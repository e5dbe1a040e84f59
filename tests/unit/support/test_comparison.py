"""Comparing with ONNX Runtime: what is expected of a network is the same on every processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops.op_conv_integer import ConvInteger as ExactConvolution
from onnx.reference.ops.op_matmul_integer import MatMulInteger as ExactProduct

from support.comparison import onnxruntime_outputs

Array = npt.NDArray[Any]
RNG = np.random.default_rng(8)


def _lost(a: Array, b: Array) -> Array:
    """Return the lack of VPMADDUBSW's product of uint8 by int8: it saturates sums of two neighbours in 16 bits."""
    if (a.dtype, b.dtype) != (np.uint8, np.int8):
        return np.zeros((), np.int32)
    places = range(0, a.shape[-1], 2)
    pairs = np.array([a[..., at : at + 2].astype(np.int32) @ b[at : at + 2].astype(np.int32) for at in places])
    lost: Array = (np.clip(pairs, -(2**15), 2**15 - 1) - pairs).sum(axis=0, dtype=np.int32)
    return lost


class MatMulInteger(ExactProduct):  # type: ignore[misc]  # onnx has no types
    """As ONNX Runtime computes it on a processor with AVX2 and without VNNI."""

    def _run(self, a: Array, b: Array, *zero_points: Array) -> tuple[Array]:
        (exact,) = super()._run(a, b, *zero_points)
        return (exact + _lost(a, b),)


class ConvInteger(ExactConvolution):  # type: ignore[misc]  # onnx has no types
    """The same of a convolution of one tap."""

    def _run(self, x: Array, w: Array, *zero_points: Array, **attributes: Any) -> tuple[Array]:
        (exact,) = super()._run(x, w, *zero_points, **attributes)
        lost = _lost(np.moveaxis(x, 1, -1), w[..., 0, 0].T)
        return (exact + np.moveaxis(np.broadcast_to(lost, np.moveaxis(exact, 1, -1).shape), -1, 1),)


class WithoutVnni:
    """A session of ONNX Runtime's on such a processor."""

    def __init__(self, content: bytes, options: object, providers: object) -> None:
        self._evaluator = ReferenceEvaluator(onnx.load_from_string(content), new_ops=[MatMulInteger, ConvInteger])

    def run(self, names: None, feeds: dict[str, Array]) -> list[Array]:
        """Return the outputs."""
        found: list[Array] = self._evaluator.run(names, feeds)
        return found


def _numbers(dtype: str, shape: tuple[int, ...]) -> Array:
    info = np.iinfo(dtype)
    return RNG.choice(np.array([info.min, info.max, info.max - 1], dtype), shape)


def _model(op_type: str, arrays: Mapping[str, Array]) -> onnx.ModelProto:
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, list(arrays), ["y"])],
        "product",
        [helper.make_tensor_value_info(name, kinds[name], array.shape) for name, array in arrays.items()],
        [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


PRODUCTS = {
    "no zero points": ({"a": _numbers("uint8", (5, 9)), "b": _numbers("int8", (9, 6))}, {}),
    "one": ({"a": _numbers("uint8", (5, 9)), "b": _numbers("int8", (9, 6))}, {"za": np.array(7, np.uint8)}),
    "both": (
        {"a": _numbers("uint8", (2, 5, 9)), "b": _numbers("int8", (9, 6))},
        {"za": np.array(7, np.uint8), "zb": np.array(-9, np.int8)},
    ),
    "signed by signed": (
        {"a": _numbers("int8", (5, 9)), "b": _numbers("int8", (9, 6))},
        {"za": np.array(-3, np.int8), "zb": np.array(4, np.int8)},
    ),
}


@pytest.mark.parametrize("is_without", [True, False], ids=["without VNNI", "here"])
@pytest.mark.parametrize("kind", PRODUCTS)
def test_products_of_bytes_are_judged_exactly(kind: str, is_without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where ONNX Runtime's sums of uint8 by int8 saturate, too."""
    if is_without:
        monkeypatch.setattr("onnxruntime.InferenceSession", WithoutVnni)
    operands, zero_points = PRODUCTS[kind]
    given = operands | zero_points
    a, b = (
        array.astype(np.int32) - zero_points.get(f"z{name}", np.zeros((), np.int32)).astype(np.int32)
        for name, array in operands.items()
    )
    (found,) = onnxruntime_outputs(_model("MatMulInteger", given), given, optimized=False)
    np.testing.assert_array_equal(found, a @ b, strict=True)


def test_convolutions_of_bytes_are_judged_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of what a ConvInteger sums over its channels."""
    monkeypatch.setattr("onnxruntime.InferenceSession", WithoutVnni)
    given = {"x": _numbers("uint8", (1, 6, 3, 3)), "w": _numbers("int8", (4, 6, 1, 1))}
    exact = np.einsum("nchw,oc->nohw", given["x"].astype(np.int32), given["w"][..., 0, 0].astype(np.int32))
    (found,) = onnxruntime_outputs(_model("ConvInteger", given), given, optimized=False)
    np.testing.assert_array_equal(found, exact, strict=True)
