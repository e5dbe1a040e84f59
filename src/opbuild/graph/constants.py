"""The constants of a graph, some of which are worked out only when they are read.

Folding scales the weights of whole networks. Who only needs to know what an operator looks like, to have it compiled,
does not wait for that; and weights that were packed before are known by what they would be made of.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

from opbuild.dtypes import ADDED
from opbuild.graph.types import Array, TensorType
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.held import digest_of
from opbuild.platform.records import dataclass
from opbuild.text.canonical import canonical_json


@dataclass(frozen=True, eq=False)
class Deferred:
    """A constant to be worked out.

    Attributes:
        type: Its type.
        recipe: Says, with ``made_of``, exactly what ``make`` returns.
        made_of: The arrays that it is made of.
        make: Works it out.
        numbers: The type of 16 bits whose numbers it has as float32; empty if it may have others.
        unscaled: The same of the array that it is scaled from, if it is.
    """

    type: TensorType
    recipe: str
    made_of: tuple[Array, ...]
    make: Callable[[], Array]
    numbers: str = ""
    unscaled: str = ""


class ConstantValues(UserDict[str, Array]):
    """Values by name. Reading a deferred one computes it, each time: values that are needed once are not kept."""

    data: dict[str, Any]  # of arrays and deferred ones

    def __init__(self, values: Mapping[str, Array]) -> None:
        super().__init__()
        self.data = dict(values.data) if isinstance(values, ConstantValues) else dict(values)

    def __getitem__(self, name: str) -> Array:
        value: Array | Deferred = self.data[name]
        return value.make() if isinstance(value, Deferred) else value

    def __setitem__(self, name: str, value: Array | Deferred) -> None:
        self.data[name] = value

    def digest(self, name: str) -> str:
        """Return a digest of a constant's shape, type and contents, or of all that it is to be made of."""
        value: Array | Deferred = self.data[name]
        if not isinstance(value, Deferred):
            return array_digest(value)
        parts = "".join(map(array_digest, value.made_of))
        return blake3_of(f"{value.type}{value.recipe}{parts}".encode())

    def keep(self, names: Collection[str]) -> None:
        """Drop all others."""
        self.data = {name: value for name, value in self.data.items() if name in names}


def numbers_of(values: Mapping[str, Array], name: str) -> str:
    """Return the type of 16 bits whose numbers a constant is known to have as float32; empty if it is not."""
    value = values.data.get(name) if isinstance(values, ConstantValues) else None
    return value.numbers if isinstance(value, Deferred) else ""


def unscaled_numbers_of(values: Mapping[str, Array], name: str) -> str:
    """Return the same of the array that ``factors_of`` returns with factors; empty if there are none."""
    value = values.data.get(name) if isinstance(values, ConstantValues) else None
    return value.unscaled if isinstance(value, Deferred) else ""


SCALED = "scaled"
"""The recipe of a deferred constant that is an array multiplied by others' numbers, in float64."""


def scaled(array: Array, factors: Array | None) -> Array:
    """Return an array multiplied by factors that broadcast to it, each product rounded to its own type."""
    if factors is None:
        return array
    out = np.empty(array.shape, array.dtype)
    return np.asarray(np.multiply(array, factors, out=out, casting="same_kind"))


def factors_of(values: Mapping[str, Array], name: str) -> tuple[Array, Array | None]:
    """Return a constant as the one that ``scaled`` makes it of: who moves its elements anyway multiplies on the way."""
    value = values.data.get(name) if isinstance(values, ConstantValues) else None
    if isinstance(value, Deferred) and value.recipe == SCALED:
        array, factors = value.made_of
        return array, factors
    return values[name], None


_remembered: ContextVar[dict[Any, tuple[Array, str]] | None] = ContextVar("opbuild_digests", default=None)


@contextmanager
def remembered_digests() -> Iterator[None]:
    """Take the digest of the same memory once meanwhile, in this thread: two graphs of a model share its weights.

    Nobody may write to it; it is kept until the end.
    """
    token = _remembered.set({})
    try:
        yield
    finally:
        _remembered.reset(token)


def array_digest(array: Array) -> str:
    """Return a digest of shape, type and contents; a broadcast scalar is digested as a scalar."""
    known = _remembered.get()
    if known is None:
        return _array_digest(array)
    place = (array.ctypes.data, array.dtype, array.shape, array.strides)
    if place not in known:
        known[place] = array, _array_digest(array)
    return known[place][1]


def _array_digest(array: Array) -> str:
    if array.dtype == object:  # a tensor of text
        return blake3_of(canonical_json(["text", list(array.shape), array.reshape(-1).tolist()]).encode())
    kind = array.dtype.name if array.dtype.name in ADDED else array.dtype.str  # which is <V1 for all of those
    head = f"{kind}{array.shape}".encode()
    uniform = array.size > 0 and not any(array.strides)
    part = array.reshape(-1)[:1] if uniform else array
    body = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
    return blake3_of(head + digest_of(body).encode())
