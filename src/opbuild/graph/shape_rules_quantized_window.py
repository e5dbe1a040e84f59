"""Shape rules of com.microsoft's operators that slide a window over quantised numbers."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Shape, Types, rule
from opbuild.graph.shape_rules_window import slide
from opbuild.graph.types import TensorType

MICROSOFT = "com.microsoft"


def channels_last(call: Call) -> bool:
    """Return whether images have their channels innermost."""
    return bool(call.attr("channels_last", 0))


def first(shape: Shape, last: bool) -> Shape:
    """Return a shape with its channels behind the batch; ``last``: where they are innermost."""
    return (shape[0], shape[-1], *shape[1:-1]) if last else shape


def _placed(shape: Shape, last: bool) -> Shape:
    return (shape[0], *shape[2:], shape[1]) if last else shape


@rule("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average(call: Call) -> Types:
    """The average of each channel."""
    x = first(call.rank(0, least=3), channels_last(call))
    return (TensorType(call.dtype(0), _placed((*x[:2], *(1 for _ in x[2:])), channels_last(call))),)


@rule("QLinearAveragePool", domain=MICROSOFT)
def average(call: Call) -> Types:
    """Averages of windows."""
    x = first(call.rank(0, least=3), channels_last(call))
    return (TensorType(call.dtype(0), _placed((*x[:2], *slide(call, x[2:], _kernel(call, x))), channels_last(call))),)


@rule("NhwcMaxPool", domain=MICROSOFT)
def greatest(call: Call) -> Types:
    """Maxima of windows of images whose channels are innermost."""
    x = first(call.rank(0, least=3), last=True)
    return (TensorType(call.dtype(0), _placed((*x[:2], *slide(call, x[2:], _kernel(call, x))), last=True)),)


@rule("QLinearConv", domain=MICROSOFT)
def convolution(call: Call) -> Types:
    """ONNX's QLinearConv; with ``channels_last`` the images have their channels innermost, the weights do not."""
    x, w = first(call.rank(0, least=3), channels_last(call)), call.rank(3, least=3)
    if len(x) != len(w) or x[1] != w[1] * int(call.attr("group", 1)):
        call.fail(f"{x[1]} input channels do not fit weights {list(w)} in {call.attr('group', 1)} group(s)")
    return (TensorType(call.dtype(7), _placed((x[0], w[0], *slide(call, x[2:], w[2:])), channels_last(call))),)


def _kernel(call: Call, x: Shape) -> Shape:
    kernel = tuple(int(item) for item in call.attr("kernel_shape", ()))
    if len(kernel) != len(x) - 2:
        call.fail(f"kernel_shape {list(kernel)} does not fit an input of rank {len(x)}")
    return kernel
