"""Shape rules of operators that sum or normalise: products of matrices, reductions, normalization, sequences."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.graph.recurrent import GATES, cell_of
from opbuild.graph.shape_rules import RULES, Rule, Shape, ShapeCall, Types, broadcast, rule, same_dtype
from opbuild.graph.types import TensorType
from opbuild.text.plural import counted


def matrix_product(call: ShapeCall, a: Shape, b: Shape) -> Shape:
    """Return the shape of a product of matrices by numpy's rules."""
    if not a or not b:
        call.fail("a factor is a scalar")
    left, right = (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b
    if left[-1] != right[-2]:
        call.fail(f"the inner dimensions {left[-1]} and {right[-2]} differ")
    rows = () if len(a) == 1 else (left[-2],)
    columns = () if len(b) == 1 else (right[-1],)
    return (*broadcast(call, (left[:-2], right[:-2])), *rows, *columns)


def product_of(a: int = 0, b: int = 1, dtype: int | str = 0) -> Rule:
    """Return the rule of numpy's matmul of two inputs, with the element type of one, or a type that it always has."""

    def typed(call: ShapeCall) -> Types:
        kind = dtype if isinstance(dtype, str) else call.dtype(dtype)
        return (TensorType(kind, matrix_product(call, call.shape(a), call.shape(b))),)

    return typed


RULES.register_all(
    {
        "MatMul": lambda call: product_of(dtype=same_dtype(call))(call),
        "MatMulInteger": product_of(dtype="int32"),
        "QLinearMatMul": product_of(0, 3, 7),
    }
)
RULES.register_all(
    {
        "QLinearMatMul": product_of(0, 3, 7),
        "MatMulIntegerToFloat": product_of(dtype=2),
        "DynamicQuantizeMatMul": product_of(),
    },
    domain="com.microsoft",
)


def turned(call: ShapeCall, index: int, attribute: str) -> Shape:
    """Return the shape of a matrix, transposed if an attribute says so."""
    shape = call.rank(index, 2)
    return shape[::-1] if call.attr(attribute, 0) else shape


@rule("Gemm")
def gemm(call: ShapeCall) -> Types:
    """A product of two matrices, either transposed, plus a value that broadcasts to it."""
    dtype = same_dtype(call)
    a, b = turned(call, 0, "transA"), turned(call, 1, "transB")
    if a[1] != b[0]:
        call.fail(f"the inner dimensions {a[1]} and {b[0]} differ")
    shape = (a[0], b[1])
    if call.has(2) and broadcast(call, (call.shape(2), shape)) != shape:
        call.fail(f"C does not broadcast to {list(shape)}")
    return (TensorType(dtype, shape),)


@rule("Einsum")
def einsum(call: ShapeCall) -> Types:
    """A sum of products in Einstein's notation."""
    dtype, equation = same_dtype(call), call.node.text("equation", "").replace(" ", "")
    terms = equation.partition("->")[0].split(",")
    if len(terms) != len(call.types):
        call.fail(f"equation {equation!r} has {counted(len(terms), 'term')} for {counted(len(call.types), 'input')}")
    for index, term in enumerate(terms):
        named, rank = len(term.replace("...", "")), len(call.shape(index))
        if named > rank or ("..." not in term and named != rank):
            call.fail(f"term {term!r} does not fit the shape {list(call.shape(index))}")
    labelled, result = einsum_labels(equation, [len(call.shape(index)) for index in range(len(terms))])
    extents: dict[str, int] = {}
    dots: list[Shape] = []
    for index, labels in enumerate(labelled):
        pairs = list(zip(labels, call.shape(index), strict=True))
        dots.append(tuple(extent for label, extent in pairs if label.isdecimal()))
        for letter, extent in (pair for pair in pairs if not pair[0].isdecimal()):
            if extents.setdefault(letter, extent) == 1:
                extents[letter] = extent
            if extent not in (1, extents[letter]):
                call.fail(f"{letter!r} is both {extents[letter]} and {extent}")
    for letter in result:
        if letter not in extents and not letter.isdecimal():
            call.fail(f"equation {equation!r} does not define {letter!r}")
    between = iter(broadcast(call, dots) if any(map(str.isdecimal, result)) else ())
    return (TensorType(dtype, tuple(next(between) if each.isdecimal() else extents[each] for each in result)),)


def einsum_labels(equation: str, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return the labels of each input's dimensions and of the output's; those of an ellipsis are numbers."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    dots = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    most = max(dots, default=0)
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        right = ("..." if dots else "") + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    labelled = [_expanded(term, rank, most) for term, rank in zip(terms, ranks, strict=True)]
    return labelled, _expanded(right, len(right.replace("...", "")) + most if "..." in right else len(right), most)


def _expanded(term: str, rank: int, most: int) -> tuple[str, ...]:
    head, ellipsis, tail = term.partition("...")
    count = rank - len(head) - len(tail) if ellipsis else 0
    return (*head, *(str(number) for number in range(most - count, most)), *tail)


@rule(
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip
def reduce(call: ShapeCall) -> Types:
    """A reduction over the axes in the second input, over all if there are none."""
    x = call.shape(0)
    given = call.ints(1) if call.has(1) and call.type(1).size else ()
    if not given and call.attr("noop_with_empty_axes", 0):
        return (call.type(0),)
    axes = call.axes(given, len(x)) if given else tuple(range(len(x)))
    keep = int(call.attr("keepdims", 1))
    shape = tuple(1 if i in axes else extent for i, extent in enumerate(x) if keep or i not in axes)
    return (TensorType(call.dtype(0), shape),)


@rule("ArgMax", "ArgMin")
def arg_extreme(call: ShapeCall) -> Types:
    """Positions of an extreme along one axis."""
    x = call.rank(0, least=1)
    axis = call.axis(int(call.attr("axis", 0)), len(x))
    one = (1,) if call.attr("keepdims", 1) else ()
    return (TensorType("int64", (*x[:axis], *one, *x[axis + 1 :])),)


@rule("TopK")
def top_k(call: ShapeCall) -> Types:
    """The greatest or least elements along one axis, and where they stand."""
    x = call.rank(0, least=1)
    axis = call.axis(int(call.attr("axis", -1)), len(x))
    (count,) = call.ints(1)
    if not 0 <= count <= x[axis]:
        call.fail(f"k is {count} for an axis of size {x[axis]}")
    shape = (*x[:axis], count, *x[axis + 1 :])
    return (TensorType(call.dtype(0), shape), TensorType("int64", shape))


@rule("BatchNormalization")
def batch_normalization(call: ShapeCall) -> Types:
    """The input's type; scale, bias, mean and variance have one value a channel."""
    x = call.rank(0, least=1)
    channels = x[1] if len(x) > 1 else 1
    for index in range(1, 5):
        call.type(index)
        call.expect(index, (channels,))
    if any(call.node.outputs[1:]) and not call.attr("training_mode", 0):
        call.fail("it has more than one output, which only training has", "set training_mode, or remove the others")
    return (call.type(0), call.type(3), call.type(4))


@rule("InstanceNormalization", "GroupNormalization")
def channel_normalization(call: ShapeCall) -> Types:
    """The input's type; scale and bias have one value a channel."""
    x = call.rank(0, least=2)
    for index in (1, 2):
        call.type(index)
        call.expect(index, x[1:2])
    if call.node.op_type == "GroupNormalization" and x[1] % int(call.attr("num_groups", 1)):
        call.fail(f"{x[1]} channels do not divide into {call.attr('num_groups', 1)} groups")
    return (call.type(0),)


@rule("LayerNormalization", "RMSNormalization")
def layer_normalization(call: ShapeCall) -> Types:
    """The input's type; the mean and the inverse deviation have extent 1 from ``axis`` on."""
    x = call.rank(0, least=1)
    axis = call.axis(int(call.attr("axis", -1)), len(x))
    for index in (1, 2):
        if call.has(index) and broadcast(call, (call.shape(index), x[axis:])) != x[axis:]:
            call.fail(f"input {index} does not broadcast to {list(x[axis:])}")
    if call.node.op_type == "RMSNormalization":
        return (call.type(0),)
    stash = "float64" if int(call.attr("stash_type", 1)) == 11 else "float32"
    moments = TensorType(stash, (*x[:axis], *(1 for _ in x[axis:])))
    return (call.type(0), moments, moments)


@rule("PairwiseCoupling", domain="opbuild")
def pairwise_coupling(call: ShapeCall) -> Types:
    """Probabilities of classes, given that of the first class of each pair."""
    rows, pairs = call.rank(0, 2)
    classes = int(call.attr("classes", 0))
    if pairs != classes * (classes - 1) // 2:
        call.fail(f"{pairs} columns are not the pairs of {counted(classes, 'class', 'classes')}")
    return (TensorType(call.dtype(0), (rows, classes)),)


_PEEPHOLES = 3


@rule("RNN", "GRU", "LSTM")
def recurrent(call: ShapeCall) -> Types:
    """All hidden states, the last one and, for LSTM, the last cell.

    Of a gradient LSTM and linear GRU have a fourth output, which ONNX does not know: what goes into the activations of
    the gates, and the cell, or what is reset.
    """
    kind = call.node.op_type
    cell = cell_of(call.node)
    directions, gates = len(cell.reverse), GATES[kind]
    dtype = same_dtype(call, 0, 4)
    x, r = call.rank(0, 3), call.rank(2, 3)
    steps, batch = (x[1], x[0]) if cell.batch_first else (x[0], x[1])
    hidden = int(call.attr("hidden_size", r[2]))
    state = (batch, directions, hidden) if cell.batch_first else (directions, batch, hidden)
    call.expect(1, (directions, gates * hidden, x[2]))
    call.expect(2, (directions, gates * hidden, hidden))
    call.expect(3, (directions, 2 * gates * hidden))
    call.expect(4, (batch,))
    call.expect(5, state)
    if kind == "LSTM":
        call.expect(6, state)
        call.expect(7, (directions, _PEEPHOLES * hidden))
    every = (batch, steps, directions, hidden) if cell.batch_first else (steps, directions, batch, hidden)
    kept = (steps, directions, batch, (gates + 1) * hidden)
    return tuple(TensorType(dtype, each) for each in (every, state, state, kept))


@rule("Attention")
def attention(call: ShapeCall) -> Types:
    """Values that each query sees, keys and values with those of earlier calls, and scores."""
    whole = [call.rank(index, 3, 4) for index in range(3)]
    if len({len(each) for each in whole}) > 1:
        call.fail("queries, keys and values have different ranks")
    heads = [int(call.attr("q_num_heads", 0)), *(int(call.attr("kv_num_heads", 0)),) * 2]
    q, k, v = (_by_heads(call, *each) for each in zip(whole, heads, strict=True))
    if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3] or not k[1] or q[1] % k[1]:
        call.fail("heads of queries, keys and values do not fit each other")
    if call.has(3) and broadcast(call, (call.rank(3, 1, 2, 3, 4)[:-1], q[:3])) != q[:3]:
        call.fail(f"a mask of shape {list(call.shape(3))} does not fit queries of {list(q)}")
    total = k[2] + (call.rank(4, 4)[2] if call.has(4) else 0)
    y = (q[0], q[2], q[1] * v[3]) if len(whole[0]) == 3 else (*q[:3], v[3])
    shapes = (y, (*k[:2], total, k[3]), (*v[:2], total, v[3]), (*q[:3], total))
    return tuple(TensorType(call.dtype(index), each) for index, each in zip((0, 1, 2, 0), shapes, strict=True))


def _by_heads(call: ShapeCall, shape: Shape, heads: int) -> Shape:
    """Return the shape of heads apart, which may lie beside each other."""
    if len(shape) == 4:
        return shape
    if heads < 1 or shape[2] % heads:
        call.fail(f"{shape[2]} elements are not those of {counted(heads, 'head')}")
    return (shape[0], heads, shape[1], shape[2] // heads)


@rule("DFT")
def transform(call: ShapeCall) -> Types:
    """One axis becomes the transform's length, or the part of it that is not mirrored."""
    x = list(call.rank(0, least=2))
    inverse, onesided = bool(call.attr("inverse", 0)), bool(call.attr("onesided", 0))
    if call.has(2) and call.constants[2] is None and not call.has(1) and not onesided:
        return (TensorType(call.dtype(0), (*x[:-1], 2)),)  # whichever axis it is
    chosen = call.attr("axis", None)
    axis = call.axis(int(call.ints(2)[0] if call.has(2) else -2 if chosen is None else chosen), len(x))
    if axis == len(x) - 1:
        call.fail("its axis is the one of a number's parts")
    mirrored = inverse and onesided
    if mirrored and x[-1] != 2:
        call.fail("half of a real result is inverted from complex numbers")
    length = call.ints(1)[0] if call.has(1) else 2 * (x[axis] - 1) if mirrored else x[axis]
    if length < 1:
        call.fail(f"its length is {length}")
    x[axis] = length // 2 + 1 if onesided and not inverse else length
    return (TensorType(call.dtype(0), (*x[:-1], 1 if mirrored else 2)),)


@rule("STFT")
def short_time(call: ShapeCall) -> Types:
    """A transform of each frame; a real signal may lack the last dimension."""
    batch, extent = call.rank(0, 2, 3)[:2]
    (step,) = call.ints(1)
    length = call.ints(3)[0] if call.has(3) else call.shape(2)[0] if call.has(2) else extent
    if step < 1 or not 1 <= length <= extent:
        call.fail(f"frames of {length} elements, every {step}, do not fit a signal of {extent}")
    results = length // 2 + 1 if call.attr("onesided", 1) else length
    return (TensorType(call.dtype(0), (batch, (extent - length) // step + 1, results, 2)),)
