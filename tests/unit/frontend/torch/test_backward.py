"""Rules for ATen's backward operators, form by form: their graphs compute the gradients that torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the front end of torch needs torch")

from torch.nn import functional  # noqa: E402

from support.torch_programs import check  # noqa: E402

Tensors = tuple[torch.Tensor, ...]

IMAGE = torch.linspace(-200, 300, 2 * 4 * 7 * 6).sin().reshape(2, 4, 7, 6)
TAPS = torch.linspace(-1, 2, 6 * 2 * 3 * 3).cos().reshape(6, 2, 3, 3)
BIAS = torch.arange(6.0)
ROWS = torch.linspace(-100, 400, 30).cos().reshape(5, 6)
INDICES = torch.tensor([[0, 3, 3], [1, 2, 0]])
GRID = torch.linspace(-90, 200, 2 * 3 * 2 * 2).sin().reshape(2, 3, 2, 2) * 1.2
SCALE, SHIFT = torch.arange(1.0, 5), torch.arange(4.0)
STATISTICS = (torch.tensor([0.1, -0.2, 0.3, 0.0]), torch.tensor([0.5, 1.5, 1.0, 2.0]))

CASES: dict[str, tuple[Callable[..., Any], Tensors]] = {
    "a convolution in groups": (
        lambda x, w, b: functional.conv2d(x, w, b, stride=2, padding=1, groups=2),
        (IMAGE, TAPS, BIAS),
    ),
    "a dilated convolution": (lambda x, w: functional.conv2d(x[:, :2], w, dilation=(2, 1), padding=2), (IMAGE, TAPS)),
    "a depthwise convolution": (
        lambda x, w, b: functional.conv2d(x, w, b, groups=4, stride=(1, 2)),
        (IMAGE, TAPS[:4, :1], BIAS[:4]),
    ),
    "a transposed convolution": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, groups=2),
        (IMAGE, TAPS[:4]),
    ),
    "a convolution of rows": (lambda x, w: functional.conv1d(x[..., 0], w[..., 0], groups=2), (IMAGE, TAPS)),
    "a max pool of windows that overlap": (lambda x: functional.max_pool2d(x, 3, 2, 1), (IMAGE,)),
    "a max pool of equal elements": (lambda x: functional.max_pool2d(x.round(), 2), (IMAGE,)),
    "an average pool": (lambda x: functional.avg_pool2d(x, 3, 2, 1, count_include_pad=False), (IMAGE,)),
    "an average pool with padding": (lambda x: functional.avg_pool2d(x, (2, 3), padding=1, ceil_mode=True), (IMAGE,)),
    "as many means as asked for": (lambda x: functional.adaptive_avg_pool2d(x, (7, 3)), (IMAGE,)),
    "a layer normalization": (
        lambda x, w, b: functional.layer_norm(x, (6,), w, b),
        (ROWS, torch.arange(1.0, 7), torch.arange(6.0)),
    ),
    "a layer normalization of planes": (lambda x: functional.layer_norm(x, (7, 6)), (IMAGE,)),
    "a group normalization": (lambda x, w, b: functional.group_norm(x, 2, w, b), (IMAGE, SCALE, SHIFT)),
    "an embedding": (lambda w, i: functional.embedding(i, w, 2), (ROWS, INDICES)),
    "softmax and its logarithm": (lambda x: x.softmax(0) * x.log_softmax(1), (ROWS,)),
    "a loss of classes": (
        functional.cross_entropy,
        (ROWS, torch.tensor([0, 5, -100, 2, 3])),
    ),
    **{
        f"places of a grid, {mode}, {padding}": (
            lambda x, g, m=mode, p=padding: functional.grid_sample(x, g, m, p, align_corners=False),
            (IMAGE, GRID),
        )
        for mode, padding in (("bilinear", "zeros"), ("bilinear", "border"), ("bicubic", "reflection"))
    },
    "places of a grid in volumes": (
        lambda x, g: functional.grid_sample(x[:, None], g[:, :, None].repeat(1, 1, 1, 1, 2)[..., :3]),
        (IMAGE, GRID),
    ),
    "padding that repeats": (
        lambda x: functional.pad(x, (2, 1, 0, 3), "reflect") * functional.pad(x, (2, 1, 0, 3), "replicate"),
        (IMAGE,),
    ),
    "what is written over": (lambda x, y, i: x.scatter(1, i, y), (ROWS, ROWS[:2, :2].clone(), INDICES[:, :2])),
    "activations": (
        lambda x: functional.gelu(x) + functional.silu(x) * x.sigmoid() + x.tanh() * functional.relu(x),
        (ROWS,),
    ),
    "other activations": (
        lambda x: functional.gelu(x, approximate="tanh") + functional.hardswish(x) * functional.leaky_relu(x),
        (ROWS,),
    ),
    "elements by indices": (lambda x, i: x[i[0]] * x[i[1], i[0]][:, None], (ROWS, INDICES)),
    "a gather": (lambda x, i: x.gather(1, i), (ROWS, INDICES)),
}


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_is_what_torch_computes(case: str) -> None:
    """Of each argument, given one of the result."""
    function, args = CASES[case]
    with torch.no_grad():
        slope = torch.linspace(0.5, 1.5, function(*args).numel()).reshape_as(function(*args))

    def gradients(slope: torch.Tensor, *args: torch.Tensor) -> Tensors:
        given = [each.detach().requires_grad_(each.is_floating_point()) for each in args]
        return torch.autograd.grad(function(*given), [each for each in given if each.requires_grad], slope)

    check(gradients, slope, *args)


def test_a_normalization_by_the_batch_writes_running_statistics() -> None:
    """The result, the batch's statistics, and what the running ones become."""
    operator = torch.ops.aten._native_batch_norm_legit_functional
    check(lambda x, w, b, *s: operator(x, w, b, *s, True, 0.1, 1e-5), IMAGE, SCALE, SHIFT, *STATISTICS)
    check(lambda x, *s: operator(x, None, None, *s, True, 0.3, 1e-3), IMAGE, *STATISTICS)


@pytest.mark.parametrize("training", [True, False])
def test_a_normalization_by_the_batch_has_gradients(training: bool) -> None:
    """Of data, scale and bias, by the batch's statistics or the running ones."""
    operator = torch.ops.aten.native_batch_norm_backward

    def gradients(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor, *s: torch.Tensor) -> Any:
        return operator(dy, x, w, *s, training, 1e-5, [True, True, True])

    check(gradients, IMAGE.cos(), IMAGE, SCALE, *STATISTICS, IMAGE.mean((0, 2, 3)), 1 / IMAGE.std((0, 2, 3)))
