"""``mint.nn``'s layers without parameters: cells that call the functions of ``mint.nn.functional`` and ``ops``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opbuild.mindspore import ops
from opbuild.mindspore.arguments import defaults_of
from opbuild.mindspore.mint.nn.functional import FUNCTIONS
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.ops import loss
from opbuild.mindspore.ops.shaping import pad


def _padding(mode: str, axes: int) -> Callable[..., Any]:
    def function(input: Any, padding: Any, value: Any = None) -> Any:
        """Return the tensor with elements around its last axes: pairs, the last axis first."""
        amounts = (padding,) * 2 * axes if isinstance(padding, int) else padding
        return pad(input, amounts, mode, value)

    return function


def _resized(mode: str, align: bool | None) -> Callable[..., Any]:
    def function(input: Any, size: Any, scale_factor: Any) -> Any:
        """Return images of another size."""
        return FUNCTIONS["interpolate"](input, size, scale_factor, mode, align)

    return function


def _kl_div(input: Any, target: Any, reduction: str, log_target: bool) -> Any:
    """Return the divergence of log-probabilities from probabilities, or from their logarithms."""
    return loss.kl_div(input, ops.exp(target) if log_target else target, reduction)


_OF_OPS = dict(  # noqa: C408 - a row reads as the call
    CosineEmbeddingLoss="margin reduction", Flatten="start_dim end_dim", GELU="approximate", Hardshrink="lambd",
    Hardsigmoid="", Hardswish="", LogSigmoid="", Mish="", MSELoss="reduction", NLLLoss="weight ignore_index reduction",
    L1Loss="reduction", PixelShuffle="upscale_factor", ReLU="", SELU="", Sigmoid="", SoftMarginLoss="reduction",
    Softshrink="lambd", Tanh="",
)  # fmt: skip
_OF_FUNCTIONAL = dict(  # noqa: C408
    AdaptiveAvgPool1d="output_size", AdaptiveAvgPool2d="output_size", AdaptiveAvgPool3d="output_size",
    AdaptiveMaxPool1d="output_size return_indices", AdaptiveMaxPool2d="output_size return_indices",
    AvgPool1d="kernel_size stride padding ceil_mode count_include_pad",
    AvgPool2d="kernel_size stride padding ceil_mode count_include_pad divisor_override",
    AvgPool3d="kernel_size stride padding ceil_mode count_include_pad divisor_override",
    Fold="output_size kernel_size dilation padding stride", GLU="dim", LogSoftmax="dim",
    MaxUnpool2d="kernel_size stride padding", Softmax="dim", Unfold="kernel_size dilation padding stride",
)  # fmt: skip
"""Layers that have the name of their function, and its arguments that the constructor takes, with its defaults."""

_RESIZE: dict[str, Any] = {"size": None, "scale_factor": None}

_TABLE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "MaxPool2d": (
        FUNCTIONS["max_pool2d"],
        {"kernel_size": 1, "stride": None, "padding": 0, "dilation": 1, "return_indices": False, "ceil_mode": False},
    ),
    "BCELoss": (loss.binary_cross_entropy, {"weight": None, "reduction": "mean"}),
    "BCEWithLogitsLoss": (
        loss.binary_cross_entropy_with_logits, {"weight": None, "reduction": "mean", "pos_weight": None}),
    "CrossEntropyLoss": (
        loss.cross_entropy, {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0}),
    "KLDivLoss": (_kl_div, {"reduction": "mean", "log_target": False}),
    "SmoothL1Loss": (loss.smooth_l1_loss, {"reduction": "mean", "beta": 1.0}),
    **{f"{kind}Pad{axes}d": (_padding(mode, axes), {"padding": ..., **more}) for axes in (1, 2, 3)
       for kind, mode, more in (("Constant", "constant", {"value": ...}), ("Reflection", "reflect", {}),
                                ("Replication", "replicate", {}), ("Zero", "constant", {}))},
    "ELU": (FUNCTIONS["elu"], {"alpha": 1.0, "inplace": False}),
    "Hardtanh": (FUNCTIONS["hardtanh"], {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
    "ReLU6": (FUNCTIONS["relu6"], {"inplace": False}),
    "SiLU": (FUNCTIONS["silu"], {"inplace": False}),
    "Threshold": (FUNCTIONS["threshold"], {"threshold": ..., "value": ..., "inplace": False}),
    "Upsample": (
        FUNCTIONS["interpolate"],
        {**_RESIZE, "mode": "nearest", "align_corners": None, "recompute_scale_factor": None},
    ),
    "UpsamplingBilinear2d": (_resized("bilinear", True), _RESIZE),
    "UpsamplingNearest2d": (_resized("nearest", None), _RESIZE),
}  # fmt: skip


def _namesakes(functions: Mapping[str, Any], listed: Mapping[str, str]) -> dict[str, type[Cell]]:
    known = {name.replace("_", ""): function for name, function in functions.items()}
    found = {name: (known[name.lower()], attributes) for name, attributes in listed.items()}
    return {name: layer(name, function, **defaults_of(function, attributes))
            for name, (function, attributes) in found.items()}  # fmt: skip


LAYERS: dict[str, type[Cell]] = {
    **_namesakes(vars(ops), _OF_OPS), **_namesakes(FUNCTIONS, _OF_FUNCTIONAL),
    **{name: layer(name, function, **attributes) for name, (function, attributes) in _TABLE.items()},
}  # fmt: skip
