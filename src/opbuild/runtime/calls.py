"""Calls: the calls of a network, and their work, for readers; a start never needs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from opbuild.dtypes import numpy_dtype
from opbuild.families.catalogue import find
from opbuild.families.family import Dims
from opbuild.graph.types import Node, TensorType
from opbuild.platform.records import NamedTuple
from opbuild.program import HostCall, View
from opbuild.runtime.record import KernelStep, Record
from opbuild.runtime.symbolic import symbolic_of

HOST = "host"
"""The kernel, as profiles show it, of what the host backend evaluates."""


class NetworkCall(NamedTuple):
    """One call of a network, as far as its operands and its kernel say.

    Attributes:
        symbol: The kernel's symbol; empty for a call of the host backend.
        nodes: Names of the model's nodes that it computes.
        family: The kernel's family, or the node's operator type on the host; empty if a network was stored without it.
        variant: How the kernel computes.
        shape: Extents of what it writes first, outermost first, as the kernel sees them.
        operations: Multiplications and additions; 0 where they are not counted.
        nbytes: Bytes of its operands.
        buffers: The buffers that it touches.
        writes: How many of its operands it writes: none if it only refuses indices.
        symbolic_shape: The same extents as they follow from open ones; none if the network is for one size.
    """

    symbol: str
    nodes: tuple[str, ...]
    family: str
    variant: Mapping[str, Any]
    shape: tuple[int, ...]
    operations: int
    nbytes: int
    buffers: tuple[int, ...] = ()
    writes: int = 1
    symbolic_shape: tuple[str, ...] = ()

    @property
    def kernel(self) -> str:
        """The kernel's name as the store has it but for the device, or the node's type on the host."""
        return self.symbol.removesuffix("__kernel0") if self.symbol else f"{HOST} {self.family}"

    @property
    def is_host(self) -> bool:
        """Whether the host backend evaluates it."""
        return not self.symbol


def kernel_call(
    symbol: str,
    nodes: tuple[str, ...],
    made_as: tuple[str, Mapping[str, Any]],
    views: Sequence[View],
    itemsizes: Sequence[int],
    writes: int,
) -> NetworkCall:
    """Describe a call of a kernel; ``made_as`` is its family and its variant."""
    family, variant = made_as
    dims = [view.dims for view in views]
    shape = tuple(extent for extent, _ in reversed(dims[-writes]))  # of what it reads first if it writes nothing
    counted, touched = operations(family, dims, writes), touched_bytes(dims, itemsizes)
    return NetworkCall(
        symbol, nodes, family, variant, shape, counted, touched, tuple(view.buffer for view in views), writes
    )


def host_call(call: HostCall) -> NetworkCall:
    """Describe a call of the host backend."""
    types = [each for each in (*call.input_types, *call.output_types) if each is not None]
    shape = next((each.shape for each in call.output_types if each is not None), ())
    buffers = tuple(view.buffer for view in (*call.inputs, *call.outputs) if view is not None)
    return NetworkCall("", call.nodes, call.node.op_type, {}, shape, 0, sum(map(_nbytes, types)), buffers)


def _nbytes(type_: TensorType) -> int:
    return type_.size * numpy_dtype(type_.dtype).itemsize


def symbolic_shape(record: Record, step: int, rank: int) -> tuple[str, ...]:
    """Return the extents of what a call writes first, as text, in so many dimensions, of a record for many sizes."""
    symbolic, found = symbolic_of(record), record.steps[step]
    if isinstance(found, KernelStep):
        places = [extent for extent, _ in reversed(found.views[-found.writes].dims)]
    else:
        places = [*next((each.shape for each in found.output_types if each is not None), ())]
    names = [*record.inputs.names, *["values"] * len(symbolic.values)]
    variables = [f"{names[index]}[{axis}]" for index, axis in symbolic.variables]
    shape = [symbolic.formulas.text(place, variables) for place in places]
    return ("1",) * (rank - len(shape)) + tuple(shape)


def node_call(node: Node) -> NetworkCall:
    """Describe the nodes that are evaluated between the segments of a network."""
    return NetworkCall("", (node.name,), node.op_type, {}, (), 0, 0)


def operations(family: str, dims: Sequence[Dims], writes: int) -> int:
    """Return the multiplications and additions of a call, two a pair; 0 for families that are not counted.

    A convolution is counted as the direct algorithm computes it, channels rounded up to whole blocks, whatever the
    kernel does instead: Winograd's may seem faster than the machine.

    Args:
        family: The kernel's family.
        dims: Extents and strides of its operands, innermost first.
        writes: How many of them, the last ones, it writes.
    """
    count = find(family).products
    return 2 * count(dims, dims[-writes]) if count is not None else 0


def touched_bytes(dims: Sequence[Dims], itemsizes: Sequence[int]) -> int:
    """Return the bytes of all operands, each element once."""
    # one that is read again by a stride of 0 is not counted again
    return sum(
        prod(extent for extent, stride in each if stride) * size for each, size in zip(dims, itemsizes, strict=True)
    )
