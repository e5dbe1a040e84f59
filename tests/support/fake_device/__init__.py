"""A class of devices that is not there: memory of its own, kernels of Python source, calls that are done later.

It is registered from outside, as any class may be; opbuild knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from opbuild.kernel.artifact import ArtifactKind
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.devices import DeviceClass, register
from opbuild.target.level import Target
from support.fake_device import kernels
from support.fake_device.compiler import HOLD, KIND, PythonCompiler, PythonSource
from support.fake_device.device import FakeDevice, SharedArray

NAME = "fake"
__all__ = ["CLASS", "HOLD", "NAME", "shared"]


class FakeClass(DeviceClass):
    """Serves the class; see ``DeviceClass``."""

    def __init__(self) -> None:
        self._device = FakeDevice()

    def target(self) -> Target:
        """Return the one architecture that there is."""
        return Target(NAME, "v1")

    def kinds(self) -> Mapping[str, ArtifactKind]:
        """Return Python source."""
        return {KIND: PythonSource()}

    def compiler(self) -> PythonCompiler:
        """Return its compiler."""
        return PythonCompiler()

    def kernel(self, desc: OpDesc, /) -> OpDesc | None:
        """Return a kernel of the families that there are, without limits: numpy has none."""
        return kernels.for_target(desc, self.target().name)

    def layouts(self, family: str, /) -> Collection[str] | None:
        """Return none beside plain ones for the families that there are."""
        return kernels.layouts_of(family)

    def open(self) -> FakeDevice:
        """Return the process's device."""
        return self._device


CLASS = FakeClass()
register(NAME, f"{__name__}:CLASS")


def shared(contents: Any) -> SharedArray:
    """Return an array of another library's on the device."""
    device = CLASS.open()
    memory = device.allocate(contents.nbytes)
    device.write(memory.address, contents)
    return SharedArray(memory, contents.shape, contents.dtype.name)
