"""The first tier: a network lowered to kernels that are there, where those that suit it would have to be compiled.

A call takes the first way that is there: the kernel that families choose; its variant without limits; another family's;
what was fused one after the other; numpy.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opbuild.backend.host.evaluate import is_native
from opbuild.events import Warned
from opbuild.families.catalogue import find
from opbuild.families.family import Family
from opbuild.graph import user_operators
from opbuild.graph.elementwise import split_attention, split_epilogue
from opbuild.graph.indices import is_check
from opbuild.graph.types import Graph, Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser, Options
from opbuild.lowering.lower import lower
from opbuild.lowering.operands import Made
from opbuild.operations.expression import from_json, walk
from opbuild.pipeline.loaded import with_rank
from opbuild.pipeline.stages import Planned, host_nodes, planned
from opbuild.pipeline.steps import lowering_options
from opbuild.platform.records import replace
from opbuild.program import Program, View
from opbuild.target.level import Level
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.pipeline.setup import Setup
    from opbuild.report import Clock

FUSED = ("opbuild", "Elementwise")

Missing = Callable[[Collection[OpDesc]], Collection[OpDesc]]
"""Returns those kernels that would have to be compiled."""


def first_tier(needed: Planned, setup: Setup, builder: Builder, clock: Clock) -> Planned | None:
    """Return the needs of a network's first tier, and tell that it is one; None if all kernels are there, or none do.

    Args:
        needed: The needs of the network.
        setup: Why nothing can be compiled.
        builder: Finds kernels.
        clock: Takes the time.
    """
    jobs = builder.plan(needed.kernels)
    count = sum(job.must_compile for job in jobs)
    if not count:
        return None
    known = {job.desc: job.must_compile for job in jobs}

    def missing(kernels: Collection[OpDesc]) -> list[OpDesc]:
        new = dict.fromkeys((desc for desc in kernels if desc not in known), ())
        known.update((job.desc, job.must_compile) for job in (builder.plan(new) if new else ()))
        return [desc for desc in kernels if known[desc]]

    options = lowering_options(setup.config)
    with clock("lower"):
        found = [lower_to_present(each, setup.level, options, missing) for each in needed.graphs]
    programs = [each for each in found if each is not None]
    if len(programs) < len(found):
        return None
    hosted = Counter(each.node.op_type for each in host_nodes(programs[0]).values())
    setup.observer(Warned(_told(needed, setup.why_not_compiled, count, hosted)))
    return planned(needed.graphs, programs)


def _told(needed: Planned, why: str, count: int, hosted: Mapping[str, int]) -> str:
    """Return the message for the user of a network that is not computed as it should be."""
    types = ", ".join(f"{number} x {op_type}" for op_type, number in sorted(hosted.items()))
    numpy = f"numpy computes {types}" if types else "other kernels compute it"
    return (
        f"{why}, and {needed.name} lacks {counted(count, 'operator')} of {len(needed.kernels)}: {numpy}, more slowly; "
        "build it once where compiling is possible, with the same cache path"
    )


def lower_to_present(graph: Graph, level: Level, options: Options, missing: Missing) -> Program | None:
    """Return the program of an optimized graph whose kernels are all there; None if there is none.

    Args:
        graph: The graph.
        level: The level that it is for.
        options: How it is lowered; the chooser is not used.
        missing: Asked for kernels, once for each.
    """
    ways = _PresentKernels()
    while True:
        program = lower(graph, level, replace(options, chooser=ways, on_host=frozenset(ways.host)))
        needed = program.descriptors()
        ways.look_up(needed, missing)
        lacking = {desc: nodes for desc, nodes in needed.items() if desc in ways.missing}
        if not lacking:
            return program
        found = _next_ways(graph, ways, lacking)
        if found is None:
            return None
        graph = found


class _PresentKernels(Chooser):
    """Chooses what is there.

    Attributes:
        missing: The kernels that are not there.
        plain: Their variants without limits, where these are.
        host: Values that numpy computes.
    """

    def __init__(self) -> None:
        self.missing: set[OpDesc] = set()
        self.plain: dict[OpDesc, OpDesc] = {}
        self.host: set[str] = set()
        self._known: set[OpDesc] = set()
        self._declined: defaultdict[str, set[str]] = defaultdict(set)

    def look_up(self, needed: Iterable[OpDesc], missing: Missing) -> None:
        """Find out which kernels are there, and which of their variants without limits."""
        plain = {desc: find(desc.family).without_limits(desc) for desc in needed if desc not in self._known}
        asked = [*dict.fromkeys([*plain, *plain.values()])]
        if asked:
            self._known.update(asked)
            self.missing.update(missing(asked))
            lacking = self.missing.intersection(plain)
            self.plain.update((desc, plain[desc]) for desc in lacking if plain[desc] not in self.missing)

    def decline(self, desc: OpDesc, nodes: Collection[str]) -> bool:
        """Leave nodes to other families; return whether that is new."""
        own, before = self._declined[desc.family], len(self._declined[desc.family])
        own.update(nodes)
        return len(own) > before

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Any:
        """Return the family's own choice; None for nodes that are left to others, if it may leave them."""
        declined = not self._declined[family.name].isdisjoint(site)
        if declined and family.candidates is not None and None in family.candidates(*arguments):
            return None
        return family.choose(*arguments)

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Made:
        """Return the call of a kernel, of its variant without limits where that alone is there."""
        plain = self.plain.get(desc)
        if plain is None:
            return desc, views
        dims = with_rank(plain, [view.dims for view in views])
        return plain, tuple(view._replace(dims=tuple(own)) for view, own in zip(views, dims, strict=True))


def _next_ways(graph: Graph, ways: _PresentKernels, lacking: Mapping[OpDesc, Collection[str]]) -> Graph | None:
    """Return the graph, changed or not, that is lowered next; None if there is no other way."""
    changed, fallen = False, set[str]()
    for desc, names in lacking.items():
        if desc in ways.plain or ways.decline(desc, names):
            changed = True
        else:
            fallen.update(names)
    nodes: list[Node] = []
    for node in graph.nodes:
        parts: Sequence[Node] | None = None
        if node.name in fallen:
            parts = split_attention(node) or split_epilogue(node)
        if node.name in fallen and parts is None and ways.host.isdisjoint(node.outputs) and _has_host(node):
            ways.host.update(filter(None, node.outputs))
            changed, parts = True, [_for_host(node, graph)]
        changed = changed or parts is not None
        nodes += [node] if parts is None else _named(node, parts)
    return graph.with_(nodes=tuple(nodes)) if changed else None


def _named(node: Node, parts: Sequence[Node]) -> list[Node]:
    """Return the parts of a node with names of their own."""
    return [parts[0], *(part.with_(name=f"{node.name}/{part.op_type}{n}") for n, part in enumerate(parts[1:]))]


def _for_host(node: Node, graph: Graph) -> Node:
    """Return a node as numpy computes it: a fused one may read less than what its shape follows from."""
    if (node.domain, node.op_type) != FUSED:
        return node
    return node.with_(attrs={**node.attrs, "shape": graph.types[node.outputs[0]].shape})


def _has_host(node: Node) -> bool:
    """Return whether numpy can compute a node: it does not know what users define for kernels."""
    if is_check(node) or user_operators.find(node.domain, node.op_type) is not None:
        return False
    if (node.domain, node.op_type) == FUSED:
        return all(each[0] != "user" for each in walk(from_json(list(node.attrs["expression"]))))
    return node.domain != "opbuild" or is_native(node)
