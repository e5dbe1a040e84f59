"""Any size in ranges, and networks in parts, from one offline model, where neither the compiler nor onnx is.

Kernels are generic in their extents; what depends on the size is the program: buffers, addresses, and which variant
computes which call. So the file holds the network before it is bound to a size (``PortableModel``), and kernels:
those that lowering picks for sizes in the ranges (``lowering.alternatives``), and of each operator the variant without
limits. At the first call with a new size the network is bound, lowered to the kernels that are there, and planned, in
milliseconds (``range_binder``). A part of a network behind a cut is such a new size, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from opbuild.errors import ShapeError, UnsupportedOperatorError
from opbuild.graph.cut import Cut
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.level import Level
from opbuild.kernel.machine import Machine
from opbuild.kernel.opdesc import OpDesc
from opbuild.models.sizes import Sizes, make_sizes
from opbuild.offline.file import PackedWeights
from opbuild.offline.format import GRAPH, Section
from opbuild.pipeline.stages import HostNode, Planned, host_nodes
from opbuild.platform.records import dataclass
from opbuild.platform.sources import own_sources
from opbuild.program import Buffer, Program
from opbuild.runtime.binding import Shapes
from opbuild.runtime.record import Constant
from opbuild.runtime.weights import SMALL
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.frontend.portable import PortableModel
    from opbuild.frontend.walk import Walked
    from opbuild.lowering.available import Kernels
    from opbuild.lowering.context import Options
    from opbuild.offline.rehearsal import Imagined

QUIET = 4
"""So many sizes in a row that need no kernel of another form, whatever its variant, end the search for forms."""

_NOT_STORED = ("kernels", "on_host")
"""Fields of ``Options`` that belong to one lowering."""


@dataclass(frozen=True)
class RangePlan:
    """What an offline model holds to serve any size.

    Attributes:
        model: The network.
        sizes: The ranges; None: the sizes of ``needed`` are all.
        options: How it is lowered.
        force_float32: Whether other floating-point types are computed in float32.
        needed: The program of one size, or of each if there are no ranges, to be stored whole, with the kernels that
            any size may need, and the nodes that no kernel serves at one of the sizes that were looked at.
        cuts: What comes after each of these programs; None after a whole network.
        waits: The nodes at which parts are bound when the network is called.
    """

    model: PortableModel
    sizes: Sizes | None
    options: Options
    force_float32: bool
    needed: Planned
    cuts: tuple[Cut | None, ...]
    waits: tuple[str, ...] = ()

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
    sizes = make_sizes([name for name, _ in model.inputs], ranges)
    search = _Search(model, level, options, force_float32=force_float32)
    quiet = 0
    for parts in _parts(model, sizes):
        quiet = 0 if search.look(parts, is_open=True) else quiet + 1
        if quiet == QUIET:
            break
    return search.plan(sizes, [0])


def plan_parts(
    model: PortableModel,
    signatures: Sequence[Shapes],
    level: Level,
    options: Options,
    *,
    force_float32: bool = False,
) -> RangePlan:
    """Find the kernels that a network in parts needs for some input signatures; other arguments as ``plan_ranges``.

    Raises:
        ModelError: If a signature does not fit the network.
        UnsupportedOperatorError: If an operator can not be bound without onnx.
    """
    search, firsts = _Search(model, level, options, force_float32=force_float32), []
    for shapes in signatures:
        firsts.append(len(search.programs))
        search.look(_parts_of(model, shapes), is_open=False)
    return search.plan(None, firsts)


class _Search:
    """Finds the kernels that parts of a network need, at the sizes at hand and at those between them."""

    def __init__(self, model: PortableModel, level: Level, options: Options, *, force_float32: bool) -> None:
        from opbuild.lowering.alternatives import Alternatives
        from opbuild.lowering.available import Unlimited

        self.programs: list[tuple[Graph, Program, Cut | None]] = []
        self._model, self._level, self._options, self._force_float32 = model, level, options, force_float32
        self._needed: dict[OpDesc, tuple[str, ...]] = {}
        self._forms: dict[str, tuple[str, ...]] = {}
        self._host: dict[str, HostNode] = {}
        self._waits: dict[str, str] = {}
        self._unlimited, self._alternatives = Unlimited(), Alternatives()
        self._open: list[Graph] = []

    def look(self, parts: Sequence[Imagined], *, is_open: bool) -> bool:
        """Look at the parts of a network of one size; return whether one needs a kernel of a form that is new.

        Args:
            parts: They, the first one first.
            is_open: Whether other sizes are served, too.
        """
        known = len(self._forms)
        for part in parts:
            self._look_at(part.walked, is_open=is_open or not part.is_certain)
        return len(self._forms) > known

    def _look_at(self, walked: Walked, *, is_open: bool) -> None:
        from opbuild.lowering.available import form

        graph = optimized(walked.graph, self._force_float32)
        self._alternatives.begin()
        programs = [lower_to(graph, self._level, self._options, self._alternatives)]
        if is_open:
            programs.append(lower_to(graph, self._level, self._options, self._unlimited))
        for program in programs:
            self._host.update(host_nodes(program))
            _add(self._needed, program.descriptors())
        new = {form(desc): nodes for desc, nodes in programs[0].descriptors().items()}
        if is_open and (not self._open or new.keys() - self._forms.keys()):  # a network may have no kernel at all
            self._open.append(graph)
        self._forms.update(new)
        self.programs.append((graph, programs[0], walked.cut))
        if walked.cut is not None:
            self._host.update(at_cut(walked.cut))
            self._waits.update(waits_at([walked.cut]))

    def plan(self, sizes: Sizes | None, firsts: Sequence[int]) -> RangePlan:
        """Return what was found; ``firsts`` are the programs that are stored whole."""
        from opbuild.lowering.available import conversions, form

        for graph in self._open:
            for _ in self._alternatives.turns():
                lower_to(graph, self._level, self._options, self._alternatives)
        _add(self._needed, {desc: self._forms.get(form(desc), ()) for desc in self._alternatives.wanted})
        _add(self._needed, dict.fromkeys(conversions(Machine.of(self._level)), ()))
        graphs, programs, cuts = zip(*(self.programs[index] for index in firsts), strict=True)
        planned = Planned(graphs, programs, self._needed, self._host)
        waits = tuple(self._waits.values())
        return RangePlan(self._model, sizes, self._options, self._force_float32, planned, cuts, waits)


def _add(needed: dict[OpDesc, tuple[str, ...]], more: Mapping[OpDesc, tuple[str, ...]]) -> None:
    for desc, nodes in more.items():
        needed.setdefault(desc, nodes)


def at_cut(cut: Cut) -> dict[str, HostNode]:
    """Return the nodes that are evaluated at a cut, by name."""
    nodes = cut.nodes if cut.kind == "data" else ()
    return {node.name: HostNode(node, "what it computes decides the shapes behind it") for node in nodes}


def waits_at(cuts: Iterable[Cut | None]) -> dict[str, str]:
    """Return the nodes behind which parts are bound when a network is called, by place.

    Both branches of an If are known before.
    """
    kinds = [cut for cut in cuts if cut is not None and cut.kind != "end" and cut.op_type != "If"]
    return {cut.path: f"{cut.op_type} {cut.node}" for cut in kinds}


def _parts(model: PortableModel, sizes: Sizes) -> Iterator[Sequence[Imagined]]:
    """Yield the parts of the network at some sizes in the ranges.

    Raises:
        ShapeError: If the network takes none of those that were tried.
    """
    problem: ShapeError | None = None
    taken = False
    for shapes in sizes.samples():
        try:
            parts = _parts_of(model, shapes)
        except ShapeError as error:  # a size that the network itself does not take
            problem = problem or error.with_traceback(None)
            continue
        taken = True
        yield parts
    if not taken:
        try:
            raise problem or ShapeError("there is no size in the ranges", "give wider ones")
        finally:
            del problem  # its traceback has this frame: a cycle


def _parts_of(model: PortableModel, shapes: Shapes) -> Sequence[Imagined]:
    from opbuild.backend.host.evaluate import evaluate_native
    from opbuild.offline.rehearsal import Imagined, rehearse

    walked = model.walk(shapes, evaluate_native)
    if walked.cut is None:
        return [Imagined(walked, is_certain=True)]
    types = {name: TensorType(dtype, shape) for (name, dtype), shape in zip(model.inputs, shapes, strict=True)}
    return rehearse(walked, lambda rest: model.go_on(rest, evaluate_native), evaluate_native, types)


def optimized(graph: Graph, force_float32: bool) -> Graph:
    """Return the graph that is lowered."""
    from opbuild.backend.host.evaluate import evaluate_native
    from opbuild.pipeline.steps import optimize_graph

    return optimize_graph(graph, evaluate_native, float32=force_float32)


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
    arrays = [_bytes(array) for array in plan.model.tensors]
    content = {
        "sources": own_sources(),
        "ranges": plan.sizes.to_json() if plan.sizes else None,
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
