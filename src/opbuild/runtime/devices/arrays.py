"""Arrays of other libraries that lie on a device: how a device shows them, and in which order both sides use them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from opbuild.errors import OpbuildError
from opbuild.platform.records import NamedTuple

if TYPE_CHECKING:
    import numpy as np


class DeviceArray(NamedTuple):
    """A dense array of another library on a device.

    Attributes:
        address: Where it begins.
        shape: Its row-major shape.
        dtype: Its element type.
        owner: The other library's object, which keeps the memory.
        stream: The order in which that library has it read and written, in the device's terms; None: nobody knows.
        is_writeable: Whether it can be written to.
        held: What has to live as long as it is used.
    """

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    owner: Any
    stream: Any = None
    is_writeable: bool = True
    held: Any = None

    @property
    def nbytes(self) -> int:
        """Its size."""
        return prod(self.shape) * self.dtype.itemsize


@runtime_checkable
class SharingDevice(Protocol):
    """A device on which arrays of other libraries lie; see ``Device`` for the rest."""

    def find(self, value: Any, /) -> DeviceArray | None:
        """Return the array that an object has on the device; None if it has none there.

        Raises:
            ValueError: If it has one that the device cannot copy; the text says why.
        """

    def make(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Any:
        """Return an array of its own on the device, with any contents, in which ``find`` finds one.

        Raises:
            RunError: If there is no memory.
        """

    def copy(self, target: int, source: int, nbytes: int, /) -> None:
        """Copy from an address to another one, after all that was asked for before."""

    def follow(self, stream: Any, /) -> None:
        """Have what is asked for from now on done after all that a stream was asked for."""

    def precede(self, stream: Any, /) -> None:
        """Have what a stream is asked for from now on done after all that the device was asked for.

        Where nobody knows the stream, the device is awaited.

        Raises:
            RunError: If a call failed that was awaited.
        """


@contextmanager
def in_order(device: SharingDevice, arrays: Sequence[Any]) -> Iterator[None]:
    """Use arrays after what their owners asked for before, and before what they ask for later; others are left out."""
    streams = [*dict.fromkeys(each.stream for each in arrays if isinstance(each, DeviceArray))]
    for each in streams:
        device.follow(each)
    try:
        yield
    except BaseException:
        with suppress(OpbuildError):  # the first error is the one to tell
            _precede(device, streams)
        raise
    _precede(device, streams)


def _precede(device: SharingDevice, streams: Sequence[Any]) -> None:
    for each in streams:
        device.precede(each)


def overlaps(array: DeviceArray, others: Sequence[Any]) -> bool:
    """Return whether an array shares memory with others on the device."""
    return any(
        isinstance(each, DeviceArray)
        and each is not array
        and each.address < array.address + array.nbytes
        and array.address < each.address + each.nbytes
        for each in others
    )
