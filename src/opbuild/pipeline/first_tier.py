"""The first tier: a network lowered to kernels that are there, where those that suit it would have to be compiled.

A call takes the first way that is there: the kernel that families choose; one that is more general; another family's;
what was fused one after the other, by single operations in the end; numpy.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from opbuild.backend.host.evaluate import is_native
from opbuild.events import Warned
from opbuild.families.catalogue import find, with_rank
from opbuild.families.family import Family
from opbuild.graph import user_operators
from opbuild.graph.elementwise import split_attention, split_epilogue
from opbuild.graph.indices import is_check
from opbuild.graph.single_operations import SingleOperations, split_operations
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser, Options
from opbuild.lowering.lower import lower
from opbuild.operations.expression import from_json, walk
from opbuild.pipeline.stages import Planned, host_nodes, planned
from opbuild.pipeline.steps import lowering_options
from opbuild.platform.records import NamedTuple, replace
from opbuild.program import KernelCall, Program
from opbuild.target.level import Level
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.pipeline.setup import Setup
    from opbuild.report import Clock

REFERENCE = ("", "ai.onnx.ml")
"""Domains whose operators onnx's reference evaluator has."""

FUSED = ("opbuild", "Elementwise")

SERVER = 400.0
"""Milliseconds in which a compile server begins, on a quiet machine."""

LOWERINGS = 2.0
"""How often a network is lowered again until all that it needs is there; 1 to 3 for 152 networks."""

NUMPY = 30.0
"""How much longer than a kernel numpy takes for the same."""

Missing = Callable[[Collection[OpDesc]], Collection[OpDesc]]
"""Returns those kernels that would have to be compiled."""


class FirstTier(NamedTuple):
    """The first tier of a network.

    Attributes:
        needed: Its program and kernels, all of which are there.
        lacking: The network's own kernels that are to be compiled behind it; none where nothing can be.
    """

    needed: Planned
    lacking: tuple[OpDesc, ...]


def first_tier(
    needed: Planned, lacking: Collection[OpDesc], setup: Setup, builder: Builder, clock: Clock
) -> FirstTier | None:
    """Return a network's first tier; None if there is none, or its kernels are compiled sooner than that answers.

    Where nothing can be compiled, one warning says what it lacks.

    Args:
        needed: The needs of the network.
        lacking: Those of its kernels that are not there.
        setup: Whether kernels can be compiled.
        builder: Finds them.
        clock: Takes the time.
    """
    most = math.inf
    if not setup.why_not_compiled:
        costs = [find(desc.family).cost(desc) for desc in lacking]
        compiling = SERVER + max(*costs, sum(costs) / setup.config.workers)
        most = compiling - LOWERINGS * clock.steps.get("lower", 0.0)

    options = lowering_options(setup.config)
    with clock("lower"):
        pairs = zip(needed.graphs, needed.programs, strict=True) if most > 0 else ()
        programs = [lower_to_present(*pair, setup.level, options, builder.lacking, most) for pair in pairs]
    found = [each for each in programs if each is not None]
    if len(found) < len(needed.graphs):
        return None
    if setup.why_not_compiled:
        hosted = Counter(each.node.op_type for each in host_nodes(found[0]).values())
        setup.observer(Warned(_told(needed, setup.why_not_compiled, len(lacking), hosted)))
        return FirstTier(planned(needed.graphs, found), ())
    return FirstTier(planned(needed.graphs, found), tuple(lacking))


def _told(needed: Planned, why: str, count: int, hosted: Mapping[str, int]) -> str:
    """Return the message for the user of a network that is not computed as it should be."""
    types = ", ".join(f"{number} x {op_type}" for op_type, number in sorted(hosted.items()))
    numpy = f"numpy computes {types}" if types else "other kernels compute it"
    return (
        f"{why}, and {needed.name} lacks {counted(count, 'operator')} of {len(needed.kernels)}: {numpy}, more slowly; "
        "build it once where compiling is possible, with the same cache path"
    )


def lower_to_present(
    graph: Graph, program: Program, level: Level, options: Options, missing: Missing, most: float = math.inf
) -> Program | None:
    """Return the program of an optimized graph whose kernels are all there; None if there is none.

    Args:
        graph: The graph.
        program: The program that it was lowered to.
        level: The level that it is for.
        options: How it is lowered; the chooser is not used.
        missing: Asked for kernels, once for each.
        most: Milliseconds that numpy may take, roughly.
    """
    ways = _PresentKernels()
    while True:
        needed = program.descriptors()
        ways.look_up(needed, missing)
        lacking = {desc: nodes for desc, nodes in needed.items() if desc in ways.missing and desc not in ways.general}
        if not lacking:
            return ways.generalized(program)
        found = _next_ways(graph, ways, lacking)
        if found is None:
            return None
        graph = found
        hosted = {node.name for node in graph.nodes if not ways.host.isdisjoint(node.outputs)}
        works = {name: call.work for call in program.calls if isinstance(call, KernelCall) for name in call.nodes}
        if NUMPY * 1e-6 * sum(works.get(name, 0) for name in hosted) > most:
            return None
        program = lower(graph, level, replace(options, chooser=ways, on_host=frozenset(ways.host)))


class _PresentKernels(Chooser):
    """Chooses kernels that are there.

    Attributes:
        missing: The kernels that are not there.
        general: The first more general ones that are, in place of them.
        host: Values that numpy computes.
    """

    def __init__(self) -> None:
        self.missing: set[OpDesc] = set()
        self.general: dict[OpDesc, OpDesc] = {}
        self.host: set[str] = set()
        self._known: set[OpDesc] = set()
        self._declined: defaultdict[str, set[str]] = defaultdict(set)

    def look_up(self, needed: Iterable[OpDesc], missing: Missing) -> None:
        """Find out which kernels are there, and for those that are not which more general ones."""
        new = [desc for desc in needed if desc not in self._known]
        self._known.update(new)
        lacking = missing(new) if new else ()
        self.missing.update(lacking)
        general = {desc: find(desc.family).more_general(desc) for desc in lacking}
        wanted = dict.fromkeys(chain.from_iterable(general.values()))
        absent = set(missing(wanted)) if wanted else set()
        for desc, others in general.items():
            there = next((each for each in others if each not in absent), None)
            if there is not None:
                self.general[desc] = there

    def decline(self, desc: OpDesc, node: str) -> bool:
        """Leave a node to other families; return whether that is new, and the family may do so."""
        own = self._declined[desc.family]
        is_new = node not in own and find(desc.family).candidates is not None
        own.add(node)
        return is_new

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Any:
        """Return the family's own choice; None for nodes that are left to others, if it may leave them."""
        declined = not self._declined[family.name].isdisjoint(site)
        if declined and family.candidates is not None and None in family.candidates(*arguments):
            return None
        return family.choose(*arguments)

    def generalized(self, program: Program) -> Program:
        """Return a program with more general kernels in place of those that are not there."""
        calls = tuple(self._generalized(call) if isinstance(call, KernelCall) else call for call in program.calls)
        return replace(program, calls=calls)

    def _generalized(self, call: KernelCall) -> KernelCall:
        general = self.general.get(call.desc)
        if general is None:
            return call
        dims = with_rank(general, [view.dims for view in call.views])
        views = tuple(view._replace(dims=tuple(own)) for view, own in zip(call.views, dims, strict=True))
        return replace(call, desc=general, views=views)


def _next_ways(graph: Graph, ways: _PresentKernels, lacking: Mapping[OpDesc, Collection[str]]) -> Graph | None:
    """Return the graph, changed or not, that is lowered next; None if there is no other way."""
    changed, fallen = False, defaultdict[str, list[OpDesc]](list)
    for desc, names in lacking.items():
        for name in names:
            fallen[name].append(desc)
    nodes: list[Node] = []
    types, constants = dict[str, TensorType](graph.types), dict[str, Array](graph.constants)
    count = Counter(node.name for node in graph.nodes)
    for number, own in enumerate(graph.nodes):
        is_one = count[own.name] == 1 or own.name not in fallen  # else nobody knows yet which of them lacks a kernel
        node = own if is_one else own.with_(name=f"{own.name}/{own.op_type}{number}")
        parts = _parts(node, graph) if own.name in fallen else None
        if parts is not None:
            nodes += parts.nodes
            types |= parts.types
            constants |= parts.constants
        elif sum(ways.decline(desc, node.name) for desc in fallen.get(node.name, ())):
            nodes.append(node)
        elif node.name in fallen and ways.host.isdisjoint(node.outputs) and _has_host(node):
            ways.host.update(filter(None, node.outputs))
            nodes.append(_for_host(node, graph))
        else:
            nodes.append(node)
            changed = changed or not is_one
            continue
        changed = True
    return graph.with_(nodes=tuple(nodes), types=types, constants=constants) if changed else None


def _parts(node: Node, graph: Graph) -> SingleOperations | None:
    """Return the parts of a node that was fused, with names of their own; None if there are none."""
    parts = split_attention(node) or split_epilogue(node)
    if parts is None:
        return split_operations(node, graph)
    found = SingleOperations([], {}, {})
    for number, part in enumerate(parts):
        named = part.with_(name=f"{node.name}/{part.op_type}{number}" if number else node.name)
        single = split_operations(named, graph) if number else None  # few kernels are of what follows a product alone
        found.nodes.extend([named] if single is None else single.nodes)
        found.types.update({} if single is None else single.types)
        found.constants.update({} if single is None else single.constants)
    return found


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
    return node.domain in REFERENCE or is_native(node)
