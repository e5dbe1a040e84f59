"""Every operator that has a kernel and a gradient has a rule; what has none is listed here, with the reason."""

from __future__ import annotations

from functools import cache

import pytest

from opbuild.backend.evaluate import evaluate
from opbuild.dtypes import is_float
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.operator_examples import OperatorExample, examples, operator_types
from opbuild.graph.gradients.registry import CONSTANT, RULES
from opbuild.graph.gradients.reverse import differentiate
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.types import Graph
from opbuild.lowering.implementations import operators
from opbuild.offline.operator_support import outcome
from opbuild.operations.table import OPERATIONS

STEP = "it is constant but for steps"
SHAPE = "only its type, or what shape it says, counts"
PARTS = "a network breaks there, and no segment that is differentiated has it"
QUANTIZED = "it rounds to integers, for networks that do not train"

WITHOUT: dict[tuple[str, str], str] = {
    **dict.fromkeys((("Ceil", "x0"), ("Floor", "x0"), ("Hardmax", "x0"), ("Round", "x0"), ("Sign", "x0")), STEP),
    ("CastLike", "x1"): SHAPE,
    ("Resize", "x2"): SHAPE,
    **dict.fromkeys((("If", ""), ("LinearAttention", ""), ("Loop", ""), ("Scan", "")), PARTS),
    ("DynamicQuantizeLinear", "x0"): QUANTIZED,
    ("RoiAlign", "x1"): "corners of regions get none in torchvision either",
}
"""Operands of floats, of operators that have kernels and give floats, that have no gradient; no operand: none has."""

WITHOUT_RULES = {
    ("", "ConvInteger"): "of integers",
    ("opbuild", "InRange"): "of integers",
    ("opbuild", "IntegerMatMul"): "of integers",
    ("opbuild", "IntegerLSTM"): "its states become integers",
    ("opbuild", "TreeEnsemble"): STEP,
    ("com.microsoft", "MatMulNBits"): "its weights are integers of few bits, for networks that do not train",
    ("opbuild", "Attention"): "passes write it behind the gradients",
    ("opbuild", "ChannelShuffle"): "passes write it behind the gradients",
    ("opbuild", "PlainWeights"): "passes write it behind the gradients",
}
"""What lowering has a rule for, but gradients do not, nor are they made of others, nor known to be constant."""


def _graph(example: OperatorExample) -> Graph | None:
    """Return the graph of an example, None where a network would be cut."""
    walked = load_model(example.model).walk({}, evaluate)
    return walked.graph if walked.follows is None else None


def _is_zero(graph: Graph) -> bool:
    """Return whether the last output is zeros that nothing flowed into."""
    producers, name = graph.producers(), graph.outputs[-1]
    while name in producers and producers[name].op_type in ("Identity", "Expand"):
        name = producers[name].inputs[0]
    return name in graph.constants and not graph.constants[name].any()


@cache
def _lacking(op_type: str) -> frozenset[str]:
    """Return the operands of an operator that have no gradient."""
    found = set()
    for example in examples(op_type):
        if example.dtype not in ("float32", "uint8") or outcome(example).place != "kernel":
            continue
        graph = _graph(example)
        if graph is None:
            found.add("")
            continue
        results = [name for name in graph.outputs if is_float(graph.types[name].dtype)]
        operands = [name for name in (*graph.inputs, *graph.constants) if is_float(graph.types[name].dtype)]
        for name in operands if results else ():
            try:
                if _is_zero(differentiate(graph, [name], results[0])):
                    found.add(name)
            except UnsupportedOperatorError:
                found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("op_type", operator_types())
def test_an_operator_with_a_kernel_has_a_gradient_or_a_reason(op_type: str) -> None:
    """Asked of each operator's small models: operands that lack one are exactly those that are listed."""
    assert _lacking(op_type) == {operand for listed, operand in WITHOUT if listed == op_type}


def test_what_lowering_serves_has_a_rule_is_made_of_others_or_is_listed() -> None:
    """Operators of all domains, and those that compute one element at a time."""
    served = operators() - {("opbuild", "Saturate"), ("opbuild", "Elementwise")}
    known = RULES.keys() | CONSTANT
    lacking = {(domain, name) for domain, name in served - known if domain or not REWRITES.serves("", name)}
    assert lacking == WITHOUT_RULES.keys()


def test_no_operator_has_a_rule_and_none() -> None:
    """What nothing flows through needs no rule, but where an operation is a step."""
    steps = {(domain, name) for domain, name in RULES.keys() & CONSTANT}
    onnx = {each.as_onnx.name for each in OPERATIONS.values() if each.as_onnx is not None}
    own = {each.op_type for each in OPERATIONS.values()}
    assert all(name in (own if domain else onnx) for domain, name in steps)
