"""The operator families that Halide compiles, as data: family -> module name in ``compute`` and ``schedule``.

``compute/<module>.py`` has ``define(desc) -> Definition``; ``schedule/<module>.py`` has ``schedule(definition, desc,
target)``. The sources in a family's key are these two modules and what they import from ``opbuild``, transitively.
"""

from __future__ import annotations

FAMILIES: dict[str, str] = {
    "conv": "conv",
    "conv_first": "conv_first",
    "conv_depthwise": "conv_depthwise",
    "conv_grouped": "conv_grouped",
    "winograd": "winograd",
    "pool": "pool",
    "global_pool": "global_pool",
    "lrn": "lrn",
    "to_blocked": "reorder",
    "from_blocked": "reorder",
    "shuffle": "shuffle",
    "copy": "copy",
    "elementwise": "elementwise",
    "gather": "gather",
    "resize": "resize",
    "matmul": "matmul",
    "gemv": "gemv",
    "softmax": "softmax",
    "layer_norm": "layer_norm",
    "reduce": "reduce",
    "arg_reduce": "arg_reduce",
    "user": "user",
}
"""Every family; a family is added here, in ``compute`` and in ``schedule``."""
