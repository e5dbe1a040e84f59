"""Shape rules of operators on quantised numbers, of domain ``com.microsoft``, of ranks, and of opbuild's own."""

from __future__ import annotations

from opbuild.graph.shape_rules import (
    RULES,
    Shape,
    ShapeCall,
    Types,
    UnknownTypeError,
    broadcast,
    broadcast_of,
    like_first,
    named_dtype,
    rule,
)
from opbuild.graph.shape_rules_reduction import matrix_product, turned
from opbuild.graph.shape_rules_window import require_quantized, slide, window_of
from opbuild.graph.types import COLLECTIVES, TensorType
from opbuild.operations.expression import dtype_of, from_json
from opbuild.text.plural import counted


@rule("QuantizeLinear")
def quantize(call: ShapeCall) -> Types:
    """The zero point's element type, ``output_dtype``, or uint8."""
    _parameters(call)
    if call.has(2):
        return (TensorType(call.dtype(2), call.shape(0)),)
    return (TensorType(named_dtype(call, call.attr("output_dtype", 0) or 2), call.shape(0)),)


@rule("DequantizeLinear")
def dequantize(call: ShapeCall) -> Types:
    """The scale's element type, or ``output_dtype``."""
    _parameters(call)
    chosen = call.attr("output_dtype", 0)
    return (TensorType(named_dtype(call, chosen) if chosen else call.dtype(1), call.shape(0)),)


def _parameters(call: ShapeCall) -> None:
    """Check that a scale is one number, one for each index of an axis, or one for each block of an axis."""
    x, scale = call.shape(0), call.shape(1)
    if call.type(1).size == 1 and (not call.has(2) or call.type(2).size == 1):
        return  # ONNX Runtime's tools write [] for the one and [1] for the other
    call.expect(2, scale)
    axis = call.axis(int(call.attr("axis", 1)), len(x))
    if scale == x[axis : axis + 1]:
        return
    rest = [own for index, own in enumerate(scale) if index != axis]
    block = int(call.attr("block_size", 0))
    if len(scale) != len(x) or rest != [own for index, own in enumerate(x) if index != axis]:
        call.fail(f"the scale has shape {list(scale)}, which is none of axis {axis}")
    least = -(-x[axis] // block) if block else scale[axis]
    if scale[axis] != least or scale[axis] > x[axis]:
        call.fail(f"{scale[axis]} blocks of {block or 'any size'} do not cover the {x[axis]} elements of axis {axis}")


@rule("Elementwise", domain="opbuild")
def elementwise(call: ShapeCall) -> Types:
    """An expression of operands that broadcast together."""
    given = [item for item in call.types if item is not None]
    dtype = dtype_of(from_json(list(call.attr("expression", ()))), [item.dtype for item in given])
    return (TensorType(dtype, broadcast(call, [item.shape for item in given])),)


@rule("IntegerMatMul", domain="opbuild")
def integer_matmul(call: ShapeCall) -> Types:
    """Numpy's matmul of uint8 by int8, in int32; inputs beyond two are the epilogue's."""
    a, b = call.rank(0, least=2), call.rank(1, least=2)
    if (call.dtype(0), call.dtype(1)) != ("uint8", "int8"):
        call.fail_dtype("it multiplies uint8 by int8")
    return (TensorType("int32", matrix_product(call, a, b)),)


@rule("IntegerLSTM", domain="opbuild")
def integer_lstm(call: ShapeCall) -> Types:
    """All hidden states, the last one and the last cell of an LSTM; the first input is what its inputs add to gates."""
    steps, batch, rows = call.rank(0, 3)
    directions, hidden, _ = call.rank(1, 3)
    if call.dtype(1) != "int8":
        call.fail_dtype("its recurrence weights are int8")
    each, state = 4 * hidden, (directions, batch, hidden)
    if rows != directions * each:
        call.fail(f"{rows} sums a step are not those of {counted(directions, 'direction')} of {hidden} units")
    shapes = ((directions, hidden, each), (directions, each), (batch,), state, state, (directions, 3 * hidden))
    for index, shape in enumerate(shapes, 1):
        call.expect(index, shape)
    kinds = [(steps, directions, batch, hidden), state, state]
    return tuple(TensorType("float32", shape) for shape in kinds)


@rule("QGemm", domain="com.microsoft")
def qgemm(call: ShapeCall) -> Types:
    """A product of two matrices, either transposed: bytes if the result has a zero point, else float32."""
    shape = matrix_product(call, turned(call, 0, "transA"), turned(call, 3, "transB"))
    return (TensorType(call.dtype(8) if call.has(8) else "float32", shape),)


@rule("QLinearConcat", domain="com.microsoft")
def qlinear_concat(call: ShapeCall) -> Types:
    """Values, each with its scale and zero point, one after the other along an axis."""
    shapes = [call.shape(index) for index in range(2, len(call.types), 3)]
    axis = call.axis(int(call.attr("axis", 0)), len(shapes[0]))
    rest = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}
    if len(rest) > 1:
        call.fail(f"shapes {' and '.join(str(list(shape)) for shape in shapes)} differ beside axis {axis}")
    total = sum(shape[axis] for shape in shapes)
    return (TensorType(call.dtype(2), (*shapes[0][:axis], total, *shapes[0][axis + 1 :])),)


@rule("MatMulNBits", domain="com.microsoft")
def matmul_nbits(call: ShapeCall) -> Types:
    """The left operand's type, with the columns that attribute ``N`` gives."""
    shape, k, n = call.rank(0, least=1), int(call.attr("K", 0)), int(call.attr("N", 0))
    if shape[-1] != k:
        call.fail(f"the inner dimensions {shape[-1]} and {k} differ")
    bits, block = int(call.attr("bits", 4)), int(call.attr("block_size", 0))
    if block < 16 or block & (block - 1):
        call.fail(f"blocks have 16, 32, 64, ... elements, not {block}")
    blocks = -(-k // block)
    if call.type(1).size != n * blocks * block * bits // 8 or call.type(2).size != n * blocks:
        call.fail(f"{n} columns of {blocks} blocks of {block} weights of {bits} bits are not what inputs 1 and 2 have")
    return (TensorType(call.dtype(0), (*shape[:-1], n)),)


MICROSOFT = "com.microsoft"


def _channels_first(call: ShapeCall) -> Shape:
    """Return the input's shape with its channels behind the batch, where they may be innermost."""
    shape = call.rank(0, least=3)
    return (shape[0], shape[-1], *shape[1:-1]) if _is_last(call) else shape


def _channels_placed(call: ShapeCall, shape: Shape) -> Shape:
    return (shape[0], *shape[2:], shape[1]) if _is_last(call) else shape


def _is_last(call: ShapeCall) -> bool:
    return bool(call.attr("channels_last", 0)) or call.node.op_type == "NhwcMaxPool"


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average(call: ShapeCall) -> Types:
    """The average of each channel."""
    x = _channels_first(call)
    return (TensorType(call.dtype(0), _channels_placed(call, (*x[:2], *(1 for _ in x[2:])))),)


@rule("QLinearAveragePool", "NhwcMaxPool", domain=MICROSOFT)
def pool(call: ShapeCall) -> Types:
    """Averages, or maxima, of windows; channels are innermost for the latter."""
    x = _channels_first(call)
    return (TensorType(call.dtype(0), _channels_placed(call, (*x[:2], *slide(call, x[2:], window_of(call, len(x)))))),)


@rule("QLinearConv", domain=MICROSOFT)
def convolution(call: ShapeCall) -> Types:
    """ONNX's QLinearConv; with ``channels_last`` the images have their channels innermost, the weights do not."""
    x, w = _channels_first(call), call.rank(3, least=3)
    if len(x) != len(w) or x[1] != w[1] * int(call.attr("group", 1)):
        call.fail(f"{x[1]} input channels do not fit weights {list(w)} in {call.attr('group', 1)} group(s)")
    require_quantized(call, w[0], 4, 5)
    call.expect(8, w[:1])
    return (TensorType(call.dtype(7), _channels_placed(call, (x[0], w[0], *slide(call, x[2:], w[2:])))),)


@rule("DynamicQuantizeLinear")
def dynamic(call: ShapeCall) -> Types:
    """Bytes, and the scale and the zero point of all of them."""
    return TensorType("uint8", call.shape(0)), TensorType(call.dtype(0), ()), TensorType("uint8", ())


RULES.register_all(
    {
        "QLinearAdd QLinearMul": broadcast_of(0, 3),
        "QLinearSigmoid QLinearLeakyRelu QLinearSoftmax": like_first,
        "QLinearWhere": broadcast_of(0, 1, 4, dtype=1),
    },
    domain=MICROSOFT,
)


REDUCED = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Element types that are reduced over ranks."""


@rule("AllGather", domain=COLLECTIVES)
def all_gather(call: ShapeCall) -> Types:
    """The inputs of all ranks, one after the other in the first dimension."""
    shape = call.rank(0, least=1)
    return (TensorType(call.dtype(0), (shape[0] * int(call.attr("ranks", 1)), *shape[1:])),)


@rule("ReduceScatter", domain=COLLECTIVES)
def reduce_scatter(call: ShapeCall) -> Types:
    """One rank's part of the first dimension."""
    shape, ranks = call.rank(0, least=1), int(call.attr("ranks", 1))
    if shape[0] % ranks:
        call.fail(
            f"{counted(shape[0], 'row')} cannot be divided among {counted(ranks, 'rank')}", "pad the first dimension"
        )
    return (TensorType(_reduced(call).dtype, (shape[0] // ranks, *shape[1:])),)


def _reduced(call: ShapeCall) -> TensorType:
    if call.dtype(0) not in REDUCED:
        call.fail_dtype(f"{call.dtype(0)} is not reduced over ranks")
    return call.type(0)


@rule("Inverse", domain=MICROSOFT)
def inverse(call: ShapeCall) -> Types:
    """The type of the square matrices."""
    *_, rows, columns = call.rank(0, least=2)
    if rows != columns:
        call.fail(f"matrices of {rows} rows and {columns} columns have no inverse")
    return (call.type(0),)


@rule("BifurcationDetector", "DynamicTimeWarping", domain=MICROSOFT)
def found_by_data(call: ShapeCall) -> Types:
    """The data decide how long the results are."""
    raise UnknownTypeError(
        f"{call.node.op_type} node {call.node.name!r}: its data decide the shape of its output",
        "make its inputs constants; only static shapes are supported",
    )


@rule("TreeEnsemble", domain="opbuild")
def _ensemble(call: ShapeCall) -> Types:
    rows, targets, weights = call.rank(0, 2), call.rank(1, 2), call.type(5)
    return (TensorType(weights.dtype, (rows[0], targets[0] * targets[1])),)


RULES.register_all({"AllReduce": lambda call: (_reduced(call),), "Broadcast": like_first}, domain=COLLECTIVES)
RULES.register_all({"ClassNames": lambda call: (TensorType("object", call.shape(0)),)}, domain="opbuild")
