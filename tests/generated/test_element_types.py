"""Every operator with every element type: it is built, or an error names the node and the type."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from importlib import import_module

import onnx
import pytest

from opbuild.backend.evaluate import evaluate
from opbuild.backend.halide.driver import HalideCompiler, _compiling
from opbuild.errors import DTypeError, OpbuildError
from opbuild.frontend import operator_examples
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.infer import OF_BYTES, OF_FLOATS, WITH_CODES
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import DTYPES
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall
from opbuild.target.host import host_level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN, SEED
from support.graph_runner import run_graph
from support.operator_claims import feeds_of
from support.walk_runner import operators_kept

PART = 1 if CAMPAIGN else 9
"""Which fraction of the pairs is tried."""

OTHER_REASONS = (
    "known only at run time", "not known when the network is built", "its body is repeated", "makes a sequence",
    "makes an optional value", "lacks the attribute", "has 1 outputs", "Input shape must have", "check the values",
    "Input Sequence and Tensor",
)  # fmt: skip
"""What errors say of models that lack more than a type, or whose values are at fault."""

BEYOND_TENSORS = ("Optional", "Sequence", "Split", "String", "Regex", "Label", "TfIdf", "Concat", "Image")
"""How names of operators begin that take sequences or text, which have no type of ours: others compare them."""

_defined: set[OpDesc] = set()


def _pairs() -> Iterator[tuple[str, str, onnx.ModelProto]]:
    """Yield operators, element types, and a model of each form of the operator for the type, allowed or not."""
    for op_type in operator_examples.operator_types():
        schema = operator_examples._schemas()[op_type]
        main, _ = operator_examples._main_type(schema)
        for form in operator_examples.FORMS.get(op_type) or (operator_examples._usual_form(schema),):
            for dtype in DTYPES:
                yield op_type, dtype, operator_examples._model(schema, form, main, dtype)


def _define(desc: OpDesc) -> None:
    """Define and schedule a kernel, as far as a compiler refuses types."""
    if desc not in _defined:
        with _compiling(desc):
            family = import_module(HalideCompiler.module_of(desc.family))
            family.schedule(family.define(desc), desc, Machine.of(host_level()))
        _defined.add(desc)


def outcome(op_type: str, model: onnx.ModelProto, dtype: str) -> str:
    """Return the outcome of a pair: ``built``, ``refused``, or ``incomplete`` for another reason.

    Raises:
        AssertionError: If the error does not name the node and the type.
    """
    try:
        with operators_kept():
            graph = load_model(model).bind({}, evaluate)
        for call in lower(optimize(graph, evaluate), host_level()).calls:
            if isinstance(call, KernelCall):
                _define(call.desc)
        if not op_type.startswith(BEYOND_TENSORS):
            run_graph(graph, feeds_of(model))
    except OpbuildError as error:
        said = str(error)
        assert "error in opbuild" not in said, said
        assert "'node'" in said, said
        if dtype in said:
            return "refused"
        assert any(each in said for each in OTHER_REASONS), said
        return "incomplete"
    return "built"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_operator_serves_every_element_type_or_names_it() -> None:
    """Acos of truth values could not be compiled; Softmax of floats of 8 bits was NaN throughout."""
    counts, faults = Counter[str](), []
    for number, (op_type, dtype, model) in enumerate(_pairs()):
        if (number + SEED) % PART:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                counts[outcome(op_type, model, dtype)] += 1
        except Exception as error:
            faults.append((op_type, dtype, f"{type(error).__name__}: {error}"))
    print(dict(counts))
    assert not faults, (len(faults), faults[:5])
    assert counts["built"] > 1800 / PART
    assert counts["refused"] > 2000 / PART


def test_what_is_said_of_types_is_what_the_standard_says() -> None:
    """Operators that move or convert codes are among those listed; those of floats allow nothing else first."""
    floats = {f"tensor({name})" for name in ("float", "double", "float16", "bfloat16")}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain or schema.deprecated or not schema.inputs:
            continue
        allowed = {each.type_param_str: set(each.allowed_type_strs) for each in schema.type_constraints}
        ports = [allowed.get(port.type_str, {port.type_str}) for port in schema.inputs]
        if any("tensor(int4)" in each or "tensor(float8e4m3fn)" in each for each in ports):
            assert schema.name in WITH_CODES
        assert (ports[0] <= floats) == (schema.name in OF_FLOATS), schema.name


@pytest.mark.each
@pytest.mark.parametrize("op_type", ["Sigmoid", "Softmax", "Relu", "Conv"])
def test_an_error_about_a_float_of_eight_bits_names_it(op_type: str) -> None:
    """These have no arithmetic: the error says so before anything is built."""
    schema = operator_examples._schemas()[op_type]
    form = (operator_examples.FORMS.get(op_type) or (operator_examples._usual_form(schema),))[0]
    model = operator_examples._model(schema, form, operator_examples._main_type(schema)[0], "float8_e4m3fn")
    with pytest.raises(DTypeError, match=f"{op_type} node 'node': it is not defined for float8_e4m3fn"):
        load_model(model).bind({}, evaluate)


@pytest.mark.each
@pytest.mark.parametrize("op_type", ["Sin", "Sigmoid", "Softmax", "Sqrt", "Erf"])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_what_computes_with_floats_refuses_other_numbers(op_type: str, dtype: str) -> None:
    """The sine of an integer would be 0, -1 or 1: a wrong number is no answer."""
    schema = operator_examples._schemas()[op_type]
    form = (operator_examples.FORMS.get(op_type) or (operator_examples._usual_form(schema),))[0]
    model = operator_examples._model(schema, form, operator_examples._main_type(schema)[0], dtype)
    with pytest.raises(DTypeError, match=f"{op_type} node 'node': it is not defined for {dtype}"):
        load_model(model).bind({}, evaluate)


@pytest.mark.each
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_an_error_about_a_quantized_operator_names_the_type(op_type: str) -> None:
    """They compute with bytes; int32 is what is accumulated in."""
    assert op_type in OF_BYTES
    names = ["a", "s", "z", "b", "s", "z", "s", "z"]
    node = onnx.helper.make_node(op_type, names, ["y"], "node", domain="com.microsoft")
    kinds = {"a": onnx.TensorProto.INT32, "b": onnx.TensorProto.INT32, "z": onnx.TensorProto.INT32,
             "s": onnx.TensorProto.FLOAT}  # fmt: skip
    inputs = [
        onnx.helper.make_tensor_value_info(name, kind, [3] if name in "ab" else []) for name, kind in kinds.items()
    ]
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.INT32, [3])
    opsets = [onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("com.microsoft", 1)]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", inputs, [output]), opset_imports=opsets)
    with pytest.raises(DTypeError, match=f"{op_type} node 'node': it computes with uint8 and int8, not with int32"):
        load_model(model).bind({}, evaluate)
