"""NVIDIA's GPUs as a class of devices. Nothing of a compiler or a driver is loaded before it is used."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from opbuild.target.devices import ConstantLayout, DeviceClass, DeviceCost
from opbuild.target.level import Target

NAME, ARCHITECTURE = "cuda", "sm_90a"

MEMORY = DeviceCost(call=3000.0, byte=1 / 2400)
"""The cost of a call that moves its operands at four fifths of an H100's rate, and is one of a graph's."""

COPY = DeviceCost(call=10_000.0, byte=1 / 25)
"""The cost of a copy between the host's memory and a card's: PCI Express of the fifth generation, half of its rate."""


class CudaClass(DeviceClass):
    """Serves NVIDIA's GPUs of one architecture; see ``DeviceClass``.

    What a family's kernels are is in ``cuda.py`` of its folder, which is asked for by name.
    """

    def __init__(self) -> None:
        self._families: dict[str, Any] = {}
        self._device: Any = None

    def target(self) -> Target:
        """Return the one architecture that there is code for: code is built without a GPU, too."""
        return Target(NAME, ARCHITECTURE)

    def kinds(self) -> Mapping[str, Any]:
        """Return binaries for GPUs."""
        cubin = import_module("opbuild.backend.triton.cubin")
        return {cubin.KIND: cubin.Cubin()}

    def compiler(self) -> Any:
        """Return Triton."""
        return import_module("opbuild.backend.triton.compiler").TritonCompiler()

    def kernel(self, desc: Any, /) -> Any:
        """Return the descriptor of the family's kernel; None if it has none for this one."""
        family = self._family(desc.family)
        return None if family is None else family.serve(desc)

    def layouts(self, family: str, /) -> Collection[str] | None:
        """Return no layout beside plain ones; None if the family has no kernels."""
        return None if self._family(family) is None else ()

    def constant(self, desc: Any, number: int, /) -> ConstantLayout | None:
        """Return the layout that the family states for an input that is a constant."""
        layout = getattr(self._family(desc.family), "constant", None)
        found: ConstantLayout | None = layout(desc, number) if layout else None
        return found

    def fit(self, desc: Any, places: Any, /) -> Any:
        """Return the variant that the family chooses where it knows how operands lie."""
        choose = getattr(self._family(desc.family), "fit", None)
        return choose(desc, places) if choose else desc

    def divide(self, desc: Any, places: Any, /) -> Any:
        """Return the parts in which the family computes a call, if it says so."""
        parts = getattr(self._family(desc.family), "divide", None)
        return parts(desc, places) if parts else None

    def kernel_cost(self, family: str, /) -> DeviceCost:
        """Return the cost that the family states; else that of moving the operands."""
        cost: DeviceCost = getattr(self._family(family), "COST", MEMORY)
        return cost

    def copy_cost(self) -> DeviceCost:
        """Return the cost of a copy."""
        return COPY

    def describe(self) -> str:
        """Return the GPU of this machine in words.

        Raises:
            TargetError: If it has none.
        """
        described: str = import_module("opbuild.runtime.devices.cuda.driver").describe_card()
        return described

    def require(self) -> None:
        """Refuse to run code where there is no GPU that it is for.

        Raises:
            TargetError: If the machine has none.
        """
        self.open().require()

    def open(self) -> Any:
        """Return the process's GPU; the driver is asked for when something is to be done there."""
        if self._device is None:
            self._device = import_module("opbuild.runtime.devices.cuda.device").CudaDevice()
        return self._device

    def _family(self, name: str) -> Any:
        if name not in self._families:
            module = f"opbuild.families.{name}.cuda"
            known = name.isidentifier() and find_spec(f"opbuild.families.{name}") is not None
            self._families[name] = import_module(module) if known and find_spec(module) is not None else None
        return self._families[name]


CLASS = CudaClass()
