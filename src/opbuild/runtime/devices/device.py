"""Devices: where kernels run and buffers lie. The executor runs lists of calls and knows no more of devices than this.

A device loads code, which is then a module, and makes the calls of its kernels ready: all calls of a network at once,
as columns, so that whoever has thousands of arguments writes them with a few array operations. The CPU's memory is the
host's; what another device is to read is copied there, by calls of the program (``HostCall.is_copy``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from opbuild.errors import LinkError
from opbuild.platform.locks import local
from opbuild.platform.records import NamedTuple
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.graph.types import Array
    from opbuild.kernel.artifact import Artifact
    from opbuild.runtime.record import DimsTable

Step = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments; it returns 0 (or None) unless it failed."""


_last_error = local()
_latest_error = [""]
"""What was said last in any thread: tasks of a kernel run in threads of their own."""


def last_error() -> str:
    """Return the last message of a kernel's runtime, in this thread or else in a thread of a kernel, and forget it."""
    message = getattr(_last_error, "text", "") or _latest_error[0]
    _last_error.text = _latest_error[0] = ""
    return str(message)


def remember_error(message: str) -> None:
    """Keep a message for ``last_error``."""
    _last_error.text = _latest_error[0] = message


class Callee(NamedTuple):
    """A kernel, the module that it is in, and into how many tasks it is divided when it is called."""

    function: Any
    module: Any
    tasks: int


class KernelCalls(NamedTuple):
    """Calls of kernels on one device, one after the other.

    Attributes:
        callees: The kernels.
        called: For each call the index of its kernel.
        ends: For each where its arguments end among all; those of the next begin there.
        dims: The extents and strides that there are; all but their ranks is told with the addresses.
        shape: For each argument the index of its own.
        dtypes: The element types that there are.
        dtype: For each argument the index of its own.
    """

    callees: Sequence[Callee]
    called: Array
    ends: Array
    dims: DimsTable
    shape: Array
    dtypes: Sequence[str]
    dtype: Array


class DevicePart(NamedTuple):
    """The kernels that are called on one class of devices.

    Attributes:
        device: The class.
        calls: The calls.
        arguments: Which of all arguments are theirs.
        kernels: Which of all calls of kernels they are.
    """

    device: str
    calls: KernelCalls
    arguments: Any
    kernels: Sequence[int]


class Prepared(Protocol):
    """Calls that are ready but for numbers; one run at a time may use them.

    Attributes:
        steps: One for each call. A device may return from one before it is done; those behind it wait for it.
    """

    steps: list[Step]

    def fill(self, addresses: Array, pairs: Array, /) -> None:
        """Write the numbers of a size.

        Args:
            addresses: Where each argument's element with all indices 0 lies.
            pairs: The extents and strides of all dimensions, as ``DimsTable.pairs``.
        """


@runtime_checkable
class JoinableCalls(Prepared, Protocol):
    """Calls of which some can be made at once, one after the other."""

    def join(self, numbers: Sequence[int], /) -> Step:
        """Return the step that makes some calls in their order, the same one each time."""


class Module(Protocol):
    """Code that a device has loaded.

    Attributes:
        num_threads: How many tasks of a kernel it runs at once.
    """

    num_threads: int

    def kernel(self, symbol: str, /) -> Any:
        """Return a kernel, for a ``Callee``.

        Raises:
            LinkError: If there is none of this name.
        """


class DeviceMemory(Protocol):
    """Memory of a device. It goes back with this object; calls under way that use it are waited for.

    Attributes:
        address: Where it begins, in whatever numbers the device counts.
        nbytes: Its size.
    """

    @property
    def address(self) -> int: ...  # noqa: D102  above
    @property
    def nbytes(self) -> int: ...  # noqa: D102  above


class Device(Protocol):
    """A device other than the host's CPU. Any thread may use it; requests of one run are served in their order."""

    def link(self, artifacts: Sequence[Artifact], /) -> bytes:
        """Return the code of a network, to be stored and loaded; equal artifacts in equal order give equal bytes.

        Raises:
            LinkError: If they do not fit together.
        """

    def load(self, code: bytes, /) -> Module:
        """Return code, loaded.

        Raises:
            LinkError: If it cannot be loaded.
        """

    def prepare(self, calls: KernelCalls, /) -> Prepared:
        """Return calls, made ready."""

    def allocate(self, nbytes: int, /) -> DeviceMemory:
        """Return memory that holds zeros.

        Raises:
            RunError: If there is none.
        """

    def clear(self, address: int, nbytes: int, /) -> None:
        """Write zeros, after all that was asked for before."""

    def write(self, address: int, source: Array, /) -> None:
        """Copy from the host, after all that was asked for before; ``source`` may be changed when it returns."""

    def read(self, address: int, target: Array, /) -> None:
        """Copy to the host, after all that was asked for before; it is there when it returns.

        Raises:
            RunError: If a call failed that was asked for before.
        """

    def synchronize(self) -> None:
        """Wait until all is done that was asked for.

        Raises:
            RunError: If a call failed.
        """


Memories = Mapping[str, DeviceMemory]
"""Memory of devices other than the CPU, by their class."""

NO_MEMORIES: Memories = MappingProxyType({})

Modules = Mapping[str, Module]
"""The code of a network on each class of devices that runs some of it."""

_SEVERAL = b"opbuild code of several devices\n"
"""What the code of a network begins with that runs not only on the CPU: then sizes as JSON in a line, and the code."""


def joined(code: Mapping[str, bytes]) -> bytes:
    """Return the code of several devices as a network's; of the CPU alone that is its shared library."""
    if not code.keys() - {CPU}:
        return code.get(CPU, b"")
    sizes = json.dumps([[name, len(each)] for name, each in code.items()]).encode()
    return b"".join((_SEVERAL, sizes, b"\n", *code.values()))


def parted(code: bytes) -> dict[str, bytes]:
    """Return the code of each device that ``joined`` put together; an empty one is none's.

    Raises:
        LinkError: If it is something else.
    """
    if bytes(code[: len(_SEVERAL)]) != _SEVERAL:
        return {CPU: code} if len(code) else {}
    line, _, rest = bytes(code[len(_SEVERAL) :]).partition(b"\n")
    try:
        sizes = [(str(name), int(size)) for name, size in json.loads(line)]
    except (ValueError, TypeError) as error:
        raise LinkError(f"the network's code cannot be read: {error}", "build the network again") from error
    found = {}
    for name, size in sizes:
        found[name], rest = rest[:size], rest[size:]
    return found


def open_device(name: str) -> Device:
    """Return the device of a class other than the CPU.

    Raises:
        LinkError: If there is no such class.
    """
    from opbuild.target.devices import device_class

    try:
        device: Device = device_class(name).open()
    except LookupError as error:
        raise LinkError(f"there is no device {name!r:.80} here", "build the network again") from error
    return device


def kernels_of(symbols: Iterable[str], module: Module | None) -> dict[str, Any]:
    """Return kernels of a module by their symbols.

    Raises:
        LinkError: If it lacks one.
    """
    names = [*dict.fromkeys(symbols)]
    if names and module is None:
        raise LinkError("the network calls kernels and has no code for them", "build it again")
    return {symbol: module.kernel(symbol) for symbol in names} if module is not None else {}
