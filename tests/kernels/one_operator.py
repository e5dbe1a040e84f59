"""Models of one operator on the way that every model takes, run by kernels alone, every buffer between canaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from kernels.harness import run_program
from kernels.lowered import random
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.program import HostCall, Program
from opbuild.target.host import host_level
from support.comparison import onnxruntime_outputs

Array = npt.NDArray[Any]
Input = Array | None
"""Contents of an input; None for an absent one."""


def model_of(
    op_type: str, inputs: Sequence[Input], known: Sequence[int] = (), outputs: int = 1, opset: int = 21, **attrs: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of one node and what it is to be fed.

    Args:
        op_type: The operator.
        inputs: Its inputs.
        known: Numbers of the inputs that the model has as constants.
        outputs: How many outputs are asked for.
        opset: The operator set.
        attrs: Attributes.
    """
    names = [f"x{number}" if value is not None else "" for number, value in enumerate(inputs)]
    given = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    constants = [numpy_helper.from_array(given.pop(names[number]), names[number]) for number in known]
    results = [f"y{number}" for number in range(outputs)]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    node = helper.make_node(op_type, names, results, "node", **attrs)
    graph = helper.make_graph([node], "one", ports, made, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), given


def program_of(model: onnx.ModelProto) -> Program:
    """Return a model's program for this machine's level."""
    return lower(optimize(load_model(model).bind({}, evaluate), evaluate), host_level())


def on_kernels(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return a model's outputs, computed by kernels alone."""
    program = program_of(model)
    assert [call.node.op_type for call in program.calls if isinstance(call, HostCall) and not call.is_check] == []
    found = run_program(program, feeds)
    return tuple(found[port.name] for port in program.outputs)


def outputs_of(op_type: str, inputs: Sequence[Input], known: Sequence[int] = (), **options: Any) -> tuple[Array, ...]:
    """Return an operator's outputs; the arguments are those of ``model_of``."""
    return on_kernels(*model_of(op_type, inputs, known, **options))


def check(op_type: str, inputs: Sequence[Input], known: Sequence[int] = (), **options: Any) -> tuple[Array, ...]:
    """Compare an operator's outputs with ONNX Runtime's and return them; the arguments are those of ``model_of``."""
    model, feeds = model_of(op_type, inputs, known, **options)
    found = on_kernels(model, feeds)
    for mine, expected in zip(found, onnxruntime_outputs(model, feeds), strict=True):
        assert_same(mine, expected)
    return found


def assert_same(found: Array, expected: Array, tolerance: float = 2e-5) -> None:
    """Assert equality: of integers, of NaN and infinities, and of numbers up to a part of the greatest one."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(found, expected)
        return
    if expected.dtype == np.float16:
        tolerance = 2e-3
    largest = float(np.abs(expected[np.isfinite(expected)].astype(np.float64)).max(initial=1e-30))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * largest)


def integers(*shape: int, low: int, high: int, seed: int = 0, dtype: str = "int64") -> Array:
    """Return random integers from ``low`` to ``high`` - 1."""
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


__all__ = ["assert_same", "check", "integers", "model_of", "on_kernels", "outputs_of", "program_of", "random"]
