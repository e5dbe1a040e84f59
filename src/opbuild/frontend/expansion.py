"""Operators that ONNX defines by others: which of them are replaced by their functions, and a node's function.

A function of the schema is a body of nodes in an operator set of its own. Some bodies depend on the node: on the types
and ranks of its inputs, and on which of them are there. Those of the optimizers of ``ai.onnx.preview.training`` are
written here, for as many tensors as a node has; ONNX's schemas have none.

An operator without a shape rule is known to nobody here but onnx's evaluator: its function takes its place. One that
has a rule keeps its place, unless ``DECISIONS`` says otherwise: kernels serve it, or numpy computes it in one call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.frontend.onnx_messages import AttributeProto, FunctionProto, NodeProto, TypeProto
from opbuild.frontend.onnx_node import subgraphs
from opbuild.frontend.onnx_schemas import newest_of, schema
from opbuild.frontend.open_values import Types, Values
from opbuild.graph.factors import normalizes
from opbuild.graph.passes.infer import has_rule
from opbuild.graph.shape_rules import ONNX_NUMBERS
from opbuild.graph.types import Node
from opbuild.platform.records import NamedTuple

DOMAIN = "ai.onnx.preview.training"


def own_function(node: Node) -> FunctionProto:
    """Return the function of an optimizer; ONNX's schemas have none."""
    from onnx import parser

    return parser.parse_function(f'<opset_import: ["" : 21], domain: ""> {_text(node)}')


class Optimizer(NamedTuple):
    """The text of an optimizer's function.

    Attributes:
        kept: The letters of the states that it keeps from step to step.
        attrs: Its attributes, with their defaults.
        head: What is computed once.
        each: What is computed for each tensor, whose number stands for ``#``.
    """

    kept: str
    attrs: Mapping[str, float]
    head: str
    each: str


OWN_FUNCTIONS: Mapping[tuple[str, str], Optimizer] = {
    (DOMAIN, "Adagrad"): Optimizer(  # each element's steps become smaller with the squares that it has seen
        "H",
        {"decay_factor": 0.0, "epsilon": 0.0, "norm_coefficient": 0.0},
        "Decay = Mul (TF, decay_factor) Slow = Add (One, Decay) Step = Div (RF, Slow)",
        """Square# = Mul (Slope#, Slope#) NewH# = Add (H#, Square#) Root# = Sqrt (NewH#) Sum# = Add (Root#, epsilon)
        Far# = Mul (Step, Slope#) Change# = Div (Far#, Sum#) NewX# = Sub (X#, Change#)""",
    ),
    (DOMAIN, "Adam"): Optimizer(  # the first steps are corrected for averages that begin with zeros
        "VH",
        {"epsilon": 0.0, "norm_coefficient": 0.0, "norm_coefficient_post": 0.0, "alpha": 0.9, "beta": 0.999},
        """KeptV = Pow (alpha, TF) KeptH = Pow (beta, TF) NewShareV = Sub (One, KeptV) NewShareH = Sub (One, KeptH)
        RootH = Sqrt (NewShareH) Raised = Mul (RF, RootH) Corrected = Div (Raised, NewShareV)
        Step = Where (Later, Corrected, RF) OtherV = Sub (One, alpha) OtherH = Sub (One, beta)
        Last = Sub (One, norm_coefficient_post)""",
        """OldV# = Mul (alpha, V#) AddV# = Mul (OtherV, Slope#) NewV# = Add (OldV#, AddV#)
        OldH# = Mul (beta, H#) Square# = Mul (Slope#, Slope#) AddH# = Mul (OtherH, Square#) NewH# = Add (OldH#, AddH#)
        Root# = Sqrt (NewH#) Sum# = Add (Root#, epsilon) Far# = Mul (Step, NewV#) Change# = Div (Far#, Sum#)
        Moved# = Sub (X#, Change#) NewX# = Mul (Last, Moved#)""",
    ),
    (DOMAIN, "Momentum"): Optimizer(  # plain; Nesterov's has another way
        "V",
        {"norm_coefficient": 0.0, "alpha": 0.0, "beta": 0.0},
        "Share = Where (Later, beta, One)",
        """OldV# = Mul (alpha, V#) AddV# = Mul (Share, Slope#) NewV# = Add (OldV#, AddV#) Way# = Identity (NewV#)
        Far# = Mul (RF, Way#) NewX# = Sub (X#, Far#)""",
    ),
}
"""The functions of optimizers, by their domain and type."""

_NESTEROV = "Ahead# = Mul (alpha, NewV#) Way# = Add (Slope#, Ahead#)"


def _text(node: Node) -> str:
    """Return the text of a function of rate, step, and as many tensors, gradients and states as a node has."""
    kept, defaults, head, each = OWN_FUNCTIONS[node.domain, node.op_type]
    if node.text("mode", "standard") == "nesterov":
        each = each.replace("Way# = Identity (NewV#)", _NESTEROV)
    kinds = "XG" + kept
    numbers = range((len(node.inputs) - 2) // len(kinds))  # behind rate and step
    inputs = ", ".join(["R", "T", *(f"{kind}{i}" for kind in kinds for i in numbers)])
    outputs = ", ".join(f"New{kind}{i}" for kind in "X" + kept for i in numbers)
    lines = ["RF = CastLike (R, X0) TF = CastLike (T, X0)", _number("One", 1.0)]
    lines += ["Zero = Constant <value: tensor = int64 {0}> () Later = Greater (T, Zero)"]
    lines += [_number(name, float(node.attrs.get(name, default))) for name, default in defaults.items()]
    regularised = "Norm# = Mul (norm_coefficient, X#) Slope# = Add (Norm#, G#)"
    lines += [head, *(f"{regularised} {each}".replace("#", str(i)) for i in numbers)]
    return f"{node.op_type} ({inputs}) => ({outputs}) {{ {' '.join(lines)} }}"


def _number(name: str, value: float) -> str:
    """Return the text of a constant of the tensors' type."""
    return f"{name}_float = Constant <value_float: float = {value!r}> () {name} = CastLike ({name}_float, X0)"


Decision = Callable[[Node, Sequence[Any], Values], bool]
"""Tells whether a node's function takes its place, from the node, the types of its inputs, and those that are known."""


def _has_elements(node: Node, types: Sequence[Any], values: Values) -> bool:
    """Tell whether there is something to compute: reshapes and maxima of functions fail where there is nothing."""
    return all(0 not in each.shape for each in types[:3] if each is not None)


def _is_norm_of_integers(node: Node, types: Sequence[Any], values: Values) -> bool:
    """Tell whether a square root is taken of a sum of integers, over axes that are known."""
    if is_float(types[0].dtype):
        return False
    is_over_none = len(types) < 2 or types[1] is None or not types[1].size
    return not node.attrs.get("noop_with_empty_axes", 0) if is_over_none else values[1] is not None


def _has_no_kernel(node: Node, types: Sequence[Any], values: Values) -> bool:
    """Tell whether no kernel normalises by the scale, which the function multiplies by if it is of the input's type."""
    x, scale = types
    if x.dtype != scale.dtype:
        return False
    row = prod(x.shape[int(node.attrs.get("axis", -1)) % max(1, len(x.shape)) :])
    if x.dtype == "float64" or 0 in x.shape or prod(scale.shape) not in (1, row):
        return True
    known = None if values[1] is None else values[1].astype(np.float32)
    return not normalizes(known, float(node.attrs.get("epsilon", 1e-5)))


_DECISIONS: Mapping[str, Decision] = {
    # Simpler operators take its place later, or its inputs are known, or are no tensors.
    "AffineGrid BlackmanWindow HammingWindow HannWindow SequenceMap": lambda node, types, values: False,
    # Keys and values are of one type: the function multiplies both by scores of one.
    "Attention": lambda node, types, values: types[0].dtype == types[2].dtype and _has_elements(node, types, values),
    # An alpha of 0 makes a step of the curve, which is divided by alpha.
    "Celu": lambda node, types, values: float(node.attrs.get("alpha", 1.0)) == 0,
    # There is nothing that kernels could reduce.
    "DynamicQuantizeLinear": lambda node, types, values: 0 in types[0].shape,
    # Integers are compared with, and moved by, numbers that are none.
    "Shrink": lambda node, types, values: not is_float(types[0].dtype),
    "ReduceL2": _is_norm_of_integers,
    "LogSoftmax Softmax": lambda node, types, values: bool(types[0].shape) and types[0].dtype == "float64",
    "RMSNormalization": _has_no_kernel,
}

DECISIONS = {("", op_type): decision for names, decision in _DECISIONS.items() for op_type in names.split()}
"""What decides on operators for which having a shape rule does not. A test asks lowering about each."""


def is_foreign(node: Node, opset: int) -> bool:
    """Return whether only onnx's evaluator and its function define a node; ``opset`` is ONNX's own that it speaks."""
    known = node.domain, node.op_type
    return not has_rule(*known) and known not in DECISIONS and has_body(node, opset)


def may_take_function(node: Node, opset: int) -> bool:
    """Return whether there are nodes of an operator whose functions take their places."""
    return (node.domain, node.op_type) in DECISIONS or is_foreign(node, opset)


def takes_function(node: Node, types: Types, values: Values) -> bool:
    """Return whether a node's function takes its place, for an operator of which ``may_take_function`` is true."""
    return DECISIONS.get((node.domain, node.op_type), _has_elements)(node, types, values)


def has_body(node: Node, opset: int) -> bool:
    """Return whether a node's operator is defined by others; ``opset`` is ONNX's own that the node speaks."""
    if (node.domain, node.op_type) in OWN_FUNCTIONS:
        return True
    found = schema(node.op_type, _version(node.domain, opset), node.domain)
    return found is not None and found.has_function


def function_of(node: Node, types: Types, opset: int) -> FunctionProto | None:
    """Return the function of a node, without references to attributes; None if its operator has none for its inputs.

    ``opset`` is ONNX's own that the node speaks.
    """
    from opbuild.frontend.onnx_single import to_proto  # it is onnx that has functions, and most networks need none

    if types and types[0] is not None and types[0].dtype == "float64" and node.op_type == "RMSNormalization":
        stash = ONNX_NUMBERS["float64"]  # statistics are computed in that, not in float32, as ONNX Runtime does
        node = node.with_(attrs={**node.attrs, "stash_type": stash})
    proto, given = to_proto(node), dict[str, AttributeProto]()
    if (node.domain, node.op_type) in OWN_FUNCTIONS:
        function: FunctionProto | None = own_function(node)
    else:
        from onnx import defs

        found = defs.get_schema(node.op_type, _version(node.domain, opset), node.domain)
        defaults = {name: attribute.default_value for name, attribute in found.attributes.items()}
        given = {name: value for name, value in defaults.items() if value.type != AttributeProto.UNDEFINED}
        function = _function(found, proto, types)
    if function is not None:
        given |= {attribute.name: attribute for attribute in (*function.attribute_proto, *proto.attribute)}
        _fill(function.node, given)
    return function


def _version(domain: str, opset: int) -> int:
    return newest_of(domain) if domain else opset


def _function(schema: Any, proto: NodeProto, types: Types) -> FunctionProto | None:
    """Return the function in the newest operator set for which the schema has one."""
    from opbuild.frontend.onnx_single import open_type_proto

    if schema.has_context_dependent_function:
        version = max(schema.context_dependent_function_opset_versions)
        kinds = [(TypeProto() if each is None else open_type_proto(each)).SerializeToString() for each in types]
        found = schema.get_context_dependent_function_with_opset_version(version, proto.SerializeToString(), kinds)
    else:
        found = schema.get_function_with_opset_version(max(schema.function_opset_versions))
    function: FunctionProto = FunctionProto.FromString(found)
    return function if function.node else None


def _fill(nodes: Iterable[NodeProto], given: Mapping[str, AttributeProto]) -> None:
    """Give nodes the values of the attributes that they refer to; one that the caller lacks is left out."""
    for node in nodes:
        for graph in subgraphs(node):
            _fill(graph.node, given)
        for attribute in [each for each in node.attribute if each.ref_attr_name]:
            name, value = attribute.name, given.get(attribute.ref_attr_name)
            if value is None:
                node.attribute.remove(attribute)
            else:
                attribute.CopyFrom(value)
                attribute.name = name
