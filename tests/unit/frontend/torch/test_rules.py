"""Rules for ATen's operators: their graphs compute what torch does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the front end of torch needs torch")

from torch.nn import functional  # noqa: E402

from support.torch_programs import check, graph_of  # noqa: E402

CASES: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear of three dimensions": (functional.linear, ((2, 3, 4), (5, 4), (5,))),
    "linear of two dimensions": (functional.linear, ((3, 4), (5, 4), (5,))),
    "linear of a transposed input": (
        lambda x, w: functional.linear(x.transpose(1, 2), w),
        ((2, 4, 3), (5, 4)),
    ),
    "convolution": (lambda x, w, b: functional.conv2d(x, w, b, 2, 1), ((1, 3, 8, 9), (4, 3, 3, 3), (4,))),
    "transposed convolution": (
        lambda x, w: functional.conv_transpose2d(x, w, stride=2, output_padding=1),
        ((1, 3, 5, 5), (3, 4, 3, 3)),
    ),
    "max pooling": (lambda x: functional.max_pool2d(x, 3, 2, 1), ((1, 2, 7, 7),)),
    "mean pooling": (lambda x: functional.avg_pool2d(x, 3, 2, 1), ((1, 2, 7, 7),)),
    "layer normalization": (lambda x, w, b: functional.layer_norm(x, (6,), w, b), ((2, 3, 6), (6,), (6,))),
    "group normalization": (lambda x, w, b: functional.group_norm(x, 2, w, b), ((2, 4, 3, 3), (4,), (4,))),
    "attention": (functional.scaled_dot_product_attention, ((2, 2, 5, 8), (2, 2, 7, 8), (2, 2, 7, 8))),
    "causal attention": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True),
        ((1, 2, 5, 8),) * 3,
    ),
    "attention with shared keys": (
        lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
        ((1, 4, 3, 8), (1, 2, 3, 8), (1, 2, 3, 8)),
    ),
    "numbers beside tensors": (lambda x: (3 - x * 2) / 4 + x**2 - x**0.5, ((2, 3),)),
    "selecting": (lambda x: torch.cat([x[1:, ::2], x[:1, 1::2]], 0)[0] + x[-1, :2], ((3, 4),)),
    "reductions": (lambda x: x.mean((0, 2)) + x.sum() + x.amax(1).mean(), ((2, 3, 4),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_graph_computes_what_torch_computes(name: str) -> None:
    """Values, element types and shapes are torch's."""
    function, shapes = CASES[name]
    generator = torch.Generator().manual_seed(1)
    check(function, *(torch.rand(shape, generator=generator) for shape in shapes))


def test_a_linear_layer_is_one_product_in_the_shape_of_its_input() -> None:
    """Torch's views around the product of two matrices are taken back, as other front ends have it."""
    graph = graph_of(functional.linear, torch.rand(2, 3, 4), torch.rand(5, 4), torch.rand(5))
    assert [node.op_type for node in graph.nodes] == ["Transpose", "MatMul", "Add"]
    assert graph.types[graph.outputs[0]].shape == (2, 3, 5)


def test_numbers_of_attributes_are_those_that_onnx_files_hold() -> None:
    """Of float32; an operator on float64 has all digits."""
    for dtype, slope in ((torch.float32, float(torch.tensor(0.01))), (torch.float64, 0.01)):
        (node,) = graph_of(lambda x: functional.leaky_relu(x, 0.01), torch.rand(3, dtype=dtype)).nodes
        assert node.attrs == {"alpha": slope}


def test_types_meet_as_torchs_do() -> None:
    """A number or a tensor without dimensions gives its type only if it is of a higher category."""
    whole, real, scalar = torch.arange(4), torch.rand(4), torch.tensor(2.5, dtype=torch.float64)
    check(lambda x: x + 1, whole)
    check(lambda x: x * 2.5, whole)
    check(lambda x: x / 2, whole)
    check(lambda x, y: x + y, whole, real)
    check(lambda x, y: x * y, real, scalar)
    check(lambda x, y: x * y, whole, scalar)
    check(lambda x, y: x < y, whole, real)
    check(lambda x: x > 1.5, whole)
    check(lambda x: x & 1, whole)


def test_memory_in_another_order_is_read_and_written_as_it_lies() -> None:
    """A tensor in channels_last is an input whose channels stand last, and so is the output."""
    image = torch.rand(1, 3, 4, 5).to(memory_format=torch.channels_last)
    graph = graph_of(torch.relu, image)
    assert [graph.types[name].shape for name in (*graph.inputs, *graph.outputs)] == [(1, 4, 5, 3)] * 2
    check(torch.relu, image)


NUMBERS = torch.tensor([[-2.5, -0.0, 0.0, 3.5, 1e-6], [7.0, -1e-6, float("inf"), -float("inf"), float("nan")]])
IMAGE = torch.linspace(-2, 3, 2 * 3 * 7 * 5).sin().reshape(2, 3, 7, 5)
TABLE = torch.arange(24.0).reshape(4, 6)
ROWS, COLUMNS = torch.tensor([[0, 3], [2, -1]]), torch.tensor([1, 5])

FORMS: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "division rounded down": (lambda x: torch.div(x, 0.7, rounding_mode="floor"), (NUMBERS,)),
    "division rounded down by tensors": (
        lambda x, y: (x // y, torch.remainder(x, y), torch.fmod(x, y)),
        (NUMBERS, torch.tensor([3.0, 0.0, -0.0, -2.0, 1.5])),
    ),
    "division rounded towards zero": (lambda x: torch.div(x, -0.7, rounding_mode="trunc"), (NUMBERS,)),
    "whole division": (lambda x: (x // 3, x % 3, torch.fmod(x, 3), x // -3), (torch.arange(-7, 8),)),
    "special numbers": (lambda x: (x.isnan(), x.isinf(), x.isfinite(), torch.nan_to_num(x)), (NUMBERS,)),
    "near zero": (lambda x: (torch.log1p(x * 1e-4), torch.expm1(x * 1e-4)), (NUMBERS[:1],)),
    "logarithms and powers": (lambda x: (torch.log1p(x), torch.expm1(x), torch.exp2(x)), (NUMBERS,)),
    "other bases": (lambda x: (torch.log2(x), torch.log10(x)), (TABLE,)),
    "rounding": (lambda x: (x.round(decimals=1), x.round(decimals=-1), x.trunc(), x.frac()), (TABLE * 0.37,)),
    "extreme numbers": (lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)), (NUMBERS, NUMBERS.flip(1))),
    "activations": (
        lambda x: (functional.elu(x), functional.selu(x), functional.softplus(x, 2, 3), functional.mish(x)),
        (TABLE - 10,),
    ),
    "norms": (
        lambda x: (x.norm(), x.norm(1, 0), x.norm(3, (0, 1)), x.norm(float("inf"), 1, keepdim=True), x.norm(0, 1)),
        (TABLE,),
    ),
    "variances": (
        lambda x: (x.var(1), x.std(0, correction=0), *torch.var_mean(x, (0, 1), keepdim=True), x[:1].var(0)),
        (TABLE,),
    ),
    "products": (lambda x: (x.prod(), x.prod(1, keepdim=True)), (TABLE * 0.1 + 0.5,)),
    "logical reductions": (lambda x: (x.any(), x.all(), (x > 3).any(1), (x > 3).all(0)), (TABLE,)),
    "extremes and places": (lambda x: (*x.max(1), *x.min(0, keepdim=True), x.max(), x.min()), (IMAGE[0, 0],)),
    "order": (lambda x: (*x.topk(3), *x.sort(0, descending=True), x.argsort(1)), (IMAGE[0, 0],)),
    "order of equal elements": (lambda x: tuple(x.sort(stable=True)), (torch.tensor([2.0, 1, 2, 1, 2, 1]),)),
    "buckets": (
        lambda x, y: (torch.bucketize(x, y), torch.bucketize(x, y, right=True)),
        (torch.tensor([0.5, 1.0, 2.0, float("nan")]), torch.tensor([1.0, 2.0])),
    ),
    "scattering": (
        lambda x, i, y: (x.scatter(1, i, y), x.scatter(1, i, 2.0), x.scatter_add(0, i, y)),
        (TABLE, torch.tensor([[0, 1], [2, 3]]), TABLE[:, :3] + 0.5),
    ),
    "scattering by extremes": (
        lambda x, i, y: (x.scatter_reduce(0, i, y, "amax"), x.scatter_reduce(0, i, y, "prod")),
        (TABLE, torch.tensor([[0, 1], [0, 3]]), TABLE[:2, :2] + 2.5),
    ),
    "putting at indices": (
        lambda x, i, y: (x.index_put((i,), y), x.index_put((i, i), y[:, 0]), x.index_put((x > 9,), y[0, 0])),
        (TABLE, torch.tensor([0, -1]), TABLE[:2] * 10),
    ),
    "adding at indices": (
        lambda x, i: x.index_put((i, i), torch.ones(3), accumulate=True),
        (TABLE, torch.tensor([1, 1, 2])),
    ),
    "indices of several dimensions": (lambda x, i, j: (x[i, j], x[:, i, j % 5]), (IMAGE[0], ROWS % 3, COLUMNS)),
    "indices that are apart": (lambda x, i: x[i, :, i], (IMAGE, ROWS % 2)),
    "a part replaced": (
        lambda x, y: (torch.slice_scatter(x, y, 1, 2, 4), torch.select_scatter(x, y[:, 0], 1, -1)),
        (TABLE, TABLE[:, :2] * 10),
    ),
    "other ways round": (lambda x: (x.flip(0, -1), x.rot90(), x.roll((1, 2), (0, 1)), torch.fliplr(x)), (TABLE,)),
    "diagonals": (lambda x: (x.diagonal(), x.diagonal(-1, 2, 3), x.diagonal(9, 2, 3)), (IMAGE,)),
    "windows of a dimension": (lambda x: (x.unfold(1, 3, 2), x.unfold(0, 2, 1)), (TABLE,)),
    "nearest images": (lambda x: functional.interpolate(x, scale_factor=2), (IMAGE,)),
    "nearest images of a size": (lambda x: functional.interpolate(x, (14, 3)), (IMAGE,)),
    "smooth images": (
        lambda x: (
            functional.interpolate(x, (9, 8), mode="bilinear"),
            functional.interpolate(x, scale_factor=1.5, mode="bilinear", align_corners=True),
        ),
        (IMAGE,),
    ),
    "curved images": (lambda x: functional.interpolate(x, (9, 8), mode="bicubic"), (IMAGE,)),
    "sampled images": (
        lambda x, grid: (functional.grid_sample(x, grid), functional.grid_sample(x, grid, "nearest", "border")),
        (IMAGE, IMAGE[:, 0, :4, :4].reshape(2, 2, 4, 2) * 1.3),
    ),
    "mirrored borders": (
        lambda x: (functional.pad(x, (1, 2, 0, 3), "reflect"), functional.pad(x, (2, 0, 1, 1), "replicate")),
        (IMAGE,),
    ),
    "borders that take away": (
        lambda x: (functional.pad(x, (-1, 2, 3, -2), "replicate"), functional.pad(x, (1, -2, -1, 2), "reflect")),
        (IMAGE,),
    ),
    "pooling to a number of windows": (
        lambda x: (functional.adaptive_avg_pool2d(x, (3, 2)), functional.adaptive_max_pool2d(x, (2, 4))),
        (IMAGE,),
    ),
    "pooling with places": (
        lambda x: (*functional.max_pool2d(x, 3, 2, 1, return_indices=True), functional.avg_pool2d(x, 2)),
        (IMAGE,),
    ),
    "products of several": (
        lambda a, v: (torch.addmv(v[:4], a, v, beta=2, alpha=3), torch.einsum("ij,kj->ik", a, a), torch.outer(v, v)),
        (TABLE, torch.arange(6.0)),
    ),
    "sums of products": (
        lambda x, a: torch.addbmm(x, a, a.mT, beta=0.5, alpha=2),
        (torch.ones(3, 3), TABLE.reshape(2, 3, 4)),
    ),
    "nothing said of the values": (lambda x: torch.where(x < 99, torch.zeros_like(x), torch.empty_like(x)), (TABLE,)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_an_operators_forms_compute_what_torch_computes(name: str) -> None:
    """Values, NaN and infinity at their places, element types and shapes are torch's."""
    function, given = FORMS[name]
    check(function, *given)
