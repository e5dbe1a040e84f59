"""Small models of one node, by which is asked what becomes of an operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import Array
from opbuild.platform.records import NamedTuple


class Operand(NamedTuple):
    """An input of an example.

    Attributes:
        shape: Its shape.
        dtype: Its element type; empty for the type that is asked about.
        value: Its contents if they are known when the network is built; None if they are given to each call.
    """

    shape: tuple[int, ...]
    dtype: str = ""
    value: Array | float | None = None


class Form(NamedTuple):
    """One way to use an operator.

    Attributes:
        label: What is particular about it; empty if there is one form only.
        inputs: Its inputs; None for an absent one.
        attrs: Its attributes; a function makes one of the element type that is asked about.
        outputs: How many outputs it has.
    """

    label: str
    inputs: tuple[Operand | None, ...]
    attrs: Mapping[str, Any] = {}
    outputs: int = 1


class Example(NamedTuple):
    """A model of one node.

    Attributes:
        op_type: The operator, with its domain before it if that is not ONNX's own.
        label: The label of its form.
        dtype: The element type that is asked about.
        model: The model; None if opbuild has no such values: sequences, optional values, text.
    """

    op_type: str
    label: str
    dtype: str
    model: onnx.ModelProto | None


def given(*shape: int, dtype: str = "") -> Operand:
    """Return an input that is given to each call."""
    return Operand(shape, dtype)


def known(*shape: int, dtype: str = "", value: Any = 1) -> Operand:
    """Return an input that is known when the network is built, as weights are: one number, repeated."""
    return Operand(shape, dtype, value)


def model_of(
    domain: str,
    op_type: str,
    form: Form,
    dtype: str,
    versions: Mapping[str, int],
    kind_of: Callable[[int], str] | None = None,
) -> onnx.ModelProto:
    """Return the model of a form of an operator.

    Args:
        domain: The operator's domain.
        op_type: Its type.
        form: The form.
        dtype: The element type that is asked about.
        versions: Operator sets, by domain.
        kind_of: Returns the element type of the input at a place that states none; if it is left out, all such inputs
            have the type that is asked about.
    """
    names, inputs, constants = [], [], []
    for number, operand in enumerate(form.inputs):
        names.append("" if operand is None else f"x{number}")
        if operand is None:
            continue
        kind = operand.dtype or (kind_of(number) if kind_of else dtype)
        if operand.value is None:
            inputs.append(helper.make_tensor_value_info(names[-1], ONNX_NUMBERS[kind], operand.shape))
        else:
            contents = np.full(operand.shape, operand.value).astype(kind)
            constants.append(numpy_helper.from_array(contents, names[-1]))
    outputs = [f"y{number}" for number in range(form.outputs)]
    attrs = {name: value(dtype) if callable(value) else value for name, value in form.attrs.items()}
    node = helper.make_node(op_type, names, outputs, name="node", domain=domain, **attrs)
    results = [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in outputs]
    graph = helper.make_graph([node], op_type, inputs, results, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in versions.items()])
