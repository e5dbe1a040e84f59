"""The geometry of sliding windows."""

from __future__ import annotations

from itertools import product

from opbuild.lowering.windows import Window


def test_windows_miss_the_input_where_none_of_their_taps_is_inside() -> None:
    """As going through all taps of all windows says."""
    extents = (range(1, 4), range(1, 4), range(1, 5), range(7), range(1, 6), range(1, 6))
    for kernel, stride, dilation, before, size, out in product(*extents):
        starts = range(-before, out * stride - before, stride)
        taps = range(kernel)
        wanted = any(all(not 0 <= start + tap * dilation < size for tap in taps) for start in starts)
        window = Window((kernel, 1), (stride, 1), (dilation, 1), (before, 0), (0, 0), (size, 1), (out, 1))
        assert window.misses == wanted, window
