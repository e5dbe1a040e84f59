"""Networks of one node, lowered and run on kernels: what most kernel tests are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.harness import run_program
from opbuild.graph.passes.fuse import PRODUCTS
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level

Array = npt.NDArray[Any]


def lower_node(
    op_type: str,
    inputs: Sequence[Array],
    constants: Sequence[Array | None],
    out_shape: Sequence[int],
    **attrs: Any,
) -> Program:
    """Lower a network of one node that reads ``inputs`` (x0, x1, ...), then ``constants`` (None: absent)."""
    if "epilogue" in attrs:
        attrs["own_inputs"] = PRODUCTS[op_type]
    given = {f"x{index}": array for index, array in enumerate(inputs)}
    known = {f"c{index}": array for index, array in enumerate(constants) if array is not None}
    names = [*list(given)[:1], *(f"c{i}" if array is not None else "" for i, array in enumerate(constants))]
    names += list(given)[1:]  # further inputs come last, as a fused node has its epilogue's operands
    types = {name: TensorType(str(array.dtype), array.shape) for name, array in {**given, **known}.items()}
    types["y"] = TensorType(str(inputs[0].dtype), tuple(out_shape))
    node = Node(op_type, tuple(names), ("y",), attrs, "node")
    graph = Graph("one", (node,), tuple(given), ("y",), types, known)
    return lower(graph, host_level())


def run_node(
    op_type: str,
    inputs: Sequence[Array],
    constants: Sequence[Array | None],
    out_shape: Sequence[int],
    **attrs: Any,
) -> Array:
    """Lower a network of one node and run it between canaries."""
    program = lower_node(op_type, inputs, constants, out_shape, **attrs)
    return run_program(program, {f"x{index}": array for index, array in enumerate(inputs)})["y"]


def variants(program: Program, family: str) -> list[dict[str, Any]]:
    """Return the variants of a program's calls of one family."""
    return [
        dict(call.desc.variant) for call in program.calls if isinstance(call, KernelCall) and call.desc.family == family
    ]


def convolve(
    x: Array,
    w: Array,
    bias: Array | None = None,
    *,
    strides: Sequence[int] = (1, 1),
    dilations: Sequence[int] = (1, 1),
    pads: Sequence[int] = (0, 0, 0, 0),
    group: int = 1,
) -> Array:
    """Return a two-dimensional convolution in float64; infinities and NaN as the sum of products gives them."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (top, bottom), (left, right)))
    co, cg, kh, kw = w.shape
    height = (padded.shape[2] - (kh - 1) * dilations[0] - 1) // strides[0] + 1
    width = (padded.shape[3] - (kw - 1) * dilations[1] - 1) // strides[1] + 1
    result = np.zeros((x.shape[0], co, height, width))
    outs = co // group
    with np.errstate(invalid="ignore"):
        for g in range(group):
            weights = w[g * outs : (g + 1) * outs].astype(np.float64)
            channels = padded[:, g * cg : (g + 1) * cg]
            for ky in range(kh):
                for kx in range(kw):
                    y0, x0 = ky * dilations[0], kx * dilations[1]
                    taps = channels[
                        :,
                        :,
                        y0 : y0 + (height - 1) * strides[0] + 1 : strides[0],
                        x0 : x0 + (width - 1) * strides[1] + 1 : strides[1],
                    ]
                    result[:, g * outs : (g + 1) * outs] += np.einsum("nchw,oc->nohw", taps, weights[:, :, ky, kx])
    return result if bias is None else result + bias.astype(np.float64)[:, None, None]


def assert_close(actual: Array, expected: Array, tolerance: float = 2e-6) -> None:
    """Assert equality up to ``tolerance`` of the greatest finite value, NaN and infinities in the same places."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    infinite = np.isinf(expected)
    np.testing.assert_array_equal(actual[infinite], expected[infinite])
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=1e-30)
    assert np.abs(actual[finite] - expected[finite]).max(initial=0) <= tolerance * scale
