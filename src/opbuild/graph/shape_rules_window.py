"""Shape rules of operators that slide a window: convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from opbuild.graph.extents import is_at_least
from opbuild.graph.shape_rules import RULES, Shape, ShapeCall, Types, rule, same_dtype
from opbuild.graph.symbolic_numbers import greater
from opbuild.graph.types import MOST_ELEMENTS, TensorType
from opbuild.graph.weight_layout import block_shape, plain_shape
from opbuild.text.plural import counted

POOLS = ("MaxPool", "AveragePool", "LpPool")


def _list(call: ShapeCall, name: str, count: int, default: int) -> tuple[int, ...]:
    values = tuple(int(item) for item in call.attr(name, ()) or (default,) * count)
    if len(values) != count:
        call.fail(f"attribute {name} has {counted(len(values), 'value')}, not {count}")
    if name not in ("pads", "output_padding") and any(value < 1 for value in values):
        call.fail(f"attribute {name} is {list(values)}; each value must be at least 1")
    if any(abs(value) > MOST_ELEMENTS for value in values):
        call.fail(f"attribute {name} is {list(values)}; no value may be greater than {MOST_ELEMENTS}")
    return values


def _steps(call: ShapeCall, count: int) -> tuple[Shape, Shape]:
    """Return strides and dilations."""
    return _list(call, "strides", count, 1), _list(call, "dilations", count, 1)


def window_of(call: ShapeCall, rank: int) -> Shape:
    """Return the extents of a pool's window over an input of some rank."""
    kernel = tuple(int(item) for item in call.attr("kernel_shape", ()))
    if len(kernel) != rank - 2:
        call.fail(f"kernel_shape {list(kernel)} does not fit an input of rank {rank}")
    return kernel


def window_pads(call: ShapeCall, spatial: Shape, kernel: Sequence[int]) -> tuple[int, ...]:
    """Return the pads of a convolution or pooling node, begins then ends, with ``auto_pad`` resolved.

    ``spatial`` are the input's extents, ``kernel`` those of the window.
    """
    count = len(spatial)
    mode = call.attr("auto_pad", "NOTSET") or "NOTSET"
    if mode == "NOTSET":
        return _list(call, "pads", 2 * count, 0)
    if mode == "VALID":
        return (0,) * (2 * count)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        call.fail(f"attribute auto_pad is {mode!r}", "use NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    strides, dilations = _steps(call, count)
    begins, ends = [], []
    for extent, size, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        total = greater((-(-extent // stride) - 1) * stride + (size - 1) * dilation + 1 - extent, 0)
        less, more = total // 2, total - total // 2
        begins.append(less if mode == "SAME_UPPER" else more)
        ends.append(more if mode == "SAME_UPPER" else less)
    return (*begins, *ends)


def slide(call: ShapeCall, spatial: Shape, kernel: Sequence[int]) -> Shape:
    """Return the spatial extents of the output of a convolution or pooling node, given the input's and the window's."""
    count = len(spatial)
    strides, dilations = _steps(call, count)
    if call.attr("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER"):
        return tuple(-(-extent // stride) for extent, stride in zip(spatial, strides, strict=True))
    pads = window_pads(call, spatial, kernel)
    found = []
    for index, extent in enumerate(spatial):
        padded = extent + pads[index] + pads[count + index]
        reach = (kernel[index] - 1) * dilations[index] + 1
        room = padded - reach
        # A pool's window may hang over: onnx's shape inference and ONNX Runtime divide towards zero, and so give one
        # position, of which only what lies inside counts, or from a whole stride on none.
        may_hang = call.node.op_type in POOLS and extent
        if -room >= 2 * strides[index] if may_hang else room < 0:
            _too_large(call, index, extent, room)
        if call.attr("ceil_mode", 0):
            steps = -(-room // strides[index])
            is_beyond = is_at_least(steps * strides[index] - extent - pads[index], 0)
            steps -= is_at_least(room, 1) * is_beyond
        else:
            steps = room // strides[index] if room >= 0 else -(-room // strides[index])
        found.append(steps + 1)
    return tuple(found)


def _too_large(call: ShapeCall, index: int, extent: int, room: int) -> NoReturn:
    pool = ", or replace a window over all positions by a global pool" if call.node.op_type in POOLS else ""
    call.fail(
        f"its window does not fit the padded input: dimension {index + 2} has {extent} positions and needs at least "
        f"{extent - room}",
        f"give the network larger inputs, so that this node's has {extent - room} positions there{pool}",
    )


def _kernel(call: ShapeCall, weights: Shape) -> Shape:
    kernel = tuple(int(item) for item in call.attr("kernel_shape", ()) or weights[2:])
    if kernel != weights[2:]:
        call.fail(f"kernel_shape {list(kernel)} is not that of the weights, {list(weights)}")
    return kernel


def _require_bias(call: ShapeCall, channels: int) -> None:
    if call.has(2) and call.shape(2) != (channels,):
        call.fail(f"the bias has shape {list(call.shape(2))}, not [{channels}]")


def _require_fitting(call: ShapeCall, x: Shape, weights: Shape) -> None:
    group = int(call.attr("group", 1))
    if len(x) != len(weights):
        call.fail(f"input of rank {len(x)} and weights of rank {len(weights)} do not fit")
    if group < 1 or x[1] != weights[1] * group or weights[0] % group:
        call.fail(f"{x[1]} input channels do not fit weights {list(weights)} in {group} group(s)")


@rule("Conv", "ConvInteger", "QLinearConv")
def conv(call: ShapeCall) -> Types:
    """Convolution: NC... by MC..., one spatial dimension or more."""
    op_type = call.node.op_type
    dtype = same_dtype(call) if op_type == "Conv" else "int32"
    x, w = call.rank(0, least=3), call.rank(3 if op_type == "QLinearConv" else 1, least=3)
    _require_fitting(call, x, w)
    if op_type == "Conv":
        _require_bias(call, w[0])
    elif op_type == "QLinearConv":
        dtype = call.dtype(7)
        require_quantized(call, w[0], 4, 5)
        call.expect(8, w[:1])
    else:
        require_quantized(call, w[0], 3)
    return (TensorType(dtype, (x[0], w[0], *slide(call, x[2:], _kernel(call, w)))),)


def require_quantized(call: ShapeCall, channels: int, *indices: int) -> None:
    """Check that scales and zero points of weights, if they are present, are one or one for each output channel."""
    for index in indices:
        if call.has(index) and call.type(index).size not in (1, channels):
            call.fail(f"input {index} has {counted(call.type(index).size, 'element')} for {channels} output channels")


@rule("ConvTranspose")
def conv_transpose(call: ShapeCall) -> Types:
    """Transposed convolution: NC... by CM...."""
    dtype = same_dtype(call)
    x, w = call.rank(0, least=3), call.rank(1, least=3)
    group = int(call.attr("group", 1))
    if len(x) != len(w) or x[1] != w[0]:
        call.fail(f"{x[1]} input channels do not fit weights {list(w)}")
    _require_bias(call, w[1] * group)
    _, spatial = transposed_range(call)
    if any(extent < 1 for extent in spatial):
        call.fail(f"the output would have dimensions {list(spatial)}")
    return (TensorType(dtype, (x[0], w[1] * group, *spatial)),)


@rule("ConvWeightGradient", domain="opbuild")
def conv_weight_gradient(call: ShapeCall) -> Types:
    """The gradient of a convolution's weights, from its data and the gradient of its output."""
    dtype, kernel = same_dtype(call), tuple(int(item) for item in call.attr("kernel_shape", ()))
    x, dy = call.rank(0, least=3), call.rank(1, least=3)
    if len(x) != len(dy) or x[0] != dy[0] or len(kernel) != len(x) - 2:
        call.fail(f"data {list(x)} and a gradient {list(dy)} do not fit a kernel {list(kernel)}")
    group = int(call.attr("group", 1))
    if group < 1 or x[1] % group or dy[1] % group:
        call.fail(f"{x[1]} and {dy[1]} channels do not divide into {group} groups")
    shape, block = (dy[1], x[1] // group, *kernel), int(call.attr("block", 0))
    if block and (dy[1] % block or shape[1] % block):
        call.fail(f"channels of weights {list(shape)} fill no blocks of {block}")
    return (TensorType(dtype, block_shape(shape, block) if block else shape),)


def transposed_range(call: ShapeCall) -> tuple[Shape, Shape]:
    """Return the start of a transposed convolution's output in its whole result, and its spatial extents.

    The whole result has every position that an input reaches. Where the output's shape decides the padding and that
    would have to be negative, it is none: what no input reaches lies behind.
    """
    x, w = call.shape(0), call.shape(1)
    count, kernel = len(x) - 2, _kernel(call, w)
    strides, dilations = _steps(call, count)
    extra = _list(call, "output_padding", count, 0)
    chosen = tuple(int(item) for item in call.attr("output_shape", ()) or ())[-count:]
    mode = call.attr("auto_pad", "NOTSET") or "NOTSET"
    whole = tuple(strides[i] * (x[2 + i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1 for i in range(count))
    if not chosen and mode in ("NOTSET", "VALID"):
        pads = _list(call, "pads", 2 * count, 0) if mode == "NOTSET" else (0,) * (2 * count)
        return pads[:count], tuple(whole[i] - pads[i] - pads[count + i] for i in range(count))
    spatial = chosen or tuple(extent * stride for extent, stride in zip(x[2:], strides, strict=True))
    totals = [max(all_ - kept, 0) for all_, kept in zip(whole, spatial, strict=True)]
    return tuple(total // 2 if mode == "SAME_UPPER" else total - total // 2 for total in totals), spatial


@rule(*POOLS)
def pool(call: ShapeCall) -> Types:
    """Pooling with a window; MaxPool's second output holds int64 indices."""
    x = call.rank(0, least=3)
    shape = (*x[:2], *slide(call, x[2:], window_of(call, len(x))))
    return (TensorType(call.dtype(0), shape), TensorType("int64", shape))


def _global_pool(call: ShapeCall) -> Types:
    x = call.rank(0, least=2)
    return (TensorType(call.dtype(0), (*x[:2], *(1 for _ in x[2:]))),)


RULES.register_all({"GlobalAveragePool GlobalMaxPool GlobalLpPool": _global_pool})
RULES.register_all(
    {"PlainWeights": lambda call: (TensorType(same_dtype(call), plain_shape(call.rank(0, least=5))),)}, domain="opbuild"
)


@rule("MaxUnpool")
def max_unpool(call: ShapeCall) -> Types:
    """The shape before a MaxPool with these attributes, or the one in the third input."""
    x = call.rank(0, least=3)
    count = len(x) - 2
    call.expect(1, x)
    kernel = window_of(call, len(x))
    if call.has(2):
        return (TensorType(call.dtype(0), call.ints(2)),)
    strides, pads = _list(call, "strides", count, 1), _list(call, "pads", 2 * count, 0)
    spatial = ((x[2 + i] - 1) * strides[i] - pads[i] - pads[count + i] + kernel[i] for i in range(count))
    return (TensorType(call.dtype(0), (*x[:2], *spatial)),)


@rule("GridSample")
def grid_sample(call: ShapeCall) -> Types:
    """The channels of the first input at the places of the second."""
    x, grid = call.rank(0, least=3), call.rank(1, len(call.shape(0)))
    if grid[0] != x[0] or grid[-1] != len(x) - 2:
        call.fail(f"a grid of shape {list(grid)} does not fit an input of shape {list(x)}")
    return (TensorType(call.dtype(0), (*x[:2], *grid[1:-1])),)
