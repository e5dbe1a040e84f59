"""Any size in ranges from one offline model, where neither the compiler nor the onnx package is.

Kernels are generic in their extents; what depends on the size is the program: buffers, addresses, and which variant
computes which call. So the file holds the network before it is bound to a size (``PortableModel``), and kernels:
those that lowering picks for sizes in the ranges (``lowering.alternatives``), and of each operator the variant without
limits. At the first
call with a new size the network is bound, lowered to the kernels that are there, and planned, in milliseconds
(``range_binder``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from opbuild.errors import ShapeError, UnsupportedOperatorError
from opbuild.graph.types import Array, Graph
from opbuild.kernel.level import Level
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc
from opbuild.models.sizes import Sizes, make_sizes
from opbuild.offline.file import PackedWeights
from opbuild.offline.format import GRAPH, Section
from opbuild.pipeline.stages import HostNode, Planned, host_nodes
from opbuild.platform.sources import own_sources
from opbuild.program import Buffer, Program
from opbuild.runtime.network import Shapes
from opbuild.runtime.record import Constant
from opbuild.runtime.weights import SMALL
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.frontend.portable import PortableModel
    from opbuild.lowering.available import Kernels
    from opbuild.lowering.context import Options

QUIET = 4
"""So many sizes in a row that need no kernel of another form, whatever its variant, end the search for forms."""

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
        needed: The program of one size, to be stored whole, with the kernels that any size may need, and the nodes that
            no kernel serves at one of the sizes that were looked at.
    """

    model: PortableModel
    sizes: Sizes
    options: Options
    force_float32: bool
    needed: Planned

    @property
    def first(self) -> Program:
        """The program of one size."""
        return self.needed.programs[0]


def plan_ranges(
    model: PortableModel,
    ranges: Sequence[Sequence[int | tuple[int, int]]],
    level: Level,
    options: Options,
    *,
    force_float32: bool = False,
) -> RangePlan:
    """Find the kernels that the sizes in the ranges need, and the nodes that have none.

    Args:
        model: The network.
        ranges: For each input its dimensions, as ``make_sizes`` takes them.
        level: The level that it is for.
        options: How it is lowered.
        force_float32: Whether other floating-point types are computed in float32.

    Raises:
        ShapeError: If a range is empty, or none of the sizes that were tried fits the network.
        UnsupportedOperatorError: If an operator can not be bound without onnx.
    """
    from opbuild.lowering.alternatives import Alternatives
    from opbuild.lowering.available import Unlimited, conversions, form

    sizes = make_sizes([name for name, _ in model.inputs], ranges)
    needed: dict[OpDesc, tuple[str, ...]] = {}
    forms: dict[str, tuple[str, ...]] = {}
    host: dict[str, HostNode] = {}
    unlimited, alternatives = Unlimited(), Alternatives()
    looked_at: list[tuple[Graph, Program]] = []
    quiet = 0
    for graph in _graphs(model, sizes, force_float32):
        known = len(forms)
        alternatives.begin()
        programs = [lower_to(graph, level, options, kernels) for kernels in (alternatives, unlimited)]
        for program in programs:
            host.update(host_nodes(program))
            _add(needed, program.descriptors())
        forms.update((form(desc), nodes) for desc, nodes in programs[0].descriptors().items())
        quiet = quiet + 1 if len(forms) == known else 0
        if not quiet or not looked_at:  # a network may have no kernel at all
            looked_at.append((graph, programs[0]))
        if quiet == QUIET:
            break
    for graph, _ in looked_at:
        for _ in alternatives.turns():
            lower_to(graph, level, options, alternatives)
    _add(needed, {desc: forms.get(form(desc), ()) for desc in alternatives.wanted})
    _add(needed, dict.fromkeys(conversions(Machine.of(level)), ()))
    graph, program = looked_at[0]
    return RangePlan(model, sizes, options, force_float32, Planned((graph,), (program,), needed, host))


def _add(needed: dict[OpDesc, tuple[str, ...]], more: Mapping[OpDesc, tuple[str, ...]]) -> None:
    for desc, nodes in more.items():
        needed.setdefault(desc, nodes)


def _graphs(model: PortableModel, sizes: Sizes, force_float32: bool) -> Iterator[Graph]:
    """Yield the graphs of some sizes in the ranges.

    Raises:
        ShapeError: If the network takes none of those that were tried.
    """
    problem: ShapeError | None = None
    taken = False
    for shapes in sizes.samples():
        try:
            graph = bind(model, shapes, force_float32)
        except ShapeError as error:  # a size that the network itself does not take
            problem = problem or error
            continue
        taken = True
        yield graph
    if not taken:
        raise problem or ShapeError("there is no size in the ranges", "give wider ones")


def bind(model: PortableModel, shapes: Shapes, force_float32: bool) -> Graph:
    """Return the optimized graph for some input shapes."""
    from opbuild.backend.host.evaluate import evaluate_native
    from opbuild.pipeline.steps import optimize_graph

    return optimize_graph(model.bind(shapes, evaluate_native), evaluate_native, float32=force_float32)


def lower_to(graph: Graph, level: Level, options: Options, kernels: Kernels | None) -> Program:
    """Return the program of a graph that calls the given kernels only; the host takes what none of them may compute.

    Raises:
        UnsupportedOperatorError: If none may, and the host can not take a part of what was fused.
    """
    from opbuild.lowering.context import NoKernelError
    from opbuild.lowering.lower import lower

    options = replace(options, kernels=kernels)
    while True:
        try:
            return lower(graph, level, options)
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
        "kernels": [[desc.components(), symbols[desc]] for desc in plan.needed.kernels],
        "packed": [
            [canonical_json(buffer.source()), place.nbytes, place.offset]
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
