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
