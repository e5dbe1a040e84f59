"""Calls of tiny kernels on a GPU that is not there: ``out = 2 * x + 1`` on strided vectors of int32, by numpy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opbuild.kernel.artifact import Artifact
from opbuild.runtime.devices.cuda.calls import CudaCalls
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.runtime.devices.device import Callee, KernelCalls
from opbuild.runtime.record import DimsTable
from support.fake_driver import FakeDriver, Grid, Kernel, Parameters, tiny_cubin

Array = Any
TILE = 32
PARAMETERS = [[0, 8], [8, 4], [16, 8], [24, 8], [32, 8], [40, 8], [48, 8]]
ARGUMENTS = [["address", 0, 0], ["extent", 1, 0], ["address", 1, 0], ["stride", 0, 0], ["stride", 1, 0]]
LAUNCH: dict[str, Any] = {
    "warps": 4, "shared": 65536, "arguments": ARGUMENTS, "parameters": PARAMETERS, "grid": [[[1, 0, TILE]]]
}  # fmt: skip


def artifact(symbol: str, **launch: Any) -> Artifact:
    """Return a binary, and how it is launched, with some of that otherwise."""
    stated = {**LAUNCH, **launch}
    return Artifact(tiny_cubin(symbol, stated["parameters"], 32 * stated["warps"]), symbol, "cubin", stated)


def kernels(symbol: str, _: bytes) -> Kernel:
    """Return the numpy of such a kernel."""

    def run(driver: FakeDriver, parameters: Parameters, grid: Grid) -> None:
        x, (n,), out, *rest = (struct.unpack("<q" if len(each) == 8 else "<i", each) for each in parameters)
        (x_stride,), (out_stride,), *hidden = rest
        assert grid == (-(-n // TILE), 1, 1)
        assert hidden == [(0,), (0,)]
        views = [vector(driver, at, n, stride) for (at,), stride in ((x, x_stride), (out, out_stride))]
        views[1][...] = 2 * views[0] + 1

    return run


def vector(driver: FakeDriver, address: int, extent: int, stride: int) -> Array:
    """Return memory as a strided vector."""
    memory = driver.bytes_at(address, 4 * ((extent - 1) * stride + 1)).view(np.int32)
    return as_strided(memory, (extent,), (4 * stride,))


class Chain:
    """A chain of calls: each reads what the one before wrote.

    Args:
        device: Where.
        length: How many calls.
        capacity: Elements of each vector.
    """

    def __init__(self, device: CudaDevice, length: int, capacity: int = 256) -> None:
        self.device, self.length = device, length
        module = device.load(device.link([artifact("twice"), artifact("again")]))
        callees = [Callee(module.kernel(name), module, 1) for name in ("twice", "again")]
        self.memories = [device.allocate(4 * capacity) for _ in range(length + 1)]
        self.dims = DimsTable.of([((1, 1),), ((1, 1),)])
        called = np.arange(length) % 2
        shape = np.tile([0, 1], length)
        ends = 2 * np.arange(1, length + 1)
        self.calls = KernelCalls(callees, called, ends, self.dims, shape, ["int32"], np.zeros(2 * length, np.int64))
        self.prepared: CudaCalls = device.prepare(self.calls)

    def fill(self, extent: int, strides: tuple[int, int] = (1, 1)) -> None:
        """Write the numbers of a size."""
        begins = [each.address for each in self.memories]
        addresses = np.array([each for pair in pairwise(begins) for each in pair], np.int64)
        self.prepared.fill(addresses, np.array([[extent, strides[0]], [extent, strides[1]]], np.int64))

    def run(self, x: Array, joined: bool = True) -> Array:
        """Return the last vector, where ``x`` is the first."""
        self.device.write(self.memories[0].address, x)
        steps = [self.prepared.join(range(self.length))] if joined else self.prepared.steps
        for function, arguments in steps:
            assert not function(*arguments)
        result = np.empty_like(x)
        self.device.read(self.memories[-1].address, result)
        return result

    def wanted(self, x: Array) -> Array:
        """Return the last vector as it should be."""
        return (x + 1) * 2**self.length - 1


def numbers(extent: int, seed: int = 0) -> Array:
    """Return a vector."""
    return np.random.default_rng(seed).integers(-99, 99, extent).astype(np.int32)


def made(driver: FakeDriver, names: Sequence[str]) -> list[int]:
    """Return the numbers of calls of some functions."""
    return [driver.called.count(name) for name in names]
