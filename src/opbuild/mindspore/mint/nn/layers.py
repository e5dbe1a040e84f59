"""``mint.nn``'s layers without parameters: cells that call the functions of ``mint.nn.functional`` and ``ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import ops
from opbuild.mindspore.mint.nn.functional import FUNCTIONS
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.ops import images, loss
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


_POOL: dict[str, Any] = {
    "kernel_size": ..., "stride": None, "padding": 0, "ceil_mode": False, "count_include_pad": True
}  # fmt: skip
_PATCHES: dict[str, Any] = {"kernel_size": ..., "dilation": 1, "padding": 0, "stride": 1}
_RESIZE: dict[str, Any] = {"size": None, "scale_factor": None}

_TABLE: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "AdaptiveAvgPool1d": (FUNCTIONS["adaptive_avg_pool1d"], {"output_size": ...}),
        "AdaptiveAvgPool2d": (FUNCTIONS["adaptive_avg_pool2d"], {"output_size": ...}),
        "AdaptiveAvgPool3d": (FUNCTIONS["adaptive_avg_pool3d"], {"output_size": ...}),
        "AdaptiveMaxPool1d": (FUNCTIONS["adaptive_max_pool1d"], {"output_size": ..., "return_indices": False}),
        "AdaptiveMaxPool2d": (FUNCTIONS["adaptive_max_pool2d"], {"output_size": ..., "return_indices": False}),
        "AvgPool1d": (FUNCTIONS["avg_pool1d"], _POOL),
        "AvgPool2d": (FUNCTIONS["avg_pool2d"], {**_POOL, "divisor_override": None}),
        "AvgPool3d": (FUNCTIONS["avg_pool3d"], {**_POOL, "divisor_override": None}),
        "MaxPool2d": (
            FUNCTIONS["max_pool2d"],
            {"kernel_size": 1, "stride": None, "padding": 0, "dilation": 1, "return_indices": False,
             "ceil_mode": False},
        ),
        "MaxUnpool2d": (FUNCTIONS["max_unpool2d"], {"kernel_size": ..., "stride": None, "padding": 0}),
        "BCELoss": (loss.binary_cross_entropy, {"weight": None, "reduction": "mean"}),
        "BCEWithLogitsLoss": (
            loss.binary_cross_entropy_with_logits, {"weight": None, "reduction": "mean", "pos_weight": None}),
        "CosineEmbeddingLoss": (ops.cosine_embedding_loss, {"margin": 0.0, "reduction": "mean"}),
        "CrossEntropyLoss": (
            loss.cross_entropy,
            {"weight": None, "ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
        ),
        "KLDivLoss": (_kl_div, {"reduction": "mean", "log_target": False}),
        "L1Loss": (loss.l1_loss, {"reduction": "mean"}),
        "MSELoss": (loss.mse_loss, {"reduction": "mean"}),
        "NLLLoss": (loss.nll_loss, {"weight": None, "ignore_index": -100, "reduction": "mean"}),
        "SmoothL1Loss": (loss.smooth_l1_loss, {"reduction": "mean", "beta": 1.0}),
        "SoftMarginLoss": (ops.soft_margin_loss, {"reduction": "mean"}),
        **{f"{kind}Pad{axes}d": (_padding(mode, axes), {"padding": ..., **more}) for axes in (1, 2, 3)
           for kind, mode, more in (("Constant", "constant", {"value": ...}), ("Reflection", "reflect", {}),
                                    ("Replication", "replicate", {}), ("Zero", "constant", {}))},
        "ELU": (FUNCTIONS["elu"], {"alpha": 1.0, "inplace": False}),
        "GELU": (ops.gelu, {"approximate": "none"}),
        "GLU": (FUNCTIONS["glu"], {"dim": -1}),
        "Hardshrink": (ops.hardshrink, {"lambd": 0.5}),
        "Hardsigmoid": (ops.hardsigmoid, {}),
        "Hardswish": (ops.hardswish, {}),
        "Hardtanh": (FUNCTIONS["hardtanh"], {"min_val": -1.0, "max_val": 1.0, "inplace": False}),
        "LogSigmoid": (ops.logsigmoid, {}),
        "LogSoftmax": (FUNCTIONS["log_softmax"], {"dim": None}),
        "Mish": (ops.mish, {}),
        "ReLU": (ops.relu, {}),
        "ReLU6": (FUNCTIONS["relu6"], {"inplace": False}),
        "SELU": (ops.selu, {}),
        "SiLU": (FUNCTIONS["silu"], {"inplace": False}),
        "Sigmoid": (ops.sigmoid, {}),
        "Softmax": (FUNCTIONS["softmax"], {"dim": None}),
        "Softshrink": (ops.softshrink, {"lambd": 0.5}),
        "Tanh": (ops.tanh, {}),
        "Threshold": (FUNCTIONS["threshold"], {"threshold": ..., "value": ..., "inplace": False}),
        "Flatten": (ops.flatten, {"start_dim": 1, "end_dim": -1}),
        "Fold": (images.fold, {"output_size": ..., **_PATCHES}),
        "Unfold": (images.unfold, _PATCHES),
        "PixelShuffle": (ops.pixel_shuffle, {"upscale_factor": ...}),
        "Upsample": (
            FUNCTIONS["interpolate"],
            {**_RESIZE, "mode": "nearest", "align_corners": None, "recompute_scale_factor": None},
        ),
        "UpsamplingBilinear2d": (_resized("bilinear", True), _RESIZE),
        "UpsamplingNearest2d": (_resized("nearest", None), _RESIZE),
}  # fmt: skip

LAYERS: dict[str, type[Cell]] = {
    name: layer(name, function, **attributes) for name, (function, attributes) in _TABLE.items()
}
