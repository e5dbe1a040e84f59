"""Classes of devices beside the CPU, by name: nothing of one is loaded before it is asked for.

What serves a class stands behind a path ``module:NAME``. It says which kernels the class has, what compiles them and
what runs them; see ``DeviceClass``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, Protocol

from opbuild.errors import TargetError
from opbuild.platform.records import NamedTuple
from opbuild.target.level import CPU, Target

PACKED = "packed"
"""The layout of constants as the CPU's kernels of a family take them."""


class DeviceCost(NamedTuple):
    """The nanoseconds of a copy, or of a call of a kernel: the sum of these.

    Attributes:
        call: However little there is to do.
        byte: For each byte that is copied, or read or written.
        product: For each multiplication with addition that the family counts (``Family.products``).
    """

    call: float = 0.0
    byte: float = 0.0
    product: float = 0.0


class ConstantLayout(NamedTuple):
    """A layout of constants that kernels of a device take.

    Attributes:
        name: Says, with the contents, exactly what ``pack`` returns; equal ones are stored once.
        shape: Returns the row-major shape of a constant in this layout, from its own.
        pack: Returns a constant in this layout; the kernel's operand has its element type.
    """

    name: str
    shape: Callable[[tuple[int, ...]], tuple[int, ...]]
    pack: Callable[[Any], Any]


class DeviceClass(Protocol):
    """The services of a class of devices; this package knows few of the types that it returns.

    What it says of kernels follows from the files of its compiler, whose digest is in keys of networks.
    """

    def target(self) -> Target:
        """Return the target of code on this machine.

        Raises:
            TargetError: If the machine has no such device.
        """

    def kinds(self) -> Mapping[str, Any]:
        """Return the kinds of artifacts that its devices run (``kernel.artifact.ArtifactKind``), by name."""

    def compiler(self) -> Any:
        """Return the compiler of its artifacts (``kernel.interfaces.Compiler``)."""

    def kernel(self, desc: Any, /) -> Any:
        """Return the descriptor with which a device computes a CPU's kernel, on the same operands.

        None if it has none: then the CPU computes it. The kernel is for any extents and strides that the CPU's is for.
        An operand that is a constant lies as the model has it, and its format is ``ND``, unless the kernels of its
        family take it packed (``layouts``), or in a layout that ``constant`` named: that is its format.
        """

    def layouts(self, family: str, /) -> Collection[str] | None:
        """Return the layouts beside plain ones that its kernels of a family take: ``blocked``, ``packed``.

        None if it has no kernels of the family: its operands lie as the CPU takes them.
        """

    def constant(self, desc: Any, number: int, /) -> ConstantLayout | None:
        """Return the layout in which its kernel takes an input that is a constant; None: as it is given."""
        return None

    def fit(self, desc: Any, places: Any, /) -> Any:
        """Return the descriptor with which a call on its devices is best computed, given where the operands lie.

        It is for the same operands (``families.fitting.Place``), at every size that the call may have; by default the
        very one that ``kernel`` returned.
        """
        return desc

    def divide(self, desc: Any, places: Any, /) -> Any:
        """Return the parts of which a call is made up in two (``families.fitting.Divided``), if that is faster."""
        return None

    def kernel_cost(self, family: str, /) -> DeviceCost:
        """Return the cost of its kernels of a family; 0: all calls that it has kernels for are run there."""
        return DeviceCost()

    def copy_cost(self) -> DeviceCost:
        """Return the cost of a copy from the CPU or to it."""
        return DeviceCost()

    def describe(self) -> str:
        """Return the device of this machine in words.

        Raises:
            TargetError: If it has none.
        """
        self.require()
        return str(self.target())

    def require(self) -> None:
        """Refuse to run code on a machine where it can be built and not run.

        Raises:
            TargetError: If the machine has no such device.
        """

    def open(self) -> Any:
        """Return the device of this process (``runtime.devices.Device``); the same one each time."""


_PATHS: dict[str, str] = {"cuda": "opbuild.target.cuda:CLASS"}
"""Those that come with opbuild, and what was registered."""
_LOADED: dict[str, Any] = {}


def register(name: str, path: str) -> None:
    """Make a class of devices known.

    Args:
        name: Its name, as users write it.
        path: ``module:NAME`` of its ``DeviceClass``.

    Raises:
        ValueError: If it is the CPU's name.
    """
    if name == CPU:
        raise ValueError(f"{CPU!r} is the host's own")
    _PATHS[name] = path
    _LOADED.pop(name, None)


def is_known(name: str) -> bool:
    """Return whether there is a class of this name."""
    return name in _PATHS


def known_classes() -> tuple[str, ...]:
    """Return the names of the classes that are known."""
    return tuple(_PATHS)


def device_problem(name: str) -> str | None:
    """Return the reason that networks cannot run on a class of devices here, or None if they can."""
    if not is_known(name):
        return f"no class of devices {name!r} is registered"
    try:
        device_class(name).require()
    except TargetError as error:
        return error.message
    return None


def device_class(name: str) -> DeviceClass:
    """Return the record of a class of devices.

    Raises:
        LookupError: If there is none of this name.
    """
    if name not in _LOADED:
        module, _, attribute = _PATHS[name].partition(":")
        _LOADED[name] = getattr(import_module(module), attribute)
    found: DeviceClass = _LOADED[name]
    return found


def load_kind(name: str) -> Any:
    """Return a kind of artifacts that some class of devices runs; None if none does."""
    for each in _PATHS:
        kind = device_class(each).kinds().get(name)
        if kind is not None:
            return kind
    return None
