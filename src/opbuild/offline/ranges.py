"""Any size in ranges from one offline model, where neither the compiler nor the onnx package is.

Kernels are generic in their extents; what depends on the size is the program: buffers, addresses, and which variant
computes which call. So the file holds the network before it is bound to a size (``PortableModel``), and kernels:
those that lowering picks for many sizes in the ranges, and of each operator the variant without limits. At the first
call with a new size the network is bound, lowered to the kernels that are there, and planned, in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.errors import BuildError, InvalidModelError, ShapeError, UnsupportedOperatorError
from opbuild.files.trust import parse_json
from opbuild.frontend.input_shape import format_input_shape
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.kernel.target import Target
from opbuild.models.open_outputs import outputs_of_any
from opbuild.models.sizes import Sizes, make_sizes
from opbuild.offline.file import OfflineModel, PackedWeights
from opbuild.offline.format import GRAPH, WEIGHTS, Section
from opbuild.offline.host_nodes import HostNode, host_nodes, servable
from opbuild.platform.sources import own_sources
from opbuild.program import Buffer, Program
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Executor
from opbuild.runtime.library import Library
from opbuild.runtime.network import Binding, Shapes
from opbuild.runtime.record import Constant, make_record
from opbuild.runtime.weights import SMALL, Packer, load_constants, pack_constants
from opbuild.session import Clock, evaluate, report_notes, stored_report
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.frontend.portable import PortableModel
    from opbuild.lowering.available import Kernels
    from opbuild.lowering.context import Options

QUIET = 12
"""So many sizes in a row that need no new kernel end the search for kernels."""

_NOT_STORED = ("kernels", "on_host")
"""Fields of ``Options`` that belong to one lowering."""


@dataclass(frozen=True)
class RangePlan:
    """What an offline model holds to serve any size.

    Attributes:
        model: The network.
        sizes: The ranges.
        options: How it is lowered.
        force_float32: Whether other floating-point types are computed in float32.
        kernels: The kernels, each with the nodes that may need it.
        first: The program of one size, to be stored whole.
        host: The nodes that no kernel serves at one of the sizes that were looked at, by name.
    """

    model: PortableModel
    sizes: Sizes
    options: Options
    force_float32: bool
    kernels: Mapping[OpDesc, tuple[str, ...]]
    first: Program
    host: Mapping[str, HostNode]


def plan_ranges(
    model: PortableModel,
    ranges: Sequence[Sequence[int | tuple[int, int]]],
    target: Target,
    options: Options,
    *,
    force_float32: bool = False,
) -> RangePlan:
    """Find the kernels that the sizes in the ranges need, and the nodes that have none.

    Args:
        model: The network.
        ranges: For each input its dimensions, as ``make_sizes`` takes them.
        target: The machine that will run it.
        options: How it is lowered.
        force_float32: Whether other floating-point types are computed in float32.

    Raises:
        ShapeError: If a range is empty, or none of the sizes that were tried fits the network.
        UnsupportedOperatorError: If an operator can not be bound without onnx.
    """
    from opbuild.lowering.available import Unlimited, conversions

    sizes = make_sizes([name for name, _ in model.inputs], ranges)
    found: dict[OpDesc, tuple[str, ...]] = {}
    host: dict[str, HostNode] = {}
    first: Program | None = None
    problem: ShapeError | None = None
    unlimited, quiet = Unlimited(), 0
    for shapes in sizes.samples():
        try:
            graph = bind(model, shapes, force_float32)
        except ShapeError as error:  # a size that the network itself does not take
            problem = problem or error
            continue
        known = len(found)
        programs = [lower_to(graph, target, options, kernels) for kernels in (None, unlimited)]
        first = first or programs[0]
        for program in programs:
            host.update(host_nodes(program))
            for desc, nodes in program.descriptors().items():
                found.setdefault(desc, nodes)
        quiet = quiet + 1 if len(found) == known else 0
        if quiet == QUIET:
            break
    if first is None:
        raise problem or ShapeError("there is no size in the ranges", "give wider ones")
    found.update((desc, ()) for desc in conversions(options.num_threads) if desc not in found)
    return RangePlan(model, sizes, options, force_float32, found, first, host)


def bind(model: PortableModel, shapes: Shapes, force_float32: bool) -> Graph:
    """Return the optimized graph for some input shapes."""
    from opbuild.backend.host.evaluate import evaluate_native
    from opbuild.graph.passes import float32
    from opbuild.graph.passes.pipeline import optimize

    graph = model.bind(shapes, evaluate_native)
    return optimize(float32.force_float32(graph) if force_float32 else graph, evaluate_native)


def lower_to(graph: Graph, target: Target, options: Options, kernels: Kernels | None) -> Program:
    """Return the program of a graph that calls the given kernels only; the host takes what none of them may compute.

    Raises:
        UnsupportedOperatorError: If none may, and the host can not take a part of what was fused.
    """
    from opbuild.lowering.context import NoKernelError
    from opbuild.lowering.lower import lower

    options = replace(options, kernels=kernels)
    while True:
        try:
            return lower(graph, target, options)
        except NoKernelError as error:
            missing = {node.name for node in graph.nodes} & {*error.nodes} - options.on_host
            if not missing:
                raise UnsupportedOperatorError(
                    f"the file has no kernel of {error.desc.op_type} for {', '.join(error.nodes)} at this size",
                    "build it again with this size among the ranges' ends, or with fixed shapes",
                ) from None
            options = replace(options, on_host=options.on_host | missing)


# -- the section of the file ------------------------------------------------------------------------------------------


def range_section(
    plan: RangePlan,
    symbols: Mapping[OpDesc, str],
    weights: PackedWeights,
    packed: Iterable[tuple[Buffer, Constant]],
) -> Section:
    """Return the section from which ``RangeBinder`` binds.

    Args:
        plan: What to store.
        symbols: The symbol of each kernel in the file's library.
        weights: The file's constants; the network's own are added.
        packed: Constants of ``plan.first`` with the places that they have among ``weights``.

    Raises:
        ValueError: If a node has an attribute that can not be stored.
    """
    arrays = [_bytes(array) for array in plan.model.tensors.values()]
    content = {
        "sources": own_sources(),
        "ranges": plan.sizes.to_json(),
        "force_float32": plan.force_float32,
        "model": plan.model.to_json(),
        "tensors": [[place.nbytes, place.offset] for place in weights.place(arrays)],
        "kernels": [[desc.components(), symbols[desc]] for desc in plan.kernels],
        "packed": [
            [_text(buffer.source()), place.nbytes, place.offset]
            for buffer, place in packed
            if buffer.source is not None and place.nbytes >= SMALL
        ],
        "options": {
            field.name: getattr(plan.options, field.name)
            for field in fields(plan.options)
            if field.name not in _NOT_STORED
        },
    }
    return Section(GRAPH, 0, [canonical_json(content).encode()])


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _text(source: Any) -> str:
    return canonical_json(source)


# -- binding from the file --------------------------------------------------------------------------------------------


class RangeBinder:
    """Binds an offline model to any size in its ranges.

    Args:
        offline: The file.
        library: Its kernels.

    Raises:
        InvalidModelError: If the file's section is not sound.
    """

    def __init__(self, offline: OfflineModel, library: Library | None) -> None:
        from opbuild.frontend.portable import PortableModel
        from opbuild.lowering.available import Available
        from opbuild.lowering.context import Options

        self._offline, self._library = offline, library
        try:
            content = parse_json(offline.container.section(GRAPH).tobytes())
            self._sources = str(content["sources"])
            tensors = _mapped(offline, [(nbytes, offset) for nbytes, offset in content["tensors"]])
            self._model = PortableModel.from_json(content["model"], tensors)
            names = [name for name, _ in self._model.inputs]
            self.sizes = make_sizes(names, [[(low, high) for low, high in each] for each in content["ranges"]])
            kernels = [(OpDesc.from_components(parts), str(symbol)) for parts, symbol in content["kernels"]]
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in content["options"].items()
            }
            self._options, self._force_float32 = Options(**given), bool(content["force_float32"])
            places = [(nbytes, offset) for _, nbytes, offset in content["packed"]]
            sources = [str(source) for source, _, _ in content["packed"]]
            self._packer = Packer(known=dict(zip(sources, _mapped(offline, places), strict=True)))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, ShapeError) as error:
            where = repr(str(offline.container.path))
            raise InvalidModelError(f"{where} is no sound offline model: {error!r}", "write it again") from error
        self._symbols = dict(kernels)
        self._kernels = Available([desc for desc, _ in kernels])

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs; an extent that has a range is -1."""
        return tuple(
            Endpoint(name, TensorType(dtype, tuple(low if low == high else FREE for low, high in ranges)))
            for (name, dtype), ranges in zip(self._model.inputs, self.sizes.ranges, strict=True)
        )

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs; an extent that differs between sizes in the ranges is -1.

        Raises:
            ShapeError: If the network takes none of the sizes that were tried.
        """
        return outputs_of_any(self._model, self.sizes, self._offline.signatures)

    def bind(self, shapes: Shapes) -> Binding:
        """Make the network ready for a size.

        Raises:
            ShapeError: If the size is outside the ranges, or the network itself does not take it.
            BuildError: If the file was written by another version of opbuild.
        """
        from opbuild.runtime.memory_plan import plan

        self.sizes.check(shapes)
        if self._sources != own_sources():
            raise BuildError(
                f"{str(self._offline.container.path)!r} was written by another version of opbuild, which may choose "
                f"kernels otherwise; this one runs only {self._stored()}",
                "write the file again with this version",
            )
        clock = Clock()
        with clock("read"):
            graph = bind(self._model, shapes, self._force_float32)
        with clock("lower"):
            program = servable(lower_to(graph, self._offline.target, self._options, self._kernels))
        with clock("pack"):
            constants = pack_constants(program, self._packer)
        with clock("plan"):
            memory = plan(program)
        with clock("start"):
            notes = report_notes((), program.notes)
            notes["operators"] = [[self._symbols[d], list(nodes), 0.0] for d, nodes in program.descriptors().items()]
            record = make_record(
                program,
                self._symbols,
                memory,
                constant_of=constants.positions,
                constants=constants.places,
                notes=notes,
            )
            executor = Executor(record, self._library, constants.arrays, evaluate)
        return Binding(executor, stored_report(record, clock))

    def _stored(self) -> str:
        """Return the size that is stored whole, as users write it."""
        names = [name for name, _ in self._offline.inputs]
        return format_input_shape(dict(zip(names, self._offline.signatures[0], strict=True)))


def _mapped(offline: OfflineModel, places: Sequence[tuple[Any, Any]]) -> tuple[Array, ...]:
    """Return pieces of the file's weights, read-only."""
    constants = [Constant(int(nbytes), "", int(offset)) for nbytes, offset in places]
    return load_constants(constants, offline.container.section(WEIGHTS))
