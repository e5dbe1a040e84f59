"""A GPU that is not there: its memory, copies, code, threads and forks, and what its driver says when it fails."""

from __future__ import annotations

import gc
import json
import os
import re
import threading
from collections.abc import Callable
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.errors import LinkError, OpbuildError, RunError, TargetError
from opbuild.runtime.devices.cuda import driver as cuda_driver
from opbuild.runtime.devices.cuda.code import link, unlink
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.runtime.devices.cuda.driver import SIGNATURES, describe_card
from support.fake_driver import GPU, ILLEGAL_ADDRESS, INVALID, NO_MEMORY, OLD, FakeDriver, problems_of
from support.gpu_calls import Chain, artifact, kernels, numbers

MIB = 1 << 20


def test_the_drivers_functions_are_those_of_its_header() -> None:
    """Names, and how wide each argument is, as Triton's copy of ``cuda.h`` has them."""
    spec = find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("Triton, which brings cuda.h, is not installed")
    header = Path(spec.submodule_search_locations[0], "backends", "nvidia", "include", "cuda.h").read_text()
    renamed = dict(re.findall(r"#define (cu\w+) +(?:__CUDA_API_PT[DS]Z\()?(cu\w+)\)?\n", header))
    names = {new: old for old, new in renamed.items()}
    for name, arguments in SIGNATURES.items():
        stated = re.search(rf"^CUresult CUDAAPI {names.get(name, name)}\(([^;]*)\);", header, re.MULTILINE)
        assert stated is not None, name
        assert renamed.get(name, name) == name
        kinds = [kind_of(each) for each in stated[1].split(",") if each != "void"]
        assert [kind.__name__ for kind in arguments] == kinds, name


def kind_of(parameter: str) -> str:
    """Return the type in ``ctypes`` of a parameter in C."""
    if parameter.strip() == "const char *name":
        return "c_char_p"
    if "*" in parameter or re.search(r"\bCU(context|module|function|stream|event|graph|graphExec)\b", parameter):
        return "c_void_p"
    kinds = {"CUdeviceptr": "c_ulong", "size_t": "c_ulong", "unsigned long long": "c_ulong", "cuuint64_t": "c_ulong",
             "unsigned char": "c_ubyte", "unsigned int": "c_uint"}  # fmt: skip
    return next((kind for name, kind in kinds.items() if name in parameter), "c_int")


# -- no GPU ------------------------------------------------------------------------------------------------------------


def refused(driver: Any) -> TargetError:
    """Return the error of a device that cannot be used, which is the same each time."""
    device, said = CudaDevice(driver), []
    for _ in range(2):
        with pytest.raises(TargetError) as raised:
            device.allocate(8)
        said.append(str(raised.value))
    assert said[0] == said[1]
    return raised.value


def test_a_machine_without_a_driver_says_so_and_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what needs the GPU needs the driver; the hint says where the network runs instead."""
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    error = refused(None)
    assert error.message == "there is no NVIDIA driver here (libcuda-that-is-nowhere.so.1)"
    assert "without target='cuda', on the CPU" in error.hint
    device = CudaDevice()
    assert device.link([artifact("twice")])
    device.synchronize()
    with pytest.raises(TargetError, match="there is no NVIDIA driver here"):
        describe_card()


def test_a_driver_without_a_gpu_an_old_one_and_another_gpu_are_told_apart() -> None:
    """No card, a compute capability that there is no code for, a driver that fails, and one that lacks functions."""
    error = refused(FakeDriver(kernels, capability=None))
    assert error.message.startswith("there is no NVIDIA GPU here: cuInit: CUDA_ERROR_NO_DEVICE (100)")
    for capability in ((8, 6), (10, 0)):
        error = refused(FakeDriver(kernels, capability))
        has = ".".join(map(str, capability))
        assert f"a stand-in for a GPU, has compute capability {has}, and code for sm_90a runs on 9.0" in error.message
        assert "CUDA_VISIBLE_DEVICES" in error.hint
    broken = FakeDriver(kernels)
    broken.fail("cuInit", 803, at=0)
    assert "the NVIDIA driver cannot be used: cuInit: CUDA_ERROR_UNKNOWN (803)" in refused(broken).message
    assert "is too old: libcuda.so.1 has no cuInit" in refused(object()).message


def test_a_gpu_is_described() -> None:
    """Its name, its compute capability, and the CUDA of its driver."""
    context = CudaDevice(FakeDriver(kernels)).context
    assert str(context.card) == "a stand-in for a GPU, compute capability 9.0, driver for CUDA 13.0"


# -- memory and copies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patience", [0, 1 << 30])
@pytest.mark.parametrize("nbytes", [0, 1, 4096, MIB, MIB + 1, 5 * MIB])
def test_what_is_written_is_read_and_new_memory_is_zero(nbytes: int, patience: int) -> None:
    """Through staging memory or awaited, however late the copy is; the source may be changed at once."""
    with problems_of(FakeDriver(kernels)) as driver:
        driver.patience = patience
        device = CudaDevice(driver)
        memory = device.allocate(nbytes)
        target = np.full(nbytes, OLD, np.uint8)
        device.read(memory.address, target)
        assert not target.any()
        for seed in range(3):
            source = np.random.default_rng(seed).integers(0, 256, nbytes).astype(np.uint8)
            kept = source.copy()
            device.write(memory.address, source)
            source[...] = 0
            device.read(memory.address, target)
            assert np.array_equal(target, kept)
        device.clear(memory.address, nbytes // 2)
        device.read(memory.address, target)
        assert np.array_equal(target, np.append(np.zeros(nbytes // 2, np.uint8), kept[nbytes // 2 :]))
        del memory
        assert driver.is_empty


def test_many_small_writes_are_awaited_only_when_their_memory_is_full() -> None:
    """A hundred writes of 100 KiB into the same place: the last one stands, and few were waited for."""
    driver = FakeDriver(kernels)
    device, target = CudaDevice(driver), np.empty(100 << 10, np.uint8)
    memory = device.allocate(target.nbytes)
    for value in range(100):
        device.write(memory.address, np.full(target.nbytes, value, np.uint8))
    assert driver.called.count("cuStreamSynchronize") == 2
    device.read(memory.address, target)
    assert (target == 99).all()


@pytest.mark.parametrize("shape", [(), (0, 3), (7, 5), (1 << 10, 1 << 10)])
def test_an_array_is_uploaded_whatever_its_strides(shape: tuple[int, ...]) -> None:
    """It is there when the call returns, however late copies are; the array may be changed then."""
    with problems_of(FakeDriver(kernels)) as driver:
        driver.patience = 1 << 30
        array = np.arange(prod(shape), dtype=np.int32).reshape(shape).T
        kept, made = array.copy(), CudaDevice(driver).uploaded(array)
        assert driver.called[-1] == "cuStreamSynchronize"
        array[...] = 0
        np.testing.assert_array_equal(np.asarray(made), kept, strict=True)
        del made
        assert driver.is_empty


def test_memory_that_may_not_be_locked_is_no_error() -> None:
    """Then each write is awaited."""
    driver = FakeDriver(kernels)
    driver.fail("cuMemHostAlloc", NO_MEMORY)
    chain, x = Chain(CudaDevice(driver), 3), numbers(9)
    chain.fill(9)
    assert np.array_equal(chain.run(x), chain.wanted(x))


def test_memory_goes_back_when_what_uses_it_is_done() -> None:
    """It is not given to others while calls that write it wait."""
    with problems_of(FakeDriver(kernels)) as driver:
        chain = Chain(CudaDevice(driver), 2)
        chain.fill(256)
        for function, arguments in chain.prepared.steps:
            function(*arguments)
        assert driver.launched == []
        chain.memories.clear()
        assert driver.launched == ["twice", "again"]
        assert driver.held == 0


def test_too_little_memory_says_how_much_was_asked_for_and_is_free() -> None:
    """And is no error for what asks for less."""
    driver = FakeDriver(kernels, memory=8 * MIB)
    device = CudaDevice(driver)
    memory = device.allocate(2 * MIB)
    with pytest.raises(RunError) as raised:
        device.allocate(7 * MIB)
    assert raised.value.message.startswith("the GPU has no memory for 7.0 MiB, 6.0 MiB of 8.0 MiB are free: cuMemAlloc")
    assert "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory" in raised.value.message
    assert "smaller batches" in raised.value.hint
    device.allocate(6 * MIB)
    del memory
    assert driver.is_empty


# -- code --------------------------------------------------------------------------------------------------------------


def test_code_comes_apart_as_it_was_linked() -> None:
    """Each kernel with its binary and how it is launched; equal kernels in equal order give equal bytes."""
    made = [artifact("twice"), artifact("again", shared=0, warps=8)]
    code = link(made)
    assert code == link([artifact("twice"), artifact("again", warps=8, shared=0)])
    found = unlink(code)
    assert [*found] == ["twice", "again"]
    assert [binary for _, binary in found.values()] == [each.data for each in made]
    assert [(each.threads, each.shared, each.nbytes) for each, _ in found.values()] == [(128, 65536, 56), (256, 0, 56)]


def test_a_carried_binary_is_loaded_and_says_its_own_parameters() -> None:
    """One that Triton made: the driver finds its kernel and so many parameters."""
    driver = FakeDriver(lambda symbol, _: kernels(symbol, b""))
    made = artifact("softmax_fp16")
    made = type(made)((GPU / "cubins" / "softmax_fp16.cubin").read_bytes(), made.symbol, made.kind, made.launch)
    module = CudaDevice(driver).load(link([made]))
    assert module.kernel("softmax_fp16").symbol == "softmax_fp16"


@pytest.mark.parametrize(
    "launch",
    [
        {"warps": 0}, {"warps": 33}, {"warps": "4"}, {"shared": -1}, {"shared": 1 << 20}, {"grid": [[]] * 4},
        {"grid": [[[1, 0, 0]]]}, {"grid": [[[-1, 0, 1]]]}, {"grid": [[[1, 0]]]}, {"arguments": [["size", 0, 0]]},
        {"arguments": [["extent", 0, 0]]}, {"arguments": [["address", 0, -1]]}, {"parameters": [[0, 8]]},
        {"parameters": [[0, 8], [4, 4], [16, 8], [24, 8], [32, 8]]},
        {"parameters": [[0, 8], [8, 4], [12, 8], [24, 8], [32, 8]]},
        {"parameters": [[0, 8], [8, 4], [16, 8], [24, 8], [8192, 8]]}, {"parameters": None},
    ],
)  # fmt: skip
def test_a_launch_that_cannot_be_is_refused(launch: dict[str, Any]) -> None:
    """When a network is linked, and when its code is loaded: a kernel launched otherwise writes anywhere."""
    with pytest.raises(LinkError, match="operator twice cannot be launched on a GPU"):
        link([artifact("again"), launched(launch)])
    good = link([artifact("twice")])
    head, line, rest = good.split(b"\n", 2)
    rows = json.loads(line)
    rows[0][2].update(launch)
    with pytest.raises(LinkError, match="the network's code for the GPU cannot be read"):
        unlink(b"\n".join((head, json.dumps(rows).encode(), rest)))


def launched(launch: dict[str, Any]) -> Any:
    """Return a binary that is launched otherwise than it was compiled for."""
    made = artifact("twice")
    return type(made)(made.data, made.symbol, made.kind, {**made.launch, **launch})


def test_damaged_code_is_refused() -> None:
    """Cut anywhere, or something else; two kernels of one name are not linked."""
    code = link([artifact("twice"), artifact("again")])
    for cut in (0, 10, 40, 200, len(code) - 1):
        with pytest.raises(LinkError, match="the network's code for the GPU cannot be read"):
            unlink(code[:cut])
    with pytest.raises(LinkError, match="two kernels for the GPU are called twice"):
        link([artifact("twice"), artifact("twice")])
    with pytest.raises(LinkError, match="no kernel 'other'"):
        CudaDevice(FakeDriver(kernels)).load(code).kernel("other")


def test_shared_memory_above_48_kib_is_asked_for() -> None:
    """And only that: a launch without is refused by the driver."""
    for shared, asked in ((48 * 1024, 0), (48 * 1024 + 16, 1)):
        driver = FakeDriver(kernels)
        CudaDevice(driver).load(link([artifact("twice", shared=shared)])).kernel("twice")
        assert driver.called.count("cuFuncSetAttribute") == asked


@pytest.mark.parametrize("function", ["cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute"])
def test_code_that_the_driver_refuses_is_named_and_leaves_nothing(function: str) -> None:
    """The kernel, the driver's function and its name of the error; the next attempt is served."""
    driver = FakeDriver(kernels)
    device = CudaDevice(driver)
    driver.fail(function, 200)
    with pytest.raises(LinkError, match=rf"kernel twice cannot be loaded: {function}: CUDA_ERROR_INVALID_IMAGE"):
        Chain(device, 2)
    gc.collect()
    assert driver.is_empty
    chain, x = Chain(device, 2), numbers(5)
    chain.fill(5)
    assert np.array_equal(chain.run(x), chain.wanted(x))


# -- whatever fails ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [INVALID, ILLEGAL_ADDRESS])
@pytest.mark.parametrize("function", [name for name in SIGNATURES if not name.startswith("cuGetError")])
def test_each_function_that_fails_once_is_told_and_leaves_nothing(function: str, code: int) -> None:
    """At its first call or its third: an error of opbuild's or none, right results or none, and no memory is left."""
    for at in (1, 3):
        with problems_of(FakeDriver(kernels)) as driver:
            driver.fail(function, code, at)
            for _ in range(2):
                said = use(driver)
                assert "hint: " in said and f"({code})" in said if said else True
            assert driver.is_empty or function in GIVING_BACK


GIVING_BACK = ("cuMemFree_v2", "cuModuleUnload", "cuGraphDestroy", "cuGraphExecDestroy")


def use(driver: FakeDriver) -> str:
    """Run a chain of calls in a device of its own, and return its error; whatever it gives is right."""
    try:
        chain = Chain(CudaDevice(driver), 4)
        for extent in (20, 20, 20, 70):
            chain.fill(extent)
            x = numbers(extent)
            assert np.array_equal(chain.run(x), chain.wanted(x))
    except OpbuildError as error:
        return str(error)
    return ""


# -- threads and forks -------------------------------------------------------------------------------------------------


def test_any_thread_may_use_it() -> None:
    """The context is made each thread's own; each gets its own results."""
    with problems_of(FakeDriver(kernels)) as driver:
        device, wrong = CudaDevice(driver), list[int]()

        def work(seed: int) -> None:
            chain = Chain(device, 3)
            for number in range(10):
                x = numbers(number + seed, number)
                chain.fill(len(x))
                if not np.array_equal(chain.run(x), chain.wanted(x)):
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert not wrong
        assert driver.called.count("cuDevicePrimaryCtxRetain") == 1


def in_child(work: Callable[[], str]) -> str:
    """Return the text that a function returns in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as file:
        return file.read()


def test_a_forked_process_cannot_use_its_parents_gpu_and_says_so() -> None:
    """It gives nothing back that is the parent's, either; the parent goes on."""
    driver = FakeDriver(kernels)
    chain, x = Chain(CudaDevice(driver), 2), numbers(8)
    chain.fill(8)
    chain.run(x)

    def work() -> str:
        before = len(driver.called)
        chain.memories.clear()
        try:
            chain.run(x)
        except RunError as error:
            return f"{len(driver.called) - before} {error}"
        except IndexError:
            pass
        try:
            chain.device.allocate(8)
        except RunError as error:
            return f"{len(driver.called) - before} {error}"
        return "it went on"

    said = in_child(work)
    assert said.startswith("0 this process was forked from one that uses the GPU, and cannot use it")
    assert "by spawn" in said
    assert np.array_equal(chain.run(x), chain.wanted(x))


def test_a_process_that_is_forked_before_the_gpu_is_used_may_use_it() -> None:
    """Each of its processes has a context of its own then."""
    driver = FakeDriver(kernels)
    device = CudaDevice(driver)

    def work() -> str:
        chain, x = Chain(device, 2), numbers(8)
        chain.fill(8)
        return str(np.array_equal(chain.run(x), chain.wanted(x)))

    assert [in_child(work), in_child(work), work()] == ["True"] * 3


def test_a_process_whose_parent_used_cuda_otherwise_says_so() -> None:
    """As torch may have: the driver says that it is not initialized, and the hint says why."""
    driver = FakeDriver(kernels)
    driver.cuInit(0)

    def work() -> str:
        try:
            CudaDevice(driver).allocate(8)
        except TargetError as error:
            return str(error)
        return "it went on"

    assert "CUDA_ERROR_NOT_INITIALIZED" in (said := in_child(work))
    assert "by spawn" in said
