"""What an offline model holds to serve ranges of sizes, and networks in segments: programs with symbolic extents.

The build lowers each segment at sizes that stand for all. A size for which no program's conditions hold adds a program;
each adds the kernels that suit it; and of what a program calls there are kernels for any size. Where the file is run a
size is bound by numbers (``range_binder``): nothing is lowered there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from opbuild.errors import OpbuildError, ShapeError
from opbuild.graph.cut import Cut
from opbuild.graph.formulas import Numbers
from opbuild.kernel.opdesc import OpDesc
from opbuild.models.declaration import Declared
from opbuild.models.sizes import Sizes
from opbuild.offline.file import PackedWeights
from opbuild.offline.format import GRAPH, Section
from opbuild.pipeline.stages import Assembled, HostNode, Planned, host_nodes
from opbuild.platform.records import NamedTuple, dataclass, replace
from opbuild.platform.sources import own_sources
from opbuild.program import Program
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.record_json import to_json
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.graph.types import Graph
    from opbuild.pipeline.source import Source
    from opbuild.session import Session

QUIET = 6
"""So many sizes in a row that need no program and no kernel more end the search for them."""


class Found(NamedTuple):
    """A program of a segment.

    Attributes:
        graph: What was lowered, with the break behind it.
        program: The program.
        shapes: The only size that it is for; None: it has symbolic extents.
    """

    graph: Graph
    program: Program
    shapes: Shapes | None

    def serves(self, shapes: Shapes) -> bool:
        """Return whether it is for a size: whether its conditions hold."""
        if self.shapes is not None or self.program.symbols is None:
            return shapes == self.shapes
        symbols = self.program.symbols
        numbers = Numbers(symbols.extents)
        places = [numbers.place(each) for each in chain(*(port.type.shape for port in self.program.inputs))]
        places += [numbers.place(each) for each in chain(*symbols.values)]
        found = numbers.formulas()([shapes[index][axis] for index, axis in symbols.variables])
        return found is not None and found[places].tolist() == [*chain(*shapes)]


@dataclass(eq=False)
class FileSegment:
    """A segment of a network, and its programs.

    Attributes:
        digest: The segment's.
        inputs: Its inputs as declared, with which the digest names it.
        programs: Its programs.
    """

    digest: str
    inputs: tuple[Declared, ...]
    programs: list[Found]


@dataclass(frozen=True)
class RangePlan:
    """What an offline model holds to serve any size.

    Attributes:
        model: The digest of the model, which is in the segments' digests.
        declared: The inputs of the network, -1 where sizes differ.
        sizes: The ranges; None: the file's signatures are all sizes.
        outputs: The network's outputs, -1 where they differ between sizes.
        segments: Its segments, the first one first.
        cuts: What comes after each program that is stored whole; None after a whole network.
        waits: The nodes at which segments are bound when the network is called.
    """

    model: str
    declared: tuple[Declared, ...]
    sizes: Sizes | None
    outputs: tuple[Endpoint, ...]
    segments: tuple[FileSegment, ...]
    cuts: tuple[Cut | None, ...]
    waits: tuple[str, ...] = ()

    @property
    def programs(self) -> list[Found]:
        """The programs of all segments."""
        return [each for segment in self.segments for each in segment.programs]


class Search:
    """Finds the programs of segments, and the kernels and host nodes that they need.

    Args:
        session: Lowers them.

    Attributes:
        kernels: The kernels, each with the nodes that need it.
        host: The nodes that no kernel serves, by name.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.kernels: dict[OpDesc, tuple[str, ...]] = {}
        self.host: dict[str, HostNode] = {}

    def segment(self, source: Source, sizes: Iterable[Shapes]) -> FileSegment:
        """Return the programs of a segment.

        Args:
            source: The segment.
            sizes: Sizes that stand for all, neighbours far apart.

        Raises:
            ShapeError: If the network takes none of them.
        """
        segment, quiet = FileSegment(source.digest or "", source.declaration.inputs, []), 0
        problem: ShapeError | None = None
        for shapes in sizes:
            try:
                is_new = self._look(segment, source, shapes)
            except ShapeError as error:  # a size that the network itself does not take
                problem = problem or error.with_traceback(None)
                continue
            quiet = 0 if is_new else quiet + 1
            if quiet == QUIET:
                break
        if not segment.programs:
            try:
                raise problem or ShapeError("there is no size in the ranges", "give wider ones")
            finally:
                del problem  # its traceback has this frame: a cycle
        return segment

    def _look(self, segment: FileSegment, source: Source, shapes: Shapes) -> bool:
        """Look at a size; return whether it needs a program or a kernel that others do not."""
        from opbuild.pipeline.templates import kernels_of_any_size

        found, known = self._lowered(source, segment.inputs, shapes), len(self.kernels)
        self.add(found.program.descriptors(), host_nodes(found.program))
        if any(each.serves(shapes) for each in segment.programs):
            return len(self.kernels) > known
        segment.programs.append(found)
        if found.shapes is None:
            self.add(kernels_of_any_size(found.program, lambda desc: [desc]), {})
        return True

    def add(self, kernels: Mapping[OpDesc, tuple[str, ...]], host: Mapping[str, HostNode]) -> None:
        """Add what is needed."""
        for desc, nodes in kernels.items():
            self.kernels.setdefault(desc, nodes)
        self.host.update(host)

    def _lowered(self, source: Source, inputs: Sequence[Declared], shapes: Shapes) -> Found:
        session = self._session
        try:
            return Found(*session.lower(source, [each.shape or () for each in inputs], shapes, Clock()), None)
        except OpbuildError:
            raise
        except Exception:  # from what does not know symbolic extents
            graph = source.graph(shapes, Clock())
            planned = session.plan([graph], Clock())
            return Found(graph, planned.programs[0], shapes)

    def planned(self, whole: Planned, segments: Sequence[FileSegment]) -> Planned:
        """Return all that is to be built: programs that are stored whole, then those of the segments."""
        found = [each for segment in segments for each in segment.programs]
        graphs, programs = zip(*((each.graph, each.program) for each in found), strict=True)
        return Planned((*whole.graphs, *graphs), (*whole.programs, *programs), self.kernels, self.host)


def at_cut(cut: Cut) -> dict[str, HostNode]:
    """Return the nodes that are evaluated at a cut, by name."""
    nodes = cut.nodes if cut.kind == "data" else ()
    return {node.name: HostNode(node, "what it computes decides the shapes behind it") for node in nodes}


def waits_at(cuts: Iterable[Cut | None]) -> dict[str, str]:
    """Return the nodes behind which segments are bound when a network is called, by place.

    Both branches of an If are known before.
    """
    kinds = [cut for cut in cuts if cut is not None and cut.kind != "end" and cut.op_type != "If"]
    return {cut.path: f"{cut.op_type} {cut.node}" for cut in kinds}


# -- the sections of the file -----------------------------------------------------------------------------------------


def range_sections(
    plan: RangePlan, networks: Sequence[Assembled], kernels: Iterable[OpDesc], weights: PackedWeights
) -> Iterator[Section]:
    """Yield the sections from which ``RangeBinder`` binds: one that says what there is, and one for each program.

    Args:
        plan: What to store.
        networks: The network of each of its programs, in order.
        kernels: The kernels of the file's library.
        weights: The file's constants; those of the programs are added.

    Raises:
        ValueError: If a node has an attribute that can not be stored.
    """
    symbols, number = networks[0].built.symbols, 0
    segments = []
    for segment in plan.segments:
        numbers = range(number + 1, number + 1 + len(segment.programs))
        segments.append([segment.digest, segment.inputs, [*zip(numbers, (p.shapes for p in segment.programs))]])
        number += len(segment.programs)
    content: dict[str, Any] = {
        "sources": own_sources(),
        "ranges": plan.sizes.to_json() if plan.sizes else None,
        "model": plan.model,
        "inputs": plan.declared,
        "outputs": [[each.name, each.type.dtype, each.shape] for each in plan.outputs],
        "segments": segments,
        "kernels": [[desc.components(), symbols[desc]] for desc in kernels],
    }
    yield Section(GRAPH, 0, [canonical_json(content).encode()])
    for number, (found, network) in enumerate(zip(plan.programs, networks, strict=True), 1):
        record = network.followed_by(found.graph.follows).record
        record = replace(record, constants=weights.place(network.constants.arrays))
        yield Section(GRAPH, number, [canonical_json(to_json(record)).encode()])
