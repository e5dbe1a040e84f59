"""Program: a network after lowering, ready to be built, planned, linked and run.

A program is a list of calls. A kernel call names a descriptor and one view for each operand; a host call names a node
for the host backend. Views point into buffers, and buffers have no addresses yet: ``runtime`` plans memory for them.
A buffer lies on a device, a kernel runs where its operands lie, and copies between devices are calls, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from opbuild.graph.types import IN_RANGE, Array, Node, TensorType
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.graph.extents import Extents
    from opbuild.graph.tables import Table
    from opbuild.kernel.networks import Answers
    from opbuild.kernel.opdesc import OpDesc

DEVICE_COPY = "DeviceCopy"
"""The operator type of copies between devices."""

BufferKind = Literal["input", "output", "constant", "temporary"]


class View(NamedTuple):
    """A window into a buffer.

    Attributes:
        buffer: Index of the buffer in ``Program.buffers``.
        offset: First element of the window, in elements from the buffer's start.
        dims: ``(extent, stride)`` pairs in elements, innermost first; a stride may be 0 (broadcast) or negative.
    """

    buffer: int
    offset: int
    dims: tuple[tuple[int, int], ...]


class Unpacked(NamedTuple):
    """A constant as the model has it, for kernels that do not take it packed.

    Attributes:
        buffer: Its storage; no program has it yet.
        view: The window of it that such a kernel reads.
        attrs: The attributes of such a kernel that differ.
    """

    buffer: Buffer
    view: View
    attrs: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Buffer:
    """Storage of one tensor, or of several that share it.

    Attributes:
        kind: ``input`` and ``output`` are the caller's arrays, ``constant`` is mapped from the network image,
            ``temporary`` lives in the arena.
        dtype: Element type, a numpy name.
        size: Number of elements, padding included.
        zeroed: For a temporary whose padding must read as zero: equal values name buffers of one geometry. The arena
            starts zeroed, kernels never write anything but zero into padding, so such a buffer may share memory only
            with buffers whose ``zeroed`` is equal. None: contents are dead outside the buffer's life and any memory
            serves.
        pack: For a constant: returns its contents, ``size`` elements of ``dtype``, dense. Called once, late, so that
            packing overlaps with compiling.
        source: For a constant: returns the hashable identity of (values, packing), so that equal constants are stored
            once and none is packed twice; called late too. None if it is unknown.
        table: For a constant: what it is in another size, if that differs.
        device: The class of devices that it lies on. The host backend reads and writes the CPU's, and the caller's
            arrays are there.
        layout: Other than plain: ``blocked`` where channels lie in blocks.
        unpacked: For a constant in a layout that the device does not take: what it takes instead.
    """

    kind: BufferKind
    dtype: str
    size: int
    zeroed: Hashable | None = None
    pack: Callable[[], Array] | None = None
    source: Callable[[], Hashable] | None = None
    table: Table | None = None
    device: str = CPU
    layout: str = ""
    unpacked: Unpacked | None = None


@dataclass(frozen=True, eq=False)
class Repeated:
    """Calls next to each other that are run in turn ``count`` times, one image of a batch after the other.

    Only where ``count`` is open: what an image is read from and written to then grows by the same from one to the next.
    """

    count: int


@dataclass(frozen=True, eq=False)
class KernelCall:
    """One call of a compiled kernel.

    Attributes:
        desc: What to run.
        views: One view for each operand of ``desc``, in argument order.
        nodes: Names of the model's nodes that it computes, for reports and messages.
        work: Nanoseconds that it takes on one core, roughly; whether threads share it depends on that.
        repeated: What it is a part of, if it is repeated.
    """

    desc: OpDesc
    views: tuple[View, ...]
    nodes: tuple[str, ...]
    work: int = 0
    repeated: Repeated | None = None

    @property
    def inputs(self) -> tuple[View, ...]:
        """The views that it reads."""
        return self.views[: len(self.desc.inputs)]

    @property
    def outputs(self) -> tuple[View, ...]:
        """The views that it writes."""
        return self.views[len(self.desc.inputs) :]


@dataclass(frozen=True, eq=False)
class HostCall:
    """One call of the host backend, on dense row-major views.

    Attributes:
        node: The operator to evaluate.
        inputs: One view for each input, None for an absent one; constants too are passed as views.
        outputs: One view for each output, None for one that nobody asked for.
        input_types: The types of the inputs, row-major shapes; None for an absent one.
        output_types: The types of the outputs.
    """

    node: Node
    inputs: tuple[View | None, ...]
    outputs: tuple[View | None, ...]
    input_types: tuple[TensorType | None, ...]
    output_types: tuple[TensorType | None, ...]
    opset: int

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the model's nodes that it computes."""
        return (self.node.name,)

    @property
    def is_check(self) -> bool:
        """Whether it only refuses indices: code linked into networks does that, as a kernel would."""
        return self.node.op_type == IN_RANGE and self.node.domain == "opbuild"

    @property
    def is_copy(self) -> bool:
        """Whether it copies a view to another device, or from one."""
        return self.node.op_type == DEVICE_COPY and self.node.domain == "opbuild"

    @property
    def computes(self) -> bool:
        """Whether it is a node of the model, and neither of the others."""
        return not (self.is_check or self.is_copy)


Call = KernelCall | HostCall


class Port(NamedTuple):
    """An input or output of the network: its name, its type (row-major shape) and its buffer, which is dense."""

    name: str
    type: TensorType
    buffer: int


class VariantChoice(NamedTuple):
    """A query of a family while a network was lowered, and its answer for the example size.

    Attributes:
        family: The family's name.
        arguments: What it was called with, symbolic extents among it, but for the machine.
        answer: The variant; None: another family serves.
    """

    family: str
    arguments: tuple[Any, ...]
    answer: Any


class ProgramSymbols(NamedTuple):
    """The symbolic extents of a program for several input signatures.

    Attributes:
        extents: Its symbolic extents, and the conditions under which it is right.
        variables: For each of those of inputs, where it stands in their shapes: input and dimension.
        values: Numbers that decide besides the shapes of the inputs, as further shapes.
        choices: What families were asked.
    """

    extents: Extents
    variables: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, ...], ...]
    choices: Sequence[VariantChoice]


@dataclass(frozen=True, eq=False)
class Program:
    """A lowered network for one input signature, or for several: then its integers may be symbolic extents.

    Attributes:
        name: The network's name.
        buffers: All buffers; views refer to them by index.
        calls: Kernel and host calls in execution order.
        inputs: The network's inputs in order.
        outputs: The network's outputs in order; two outputs never share a buffer, and one is an input's buffer only
            where it replaces the input (``Graph.updates``): then the last calls write there, and nothing is read that
            was there before.
        notes: Free remarks for the report, e.g. why no kernel serves it, by node name.
        tuned: Where variants are from that are not their family's own choice, by node name.
        answers: What families were asked for it, and the variants that were taken.
        symbols: What it is over, if it is for several input signatures.
        stayed: Of a network for a device the kernels that the CPU runs, each family with why, and how many calls.
        for_device: Names of nodes that were lowered for the device's kernels: none of their calls may stay on the CPU.
    """

    name: str
    buffers: tuple[Buffer, ...]
    calls: tuple[Call, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    notes: Mapping[str, Any] = field(default_factory=dict)
    tuned: Mapping[str, str] = field(default_factory=dict)
    answers: Answers = ()
    symbols: ProgramSymbols | None = None
    stayed: Mapping[str, int] = field(default_factory=dict)
    for_device: frozenset[str] = frozenset()

    def descriptors(self) -> dict[OpDesc, tuple[str, ...]]:
        """Return each distinct descriptor with the nodes that need it, in order of first use."""
        needed: dict[OpDesc, dict[str, None]] = {}
        for call in self.calls:
            if isinstance(call, KernelCall):
                needed.setdefault(call.desc, {}).update(dict.fromkeys(call.nodes))
        return {desc: tuple(nodes) for desc, nodes in needed.items()}
