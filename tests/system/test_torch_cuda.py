"""``torch.compile`` of modules on a GPU, on the driver in memory: target, copies, streams, weights, what is left."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402

from opbuild.errors import TargetError, UnsupportedOperatorError  # noqa: E402
from opbuild.platform.finalizers import WeakValues  # noqa: E402
from opbuild.runtime.devices import several  # noqa: E402
from opbuild.runtime.devices.cuda.device import CudaDevice  # noqa: E402
from opbuild.target.cuda import CLASS  # noqa: E402
from opbuild.torch import backend, report  # noqa: E402
from support.cuda_tensors import Compiled, CudaTensor, CudaTorch, cuda_torch  # noqa: E402
from support.fake_driver import FakeDriver, problems_of  # noqa: E402
from support.gpu_arrays import new_stream  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
COPIES_TO_THE_HOST, COPIES_FROM_THE_HOST = "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"


class Layers(nn.Module):
    """A perceptron whose result is turned."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 24), nn.Linear(24, 8)

    def forward(self, x: Any) -> Any:
        """Return three dimensions in another order."""
        return self.second(self.first(x).relu()).transpose(0, 1)


class Scaled(nn.Module):
    """A product with a number and with a vector that may be the CPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 8)

    def forward(self, x: Any, factor: Any, table: Any) -> Any:
        """Return one result of the GPU's and one of the CPU's."""
        return self.layer(x) * factor, table.exp()


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for caches."""
    return tmp_path_factory.mktemp("torch_cuda")


@pytest.fixture
def cuda(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaTorch]:
    """Torch with a GPU, whose driver does all as late as can be."""
    from support.gpu_kernels import StoredKernels

    monkeypatch.setenv("OPBUILD_CACHE", str(folder / "cache"))
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        with cuda_torch(fake, monkeypatch) as found:
            yield found


def layers() -> tuple[Layers, Any]:
    """Return a module and what it computes, for which it is kept as it is."""
    torch.manual_seed(0)
    module = Layers()
    weights = {name: each.detach().clone() for name, each in module.named_parameters()}
    return module, lambda x: torch.func.functional_call(Layers(), weights, (x,)).detach()


def same(found: Any, wanted: Any) -> None:
    """Compare a tensor on the GPU with one of the CPU's, as well as how they lie."""
    assert isinstance(found, CudaTensor)
    assert found.device == torch.device("cuda", 0)
    torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-5)


def test_a_module_on_the_gpu_is_computed_there(cuda: CudaTorch) -> None:
    """With inputs and results where they lie, on torch's stream of the moment, replayed as a graph from the third call.

    So small a network would stay on the CPU if its arrays were there.
    """
    module, computed = layers()
    compiled, x = Compiled(cuda, module, torch.empty(3, 5, 16)), torch.randn(3, 5, 16)
    for number, stream in enumerate((0, new_stream(cuda.driver), new_stream(cuda.driver), 0)):
        cuda.stream = stream
        given, before = cuda.tensor(x + number), len(cuda.driver.called)
        found = compiled(given)
        asked = cuda.driver.called[before:]
        assert number == 0 or asked.count(COPIES_FROM_THE_HOST) == 0
        assert COPIES_TO_THE_HOST not in asked
        assert number < 2 or "cuGraphLaunch" in asked
        same(found, computed(x + number))
        assert found.stride() == computed(x).stride()


def test_inputs_of_any_order_are_taken(cuda: CudaTorch) -> None:
    """A transposed one is made dense by torch, on the GPU."""
    module, computed = layers()
    x = torch.randn(5, 3, 16).transpose(0, 1)
    compiled = Compiled(cuda, module, torch.empty(3, 5, 16))
    same(compiled(cuda.tensor(x)), computed(x))


def test_a_weight_that_changes_on_the_gpu_is_taken_anew(cuda: CudaTorch) -> None:
    """Also where torch counts no change, as of what is written through ``data``; nothing is compiled for it."""
    module, computed = layers()
    compiled, x = Compiled(cuda, module, torch.empty(3, 5, 16)), torch.randn(3, 5, 16)
    same(compiled(cuda.tensor(x)), computed(x))
    built = report().built
    compiled.weights["second.bias"].inner.add_(1)
    same(compiled(cuda.tensor(x)), computed(x) + 1)
    assert report().built == built
    assert report().graphs[-1].refrozen == 1


def test_a_buffer_that_the_graph_changes_is_written_where_it_lies(cuda: CudaTorch) -> None:
    """As a cache of keys: no copy of it is made, and torch finds it as it is to be."""

    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(8, 16))

        def forward(self, x: Any, at: Any) -> Any:
            self.kept.index_copy_(0, at, x)
            return self.kept.relu()

    compiled = Compiled(cuda, Cache(), torch.empty(1, 16), torch.empty(1, dtype=torch.int64))
    wanted = torch.zeros(8, 16)
    for place in (3, 5, 3, 0):
        x, at = torch.randn(1, 16), torch.tensor([place])
        wanted.index_copy_(0, at, x)
        given, before = (cuda.tensor(x), cuda.tensor(at)), len(cuda.driver.called)
        found = compiled(*given)
        copies = cuda.driver.called[before:].count("cuMemcpyDtoDAsync_v2")
        same(found, wanted.relu())
        same(compiled.weights["kept"], wanted)
        assert copies == 2  # the row in, the result out; its place comes by the host, which checks it
        assert not cuda.copied


def test_what_is_on_the_cpu_beside_it_is_left_to_torch(cuda: CudaTorch) -> None:
    """And counted; a number of the CPU's is read from there, as torch does."""
    torch.manual_seed(1)
    module = Scaled()
    x, factor, table = torch.randn(4, 16), torch.tensor(2.5), torch.randn(7)
    wanted = (module.layer(x) * factor).detach()
    compiled = Compiled(cuda, module, torch.empty(4, 16), fixed=(factor, table))
    found, other = compiled(cuda.tensor(x), factor, table)
    same(found, wanted)
    assert other.device.type == "cpu"
    torch.testing.assert_close(other, table.exp())
    assert report().graphs[-1].partitioned == {("aten.exp.default", "a tensor on cpu"): 1}


def test_attention_is_whole_on_the_gpu(cuda: CudaTorch) -> None:
    """Each of the operators that torch has for GPUs, with and without a mask, is one call."""
    q, k, v = (torch.randn(2, 3, 4, 8) for _ in range(3))
    mask = torch.randn(2, 3, 4, 4)
    aten, plain = torch.ops.aten, torch.nn.functional.scaled_dot_product_attention

    class Attention(nn.Module):
        def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
            return (
                aten._scaled_dot_product_flash_attention(q, k, v, 0.0, True)[0],
                aten._scaled_dot_product_efficient_attention(q, k, v, mask, False, scale=0.5)[0],
                aten._scaled_dot_product_cudnn_attention(q, k, v, None, False)[0],
            )

    found = Compiled(cuda, Attention(), q, k, v, mask)(*map(cuda.tensor, (q, k, v, mask)))
    wanted = plain(q, k, v, is_causal=True), plain(q, k, v, mask, scale=0.5), plain(q, k, v)
    for each, expected in zip(found, wanted, strict=True):
        same(each, expected)
    assert not report().graphs[-1].partitioned


def test_a_graph_on_a_gpu_is_not_stored_ahead_of_time(cuda: CudaTorch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored says nothing of devices."""
    monkeypatch.setattr(backend, "is_ahead_of_time", lambda: True)
    with pytest.raises(Exception, match="a graph on cuda cannot be stored ahead of time") as caught:
        Compiled(cuda, layers()[0], torch.empty(3, 5, 16))
    assert isinstance(caught.value.inner_exception, UnsupportedOperatorError)


def test_a_machine_without_a_gpu_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the graph is compiled, with what to do; by the option it is torch's."""
    monkeypatch.setattr(CLASS, "_device", CudaDevice(FakeDriver(lambda *_: None, (8, 0))))  # type: ignore[arg-type,return-value]
    with pytest.raises(Exception, match=r"has compute capability 8\.0") as caught:
        Compiled(None, layers()[0], torch.empty(3, 5, 16))
    assert isinstance(caught.value.inner_exception, TargetError)
    with pytest.warns(UserWarning, match=r"compute capability 8\.0.*: torch computes them"):
        Compiled(None, layers()[0], torch.empty(3, 5, 16), options={"on_error": "eager"})
    assert not report().graphs[-1].compiled
