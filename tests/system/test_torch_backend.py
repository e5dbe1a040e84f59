"""``torch.compile(model, backend="opbuild")``: modules as torch computes them."""

from __future__ import annotations

import functools
import gc
import importlib.metadata
import random
import warnings
import weakref
from pathlib import Path
from typing import Any

import pytest

import opbuild
from opbuild.errors import CompileForbiddenError, OptionError
from support.until import until_built_behind

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402

from opbuild.session import Session  # noqa: E402
from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import report, reset  # noqa: E402
from support.torch_modules import Encoder, ResNet, ready  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_objects")


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget what other tests compiled: Dynamo compiles a function a few times only."""
    torch.compiler.reset()
    reset()


@pytest.fixture
def compiled(shared_store: Path) -> Any:
    """Return a function that compiles a module with the store that tests share."""
    return lambda module, **how: torch.compile(
        module, backend=backend, options={"cache_path": shared_store, "num_threads": 1}, **how
    )


def images(*shape: int) -> torch.Tensor:
    """Return random images."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(3))


def tokens(*shape: int) -> torch.Tensor:
    """Return random tokens."""
    return torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_a_resnet_is_one_network_and_computes_what_torch_does(compiled: Any) -> None:
    """No operator is left to torch, and the weights are constants."""
    model = ready(ResNet())
    fast, x = compiled(model), images(1, 3, 32, 32)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    found = report(fast)
    assert not found.partitioned
    assert found.compiled["aten.convolution.default"] == 6
    (graph,) = found.graphs
    assert len(graph.builds) == 1


@pytest.mark.slow
@torch.no_grad()
def test_a_bert_is_one_network_and_computes_what_torch_does(compiled: Any) -> None:
    """Embeddings, attention with a mask, Gelu and normalizations have rules."""
    model = ready(Encoder())
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    fast = compiled(model)
    torch.testing.assert_close(fast(tokens(2, 9), mask), model(tokens(2, 9), mask), rtol=1e-4, atol=1e-5)
    assert not report(fast).partitioned


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("rows", [3, 64])
def test_a_query_that_sees_no_key_gets_0(compiled: Any, rows: int) -> None:
    """As torch has it: by a mask of bools, one by one and as one kernel; a NaN among the keys stays."""
    query, key, value = torch.rand(3, 2, 2, rows, 32, generator=torch.Generator().manual_seed(3)).unbind()
    mask = torch.ones(rows, rows, dtype=torch.bool).tril()
    mask[1] = False
    fast = compiled(nn.functional.scaled_dot_product_attention)
    for _ in range(2):
        expected = nn.functional.scaled_dot_product_attention(query, key, value, mask)
        torch.testing.assert_close(fast(query, key, value, mask), expected, equal_nan=True)
        assert not expected[1, :, 1].any()
        key[0, 0, 2, 3] = torch.nan
    assert not report(fast).partitioned


@pytest.mark.parametrize("is_causal", [False, True])
@torch.no_grad()
def test_attention_whose_scores_overflow_is_what_eager_torch_gives(compiled: Any, is_causal: bool) -> None:
    """Queries with scores of -inf alone get 0, without a mask too; others are as they were."""
    query, key, value = (torch.rand(1, 2, 6, 8, generator=torch.Generator().manual_seed(5)) for _ in range(3))
    query[:, 0], key[:, 0] = 1e30, -1e30
    attend = functools.partial(nn.functional.scaled_dot_product_attention, is_causal=is_causal)
    found, expected = compiled(attend)(query, key, value), attend(query, key, value)
    assert not expected[:, 0].any()
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_softmax_of_nothing_that_is_seen_is_0(compiled: Any) -> None:
    """Torch's safe softmax, of rows and of columns; NaN and +inf make NaN."""
    x = torch.rand(5, 20, generator=torch.Generator().manual_seed(3))
    x[0], x[1, 3], x[2, 4], x[3, 1:] = -torch.inf, torch.nan, torch.inf, -torch.inf
    safe = torch.ops.aten._safe_softmax
    fast = compiled(lambda x: (safe(x, -1), safe(x.T * 1, 0)))
    torch.testing.assert_close(fast(x), (safe(x, -1), safe(x.T * 1, 0)), equal_nan=True)
    assert not fast(x)[0][0].any()


def entries(store: Path) -> int:
    """Return how many operators a store has."""
    return len(list(store.rglob("*.o")))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "x", "built"), [(ResNet, images(1, 3, 32, 32), 0), (lambda: Encoder(1), tokens(1, 20), 1)]
)
@torch.no_grad()
def test_what_an_onnx_file_needed_serves_a_module_of_the_same_layers(
    module: Any, x: Any, built: int, tmp_path: Path
) -> None:
    """From ONNX, then from torch: of a ResNet nothing is compiled, of a BERT its attention, whose hidden rows are 0."""
    model, file = ready(module()), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter, which needs no further package, is an old one
        torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
    opbuild.compile(file, cache_path=tmp_path)(x.numpy())
    fast = torch.compile(model, backend=backend, options={"cache_path": tmp_path}, dynamic=False)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert report(fast).built == built
    assert entries(tmp_path) > 5


@pytest.mark.slow
@torch.no_grad()
def test_a_graph_that_dynamo_compiles_again_for_another_size_is_bound_by_numbers(tmp_path: Path) -> None:
    """Sizes are open then, and kernels that serve any size were built behind the first call.

    Attention of few places is computed otherwise: what longer texts need is built when sizes are open.
    """
    model = ready(Encoder(1))
    fast = torch.compile(model, backend=backend, options={"cache_path": tmp_path})
    torch.testing.assert_close(fast(tokens(2, 20)), model(tokens(2, 20)), rtol=1e-4, atol=1e-5)
    until_built_behind()
    for shape in ((2, 24), (2, 33), (3, 24)):
        torch.testing.assert_close(fast(tokens(*shape)), model(tokens(*shape)), rtol=1e-4, atol=1e-5)
    graphs = report(fast).graphs
    assert graphs[1].built <= 5 < graphs[0].built
    assert graphs[2].built == 0


@pytest.mark.slow
@torch.no_grad()
def test_images_of_another_size_are_computed_by_what_was_built_behind_the_first_call(tmp_path: Path) -> None:
    """No chunk of tiles of the first size divides those of the second, and large images are copied otherwise."""
    layers = (
        nn.Conv2d(16, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.Upsample(scale_factor=2),
    )
    model, counts = ready(nn.Sequential(*layers)), []
    fast = torch.compile(model, backend=backend, options={"cache_path": tmp_path})
    for size in (32, 48, 40):
        x = images(1, 16, size, size)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
        until_built_behind()
        counts.append(entries(tmp_path))
    assert counts[1] <= counts[0] + 1
    assert counts[1] == counts[2]


def up_to_each_place(x: torch.Tensor) -> torch.Tensor:
    """Sum up to each place: the mask is a constant where sizes are fixed, and computed where they are open."""
    places = torch.arange(x.shape[1])
    return torch.where(places[:, None] >= places, x @ x.mT, 0.0).sum(-1)


@pytest.mark.slow
@torch.no_grad()
def test_what_is_a_constant_of_one_size_only_is_computed_where_sizes_are_open(tmp_path: Path) -> None:
    """When Dynamo comes with open sizes, it is a table of the size that is bound: no size builds anything from then."""
    fast = torch.compile(up_to_each_place, backend=backend, options={"cache_path": tmp_path})
    for size in (20, 27, 33):
        x, before = images(1, size, 8), entries(tmp_path)
        torch.testing.assert_close(fast(x), up_to_each_place(x), rtol=1e-4, atol=1e-5)
        until_built_behind()
    assert entries(tmp_path) == before
    assert len(report(fast).graphs) == 2


@pytest.mark.slow
@torch.no_grad()
def test_what_a_new_size_compiles_is_counted_as_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is the number of operators that came to the store, and stays when further sizes need none."""
    monkeypatch.setattr(Session, "build_without_limits", lambda *_: None)  # so that some are lacking
    fast = torch.compile(up_to_each_place, backend=backend, options={"cache_path": tmp_path})
    counts = [0]
    for size in (20, 27, 33):
        fast(images(1, size, 8))
        until_built_behind()
        counts.append(entries(tmp_path))
    first, second = report(fast).graphs
    assert (first.built, second.built) == (counts[1], counts[2] - counts[1])
    assert second.built > 0
    assert counts[3] == counts[2]
    assert [build.built for build in second.builds] == [0]  # those of the last size


@torch.no_grad()
def test_weights_that_change_are_noticed(compiled: Any) -> None:
    """However they are changed; and what changes again and again is read at each call."""
    model = nn.Linear(8, 4)
    fast, x = compiled(model), torch.rand(3, 8)

    def same() -> None:
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)

    same()
    model.weight.mul_(2)
    same()
    model.weight.data.add_(1)  # torch counts no version of what is changed through data
    same()
    model.bias = nn.Parameter(torch.rand(4))
    same()
    model.load_state_dict({"weight": torch.rand(4, 8), "bias": torch.rand(4)})
    same()
    changed = sum(graph.refrozen for graph in report(fast).graphs)
    for _ in range(6):
        model.weight.add_(1)
        same()
    assert changed >= 3
    assert sum(graph.refrozen for graph in report(fast).graphs) - changed <= 3


@pytest.mark.slow
@torch.no_grad()
def test_buffers_that_the_module_changes_itself_are_no_constants(compiled: Any) -> None:
    """As batch normalization's statistics while they are learnt."""
    model, twin = (ready(ResNet()).train() for _ in range(2))
    twin.load_state_dict(model.state_dict())
    fast, x = compiled(model), images(2, 3, 32, 32)
    for _ in range(2):
        torch.testing.assert_close(fast(x), twin(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(model.state_dict(), twin.state_dict(), rtol=1e-4, atol=1e-4)


def touched(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Change an input, return views, an input, and the same twice."""
    x.mul_(2)
    z = x + y
    return z, z[1:], x, x.view(-1), y


def doubled(x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return a larger image, and elements at places that meet."""
    larger = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
    return larger.sum() + x[places[:, None], 0, places[None, :]]


@pytest.mark.slow
@torch.no_grad()
def test_resized_images_and_indices_are_bound_by_numbers(compiled: Any) -> None:
    """Torch keeps the image whole, whose size is open; nothing is left to torch, and no further size is handed over."""
    fast = compiled(doubled)
    for size in (4, 5, 7):
        x, places = images(size, 2, size, size), torch.arange(size)
        torch.testing.assert_close(fast(x, places), doubled(x, places), rtol=1e-4, atol=1e-5)
    found = report(fast)
    assert not found.partitioned
    assert [each.compiled["aten.upsample_nearest2d.default"] for each in found.graphs] == [1, 1]
    assert found.graphs[-1].builds[0].image_reason.startswith("it was specialised from")


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32])
def test_changed_inputs_views_and_types_are_torchs(compiled: Any, dtype: torch.dtype) -> None:
    """Mutated and aliased inputs, in each element type."""
    first, second = torch.arange(12).reshape(3, 4).to(dtype), torch.ones(4, dtype=dtype)
    x = first.clone()
    found = compiled(touched)(x, second)
    wanted = touched(first, second)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(x, first)
    assert found[2] is x
    assert found[3].data_ptr() == x.data_ptr()
    assert found[4] is second


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("how", ["transposed", "every second", "expanded", "channels_last", "offset", "negated"])
def test_inputs_are_read_however_they_lie_in_memory(compiled: Any, how: str) -> None:
    """Strides of any kind give the same values and the strides that torch gives."""
    base = torch.rand(2, 4, 6, 6)
    x = {
        "transposed": lambda: base.transpose(1, 3),
        "every second": lambda: base[:, ::2, 1:],
        "expanded": lambda: base[:1].expand(3, 4, 6, 6),
        "channels_last": lambda: base.to(memory_format=torch.channels_last),
        "offset": lambda: torch.rand(289)[1:].view(2, 4, 6, 6),
        "negated": lambda: torch.complex(base, base).conj().imag,
    }[how]()

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x - 0.5) * 2

    found, wanted = compiled(function)(x), function(x)
    torch.testing.assert_close(found, wanted)
    if how != "expanded":
        assert found.stride() == wanted.stride()


@torch.no_grad()
def test_what_has_no_rule_is_left_to_torch_and_counted(compiled: Any) -> None:
    """Between two parts that opbuild computes."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.special.bessel_j0(x * 2 + 1) * 3 - x

    fast, x = compiled(function), torch.rand(3, 4)
    torch.testing.assert_close(fast(x), function(x))
    found = report(fast)
    assert found.partitioned == {("aten.special_bessel_j0.default", "there is no rule for it"): 1}
    assert len(found.graphs[0].builds) == 2
    assert "1 aten.special_bessel_j0.default: there is no rule for it" in str(found)


@pytest.mark.slow
@torch.no_grad()
def test_what_cannot_be_built_is_an_error_or_a_counted_fallback(tmp_path: Path) -> None:
    """Nothing is left to torch silently."""
    model, x = nn.Linear(8, 4), torch.rand(3, 8)
    options = {"cache_path": tmp_path, "forbid_compile": True}
    with pytest.raises(CompileForbiddenError):
        torch.compile(model, backend=backend, options=options)(x)
    torch.compiler.reset()
    reset()
    fast = torch.compile(model, backend=backend, options={**options, "on_error": "eager"})
    with pytest.warns(UserWarning, match="leaves a part"):
        torch.testing.assert_close(fast(x), model(x))
    (why,) = report(fast).fallbacks
    assert "forbid" in why
    found = report(fast)
    assert not found.compiled
    assert {reason for _, reason in found.partitioned} == {"it could not be built"}


@pytest.mark.slow
@torch.no_grad()
def test_what_torch_drops_is_kept_by_nobody(compiled: Any) -> None:
    """Neither its networks, nor its weights, nor what is reported of them."""
    model = nn.Linear(8, 4)
    weight = weakref.ref(model.weight)
    compiled(model)(torch.rand(3, 8))
    assert len(report().graphs) == 1
    torch.compiler.reset()
    del model
    gc.collect()
    assert report().graphs == ()
    assert weight() is None


@torch.no_grad()
def test_options_are_checked(compiled: Any) -> None:
    """An option that there is not, or a value that is not allowed, is an error of opbuild's."""
    for options in ({"threads": 1}, {"num_threads": "2"}, {"on_error": "never"}):
        with pytest.raises(Exception, match=next(iter(options))) as raised:
            torch.compile(torch.relu, backend=backend, options=options)(torch.rand(3))
        assert isinstance(raised.value.__cause__ or raised.value.__context__ or raised.value, OptionError)
        torch.compiler.reset()


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("numbers", [(2, 3, 4, 5), (2, -3, 0, -5), (2, 3, 2**40)])
def test_a_number_that_changes_from_call_to_call_is_a_size(compiled: Any, numbers: tuple[int, ...]) -> None:
    """Also one that no tensor has as an extent, and where the result is a number too."""

    def function(x: torch.Tensor, number: int) -> tuple[torch.Tensor, int]:
        return x * number + number, x.shape[0] * number

    fast, x = compiled(function), torch.arange(6)
    for number in numbers:
        torch.testing.assert_close(fast(x, number), function(x, number))
    assert len(report(fast).graphs) == 2


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.float64])
def test_a_float_that_is_drawn_inside_is_a_number(compiled: Any, dtype: torch.dtype) -> None:
    """Dynamo declares it as float32 and hands over a tensor of float64; the result's type is that of torch."""
    draw = random.Random(3)

    def function(x: torch.Tensor) -> torch.Tensor:
        return x * draw.uniform(1, 2) + draw.random()

    x, state = torch.arange(1, 5).to(dtype), draw.getstate()
    found = compiled(function)(x)
    draw.setstate(state)
    torch.testing.assert_close(found, function(x))
    assert not report().partitioned


@torch.no_grad()
def test_a_float_that_changes_from_call_to_call_is_compiled_as_a_number(compiled: Any) -> None:
    """Dynamo makes it an input of float64, which is converted in the graph."""

    def function(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x * factor

    fast, x = compiled(function), torch.arange(1.0, 5.0)
    for factor in (0.5, 0.7, 0.9):
        torch.testing.assert_close(fast(x, factor), function(x, factor))
    assert not report().partitioned


@pytest.mark.slow
@torch.no_grad()
def test_recurrent_layers_are_compiled_where_dynamo_allows_them(compiled: Any) -> None:
    """Both directions of two layers."""
    model = nn.LSTM(8, 8, 2, batch_first=True, bidirectional=True).eval()
    with torch._dynamo.config.patch(allow_rnn=True):
        fast, x = compiled(model), torch.rand(2, 5, 8)
        torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    assert report(fast).compiled["aten.mkldnn_rnn_layer.default"] == 4
    assert not report(fast).partitioned


@pytest.mark.slow
@torch.no_grad()
def test_a_view_by_strides_sees_what_torch_lays_there(compiled: Any) -> None:
    """What is viewed so is torch's own tensor, for its elements are not laid out as opbuild's are."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x.expand(3, 4) * 1).t().as_strided((2, 2), (1, 2)) + 1

    fast, x = compiled(function), torch.rand(4)
    torch.testing.assert_close(fast(x), function(x))
    assert "its memory is viewed by strides" in str(report(fast))


def test_torch_finds_the_back_end_without_an_import() -> None:
    """By the entry point of the package."""
    points = importlib.metadata.entry_points(group="torch_dynamo_backends")
    assert [point.value for point in points if point.name == "opbuild"] == ["opbuild.torch:opbuild"]
    assert "opbuild" in torch.compiler.list_backends()
