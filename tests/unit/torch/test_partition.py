"""What stands between torch's tensors and a network: memory, weights, parts; nothing is compiled."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from opbuild.frontend.torch.builder import RULES  # noqa: E402
from opbuild.frontend.torch.capture import DTYPES, order_of  # noqa: E402
from opbuild.frontend.torch.program import AtenProgram  # noqa: E402
from opbuild.torch.decompositions import decompositions  # noqa: E402
from opbuild.torch.partition import Partitioned  # noqa: E402
from opbuild.torch.tensors import (  # noqa: E402
    Weights,
    to_array,
    to_tensor,
)
from support.torch_programs import computed, program_of  # noqa: E402


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_and_arrays_share_their_memory_in_each_order_of_dimensions(dtype: torch.dtype) -> None:
    """What is written to the one is read from the other, for each element type."""
    for order in itertools.permutations(range(3)):
        tensor = torch.zeros(2, 3, 4, dtype=dtype).permute(order)
        array = to_array(tensor, order_of(tensor))
        assert array.flags.c_contiguous
        assert array.dtype.name == DTYPES[dtype]
        back = to_tensor(array, order_of(tensor))
        assert back.shape == tensor.shape
        assert back.stride() == tensor.stride()
        back[0, 0, 0] = 1
        assert array.reshape(-1)[0] == 1
        assert tensor[0, 0, 0] == 1


def test_only_tensors_that_are_not_dense_are_copied() -> None:
    """And those that torch has negated only in name."""
    base = torch.arange(24.0).reshape(4, 6)
    for tensor, shares in ((base[1:3], True), (base.t(), True), (base[:, ::2], False), (base[:1].expand(3, 6), False)):
        array = to_array(tensor, order_of(tensor))
        assert (array.ctypes.data == tensor.data_ptr()) == shares
        assert torch.equal(to_tensor(array, order_of(tensor)), tensor)
    negated = torch.complex(base, base).conj().imag
    assert torch.equal(torch.from_numpy(to_array(negated, (0, 1)).copy()), -base)


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same values elsewhere."""
    return tensor.clone()


def by_numpy(tensor: torch.Tensor) -> torch.Tensor:
    """Change the values through an array on the same memory."""
    tensor.numpy()[...] += 1
    return tensor


CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "elsewhere": moved,
    "in place": lambda tensor: tensor.mul_(2),
    "one element": lambda tensor: (tensor[2:3, 3].fill_(7), tensor)[1],
    "through data": lambda tensor: (tensor.data.add_(1), tensor)[1],
    "through numpy": by_numpy,
}


UNCOUNTED = ("one element", "for inference")
"""Torch counts no changes of tensors for inference: only what changes them as a whole is seen."""

CASES = [pair for pair in itertools.product(CHANGES, ["dense", "transposed", "for inference"]) if pair != UNCOUNTED]


@pytest.mark.parametrize(("how", "lies"), CASES)
def test_a_changed_weight_is_another_one(how: str, lies: str) -> None:
    """However it changed, and wherever it lies."""
    with torch.inference_mode(lies == "for inference"):
        tensor = torch.rand(64, 32)
        tensor = tensor.t() if lies == "transposed" else tensor
        other, empty = torch.rand(3), torch.rand(0)
        weights = Weights([tensor, other, empty])
        assert weights.are([tensor, other, empty])
        assert not weights.are([CHANGES[how](tensor), other, empty])


def test_a_weights_change_is_told_by_its_position() -> None:
    """That of a tensor that torch counted, or that lies elsewhere."""
    tensors = [torch.rand(4), torch.rand(()), torch.rand(2, 2, dtype=torch.float64)]
    weights = Weights(tensors)
    tensors[1].add_(1)
    tensors[2] = tensors[2].clone()
    assert weights.changed(tensors) == [1, 2]


def partitioned(function: Callable[..., object], *args: torch.Tensor) -> Partitioned:
    """Return a function's graph in parts."""
    return Partitioned(make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*args), ())


def test_parts_are_what_lies_between_operators_that_are_left_to_torch() -> None:
    """In the order of the graph; what only moves elements beside them is left too."""

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.special.bessel_j0((x * 2 + 1).t())
        return torch.special.bessel_j0(y.t()) - 1

    found = partitioned(function, torch.rand(3, 4))
    assert len(found.programs) == 2
    assert sorted(found.compiled) == ["aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor", "aten.t.default"]
    assert [name for name, _ in found.left] == [
        "aten.special_bessel_j0.default", "aten.t.default", "aten.special_bessel_j0.default",
    ]  # fmt: skip


HIDDEN = torch.arange(5) >= torch.tensor([[5], [3], [0]])
MASKS = {
    "none": (),
    "of pairs": (HIDDEN[0].expand(5, 5), 0),
    "of keys": (HIDDEN, 1),
    "of heads": (HIDDEN[:, None, None].expand(3, 2, 5, 5), 2),
    "of numbers": (torch.tensor([0.0, 0.5, -torch.inf]).repeat(50).reshape(3, 2, 5, 5), 2),
}


@torch.no_grad()
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("uses_gelu", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_a_layer_of_an_encoder_is_written_out_as_torch_computes_it(
    mask: str, uses_gelu: bool, norm_first: bool
) -> None:
    """Its operator takes what is not 0 for hidden, and gives NaN to who sees nothing."""
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16)
    x, (hidden, *kind) = torch.rand(3, 5, 8), MASKS[mask] or (torch.zeros(()),)

    def function(x: torch.Tensor, hidden: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        masks = (hidden, *kind) if kind else ()
        attention, network, norms = weights[:4], weights[4:8], weights[8:]
        return torch._transformer_encoder_layer_fwd(
            x, 8, 2, *attention, uses_gelu, norm_first, 1e-5, *norms, *network, *masks
        )

    given = (x, hidden, *layer.parameters())
    expected = function(*given)
    assert bool(expected.isnan().any()) == (mask in ("of keys", "of heads"))
    torch.testing.assert_close(computed(function, *given)[0], expected, equal_nan=True)
    assert not partitioned(function, *given).left


def test_a_form_that_a_rule_refuses_is_left_to_torch_with_its_words() -> None:
    """The rest of the graph is not."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 3) @ x.t() + 1

    found = partitioned(function, torch.arange(6).reshape(2, 3))
    assert found.left == [("aten.mm.default", "products of integers")]
    assert "aten.mul.Tensor" in found.compiled


def test_an_argument_that_a_rule_does_not_know_is_a_form_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a newer torch has."""
    monkeypatch.setitem(RULES, ("aten", "mul.Tensor"), lambda of, x: x)
    found = partitioned(lambda x: x * x + 1, torch.rand(3))
    assert found.left == [("aten.mul.Tensor", "its rule has too many positional arguments")]
    assert found.compiled == ["aten.add.Tensor"]


def test_what_a_program_computes_decides_its_digest() -> None:
    """Operators, arguments, types and sizes; not the run in which it was read."""

    def digest(factor: float, rows: int, dtype: torch.dtype) -> str:
        found: AtenProgram = program_of(lambda x: x * factor, torch.zeros(rows, 2, dtype=dtype))
        return found.digest

    same = digest(2.0, 3, torch.float32)
    assert digest(2.0, 3, torch.float32) == same
    others = {digest(3.0, 3, torch.float32), digest(2.0, 4, torch.float32), digest(2.0, 3, torch.float64)}
    assert same not in others
    assert len(others) == 3
