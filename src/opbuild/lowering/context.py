"""Lowering: the state that rules work on while a graph becomes a program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import prod
from typing import Any, Protocol

import numpy as np

from opbuild.errors import ShapeError
from opbuild.families.blocked import BLOCK, BLOCKED, blocks
from opbuild.families.catalogue import find
from opbuild.families.family import Dims, Family
from opbuild.graph.constants import ConstantValues
from opbuild.graph.extents import (
    ClosedError,
    SymbolicExtent,
    always_equal,
    example_dims,
    example_value,
    is_at_least,
    is_one,
    is_open,
    same_shape,
)
from opbuild.graph.tables import Table, numbers_of
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, OpDesc
from opbuild.lowering.implementations import call_of
from opbuild.lowering.operands import (
    Blocked,
    Gate,
    Made,
    MakeCall,
    OperandRef,
    OperandStorage,
    Pending,
    PendingHost,
    Plain,
    channels_last_strides,
    dense_strides,
    new_dense,
)
from opbuild.lowering.strided import dense_as, transposed
from opbuild.lowering.updates import update_in_place
from opbuild.platform.digest import blake3_of
from opbuild.platform.records import dataclass, replace
from opbuild.program import Buffer, BufferKind, Call, HostCall, KernelCall, Port, Program, Repeated, Unpacked, View
from opbuild.target.devices import device_class
from opbuild.target.level import CPU, Level
from opbuild.target.machine import Machine

LARGE = 512
"""Positions of a block's plane that fill the first-level cache, roughly."""


def channel_table(order: Array) -> Array:
    """Return the place of each channel, and of each lane beyond them, which stay where they are."""
    table = np.arange(blocks(len(order)) * BLOCK, dtype=np.int32)
    table[: len(order)] = order
    return table


class Chooser(Protocol):
    """Chooses the variants of kernels.

    Attributes:
        is_elsewhere: Whether what is asked for is run at other sizes than that at hand.
    """

    is_elsewhere: bool = False

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Any:
        """Return the variant that lowering is to ask for: the one that a family chooses, or another of its own.

        Args:
            site: The nodes that are lowered.
            family: The family.
            arguments: What its ``choose`` is called with.
        """
        return family.choose(*arguments)

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Made:
        """Return a call that computes ``desc`` on ``views``; by default that very one."""
        return desc, views


@dataclass(frozen=True)
class Options:
    """A user's decisions about lowering; all of them reach the keys through descriptors.

    Attributes:
        impl_mode: ``high_performance`` or ``high_precision``; see ``Lowering.impl_mode``.
        impl_types: Operator types for which ``impl_mode`` counts; empty for all.
        chooser: Chooses variants; None lets each family choose its own.
        device: The class of devices that runs what it has kernels for.
        on_host: Values that numpy computes, whatever kernels there are.
        on_cpu: Nodes that are lowered for the CPU, whatever kernels the device has.
    """

    impl_mode: str = HIGH_PERFORMANCE
    impl_types: tuple[str, ...] = ()
    chooser: Chooser | None = None
    device: str = CPU
    on_host: frozenset[str] = frozenset()
    on_cpu: frozenset[str] = frozenset()


@dataclass(eq=False)
class Lowering:
    """The state of one lowering: where values lie, and the calls emitted so far.

    Attributes:
        graph: The graph that is lowered.
        level: The level that it is for.
        options: The user's decisions.
        machine: What all machines of the level have.
        target: The class of devices that runs what it has kernels for.
    """

    graph: Graph
    level: Level
    options: Options

    def __post_init__(self) -> None:
        self.machine = Machine.of(self.level)
        self.target = self.options.device
        self._plain: dict[str, Plain] = {}
        self._placed: dict[str, Plain] = {}
        self._channels_last: dict[str, Plain] = {}  # copies of images that lie otherwise
        self._blocked: dict[str, Blocked] = {}
        self._ordered: dict[str, tuple[Blocked, Array]] = {}
        self._layouts: tuple[dict[str, Any], ...] = (self._plain, self._channels_last, self._blocked, self._ordered)
        self.weight_blocks: dict[str, Plain] = {}  # weights that lie as ``conv`` reads them, until they are read plain
        self.gates: dict[str, Gate] = {}  # products that nothing computes: weights are multiplied instead
        self._calls: list[Pending | PendingHost] = []
        self._repetitions = Repetitions(self._calls)
        self.images = self._repetitions.images
        self._works: dict[tuple[OpDesc, tuple[Dims, ...]], int] = {}  # of calls, most of which are one for each image
        self._digests: dict[str, str] = {}
        self._known = ConstantValues(self.graph.constants)
        self._constants: dict[Any, Plain] = {}
        self.turned: dict[Any, list[tuple[Plain, Plain]]] = {}  # what lies transposed, and its copies, by storage
        self._outputs = set(self.graph.outputs)
        self.consumers = self.graph.consumers()
        self.notes: dict[str, Any] = {}
        self.site: tuple[str, ...] = ()  # the nodes that are lowered now
        self._for_device: set[str] = set()
        self._merged = {node.name: node.merged for node in self.graph.nodes if node.merged}
        for name in self.graph.inputs:
            self._plain[name] = new_dense("input", self.type(name))

    # -- what is known of a value -------------------------------------------------------------------------------------

    def type(self, name: str) -> TensorType:
        """Return a value's type."""
        return self.graph.types[name]

    def constant(self, name: str) -> Array | None:
        """Return a value's contents if they are known at build time."""
        return self.graph.constants.get(name) if name else None

    def is_constant(self, name: str) -> bool:
        """Return whether a value's contents are known at build time."""
        return bool(name) and name in self.graph.constants

    def constant_digest(self, name: str) -> str:
        """Return a digest of a constant's shape, type and contents, or of all that it is to be made of."""
        if name not in self._digests:
            self._digests[name] = self._known.digest(name)
        return self._digests[name]

    def impl_mode(self, node: Node, differs: bool = True) -> str:
        """Return the implementation mode that a node's descriptor states.

        Args:
            node: The node; a fused one is computed precisely if any operator that it was made of is to be.
            differs: Whether the mode changes the kernel. Where it does not, one key serves both modes.
        """
        types = self.options.impl_types
        wanted = not types or any(op_type in types for op_type in node.origins)
        return self.options.impl_mode if differs and wanted else HIGH_PERFORMANCE

    def takes(self, family: str, layout: str) -> bool:
        """Return whether a family's kernels read and write a layout on the device that has them; CPUs' do all."""
        if self.target == CPU:
            return True
        taken = device_class(self.target).layouts(family)
        return taken is None or layout in taken

    def has_device_kernels(self, family: str) -> bool:
        """Return whether networks are for a device that has kernels of a family."""
        return self.target != CPU and device_class(self.target).layouts(family) is not None

    def is_for_device(self, family: str) -> bool:
        """Return whether what is lowered now is for the device's kernels of a family, which have no limits.

        Then its calls need not be right, nor fast, on the CPU: where one stays there, its node is lowered again.
        """
        if not self.has_device_kernels(family) or not self.options.on_cpu.isdisjoint(self.site):
            return False
        self._for_device.update(self.site)
        return True

    def is_blocked(self, name: str) -> bool:
        """Return whether a value lies blocked and not (also) plain."""
        return self.has_blocked(name) and name not in self._plain

    def has_blocked(self, name: str) -> bool:
        """Return whether a value lies blocked, perhaps plain as well."""
        return name in self._blocked or name in self._ordered

    # -- references to read a value -----------------------------------------------------------------------------------

    def plain(self, name: str) -> Plain:
        """Return a value in plain layout, with any strides; converts a blocked value, stores a constant."""
        if name not in self._plain:
            if self.is_constant(name):
                kind, contents = self.type(name), self.graph.constants
                if contents[name].dtype == object:  # it follows from open extents
                    return self._numbers(name)
                self._plain[name] = self.packed((name,), "plain", kind.shape, kind.dtype, lambda: contents[name])
            elif name in self.weight_blocks:
                source = transposed(self.weight_blocks[name], (0, 5, 1, 4, 2, 3))
                self.copy(source, dense_as(self.new_plain(name), source.shape), name)
            else:
                self._plain[name] = self._unblock(name)
        return self._plain[name]

    def _numbers(self, name: str) -> Plain:
        kind = self.type(name)
        made = Table("numbers", (numbers_of(self.graph.constants[name], kind.dtype), kind.dtype))
        self._plain[name] = self._of_table(made, kind.shape, kind.dtype)
        return self._plain[name]

    def dense(self, name: str) -> Plain:
        """Return a value in plain, contiguous, row-major layout; copies where it is not."""
        value = self.plain(name)
        if value.dense:
            return value
        self._plain[name] = self.temporary(self.type(name))
        self.copy(value, self._plain[name], name)
        return self._plain[name]

    def channels_last(self, name: str) -> Plain:
        """Return an image in plain layout whose channels are adjacent; copies where they are not."""
        value = self.plain(name)
        if is_one(value.strides[1]) or is_one(value.shape[1]):
            return value
        if name not in self._channels_last:
            shape = value.shape
            storage = OperandStorage("temporary", value.storage.dtype, shape)
            self._channels_last[name] = Plain(storage, shape, channels_last_strides(shape))
            self.copy(value, self._channels_last[name], name)
        return self._channels_last[name]

    def blocked(self, name: str, halo: tuple[int, int, int, int] = (0, 0, 0, 0)) -> Blocked:
        """Return a value of rank 3 or 4 in blocked layout, in ``(left, top, right, bottom)`` zeros at least."""
        if name not in self._blocked:
            self._blocked[name] = self._in_order(name) if name in self._ordered else self._from_plain(name)
        value = self._blocked[name]
        value.storage.grow_halo(*halo)
        return value

    def ordered(self, name: str) -> tuple[Blocked, Array | None]:
        """Return a value in blocked layout as it lies, and the place of each channel if they lie in another order."""
        if name in self._ordered and name not in self._blocked:
            return self._ordered[name]
        return self.blocked(name), None

    # -- places to write a value --------------------------------------------------------------------------------------

    def temporary(self, type_: TensorType) -> Plain:
        """Return new dense memory for an intermediate that has no name in the graph."""
        return new_dense("temporary", type_)

    def new_plain(self, name: str) -> Plain:
        """Declare that a value is written in plain, dense layout and return where; a graph output lies in place."""
        kind: BufferKind = "output" if name in self._outputs else "temporary"
        placed = self._placed.pop(name) if name in self._placed else new_dense(kind, self.type(name))
        self._plain[name] = placed
        return placed

    def new_channels_last(self, name: str) -> Plain:
        """Declare that an image is written with its channels innermost and return where; a graph output lies dense."""
        type_ = self.type(name)
        spatial = prod(type_.shape[2:])
        if name in self._outputs or name in self._placed or is_one(type_.shape[1]) or is_one(spatial):
            return self.new_plain(name)
        storage = OperandStorage("temporary", type_.dtype, type_.shape)
        self._plain[name] = Plain(storage, type_.shape, channels_last_strides(type_.shape))
        return self._plain[name]

    def new_as(self, name: str, values: Iterable[Plain]) -> Plain:
        """Declare that a value is written as some that it is made of lie, and return where.

        Args:
            name: The value.
            values: Those: on a device an image lies with its channels innermost if one of its rank does.
        """
        rank = len(self.type(name).shape)
        is_last = self.target != CPU and any(len(each.shape) == rank and each.has_channels_last for each in values)
        return self.new_channels_last(name) if is_last else self.new_plain(name)

    def place(self, name: str, value: Plain) -> None:
        """Let a value be written there by the next who asks, although it is not dense."""
        self._placed[name] = value

    def new_blocked(self, name: str, padding_value: float = 0.0, order: Array | None = None) -> Blocked:
        """Declare that a value of rank 3 or 4 is written in blocked layout and return where.

        The writer fills all 16 lanes of every block; lanes beyond the channels get ``padding_value``, which is finite.
        With an ``order``, it writes channel c at ``order[c]``.
        """
        value = self._new_blocked_storage(name, padding_value)
        if order is None:
            self._blocked[name] = value
        else:
            self._ordered[name] = value, order
        return value

    def bind_ordered(self, name: str, value: Blocked, order: Array) -> None:
        """Declare that channel c of a value lies at channel ``order[c]`` of memory that is written already."""
        self._ordered[name] = value, order

    def bind(self, name: str, value: Plain | Blocked) -> None:
        """Declare that a value is a reference to memory that is written already."""
        if isinstance(value, Plain):
            if value.shape != self.type(name).shape:  # what reads it would read beyond it
                raise AssertionError(f"{name} is {self.type(name)}, what is bound to it has the shape {value.shape}")
            self._plain[name] = value
        else:
            self._blocked[name] = value

    def packed(
        self, names: Sequence[str], recipe: str, shape: tuple[int, ...], dtype: str, pack: Callable[[], Array]
    ) -> Plain:
        """Return a constant made from constants of the graph.

        Args:
            names: The graph's constants that ``pack`` reads.
            recipe: Says, with ``names``' contents, exactly what ``pack`` returns; equal ones are stored once.
            shape: Row-major shape of what ``pack`` returns.
            dtype: Its element type.
            pack: Makes the contents; called late, at most once.
        """
        known = (*names, recipe, shape, dtype)
        if known not in self._constants:

            def source() -> Hashable:
                return (*(self.constant_digest(name) for name in names), recipe, shape, dtype)

            storage = OperandStorage("constant", dtype, shape, pack=pack, source=source)
            self._constants[known] = Plain(storage, shape, dense_strides(shape))
        return self._constants[known]

    def table(self, name: str, arguments: tuple[Any, ...], shape: tuple[int, ...], dtype: str) -> Plain:
        """Return a constant that is worked out from numbers, for each size where those are open.

        Args:
            name: The table's name (``graph.tables``).
            arguments: What it is made of, open extents among it.
            shape: Its shape.
            dtype: Its element type.
        """
        made = Table(name, arguments)
        if not made.is_open:
            return self.packed((), f"{name} {arguments}", shape, dtype, made.example_value)
        return self._of_table(made, shape, dtype)

    def _of_table(self, made: Table, shape: tuple[int, ...], dtype: str) -> Plain:
        storage = OperandStorage("constant", dtype, shape, pack=made.example_value, table=made)
        return Plain(storage, shape, dense_strides(shape))

    def choose(self, family: Family, *extents: Any) -> Any:
        """Return the variant that a family chooses for these extents on machines of the level, or None."""
        chooser, arguments = self.options.chooser, (*extents, self.machine)
        if chooser is None:
            return family.choose(*arguments)
        if chooser.is_elsewhere != self._repetitions.is_elsewhere:
            chooser.is_elsewhere = self._repetitions.is_elsewhere
        return chooser.choose(self.site, family, arguments)

    # -- calls --------------------------------------------------------------------------------------------------------

    def emit(self, make: MakeCall | OpDesc, operands: Sequence[OperandRef], nodes: Sequence[str] | Node) -> None:
        """Emit a kernel call of a descriptor, or of a maker of one.

        That gets the operands' views, inputs first, when the program is finished.
        """
        names = (nodes.name,) if isinstance(nodes, Node) else tuple(nodes)
        self._calls.append(Pending(make, tuple(operands), names))

    def either(self, ways: Iterable[tuple[int, Callable[[], object]]]) -> bool:
        """Emit a computation in one of several ways: at each size in the first one that may be taken there.

        Args:
            ways: Flags, 1 where a way may be taken, which may be open; and what emits its calls, or returns False if no
                kernel serves.

        Returns:
            Whether it is computed at every size.
        """
        others = 1
        for flag, emit in ways:
            if not always_equal(others * flag, 0):
                with self._run_only_where(others * flag):
                    is_served = emit() is not False
                others = others - others * flag if is_served else others
        return always_equal(others, 0)

    def emit_images(
        self, make: MakeCall | OpDesc, count: int, nodes: Sequence[str] | Node, *operands: Callable[[int], OperandRef]
    ) -> None:
        """Emit a call for each image; these functions return its operands by its number."""
        for image in self.images(count):
            self.emit(make, [operand(image) for operand in operands], nodes)

    def moving(self, op_type: str, dtype: str, **how: Any) -> MakeCall:
        """Return the maker of a call that only moves elements: ``Copy``, ``ToBlocked``, ``FromBlocked``, ``InOrder``.

        What concerns blocks takes one image a call.
        """
        return partial(call_of(op_type), dtype=dtype, choose=self.choose, **how)

    def copy(self, source: Plain, target: Plain, name: str) -> None:
        """Emit the copy of a plain value, with any strides, to a place of the same shape; ``name`` is for reports."""
        self.emit(self.moving("Copy", source.storage.dtype), (source, target), (name,))

    def dense_copy(self, value: Plain, name: str) -> Plain:
        """Emit the dense copy of a value, repetitions included, and return it; ``name`` is for reports."""
        target = self.temporary(TensorType(value.storage.dtype, value.shape))
        self.copy(value, target, name)
        return target

    def host(self, node: Node, inputs: tuple[Plain | None, ...] = ()) -> None:
        """Emit a call of the host backend for a node; its operands are dense, by default the node's inputs."""
        inputs = inputs or tuple(self.dense(name) if name else None for name in node.inputs)
        outputs = tuple(self.new_plain(name) if name else None for name in node.outputs)
        self._calls.append(PendingHost(node, inputs, outputs))

    def finish(self) -> Program:
        """Resolve every reference and return the program."""
        outputs = self._output_storages()
        owners: dict[OperandStorage, int] = {}

        def index_of(storage: OperandStorage) -> int:
            return owners.setdefault(storage, len(owners))

        inputs = tuple(Port(name, self.type(name), index_of(self._plain[name].storage)) for name in self.graph.inputs)
        calls = tuple(self._resolve(call, index_of, place) for place, call in enumerate(self._calls))
        ports = tuple(map(Port, self.graph.outputs, map(self.type, self.graph.outputs), map(index_of, outputs)))
        buffers = tuple(map(_buffer, owners))
        program = Program(self.graph.name, buffers, calls, inputs, ports, self.notes)
        program = replace(program, for_device=frozenset(self._for_device))
        return update_in_place(program, self.graph.updates, self._copy_of_views)

    def forget(self) -> None:
        """Keep only the parts that packing needs: a cycle would keep all weights until Python looks for cycles."""
        for values in (*self._layouts, self.weight_blocks, self._constants):
            values.clear()
        self._calls.clear()

    @contextmanager
    def _run_only_where(self, flag: int) -> Iterator[None]:
        """Let calls be run only where a flag is 1: where they bring values to another layout, nobody else knows it."""
        if not is_open((flag,)):
            yield
            return
        before, turned = [dict(each) for each in self._layouts], self.turned
        names = {*self.weight_blocks, *(name for known in before for name in known)}
        self.turned = {storage: list(copies) for storage, copies in turned.items()}
        with self._repetitions.where(flag):
            yield
        self.turned = turned
        for own, known in zip(self._layouts, before, strict=True):
            for name in names & own.keys():
                del own[name]
            own.update(known)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _resolve(self, call: Pending | PendingHost, index_of: Callable[[OperandStorage], int], place: int) -> Call:
        if isinstance(call, PendingHost):
            node = call.node
            return HostCall(
                node,
                tuple(ref.resolve(index_of) if ref else None for ref in call.inputs),
                tuple(ref.resolve(index_of) if ref else None for ref in call.outputs),
                tuple(TensorType(ref.storage.dtype, ref.shape) if ref else None for ref in call.inputs),
                tuple(self.type(name) if name else None for name in node.outputs),
                self.graph.opset,
            )
        views = tuple(operand.resolve(index_of) for operand in call.operands)
        return self._kernel_call(call, views, self._repetitions.of(place))

    def _copy_of_views(self, source: View, target: View, name: str) -> KernelCall:
        made = self.moving("Copy", self.type(name).dtype)
        return self._kernel_call(Pending(made, (), (name,)), (source, target))

    def _kernel_call(self, call: Pending, views: tuple[View, ...], repeated: Repeated | None = None) -> KernelCall:
        self.site = call.nodes
        self._repetitions.is_elsewhere = repeated is not None and not example_value(repeated.count)
        desc, views = (call.make, views) if isinstance(call.make, OpDesc) else call.make(views)
        if self.options.chooser is not None:
            desc, views = self.options.chooser.serve(desc, views)
        if self._repetitions.is_elsewhere:
            return KernelCall(desc, views, call.nodes, 0, repeated)
        dims = tuple([example_dims(view.dims) for view in views])
        work = self._works.get((desc, dims))
        if work is None:
            work = self._works[desc, dims] = self._work(call, desc, dims)
        names = (part for name in call.nodes for part in (name, *self._merged.get(name, ())))
        return KernelCall(desc, views, tuple(dict.fromkeys(names)), work, repeated)

    def _work(self, call: Pending, desc: OpDesc, dims: tuple[Dims, ...]) -> int:
        """Return the nanoseconds that a call takes on one core, of a kernel that may run on such operands."""
        problem = desc.problem(dims)
        if problem and self._for_device.isdisjoint(call.nodes):
            raise AssertionError(f"no legal variant was chosen for {', '.join(call.nodes)}: {desc.family}: {problem}")
        return round(find(desc.family).work(desc, dims, self.machine))

    def _output_storages(self) -> list[OperandStorage]:
        """Return the storage of each graph output; no two are one, and none is an input's or a constant's."""
        storages: list[OperandStorage] = []
        for name in self.graph.outputs:
            value = self.plain(name)
            storages.append(value.storage if self._is_own(value, storages) else self._own_storage(name, value))
        return storages

    def _is_own(self, value: Plain, taken: Sequence[OperandStorage]) -> bool:
        """Return whether a value is all of memory that was made for an output, and no output before it has it."""
        storage = value.storage
        own = storage.kind == "output" and storage.alias is None and storage not in taken
        return own and value.dense and same_shape(storage.shape, value.shape)

    def _own_storage(self, name: str, value: Plain) -> OperandStorage:
        """Return memory of an output's own, for a value that is written there or else copied."""
        target = new_dense("output", self.type(name))
        if value.whole:
            value.storage.alias = (target.storage, 0)  # whatever writes the value writes the output
        else:
            self.copy(value, target, name)
        return target.storage

    def _new_blocked_storage(self, name: str, padding_value: float) -> Blocked:
        type_ = self.type(name)
        if len(type_.shape) not in (3, 4):
            raise ShapeError(f"value {name} of shape {list(type_.shape)} cannot be stored in channel blocks")
        n, c, *spatial = type_.shape
        h, w = spatial if len(spatial) == 2 else (1, spatial[0])
        return Blocked(OperandStorage("temporary", type_.dtype, (n, blocks(c), h, w), blocked=True), c, padding_value)

    def _in_order(self, name: str) -> Blocked:
        """Emit the copy of a value whose channels lie in another order."""
        source, order = self._ordered[name]
        value = self._new_blocked_storage(name, source.padding_value)
        table = channel_table(order)
        places = self.packed((), f"order {blake3_of(table.tobytes())}", table.shape, "int32", lambda: table)
        make = self.moving("InOrder", source.storage.dtype)
        self.emit_images(make, value.shape[0], (name,), source.window, lambda _: places, value.window)
        return value

    def _from_plain(self, name: str) -> Blocked:
        source = self.plain(name)
        value = self._new_blocked_storage(name, 0.0)
        make = self.moving("ToBlocked", source.storage.dtype)
        self.emit_images(make, value.shape[0], (name,), source.image, value.window)
        return value

    def _unblock(self, name: str) -> Plain:
        source = self.blocked(name) if name in self._ordered else self._blocked[name]
        value = self.new_plain(name)

        def write(transposes: bool) -> None:
            make = self.moving("FromBlocked", value.storage.dtype, transposes=transposes)
            self.emit_images(make, value.shape[0], (name,), source.window, value.image)

        is_large = is_at_least(prod(value.shape[2:]), LARGE)
        self.either([(is_large, partial(write, True)), (1, partial(write, False))])
        return value


class Repetitions:
    """Which of the calls of a lowering are repeated.

    Args:
        calls: The calls, which grow.

    Attributes:
        is_elsewhere: Whether what is emitted now is run at other sizes than that at hand.
    """

    def __init__(self, calls: Sequence[object]) -> None:
        self._calls = calls
        self._of: dict[int, Repeated] = {}
        self.is_elsewhere = False

    def images(self, count: int) -> Iterator[int]:
        """Yield the number of each image; one that stands for all if ``count`` is open.

        The calls that are emitted until the next one is asked for are then repeated. What they read of the number is
        where an image begins.

        Raises:
            ClosedError: If repetitions are nested.
        """
        if not isinstance(count, SymbolicExtent):
            yield from range(count)
            return
        first = len(self._calls)
        yield count.owner.index()
        own = [place for place in range(first, len(self._calls)) if place not in self._of]
        if own and own != list(range(own[0], len(self._calls))):  # the first of them brought values to another layout
            raise ClosedError("a repetition lies in another one")
        repeated = Repeated(count)
        self._of.update(dict.fromkeys(own, repeated))

    @contextmanager
    def where(self, flag: int) -> Iterator[None]:
        """Let the calls that are emitted meanwhile be run only where a flag, which may be open, is 1.

        Nothing that they write may be read elsewhere, but what other calls write where it is 0.
        """
        first, before = len(self._calls), self.is_elsewhere
        self.is_elsewhere = before or not example_value(flag)
        yield
        self.is_elsewhere = before
        if isinstance(flag, SymbolicExtent):
            made: dict[Repeated | None, Repeated] = {}
            for place in range(first, len(self._calls)):
                own = self._of.get(place)
                if own not in made:
                    made[own] = Repeated(flag if own is None else own.count * flag)
                self._of[place] = made[own]

    def of(self, place: int) -> Repeated | None:
        """Return the repetition that the call at a place is a part of, if it is repeated."""
        return self._of.get(place)


def _buffer(storage: OperandStorage) -> Buffer:
    zeroed = storage.zeroed if storage.kind == "temporary" else None
    layout = BLOCKED if storage.blocked else ""
    made, unpacked = (storage.pack, storage.source, storage.table), None
    if storage.unpacked is not None:
        plain, attrs = storage.unpacked
        unpacked = Unpacked(_buffer(plain.storage), plain.resolve(lambda _: 0), attrs)
    return Buffer(storage.kind, storage.dtype, storage.size, zeroed, *made, layout=layout, unpacked=unpacked)
