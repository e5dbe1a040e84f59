"""Comparing a network's outputs with ONNX Runtime's and with stored ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented  # noqa: A004  its name there

from opbuild.target.host import host_flags

Array = npt.NDArray[Any]


def relative_error(got: Array, expected: Array) -> float:
    """Return the largest difference relative to the largest expected magnitude."""
    return float(np.abs(got.astype("f8") - expected).max() / np.abs(expected).max())


SATURATES = not host_flags().intersection(("avx512_vnni", "avx_vnni", "asimddp"))
"""Whether ONNX Runtime's sums of two products of uint8 and int8 saturate here: opbuild's never do."""

EXACT_BYTES = "session.x64quantprecision"
"""The entry by which its optimizer writes such products so that they do not."""


def exact_weights(weights: Array) -> Array:
    """Return weights that ONNX Runtime multiplies exactly without its optimizer: of seven bits where they must be."""
    return weights // 2 if SATURATES and weights.dtype == np.int8 else weights


def onnxruntime_outputs(
    model: onnx.ModelProto, feeds: Mapping[str, Array], *, optimized: bool = True
) -> tuple[Array, ...]:
    """Return ONNX Runtime's outputs; without its optimizations it computes node by node, as the model says."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1  # its other threads would look for work, on the cores of other tests
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    elif SATURATES:
        options.add_session_config_entry(EXACT_BYTES, "1")
    content, providers = model.SerializeToString(), ["CPUExecutionProvider"]
    try:
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    except NotImplemented:  # it has not every product of the types that it writes then
        options.add_session_config_entry(EXACT_BYTES, "0")
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    return tuple(np.asarray(output) for output in session.run(None, dict(feeds)))


def onnxruntime_output(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> Array:
    """Return ONNX Runtime's first output."""
    return onnxruntime_outputs(model, feeds)[0]
