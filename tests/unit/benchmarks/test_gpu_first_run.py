"""The first run on a GPU, beside a CUDA driver in memory: what is packed, in which order, and what a fault comes to."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.fake_cuda import GPU, ILLEGAL_ADDRESS, NO_MEMORY, Library

sys.path.append(str(GPU))

import calls
import first_run
from arrays import Arrays, numbers, stored
from bert import Layers, matmul_for, random_weights, reference
from cases import CASES
from checks import WrongError, check
from cubin import parameter_places, sections
from driver import Device, DriverError

INDEX = json.loads((GPU / "cubins" / "index.json").read_text())["cubins"]


def binary(name: str) -> bytes:
    """Return a carried binary."""
    return (GPU / "cubins" / f"{name}.cubin").read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_the_index_says_of_a_binary_what_the_binary_says(name: str) -> None:
    """Symbol, digest, and where each parameter lies: the binary's own table of parameters decides."""
    record = INDEX[name]
    assert hashlib.blake2b(binary(name), digest_size=16).hexdigest() == record["blake2b"]
    assert f".nv.info.{record['symbol']}" in sections(binary(name))
    assert [(p["offset"], p["size"]) for p in record["parameters"]] == parameter_places(binary(name))
    sizes = {"pointer": 8, "i32": 4, "i64": 8, "fp32": 4, "tensormap": 128}
    assert all(parameter["size"] == sizes[parameter["type"]] for parameter in record["parameters"])


def test_no_binary_is_there_that_no_case_describes() -> None:
    """The folder, the index and the cases have the same names."""
    assert {path.stem for path in (GPU / "cubins").glob("*.cubin")} == set(INDEX) == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_binarys_calls_are_right_at_all_extents(name: str) -> None:
    """What is packed describes the arrays: a driver that reads it computes what float64 gives, extents of 0 too."""
    library = Library()
    assert len(check(Device(library), name)) >= 4
    assert not library.memory


@pytest.mark.parametrize("name", ["matmul_fp16_64x64x64", "softmax_fp16", "attention_fp16", "gather_fp16"])
@pytest.mark.parametrize("fault", ["not a number", "nothing", "beside", "slightly off"])
def test_a_kernel_that_goes_wrong_is_found(name: str, fault: str) -> None:
    """NaN, an output that was not written, a byte beside it, and one value that is off are errors."""

    def spoil(launch: dict[str, Any]) -> None:
        library, case, out = launch["library"], launch["case"], launch["out"]
        values = library.view(case, launch, "out", (4,), (1,))
        if fault == "beside":
            library.bytes_at(out - 2, 2)[...] = 0
        elif fault == "slightly off":
            values[0] += 1
        else:
            values[...] = np.nan

    with pytest.raises(WrongError, match=f"{name} of .*: (error|2 bytes beside)"):
        check(Device(Library(after=spoil)), name)


def test_an_illegal_address_is_the_drivers_error() -> None:
    """A kernel that reaches memory that is not allocated: the next wait says so by name."""
    device = Device(Library())
    here, nowhere = calls.Tensor(device.allocate(2 * 16), (1, 16), "fp16"), calls.Tensor(1 << 40, (1, 16), "fp16")
    device.launch(calls.softmax("softmax_fp16", nowhere, here))
    with pytest.raises(DriverError, match=rf"cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS \({ILLEGAL_ADDRESS}\)"):
        device.synchronize()


def test_a_function_that_fails_is_named() -> None:
    """The error has the driver's function and its name of the error."""
    device = Device(Library(faults={"cuMemAlloc_v2": NO_MEMORY}))
    with pytest.raises(DriverError, match="cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY"):
        device.allocate(1)


def test_what_an_aligned_binary_cannot_read_is_refused() -> None:
    """A stride or an address that is no multiple of 16 would be an error of the device."""
    x = calls.Tensor(256, (2, 16), "fp16", (24, 1))
    with pytest.raises(ValueError, match="x_stride is 24"):
        calls.softmax("softmax_fp16", x, calls.Tensor(256, (2, 16), "fp16"))
    with pytest.raises(ValueError, match="x is 258"):
        calls.softmax("softmax_fp16", calls.Tensor(258, (2, 16), "fp16"), calls.Tensor(256, (2, 16), "fp16"))


def test_a_number_that_does_not_fit_is_refused() -> None:
    """A stride of 2^31 elements would be packed as a negative one."""
    device = Device(Library())
    x = calls.Tensor(256, (2, 16), "fp16", (2**31, 1))
    with pytest.raises(ValueError, match="x_stride is 2147483648, too large for i32"):
        device.launch(calls.softmax("softmax_fp16", x, calls.Tensor(256, (2, 16), "fp16")))


def test_shared_memory_is_asked_for_before_a_launch_that_needs_it() -> None:
    """More than 48 KiB must be asked for; a launch without would be refused."""
    library = Library()
    check(Device(library), "matmul_fp16_tma_128x256x64")
    called = library.called
    assert called.index("cuModuleLoadData") < called.index("cuFuncSetAttribute") < called.index("cuLaunchKernel")
    assert called.index("cuTensorMapEncodeTiled") < called.index("cuLaunchKernel")


def test_a_graph_gives_what_single_launches_give() -> None:
    """While a graph is captured nothing runs; each launch of it is a pass through all layers."""
    sizes, library = first_run.SMALL, Library()
    device, weights = Device(library), random_weights(first_run.SMALL)
    layers = Layers(device, weights, sizes, batch=2)
    x = np.random.default_rng(1).standard_normal((2, sizes.length, sizes.hidden)).astype(np.float16)
    layers.feed(x)
    layers.run()
    once = layers.fetch()
    layers.feed(x)
    graph = layers.graph()
    assert np.array_equal(layers.fetch(), x)
    graph()
    assert np.array_equal(layers.fetch(), once)
    wanted = reference(x, weights, sizes)
    assert np.abs(once - wanted).max() <= first_run.CLOSE * np.abs(wanted).max()
    assert len(layers.calls) == 7 * sizes.layers


def test_small_products_get_small_tiles() -> None:
    """The largest tile that keeps all processors busy is taken, else the smallest."""
    assert matmul_for(128, 768) == "matmul_fp16_32x64x128"
    assert matmul_for(8192, 4096) == "matmul_fp16_128x256x64"
    assert matmul_for(1024, 3072, "gelu") == "matmul_fp16_128x128x64_gelu"


def test_bfloat16_is_rounded_to_the_nearest_even() -> None:
    """Of two equally near values the one whose last bit is 0, and numbers come back as they were."""
    values = np.array([1.0, 1 + 2**-8, 1 + 3 * 2**-8, -2.5, 3e38])
    assert numbers(stored(values, "bf16"), "bf16").tolist()[:4] == [1.0, 1.0, 1 + 2**-6, -2.5]


def test_bytes_around_an_array_are_looked_at() -> None:
    """Padding behind rows, and a guard before and behind, hold the pattern; each changed byte counts."""
    device = Device(Library())
    with Arrays(device) as arrays:
        tensor = arrays.put(np.ones((2, 3)), "fp16")
        assert arrays.get(tensor)[1] == 0
        device.write(tensor.pointer + 2 * 3, np.zeros(1, np.float16))
        assert arrays.get(tensor)[1] == 2


RECORDS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "yes": lambda: records(error=True, same=True, ours=1.2, rate=0.8),
    "NO": lambda: records(error=False, same=False, ours=1.4, rate=0.6),
    "unknown": list,
}


def records(error: bool, same: bool, ours: float, rate: float) -> list[dict[str, Any]]:
    """Return the records of a run: whether the checks and the bytes were right, and how fast it was beside torch."""
    checks = [
        {"step": f"check {name}", **({"error": 0.0, "extents": {}} if error else {"failed": "x"})} for name in CASES
    ]
    return [
        *checks,
        {"step": "bytes", "same": same, "said": ""},
        {"step": "bert", "way": "one graph", "batch": 1, "seconds": ours},
        {"step": "torch reduce-overhead", "way": "torch reduce-overhead", "batch": 1, "seconds": 1.0},
        {"step": "matmul", "what": "matmul 1024x1x1", "seconds": 1.0, "torch": rate, "work": 1, "name": "x"},
        {"step": "matmul", "what": "matmul 16x1x1", "seconds": 1.0, "torch": 0.1, "work": 1, "name": "x"},
    ]


@pytest.mark.parametrize("word", RECORDS)
def test_the_table_ends_with_whether_to_go_on(word: str) -> None:
    """Each condition is yes, NO, or unknown where it was not measured."""
    lines = list(first_run.conditions(RECORDS[word]()))
    assert len(lines) == 4
    assert [line.rpartition(" ")[2] for line in lines] == (["NO"] if word == "unknown" else [word]) + [word] * 3


@pytest.mark.slow
def test_steps_are_processes_whose_faults_end_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A step that fails is a line of the table and the exit code; those before and after have their results."""
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\nfrom support import fake_cuda\n"
        "def Library():\n    return fake_cuda.Library(faults={'cuStreamBeginCapture_v2': 999})\n"
    )
    steps = ["machine", "check softmax_fp16", "bert", "copy"]
    arguments = ["--small", "--driver", str(driver), "--out", str(tmp_path / "out"), "--steps", *steps]
    assert first_run.main(arguments) == 1
    text = capsys.readouterr().out
    assert "card a stand-in for a GPU" in text
    assert "FAILED: driver.DriverError: cuStreamBeginCapture_v2: CUDA_ERROR_UNKNOWN (999)" in text
    assert "read and written" in text
    found = [json.loads(line) for line in (tmp_path / "out" / "first_run.jsonl").read_text().splitlines()]
    assert [record["step"] for record in found] == steps
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["first_run.jsonl", "first_run.txt"]
