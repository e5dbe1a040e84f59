"""Random networks for NVIDIA's GPUs on a driver in memory, against the CPU; ``OPBUILD_FUZZ=500`` tries so many."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from generated.test_devices import try_network
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS, NAME
from opbuild.target.devices import DeviceCost
from support.fake_driver import FakeDriver, problems_of
from support.fuzzing import check_seeds
from support.seeds import Check
from support.tiers import spans

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver whose kernels are those that tests store; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    free = DeviceCost()
    monkeypatch.setattr(CLASS, "copy_cost", lambda: free)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: free)
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([tmp_path]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


@pytest.mark.parametrize("seeds", spans(4, 1))
def test_random_networks_give_on_the_gpu_what_they_give_on_the_cpu(
    seeds: range, tmp_path: Path, driver: FakeDriver
) -> None:
    """Compiled by Triton and interpreted, in whatever order the driver does what it was asked for late.

    All in this process: the interpreter takes minutes for some, which is no hang.
    """
    check: Check = lambda seed: try_network(seed, tmp_path, driver, NAME)  # noqa: E731
    tally = check_seeds("networks on a GPU", check, seeds, processes=0)
    assert tally.outcomes["on the device"] > len(seeds) / 3, tally
    assert driver.is_empty
