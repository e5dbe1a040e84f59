"""Models of a few operators, run on kernels between canaries and by ONNX Runtime as they say, node by node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from kernels.harness import run_program
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import Level
from support.comparison import onnxruntime_outputs

Array = npt.NDArray[Any]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    outputs: Mapping[str, str],
    constants: Mapping[str, Array] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """Return a model.

    Args:
        nodes: Its nodes.
        feeds: What its inputs will be.
        outputs: The element types of its outputs.
        constants: Its initializers.
        opset: Its operator set; domain ``com.microsoft`` is known too.
    """
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, _number(x.dtype), x.shape) for name, x in feeds.items()],
        [helper.make_tensor_value_info(name, _number(np.dtype(dtype)), None) for name, dtype in outputs.items()],
        [numpy_helper.from_array(np.asarray(x), name) for name, x in (constants or {}).items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


def program_of(model: onnx.ModelProto, level: Level | None = None) -> Program:
    """Return a model's program."""
    return lower(optimize(load_model(model).bind({}, evaluate), evaluate), level or host_level())


def run_model(model: onnx.ModelProto, feeds: Mapping[str, Array], level: Level | None = None) -> dict[str, Array]:
    """Return a model's outputs, computed by kernels alone, in several numbers of tasks."""
    return run_program(program_of(model, level), feeds, level=level)


def families_of(program: Program) -> list[str]:
    """Return the family of each call, ``host`` for one that the host computes; what looks at indices is left out."""
    calls = [call for call in program.calls if isinstance(call, KernelCall) or not call.is_check]
    return [call.desc.family if isinstance(call, KernelCall) else "host" for call in calls]


def assert_as_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, Array], level: Level | None = None) -> None:
    """Assert that every output equals what ONNX Runtime computes node by node."""
    expected = onnxruntime_outputs(model, feeds, optimized=False)
    found = run_model(model, feeds, level)
    for name, wanted in zip((port.name for port in model.graph.output), expected, strict=True):
        assert found[name].dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted, name)


def _number(dtype: np.dtype[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(dtype))
