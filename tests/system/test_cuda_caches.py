"""Caches on a GPU that are written in place, on the driver in memory: one array for a past and its present."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support.fake_driver import FakeDriver, problems_of
from support.gpu_arrays import GpuArray, new_stream

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
HEADS, GROUPS, SIZE, ROOM = 4, 2, 16, 24
CACHE = (1, GROUPS, ROOM, SIZE)
RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for caches of what is built."""
    return tmp_path_factory.mktemp("cuda_caches")


@pytest.fixture
def driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver that does all as late as can be; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


def model(room: int = ROOM) -> bytes:
    """Return a GroupQueryAttention of one token, whose caches have room for more keys."""
    cache = (1, GROUPS, room, SIZE)
    shapes = {"q": (1, 1, HEADS * SIZE), "k": (1, 1, GROUPS * SIZE), "v": (1, 1, GROUPS * SIZE)}
    caches = {"past_k": cache, "past_v": cache}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, each) for name, each in {**shapes, **caches}.items()
    ]
    inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, [1]))
    total = numpy_helper.from_array(np.array(room, np.int32), "total")
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "present_k", "present_v")]
    node = helper.make_node(
        "GroupQueryAttention", [*(each.name for each in inputs), "total"], [each.name for each in outputs], "node", "",
        "com.microsoft", num_heads=HEADS, kv_num_heads=GROUPS,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "token", inputs, outputs, [total])
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class Decoder:
    """A network and the CPU's, which are given the same tokens."""

    def __init__(self, driver: FakeDriver, folder: Path, room: int = ROOM) -> None:
        self.driver, self.stream = driver, new_stream(driver)
        self.network, self.on_cpu = (
            opbuild.compile(model(room), cache_path=folder / "cache", target=target, wait=True)
            for target in ("cuda", None)
        )
        self.wanted = {name: RNG.standard_normal((1, GROUPS, room, SIZE)).astype(np.float32) for name in ("k", "v")}
        self.caches = {name: self.on_gpu(each) for name, each in self.wanted.items()}

    def on_gpu(self, contents: Any, **changes: Any) -> GpuArray:
        """Return an array on the GPU."""
        return GpuArray(self.driver, contents, self.stream, **changes)

    def token(self, before: int, into: dict[str, Any] | None = None) -> list[str]:
        """Give a token behind others, written into the caches or others; return what the driver was asked for."""
        into = self.caches if into is None else into
        draw = {name: RNG.standard_normal((1, 1, n * SIZE)).astype(np.float32) for name, n in
                (("q", HEADS), ("k", GROUPS), ("v", GROUPS))}  # fmt: skip
        draw |= {"lengths": np.array([before], np.int32)}
        pasts = {f"past_{name}": each for name, each in self.wanted.items()}
        found = self.on_cpu.run({**draw, **pasts}, out={f"present_{name}": each for name, each in self.wanted.items()})
        asked = len(self.driver.called)
        given = {name: self.on_gpu(each) if each.dtype == np.float32 else each for name, each in draw.items()}
        pasts = {f"past_{name}": each for name, each in self.caches.items()}
        own = self.network.run({**given, **pasts}, out={f"present_{name}": each for name, each in into.items()})
        asked_for = self.driver.called[asked:]
        np.testing.assert_allclose(own["y"], found["y"], rtol=1e-4, atol=1e-5)
        for name, each in self.wanted.items():
            present = own[f"present_{name}"]
            assert name not in into or present is into[name]
            seen = present.seen() if isinstance(present, GpuArray) else np.asarray(present)
            np.testing.assert_allclose(seen, each, rtol=1e-4, atol=1e-5)
            if name not in into:
                self.caches[name].put(each)
        return asked_for


def test_tokens_are_written_into_the_callers_caches(folder: Path, driver: FakeDriver) -> None:
    """No copy of a cache is made, there or to the host; kernels are replayed as graphs, however many keys there are."""
    decoder = Decoder(driver, folder)
    for before in range(3, 9):
        asked = decoder.token(before)
    copies = asked.count("cuMemcpyDtoDAsync_v2")
    assert copies == 4  # queries, keys, values in; the result out
    assert "cuGraphLaunch" in asked
    assert len(decoder.network.runners[0].kept) == 2


def test_caches_may_be_others_each_time(folder: Path, driver: FakeDriver) -> None:
    """Two sequences in turn, a call that keeps its past as it is, one of two in place, and in place again."""
    decoder = Decoder(driver, folder)
    decoder.token(3)
    first = decoder.wanted, decoder.caches
    decoder.wanted = {name: RNG.standard_normal(CACHE).astype(np.float32) for name in ("k", "v")}
    decoder.caches = {name: decoder.on_gpu(each) for name, each in decoder.wanted.items()}
    for before in (7, 8):
        decoder.token(before)
    second = decoder.wanted, decoder.caches
    decoder.wanted, decoder.caches = first
    decoder.token(4)
    decoder.token(5, {})
    decoder.token(6, {"k": decoder.caches["k"]})
    decoder.token(7)
    decoder.wanted, decoder.caches = second
    decoder.token(9)


def test_a_cache_that_begins_anywhere_is_copied(folder: Path, driver: FakeDriver) -> None:
    """Kernels were chosen for memory that begins at multiples of 64 bytes; results are the same."""
    decoder = Decoder(driver, folder)
    whole = np.concatenate([np.zeros(1, np.float32), decoder.wanted["k"].reshape(-1)])
    place = decoder.on_gpu(whole)
    assert driver.cuStreamSynchronize(decoder.stream) == 0
    place.shape, place.address = CACHE, place.address + 4
    decoder.caches["k"] = place
    for before in (3, 4):
        decoder.token(before)


def test_caches_that_share_memory_are_not_in_place(folder: Path, driver: FakeDriver) -> None:
    """Keys and values in one array: each is read as it was, and both are written in the end."""
    decoder = Decoder(driver, folder)
    decoder.caches["v"] = decoder.caches["k"]
    decoder.wanted["v"] = decoder.wanted["k"].copy()
    driver_asked = decoder.token(5, {"k": decoder.on_gpu(np.zeros(CACHE, np.float32))})
    assert "cuLaunchKernel" in driver_asked


def test_a_profile_of_tokens_in_place_is_right(folder: Path, driver: FakeDriver) -> None:
    """Timed calls leave out the same steps."""
    from opbuild.runtime.timing import timing

    decoder = Decoder(driver, folder)
    with timing() as in_place:
        decoder.token(3)
    with timing() as whole:
        decoder.token(4, {})
    assert len(whole.calls) - len(in_place.calls) == 6  # two caches, each copied in, there and out


def test_a_past_that_is_read_elsewhere_is_not_written_in_place(folder: Path, driver: FakeDriver) -> None:
    """Its values from before are wanted, whatever the caller gives for the present."""
    ports = [
        helper.make_tensor_value_info(name, kind, [4, 8])
        for name, kind in (("past", TensorProto.FLOAT), ("rows", TensorProto.INT64), ("new", TensorProto.FLOAT))
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in ("present", "before")]
    nodes = [
        helper.make_node("ScatterElements", ["past", "rows", "new"], ["present"], axis=0),
        helper.make_node("Neg", ["past"], ["before"]),
    ]
    graph = helper.make_graph(nodes, "both", ports, results)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    network = opbuild.compile(made, cache_path=folder / "cache", target="cuda", wait=True)
    past, new = (RNG.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
    rows = np.tile(np.arange(4)[::-1, None], (1, 8))
    cache = GpuArray(driver, past, new_stream(driver))
    found = network.run({"past": cache, "rows": rows, "new": new}, out={"present": cache})
    np.testing.assert_allclose(found["before"], -past)
    np.testing.assert_allclose(cache.seen(), new[::-1])
    assert not network.runners[0].kept


def test_the_keys_of_a_long_cache_are_divided(folder: Path, driver: FakeDriver) -> None:
    """A token's attention is two calls, one of parts and one that merges them; however many keys there are."""
    decoder = Decoder(driver, folder, 280)
    for before in (0, 3, 70, 279):
        launched = len(driver.launched)
        decoder.token(before)
    families = [each.partition("_")[0] for each in driver.launched[launched:]]
    assert families.count("attention") == 2


def test_an_update_of_memory_that_is_given_twice_is_right(folder: Path, driver: FakeDriver) -> None:
    """As a caller that asks for the present where the past lies, and gives that array as new rows, too."""
    ports = [
        helper.make_tensor_value_info(name, kind, [4, 8])
        for name, kind in (("past", TensorProto.FLOAT), ("rows", TensorProto.INT64), ("new", TensorProto.FLOAT))
    ]
    node = helper.make_node("ScatterElements", ["past", "rows", "new"], ["present"], axis=0)
    graph = helper.make_graph(
        [node], "one", ports, [helper.make_tensor_value_info("present", TensorProto.FLOAT, [4, 8])]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10).SerializeToString()
    network = opbuild.compile(made, cache_path=folder / "cache", target="cuda", wait=True)
    past, new = (RNG.standard_normal((4, 8)).astype(np.float32) for _ in range(2))
    rows = np.tile(np.arange(4)[::-1, None], (1, 8))
    cache, other = (GpuArray(driver, each, new_stream(driver)) for each in (past, new))
    make = CLASS.open().make
    for values, wanted in (((cache, rows, other), new[::-1]), ((cache, rows, cache), new)):
        assert network.call_on_device(values, make, {0: 0}) == [cache]
        np.testing.assert_allclose(cache.seen(), wanted)
    (found,) = network.call_on_device((cache, rows, other), make)
    np.testing.assert_allclose(found, new[::-1])
