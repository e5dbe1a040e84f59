"""Shape rules of Fourier transforms, whose last dimension holds the parts of a number."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Types, rule
from opbuild.graph.types import TensorType


@rule("DFT")
def transform(call: Call) -> Types:
    """One axis becomes the transform's length, or what is not mirrored of it."""
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
def short_time(call: Call) -> Types:
    """A transform of each frame; a real signal may lack the last dimension."""
    batch, extent = call.rank(0, 2, 3)[:2]
    (step,) = call.ints(1)
    length = call.ints(3)[0] if call.has(3) else call.shape(2)[0] if call.has(2) else extent
    if step < 1 or not 1 <= length <= extent:
        call.fail(f"frames of {length} elements, every {step}, do not fit a signal of {extent}")
    results = length // 2 + 1 if call.attr("onesided", 1) else length
    return (TensorType(call.dtype(0), (batch, (extent - length) // step + 1, results, 2)),)
