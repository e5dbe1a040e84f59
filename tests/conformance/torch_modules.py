"""Kinds of torch modules, each with example inputs: what ``torch_exports.py`` exports by both exporters.

Needs torch (its CPU build is enough) and, for whole networks, transformers; neither is needed for anything else here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Kind(NamedTuple):
    """One kind of module: its name, what makes it, and what makes its inputs."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[torch.Tensor, ...]]


class Function(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: torch.Tensor) -> Any:
        """Call the function."""
        return self.function(*tensors)


def floats(*shape: int) -> torch.Tensor:
    """Return normal floats."""
    return torch.randn(*shape)


def whole(high: int, *shape: int) -> torch.Tensor:
    """Return integers from 0 to ``high``, exclusive."""
    return torch.randint(0, high, shape)


KINDS: list[Kind] = []


def module(name: str, make: Callable[[], nn.Module], *shapes: tuple[int, ...]) -> None:
    """Add a module of float inputs."""
    KINDS.append(Kind(name, make, lambda: tuple(floats(*shape) for shape in shapes)))


def function(name: str, call: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    """Add a function of float inputs."""
    module(name, lambda: Function(call), *shapes)


def with_inputs(name: str, make: Callable[[], nn.Module] | Callable[..., Any], *inputs: Callable[[], Any]) -> None:
    """Add a module, or a function, with inputs of its own."""
    KINDS.append(Kind(name, make, lambda: tuple(each() for each in inputs)))


IMAGE = (2, 6, 12, 10)
ROWS = (4, 10)

for name, make, shape in (
    ("conv1d", lambda: nn.Conv1d(6, 8, 3, padding=1), (2, 6, 20)),
    ("conv2d", lambda: nn.Conv2d(6, 8, 3, padding=1), IMAGE),
    ("conv2d_stride", lambda: nn.Conv2d(6, 8, 3, stride=2), IMAGE),
    ("conv2d_dilated", lambda: nn.Conv2d(6, 8, 3, dilation=2), IMAGE),
    ("conv2d_groups", lambda: nn.Conv2d(6, 8, 3, groups=2), IMAGE),
    ("conv2d_depthwise", lambda: nn.Conv2d(6, 6, 5, padding=2, groups=6), IMAGE),
    ("conv2d_circular", lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="circular"), IMAGE),
    ("conv2d_reflect", lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="reflect"), IMAGE),
    ("conv2d_replicate", lambda: nn.Conv2d(6, 8, 3, padding=1, padding_mode="replicate"), IMAGE),
    ("conv2d_same", lambda: nn.Conv2d(6, 8, 4, padding="same"), IMAGE),
    ("conv3d", lambda: nn.Conv3d(4, 6, 3, padding=1), (1, 4, 6, 7, 8)),
    ("conv_transpose1d", lambda: nn.ConvTranspose1d(6, 8, 4, stride=2), (2, 6, 9)),
    ("conv_transpose2d", lambda: nn.ConvTranspose2d(6, 8, 4, stride=2, padding=1), IMAGE),
    ("conv_transpose2d_groups", lambda: nn.ConvTranspose2d(6, 8, 3, stride=2, groups=2, output_padding=1), IMAGE),
    ("conv_transpose3d", lambda: nn.ConvTranspose3d(4, 6, 3, stride=2), (1, 4, 4, 5, 6)),
    ("max_pool1d", lambda: nn.MaxPool1d(3, 2), (2, 6, 20)),
    ("max_pool2d", lambda: nn.MaxPool2d(3, 2, 1), IMAGE),
    ("max_pool2d_ceil", lambda: nn.MaxPool2d(3, 2, ceil_mode=True), IMAGE),
    ("max_pool2d_dilated", lambda: nn.MaxPool2d(3, 1, dilation=2), IMAGE),
    ("max_pool2d_indices", lambda: nn.MaxPool2d(2, return_indices=True), IMAGE),
    ("max_pool3d", lambda: nn.MaxPool3d(2), (1, 4, 6, 6, 6)),
    ("avg_pool1d", lambda: nn.AvgPool1d(3, 2), (2, 6, 20)),
    ("avg_pool2d", lambda: nn.AvgPool2d(3, 2, 1), IMAGE),
    ("avg_pool2d_exclude", lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    ("avg_pool2d_ceil", lambda: nn.AvgPool2d(3, 2, ceil_mode=True), IMAGE),
    ("avg_pool3d", lambda: nn.AvgPool3d(2), (1, 4, 6, 6, 6)),
    ("lp_pool1d", lambda: nn.LPPool1d(2, 3), (2, 6, 20)),
    ("lp_pool2d", lambda: nn.LPPool2d(2, 3), IMAGE),
    ("adaptive_avg_pool1d", lambda: nn.AdaptiveAvgPool1d(1), (2, 6, 20)),
    ("adaptive_avg_pool2d", lambda: nn.AdaptiveAvgPool2d((1, 1)), IMAGE),
    ("adaptive_avg_pool2d_even", lambda: nn.AdaptiveAvgPool2d((4, 5)), IMAGE),
    ("adaptive_avg_pool3d", lambda: nn.AdaptiveAvgPool3d(1), (1, 4, 6, 6, 6)),
    ("adaptive_max_pool1d", lambda: nn.AdaptiveMaxPool1d(1), (2, 6, 20)),
    ("adaptive_max_pool2d", lambda: nn.AdaptiveMaxPool2d((4, 5)), IMAGE),
    ("batch_norm1d", lambda: nn.BatchNorm1d(10), ROWS),
    ("batch_norm2d", lambda: nn.BatchNorm2d(6), IMAGE),
    ("batch_norm3d", lambda: nn.BatchNorm3d(4), (1, 4, 5, 5, 5)),
    ("instance_norm1d", lambda: nn.InstanceNorm1d(6, affine=True), (2, 6, 20)),
    ("instance_norm2d", lambda: nn.InstanceNorm2d(6), IMAGE),
    ("instance_norm3d", lambda: nn.InstanceNorm3d(4), (1, 4, 5, 5, 5)),
    ("group_norm", lambda: nn.GroupNorm(3, 6), IMAGE),
    ("layer_norm", lambda: nn.LayerNorm(10), ROWS),
    ("layer_norm_two", lambda: nn.LayerNorm((12, 10)), IMAGE),
    ("rms_norm", lambda: nn.RMSNorm(10), ROWS),
    ("local_response_norm", lambda: nn.LocalResponseNorm(3), IMAGE),
    ("linear", lambda: nn.Linear(10, 7), ROWS),
    ("linear_batch", lambda: nn.Linear(10, 7, bias=False), (2, 3, 10)),
    ("dropout", nn.Dropout, ROWS),
    ("alpha_dropout", nn.AlphaDropout, ROWS),
    ("dropout2d", nn.Dropout2d, IMAGE),
    ("flatten", nn.Flatten, IMAGE),
    ("unflatten", lambda: nn.Unflatten(1, (2, 3)), IMAGE),
    ("pixel_shuffle", lambda: nn.PixelShuffle(2), (1, 8, 4, 4)),
    ("pixel_unshuffle", lambda: nn.PixelUnshuffle(2), (1, 2, 8, 8)),
    ("channel_shuffle", lambda: nn.ChannelShuffle(3), IMAGE),
    ("upsample_nearest", lambda: nn.Upsample(scale_factor=2), IMAGE),
    ("upsample_bilinear", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    ("upsample_bilinear_corners", lambda: nn.Upsample((20, 17), mode="bilinear", align_corners=True), IMAGE),
    ("upsample_bicubic", lambda: nn.Upsample(scale_factor=2, mode="bicubic"), IMAGE),
    ("upsample_linear", lambda: nn.Upsample(scale_factor=2, mode="linear"), (2, 6, 9)),
    ("upsample_trilinear", lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (1, 2, 3, 4, 5)),
    ("zero_pad2d", lambda: nn.ZeroPad2d((1, 2, 3, 4)), IMAGE),
    ("constant_pad1d", lambda: nn.ConstantPad1d((1, 2), 3.5), (2, 6, 9)),
    ("reflection_pad1d", lambda: nn.ReflectionPad1d(2), (2, 6, 9)),
    ("reflection_pad2d", lambda: nn.ReflectionPad2d(2), IMAGE),
    ("replication_pad2d", lambda: nn.ReplicationPad2d(2), IMAGE),
    ("replication_pad3d", lambda: nn.ReplicationPad3d(1), (1, 2, 3, 4, 5)),
    ("circular_pad2d", lambda: nn.CircularPad2d(2), IMAGE),
    ("fold", lambda: nn.Fold((6, 6), 2), (1, 12, 25)),
    ("unfold", lambda: nn.Unfold(3, padding=1), IMAGE),
    ("transformer_layer", lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), (2, 7, 16)),
    ("transformer_layer_norm_first", lambda: nn.TransformerEncoderLayer(16, 4, 32, norm_first=True), (7, 2, 16)),
    (
        "transformer_encoder",
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2),
        (2, 7, 16),
    ),
    ("lstm", lambda: nn.LSTM(8, 12), (5, 2, 8)),
    ("lstm_two_layers", lambda: nn.LSTM(8, 12, num_layers=2, batch_first=True), (2, 5, 8)),
    ("lstm_bidirectional", lambda: nn.LSTM(8, 12, bidirectional=True), (5, 2, 8)),
    ("gru", lambda: nn.GRU(8, 12), (5, 2, 8)),
    ("gru_bidirectional", lambda: nn.GRU(8, 12, num_layers=2, bidirectional=True), (5, 2, 8)),
    ("rnn", lambda: nn.RNN(8, 12), (5, 2, 8)),
    ("rnn_relu", lambda: nn.RNN(8, 12, nonlinearity="relu", batch_first=True), (2, 5, 8)),
    ("lstm_cell", lambda: nn.LSTMCell(8, 12), (2, 8)),
    ("gru_cell", lambda: nn.GRUCell(8, 12), (2, 8)),
    ("rnn_cell", lambda: nn.RNNCell(8, 12), (2, 8)),
):
    module(name, make, shape)

for kind in (
    nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.PReLU, nn.ReLU,
    nn.ReLU6, nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink,
    nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Softmin, nn.Softmax2d, nn.Identity,
):  # fmt: skip
    module(kind.__name__.lower(), kind, IMAGE)
module("gelu_tanh", lambda: nn.GELU(approximate="tanh"), ROWS)
module("threshold", lambda: nn.Threshold(0.1, 20), ROWS)
module("softmax", lambda: nn.Softmax(-1), ROWS)
module("log_softmax", lambda: nn.LogSoftmax(1), ROWS)
module("glu", lambda: nn.GLU(1), IMAGE)
for kind in (nn.L1Loss, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.KLDivLoss):
    module(kind.__name__.lower(), kind, ROWS, ROWS)
module("bilinear", lambda: nn.Bilinear(10, 10, 5), ROWS, ROWS)
module("cosine_similarity", nn.CosineSimilarity, ROWS, ROWS)
module("pairwise_distance", nn.PairwiseDistance, ROWS, ROWS)
with_inputs("cross_entropy", nn.CrossEntropyLoss, lambda: floats(*ROWS), lambda: whole(10, 4))
with_inputs("nll_loss", nn.NLLLoss, lambda: floats(*ROWS), lambda: whole(10, 4))
with_inputs("bce_with_logits", nn.BCEWithLogitsLoss, lambda: floats(*ROWS), lambda: torch.rand(*ROWS))
with_inputs("embedding", lambda: nn.Embedding(20, 6), lambda: whole(20, 3, 5))
with_inputs("embedding_bag", lambda: nn.EmbeddingBag(20, 6), lambda: whole(20, 3, 5))

UNARY = [
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "exp",
    "expm1",
    "floor",
    "frac",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "isnan",
    "isinf",
    "isfinite",
    "logical_not",
    "acosh",
    "asinh",
    "atanh",
    "erfc",
    "exp2",
    "relu",
    "positive",
    "deg2rad",
    "rad2deg",
    "sgn",
    "signbit",
]
for name in UNARY:
    function(f"f_{name}", getattr(torch, name), ROWS)
BINARY = [
    "add",
    "sub",
    "mul",
    "div",
    "maximum",
    "minimum",
    "pow",
    "fmod",
    "remainder",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "logical_and",
    "logical_or",
    "logical_xor",
    "floor_divide",
    "true_divide",
    "hypot",
    "copysign",
    "fmax",
    "fmin",
    "logaddexp",
]
for name in BINARY:
    function(f"f_{name}", getattr(torch, name), ROWS, ROWS)
for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"):
    with_inputs(f"f_{name}", lambda name=name: Function(getattr(torch, name)), lambda: whole(8, 4), lambda: whole(4, 4))
REDUCTIONS = [
    "sum",
    "mean",
    "prod",
    "amax",
    "amin",
    "argmax",
    "argmin",
    "logsumexp",
    "std",
    "var",
    "cumsum",
    "cumprod",
    "norm",
    "any",
    "all",
]
for name in REDUCTIONS:
    call = getattr(torch, name)
    function(f"r_{name}", (lambda x, call=call: call(x > 0, 1)) if name in ("any", "all") else
             (lambda x, call=call: call(x, dim=1)), ROWS)  # fmt: skip

for name, call, shapes in (
    ("max_dim", lambda x: torch.max(x, 1), [ROWS]),
    ("min_dim", lambda x: torch.min(x, 1), [ROWS]),
    ("median", lambda x: torch.sort(x, 1)[0], [ROWS]),
    ("topk", lambda x: torch.topk(x, 3), [ROWS]),
    ("argsort", lambda x: torch.argsort(x, 1), [ROWS]),
    ("matmul", torch.matmul, [(2, 3, 4), (4, 5)]),
    ("bmm", torch.bmm, [(2, 3, 4), (2, 4, 5)]),
    ("addmm", torch.addmm, [(3, 5), (3, 4), (4, 5)]),
    ("baddbmm", torch.baddbmm, [(2, 3, 5), (2, 3, 4), (2, 4, 5)]),
    ("einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), [(2, 3, 4), (2, 5, 4)]),
    ("einsum_outer", lambda a, b: torch.einsum("i,j->ij", a, b), [(3,), (5,)]),
    ("tensordot", lambda a, b: torch.tensordot(a, b, dims=1), [(2, 3, 4), (4, 5)]),
    ("dot", torch.dot, [(7,), (7,)]),
    ("outer", torch.outer, [(3,), (5,)]),
    ("cross", torch.linalg.cross, [(4, 3), (4, 3)]),
    ("cat", lambda a, b: torch.cat([a, b], 1), [ROWS, ROWS]),
    ("stack", lambda a, b: torch.stack([a, b], 1), [ROWS, ROWS]),
    ("split", lambda x: torch.split(x, 3, 1), [ROWS]),
    ("chunk", lambda x: torch.chunk(x, 3, 1), [ROWS]),
    ("unbind", lambda x: torch.unbind(x, 0), [ROWS]),
    ("permute", lambda x: x.permute(0, 2, 3, 1), [IMAGE]),
    ("transpose", lambda x: x.transpose(1, 2), [IMAGE]),
    ("reshape", lambda x: x.reshape(x.shape[0], -1), [IMAGE]),
    ("view_as", lambda x, y: x.view_as(y), [(4, 6), (3, 8)]),
    ("squeeze", lambda x: x.squeeze(1), [(3, 1, 4)]),
    ("unsqueeze", lambda x: x.unsqueeze(1), [ROWS]),
    ("expand", lambda x: x.expand(3, 4, 10), [ROWS]),
    ("repeat", lambda x: x.repeat(2, 3), [ROWS]),
    ("repeat_interleave", lambda x: x.repeat_interleave(2, 1), [ROWS]),
    ("tile", lambda x: torch.tile(x, (2, 2)), [ROWS]),
    ("flip", lambda x: torch.flip(x, [1]), [ROWS]),
    ("roll", lambda x: torch.roll(x, 2, 1), [ROWS]),
    ("rot90", lambda x: torch.rot90(x, 1, [0, 1]), [ROWS]),
    ("slice", lambda x: x[:, 1:8:2], [ROWS]),
    ("slice_negative", lambda x: x[:, -3:], [ROWS]),
    ("select", lambda x: x[1], [ROWS]),
    ("narrow", lambda x: x.narrow(1, 2, 4), [ROWS]),
    ("tril", torch.tril, [(5, 6)]),
    ("triu", lambda x: torch.triu(x, 1), [(2, 5, 6)]),
    ("diagonal", lambda x: torch.diagonal(x, 0, -2, -1), [(2, 5, 5)]),
    ("where", lambda x, y: torch.where(x > 0, x, y), [ROWS, ROWS]),
    ("masked_fill", lambda x, y: x.masked_fill(y > 0, -1.0), [ROWS, ROWS]),
    ("masked_select", lambda x, y: torch.masked_select(x, y > 0), [ROWS, ROWS]),
    ("boolean_index", lambda x: x[x > 0], [ROWS]),
    ("nonzero", lambda x: torch.nonzero(x > 0), [ROWS]),
    ("unique", lambda x: torch.unique((x * 2).round()), [ROWS]),
    ("clamp", lambda x: x.clamp(-0.5, 0.5), [ROWS]),
    ("clamp_tensor", lambda x, y: torch.clamp(x, min=y), [ROWS, ROWS]),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), [ROWS, ROWS]),
    ("addcmul", torch.addcmul, [ROWS, ROWS, ROWS]),
    ("addcdiv", lambda a, b, c: torch.addcdiv(a, b, c.abs() + 1), [ROWS, ROWS, ROWS]),
    ("normalize", lambda x: F.normalize(x, dim=1), [ROWS]),
    ("one_hot", lambda x: F.one_hot(x.argmax(1), 10), [ROWS]),
    ("pad", lambda x: F.pad(x, (1, 2)), [ROWS]),
    ("interpolate", lambda x: F.interpolate(x, size=(5, 5), mode="bilinear"), [IMAGE]),
    ("interpolate_antialias", lambda x: F.interpolate(x, size=(5, 5), mode="bilinear", antialias=True), [IMAGE]),
    ("grid_sample", lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), [IMAGE, (2, 4, 5, 2)]),
    ("grid_sample_nearest", lambda x, g: F.grid_sample(x, g, "nearest", "border", True), [IMAGE, (2, 4, 5, 2)]),
    ("affine_grid", lambda t: F.affine_grid(t, [2, 3, 4, 5], align_corners=False), [(2, 2, 3)]),
    ("attention", F.scaled_dot_product_attention, [(2, 4, 7, 8), (2, 4, 7, 8), (2, 4, 7, 8)]),
    (
        "attention_causal",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        [(2, 4, 7, 8), (2, 4, 7, 8), (2, 4, 7, 8)],
    ),
    (
        "attention_masked",
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m > 0),
        [(2, 4, 7, 8), (2, 4, 7, 8), (2, 4, 7, 8), (2, 1, 7, 7)],
    ),
    (
        "attention_grouped",
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        [(2, 4, 7, 8), (2, 2, 7, 8), (2, 2, 7, 8)],
    ),
    ("cdist", torch.cdist, [(4, 3), (5, 3)]),
    ("meshgrid", lambda a, b: torch.meshgrid(a, b, indexing="ij"), [(3,), (4,)]),
    ("full_like", lambda x: torch.full_like(x, 2.5) + x, [ROWS]),
    ("arange_of_shape", lambda x: x + torch.arange(x.shape[1]), [ROWS]),
    ("zeros_of_shape", lambda x: torch.zeros(x.shape[0], 3) + x[:, :3], [ROWS]),
    ("linalg_norm", lambda x: torch.linalg.vector_norm(x, dim=1), [ROWS]),
    ("det", torch.det, [(3, 4, 4)]),
    ("var_mean", lambda x: torch.var_mean(x, 1), [ROWS]),
    ("count_nonzero", lambda x: torch.count_nonzero(x > 0, 1), [ROWS]),
    ("new_ones", lambda x: x.new_ones(x.shape) + x, [ROWS]),
    ("type_as", lambda x: (x * 3).int().to(torch.int64) + 1, [ROWS]),
    ("to_half", lambda x: x.half().float() * 2, [ROWS]),
    ("stft", lambda x: torch.stft(x, 16, window=torch.hann_window(16), return_complex=False), [(2, 64)]),
    ("rfft", lambda x: torch.view_as_real(torch.fft.rfft(x)), [(2, 16)]),
    ("nan_to_num", torch.nan_to_num, [ROWS]),
    ("heaviside", lambda x: (x > 0).float(), [ROWS]),
    ("addmv", torch.addmv, [(3,), (3, 4), (4,)]),
    ("trilinear_mean", lambda x: x.mean((2, 3), keepdim=True) - x.std((2, 3), keepdim=True), [IMAGE]),
):
    function(f"f_{name}", call, *shapes)

index = ("gather", "index_select", "scatter", "scatter_add", "take_along_dim", "index_add", "index_put", "scatter_max")
CALLS: dict[str, Callable[..., Any]] = {
    "gather": lambda x, i: torch.gather(x, 1, i),
    "index_select": lambda x, i: torch.index_select(x, 1, i[0]),
    "scatter": lambda x, i: x.scatter(1, i[:, :1], 2.0),
    "scatter_add": lambda x, i: x.scatter_add(1, i, x[:, :3]),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i, 1),
    "index_add": lambda x, i: x.index_add(0, i[0] % 4, x[:3]),
    "index_put": lambda x, i: x.index_put((i[0] % 4, i[1]), torch.ones(3), accumulate=False),
    "scatter_max": lambda x, i: x.scatter_reduce(1, i, x[:, :3], "amax"),
}
for name in index:
    with_inputs(f"i_{name}", lambda name=name: Function(CALLS[name]), lambda: floats(*ROWS), lambda: whole(10, 4, 3))
