"""The content of an offline model for ranges of sizes, and for networks in segments: programs with symbolic extents.

The build lowers each segment at sizes that stand for all. A size for which no program's conditions hold adds a program;
each adds the kernels that suit it; and of what a program calls there are kernels for any size. Where the file is run a
size is bound by numbers (``range_binder``): nothing is lowered there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

from opbuild.errors import ShapeError
from opbuild.frontend.models.declaration import Declared
from opbuild.frontend.models.sizes import Sizes
from opbuild.graph.breaks import GraphBreak
from opbuild.graph.formulas import Formulas, Numbers
from opbuild.kernel.opdesc import OpDesc
from opbuild.offline.file import PackedWeights
from opbuild.offline.format import GRAPH, Section
from opbuild.pipeline.stages import Assembled, HostNode, Planned, host_nodes
from opbuild.pipeline.symbolic_lowering import kernels_for_all_sizes, symbolic_first
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import dataclass, replace
from opbuild.platform.sources import own_sources
from opbuild.program import Program, ProgramSymbols
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.record_json import to_json
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.graph.types import Graph
    from opbuild.pipeline.source import Source
    from opbuild.session import Session

QUIET, SERVED = 6, 200
"""So many sizes in a row that need no program and no kernel more end the search for both, and so many that need no
program the search for programs."""

REFUSED = 8
"""As so many of the latter counts one that the network itself does not take, which has to be read to know that."""

MOST_PROGRAMS = 64
"""Programs of a segment, at most, of one whose structure differs from size to size."""


@dataclass(frozen=True, eq=False)
class FoundProgram:
    """A program of a segment.

    Attributes:
        graph: What was lowered, with the break behind it.
        shapes: The only size that it is for; None: it has symbolic extents.
    """

    graph: Graph
    program: Program
    shapes: Shapes | None

    def serves(self, shapes: Shapes) -> bool:
        """Return whether it is for a size: whether its conditions hold."""
        symbols = self.program.symbols
        if symbols is None:
            return shapes == self.shapes
        formulas, places = self._formulas
        found = formulas([shapes[index][axis] for index, axis in symbols.variables])
        return found is not None and found[places].tolist() == [*chain(*shapes)]

    @lazy_property
    def _formulas(self) -> tuple[Formulas, list[int]]:
        """The conditions, and the places of the numbers that the shapes are."""
        symbols = cast("ProgramSymbols", self.program.symbols)
        numbers = Numbers(symbols.extents)
        shapes = (*(port.type.shape for port in self.program.inputs), *symbols.values)
        places = [numbers.place(each) for each in chain(*shapes)]
        return numbers.formulas(), places


@dataclass(eq=False)
class FileSegment:
    """A segment of a network: its digest, the declared inputs with which that names it, and its programs."""

    digest: str
    inputs: tuple[Declared, ...]
    programs: list[FoundProgram]


@dataclass(frozen=True)
class RangePlan:
    """The content of an offline model that serves any size.

    Attributes:
        model: The digest of the model, which is in the segments' digests.
        declared: The inputs of the network, -1 where sizes differ.
        sizes: The ranges; None: the file's signatures are all sizes.
        outputs: The network's outputs, -1 where they differ between sizes.
        segments: Its segments, the first one first.
        breaks: What comes after each program that is stored whole; None after a whole network.
        waits: The nodes at which segments are bound when the network is called.
    """

    model: str
    declared: tuple[Declared, ...]
    sizes: Sizes | None
    outputs: tuple[Endpoint, ...]
    segments: tuple[FileSegment, ...]
    breaks: tuple[GraphBreak | None, ...]
    waits: tuple[str, ...] = ()

    @property
    def programs(self) -> list[FoundProgram]:
        """The programs of all segments."""
        return [each for segment in self.segments for each in segment.programs]


class Search:
    """Finds the programs of segments, and the kernels and host nodes that they need.

    Attributes:
        kernels: The kernels, each with the nodes that need it.
        host: The nodes that no kernel serves, by name.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.kernels: dict[OpDesc, tuple[str, ...]] = {}
        self.host: dict[str, HostNode] = {}

    def segment(self, source: Source, sizes: Iterable[Shapes], others: Iterable[Shapes] = ()) -> FileSegment:
        """Return the programs of a segment.

        Args:
            source: The segment.
            sizes: Sizes that stand for all, neighbours far apart: kernels are those that suit them.
            others: Further sizes, for which there are to be programs.
        """
        segment = FileSegment(source.digest or "", source.declaration.inputs, [])
        self._look_at_sizes(segment, source, sizes, QUIET)
        self._look_at_sizes(segment, source, others, SERVED, only_programs=True)
        return segment

    def _look_at_sizes(
        self, segment: FileSegment, source: Source, sizes: Iterable[Shapes], most: int, *, only_programs: bool = False
    ) -> None:
        """Look at sizes until so many in a row need nothing more."""
        quiet = 0
        problem = ShapeError("there is no size in the ranges", "give wider ones")
        for shapes in sizes:
            try:
                known = only_programs and any(each.serves(shapes) for each in segment.programs)
                quiet = 0 if not known and self._look(segment, source, shapes) else quiet + 1
            except ShapeError as error:  # a size that the network itself does not take
                problem, quiet = error.with_traceback(None), quiet + (REFUSED if only_programs else 0)
            if quiet >= most or len(segment.programs) >= MOST_PROGRAMS:
                break
        try:
            if not segment.programs:
                raise problem
        finally:
            del problem  # its traceback has this frame: a cycle

    def _look(self, segment: FileSegment, source: Source, shapes: Shapes) -> bool:
        """Look at a size; return whether it needs a program or a kernel that others do not."""
        found, known = self._lowered(source, shapes), len(self.kernels)
        self.add(found.program.descriptors(), host_nodes(found.program))
        if any(each.serves(shapes) for each in segment.programs):
            return len(self.kernels) > known
        segment.programs.append(found)
        if found.shapes is None:
            self.add(kernels_for_all_sizes(found.program, lambda desc: [desc]), {})
        return True

    def add(self, kernels: Mapping[OpDesc, tuple[str, ...]], host: Mapping[str, HostNode]) -> None:
        """Add the needs of a size."""
        for desc, nodes in kernels.items():
            self.kernels.setdefault(desc, nodes)
        self.host.update(host)

    def _lowered(self, source: Source, shapes: Shapes) -> FoundProgram:
        session = self._session

        def fixed(_: BaseException | None) -> FoundProgram:
            graph = source.graph(shapes, Clock())
            return FoundProgram(graph, session.plan([graph], Clock()).programs[0], shapes)

        return symbolic_first(lambda: FoundProgram(*session.lower(source, shapes, Clock()), None), fixed)

    def planned(self, whole: Planned, segments: Sequence[FileSegment]) -> Planned:
        """Return all that is to be built: programs that are stored whole, then those of the segments."""
        found = [each for segment in segments for each in segment.programs]
        graphs, programs = zip(*((each.graph, each.program) for each in found), strict=True)
        return Planned((*whole.graphs, *graphs), (*whole.programs, *programs), self.kernels, self.host)


def at_break(follows: GraphBreak) -> dict[str, HostNode]:
    """Return the nodes that are evaluated at a graph break, by name."""
    nodes = follows.nodes if follows.kind == "data" else ()
    return {node.name: HostNode(node, "what it computes decides the shapes behind it") for node in nodes}


def waits_at(breaks: Iterable[GraphBreak | None]) -> dict[str, str]:
    """Return the nodes behind which segments are bound when a network is called, by place.

    Both branches of an If are known before.
    """
    waits = [each for each in breaks if each is not None and each.kind != "end" and each.op_type != "If"]
    return {each.path: f"{each.op_type} {each.node}" for each in waits}


# -- the sections of the file -----------------------------------------------------------------------------------------


def range_sections(
    plan: RangePlan, networks: Sequence[Assembled], kernels: Iterable[OpDesc], weights: PackedWeights
) -> Iterator[Section]:
    """Yield the sections from which ``RangeBinder`` binds: one of contents, and one for each program.

    Raises:
        ValueError: If a node has an attribute that cannot be stored.
    """
    symbols, number = networks[0].built.symbols, 0
    segments = []
    for segment in plan.segments:
        programs = [[place, each.shapes] for place, each in enumerate(segment.programs, number + 1)]
        segments.append([segment.digest, segment.inputs, programs])
        number += len(programs)
    content: dict[str, Any] = {
        "sources": own_sources(),
        "ranges": plan.sizes.to_json() if plan.sizes else None,
        "model": plan.model,
        "inputs": plan.declared,
        "outputs": [[each.name, each.type.dtype, each.shape] for each in plan.outputs],
        "segments": segments,
        "kernels": [[desc.canonical(), symbols[desc]] for desc in kernels],
    }
    yield Section(GRAPH, 0, [canonical_json(content).encode()])
    for number, (found, network) in enumerate(zip(plan.programs, networks, strict=True), 1):
        record = network.followed_by(found.graph.follows).record
        record = replace(record, constants=weights.place(network.constants.arrays))
        yield Section(GRAPH, number, [canonical_json(to_json(record)).encode()])
