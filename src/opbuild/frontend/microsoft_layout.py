"""Operators whose channels lie last or in blocks, into which ONNX Runtime's optimizer turns networks of convolutions.

In domain ``com.microsoft.nchwc`` values lie in blocks of channels, and so do the weights that are in the model. Here
values are as they would be without blocks, with the channels that fill the last one, and weights are put back; what
lowering makes of them is its own. How many channels a block has the model does not say: it is what ONNX Runtime takes
on the machine that wrote it, which is to be of the kind of the one that runs it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache

from opbuild.frontend.microsoft import CONV, activated
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import NCHWC
from opbuild.graph.types import Node
from opbuild.target.host import host_flags
from opbuild.text.plural import counted

POOL = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")


@cache
def channels_of_block() -> int:
    """Return how many channels a block has in ONNX Runtime on this machine."""
    return 16 if "avx512f" in host_flags() or platform.machine() == "aarch64" else 8


def to_front(of: Rewriting, value: str, rank: int) -> str:
    """Write that channels, which are last, come second."""
    return of("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))


def to_end(of: Rewriting, value: str, rank: int) -> str:
    """Write that channels, which are second, come last."""
    return of("Transpose", value, perm=(0, *range(2, rank), 1))


def _attributes(of: Rewriting, names: Sequence[str]) -> dict[str, object]:
    return {name: of.attr(name, None) for name in names if name in of.node.attrs}


@writes("ReorderInput", domain=NCHWC)
def _reorder_input(of: Rewriting) -> Sequence[Node]:
    shape, last = of.shape(0), bool(of.attr("channels_last", 0))
    value = to_front(of, of.input(0), len(shape)) if last else of.input(0)
    missing = -shape[-1 if last else 1] % channels_of_block()
    if missing:
        value = of("Pad", value, of.ints(*(0,) * (len(shape) + 1), missing, *(0,) * (len(shape) - 2)))
    return of.finish(value)


@writes("ReorderOutput", domain=NCHWC)
def _reorder_output(of: Rewriting) -> Sequence[Node]:
    value, rank, channels = of.input(0), len(of.shape(0)), int(of.attr("channels", 0))
    if channels != of.shape(0)[1]:
        value = of.slice(value, 1, 0, channels)
    return of.finish(to_end(of, value, rank) if of.attr("channels_last", 0) else value)


@writes("Conv", domain=NCHWC)
def _conv(of: Rewriting) -> Sequence[Node]:
    bias = (of.input(2),) if of.has(2) else ()
    value = of("Conv", of.input(0), _weights(of), *bias, **_attributes(of, CONV))
    if of.has(3):
        value = of("Add", value, of.input(3))
    return of.finish(activated(of, value, ("", "", "")))


def _weights(of: Rewriting) -> str:
    """Return the weights of a convolution without blocks.

    They lie in blocks of outputs, and within these of inputs, unless a convolution reads what has no blocks, or each of
    its channels alone.
    """
    outputs, inputs, *window = of.shape(1)
    block = channels_of_block()
    if outputs % block:
        of.refuse(
            f"its weights have {counted(outputs, 'output')}: the model was optimised for a machine "
            f"where blocks have not {block} "
            "channels, as they have here"
        )
    size = tuple(window)
    if inputs < block:
        blocked = of.reshape(of.input(1), outputs // block, inputs, *size, block)
        order: tuple[int, ...] = (0, len(size) + 2, *range(1, len(size) + 2))
    else:
        blocked = of.reshape(of.input(1), outputs // block, inputs // block, *size, block, block)
        order = (0, len(size) + 3, 1, len(size) + 2, *range(2, len(size) + 2))
    return of.reshape(of("Transpose", blocked, perm=order), outputs, inputs, *size)


@writes("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", domain=NCHWC)
def _pool(of: Rewriting) -> Sequence[Node]:
    return of.finish(of(of.node.op_type, of.input(0), **_attributes(of, POOL)))


@writes("Upsample", domain=NCHWC)
def _upsample(of: Rewriting) -> Sequence[Node]:
    attrs = {
        "mode": of.node.text("mode", "nearest"),
        "coordinate_transformation_mode": of.node.text("coordinate_transformation_mode", "asymmetric"),
        "nearest_mode": "floor",
    }
    scales = of.floats(tuple(map(float, of.attr("scales", ()))))
    return of.finish(of("Resize", of.input(0), "", scales, **attrs))
