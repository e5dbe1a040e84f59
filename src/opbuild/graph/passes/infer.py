"""Static inference of types: one rule an operator, no onnx.

``infer_node`` types one node (a tracer calls it at each step); ``infer`` types a whole graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from opbuild.dtypes import CODED, is_float
from opbuild.errors import InvalidModelError, ModelError, OptionError, ShapeError, UnsupportedOperatorError
from opbuild.graph import user_operators
from opbuild.graph.shape_rules import RULES, ShapeCall
from opbuild.graph.types import Array, Graph, Node, TensorType

WITH_CODES = frozenset((
    "BitCast", "Cast", "CastLike", "CenterCropPad", "Compress", "Concat", "ConcatFromSequence", "ConstantOfShape",
    "DepthToSpace", "DequantizeLinear", "Dropout", "Expand", "EyeLike", "Flatten", "Gather", "GatherElements",
    "GatherND", "Identity", "If", "IsInf", "IsNaN", "Loop", "Optional", "OptionalGetElement", "OptionalHasElement",
    "Pad", "QLinearMatMul", "QuantizeLinear", "RandomNormalLike", "RandomUniformLike", "Reshape",
    "ReverseSequence", "Scan", "ScatterElements", "ScatterND", "SequenceAt", "SequenceConstruct", "SequenceErase",
    "SequenceInsert", "SequenceMap", "Shape", "Size", "Slice", "SpaceToDepth", "Split", "SplitToSequence",
    "Squeeze", "TensorScatter", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where",
))  # fmt: skip
"""Operators that move numbers of fewer than 8 bits and floats of 8, or convert them; others have no arithmetic."""

OF_FLOATS = frozenset((
    "Acos", "Acosh", "AffineGrid", "Asin", "Asinh", "Atan", "Atanh", "Attention",
    "AveragePool", "BatchNormalization", "Bernoulli",
    "CausalConvWithState", "Ceil", "Celu", "Conv", "ConvTranspose", "Cos", "Cosh", "DFT", "DeformConv", "Det",
    "DynamicQuantizeLinear", "Elu", "Erf", "Exp", "Floor", "GRU", "Gelu", "GlobalAveragePool", "GlobalLpPool",
    "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "InstanceNormalization", "LRN",
    "LSTM", "LayerNormalization", "LeakyRelu", "LinearAttention", "Log", "LogSoftmax", "LpNormalization", "LpPool",
    "MaxRoiPool", "MaxUnpool", "Mean", "MeanVarianceNormalization", "Mish", "Multinomial",
    "NegativeLogLikelihoodLoss", "NonMaxSuppression", "RMSNormalization", "RNN", "Reciprocal", "ReduceLogSum",
    "ReduceLogSumExp", "RoiAlign", "RotaryEmbedding", "Round", "STFT", "Selu", "Sigmoid", "Sin", "Sinh", "Softmax",
    "SoftmaxCrossEntropyLoss", "Softplus", "Softsign", "Sqrt", "Sum", "SwiGLU", "Swish", "Tan", "Tanh",
    "ThresholdedRelu",
))  # fmt: skip
"""Operators whose first input is of floating numbers: they are not defined for others."""

OF_BYTES = {
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"), (0, 1)),
    **dict.fromkeys(("QGemm", "QLinearAdd", "QLinearConv", "QLinearMul"), (0, 3)),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool", "QLinearLeakyRelu"), (0,)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearSoftmax"), (0,)),
    "QLinearConcat": (2,),
    "QLinearWhere": (1, 4),
    "DynamicQuantizeMatMul": (1,),
}
"""Inputs that hold bytes, of operators that compute with quantized numbers."""


def require_known(call: ShapeCall) -> None:
    """Refuse element types for which an operator is not defined.

    Raises:
        DTypeError: If an input has one; the message names the node and the type.
    """
    node = call.node
    if node.domain in ("", "com.microsoft"):
        for index in OF_BYTES.get(node.op_type, ()):
            if call.has(index) and call.dtype(index) not in ("uint8", "int8"):
                call.fail_dtype(f"it computes with uint8 and int8, not with {call.dtype(index)}")
    if node.domain:
        return
    dtypes = [each.dtype for each in call.types if each is not None]
    codes = [each for each in dtypes if each in CODED]
    if codes and node.op_type not in WITH_CODES:
        call.fail_dtype(f"it is not defined for {codes[0]}")
    if dtypes and node.op_type in OF_FLOATS and not is_float(dtypes[0]):
        call.fail_dtype(f"it is not defined for {dtypes[0]}")
    if node.op_type == "DynamicQuantizeLinear" and dtypes[:1] != ["float32"]:
        call.fail_dtype(f"it quantizes float32, not {dtypes[0]}")


@contextmanager
def node_error_context(node: Node, caller: Node | None = None) -> Iterator[None]:
    """Turn errors of other packages for a node's attributes, shapes or constants into one that names the node.

    If it is in a function, the model's node that calls it is at fault: ``caller``.

    Raises:
        InvalidModelError: Instead of those.
        ModelError: As it was raised; from here on it has the node's name.
    """
    try:
        yield
    except ModelError as error:
        error.node = error.node or node.name
        if caller is not None:
            error.node = caller.name
            error.message = f"{caller.op_type} node {caller.name!r}: its function is not valid: {error.message}"
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        what = "more memory than there is" if isinstance(error, MemoryError) else "something that is not valid"
        raise InvalidModelError(
            f"{node.op_type} node {node.name!r}: its attributes or inputs ask for {what} "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]})",
            "check the node's attributes and constants against ONNX's reference",
        ) from error


def has_rule(domain: str, op_type: str) -> bool:
    """Return whether an operator has a rule of its own."""
    return (domain, op_type) in RULES


def infer_node(
    node: Node, types: Sequence[TensorType | None], constants: Sequence[Array | None]
) -> tuple[TensorType, ...]:
    """Return the types of the outputs of a node of the newest operator set, or of another domain.

    It has inputs of these types, None for an absent one, and values, None for an unknown one.

    Raises:
        ShapeError: If the shapes do not fit; the message names the node and its inputs' types.
        DTypeError: If the element types do not fit or are not supported.
        UnsupportedOperatorError: If the operator has no rule, or its shape depends on values that are not known.
    """
    found = RULES.get((node.domain, node.op_type))
    if found is None:
        raise UnsupportedOperatorError(
            f"{node.op_type} node {node.name!r}: opbuild has no shape rule for this operator",
            "check its name and domain, or replace it by operators that opbuild knows",
        )
    call = ShapeCall(node, types, constants)
    try:
        results = found(call)[: len(node.outputs)]
        require_known(call)
        check_sizes(node, results)
        return results
    except ModelError:
        raise
    except (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError) as error:
        call.fail(
            f"its attributes or inputs are not valid ({error})", "check the node's attributes against ONNX's reference"
        )


def check_sizes(node: Node, results: Sequence[TensorType]) -> None:
    """Check the types that a rule found for a node's outputs, before anybody makes memory for them.

    Raises:
        ShapeError: If no tensor can have one of them.
    """
    for each in results:
        if each.problem:
            raise ShapeError(
                f"{node.op_type} node {node.name!r}: its output would be {each.problem}", "give it smaller inputs"
            )


def infer(graph: Graph, types: Mapping[str, TensorType] | None = None) -> Graph:
    """Return the graph with the type of every value, found from its constants and inputs, which may get other types.

    Raises:
        ShapeError, DTypeError, UnsupportedOperatorError: As ``infer_node``.
    """
    given = graph.types if types is None else types
    known = {name: given[name] for name in graph.inputs}
    known.update((name, type_of(value)) for name, value in graph.constants.items())
    for node in graph.nodes:
        read = [known[name] if name else None for name in node.inputs]
        found = infer_node(node, read, [graph.constants.get(name) for name in node.inputs])
        known.update((name, each) for name, each in zip(node.outputs, found, strict=False) if name)
    return graph.with_(types=known)


def is_text(value: Array) -> bool:
    """Return whether an array of objects holds text."""
    return any(isinstance(each, str) for each in value.flat[:1])


def type_of(value: Array) -> TensorType:
    """Return the type of an array; objects stand for text, or for integers that follow from open extents."""
    if value.dtype != object:
        return TensorType(str(value.dtype), value.shape)
    return TensorType("object" if is_text(value) else "int64", value.shape)


WITHOUT_RULE = frozenset((
    "AffineGrid", "BitCast", "BlackmanWindow", "CausalConvWithState", "Col2Im",
    "Compress", "ConcatFromSequence", "Constant", "DFT", "DeformConv", "Det", "GRU",
    "HammingWindow", "HannWindow", "If", "ImageDecoder", "LSTM", "LinearAttention", "Loop", "MaxRoiPool",
    "MelWeightMatrix", "Multinomial", "NegativeLogLikelihoodLoss", "NonMaxSuppression", "NonZero",
    "Optional", "OptionalGetElement", "OptionalHasElement", "QLinearMatMul", "RNN", "RegexFullMatch", "RoiAlign",
    "RotaryEmbedding", "STFT", "Scan", "Scatter", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase",
    "SequenceInsert", "SequenceLength", "SequenceMap", "SoftmaxCrossEntropyLoss", "SplitToSequence", "StringConcat",
    "StringNormalizer", "StringSplit", "SwiGLU", "TfIdfVectorizer", "Unique", "Upsample",
))  # fmt: skip
"""ONNX's operators that an option may name whether they have a shape rule here or not."""


def known_types() -> frozenset[str]:
    """Return every operator type: ONNX's, opbuild's own, and those that the user defined so far."""
    return WITHOUT_RULE.union((op_type for _, op_type in RULES), user_operators.known_types())


def check_types(types: Iterable[str], option: str = "optypelist_for_implmode") -> None:
    """Check that an option names operator types that exist.

    Raises:
        OptionError: If it names another one.
    """
    from difflib import get_close_matches  # few options name a type that there is not

    known = known_types()
    for op_type in types:
        if op_type not in known:
            near = get_close_matches(op_type, sorted(known), 3)
            meant = f"; is it {' or '.join(near)}?" if near else ""
            raise OptionError(
                f"{option} names {op_type!r}, which is no operator type",
                f"give types as ONNX spells them, such as Conv, Softmax, Tanh{meant}",
            )
