"""Preview: what an offline build would do, decided as the build decides it, and nothing compiled or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from opbuild.api import lower_graph, make_builder
from opbuild.config import Config
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.portable import NotPortableError
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.soc_version import resolve_soc_version
from opbuild.models.source import Model
from opbuild.offline.host_nodes import HostNode, host_nodes, refuse_foreign
from opbuild.offline.products import read_graphs, read_ranges
from opbuild.report import OperatorReport, Report
from opbuild.session import Clock, Session, open_session

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.events import Observer

ShapeMap = Mapping[str, Sequence[int]]
RangeMap = Mapping[str, Sequence[int | tuple[int, int]]]

UNSUPPORTED = 1
"""ATC's code for an operator of a type that it does not know."""


def preview(
    model: Model,
    *,
    soc_version: str = "host",
    input_shapes: ShapeMap | None = None,
    variants: Sequence[ShapeMap] | None = None,
    ranges: RangeMap | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
    portable: bool = True,
) -> Report:
    """Return what ``build_offline`` with these arguments would compile and reuse, and why.

    Args:
        model: As for ``build_offline``; so are the others.
        soc_version: The machine to build for.
        input_shapes: Shapes by input name.
        variants: Several input signatures.
        ranges: Shapes with open extents.
        config: Settings.
        observer: Told warnings.
        portable: Whether to refuse, as ``build_offline`` does, operators that run only where onnx is installed.

    Returns:
        A report whose operators are ``built`` if they would be; their milliseconds are 0.

    Raises:
        ModelError: If the model is at fault.
        OptionError: If an argument is at fault.
        BuildError: If the compiler is not installed.
    """
    session = _session(soc_version, config, observer)
    planned = _plan(model, session, input_shapes, variants, ranges)
    if portable:
        refuse_foreign(planned.host.values())
    host = Counter(each.node.op_type for each in planned.host.values())
    return Report(network=planned.network, operators=_decided(planned.needed, session), host=host)


def _decided(needed: Mapping[OpDesc, tuple[str, ...]], session: Session) -> tuple[OperatorReport, ...]:
    from opbuild.builder.decide import Rebuild
    from opbuild.builder.explain import WHEN_ASKED, Explainer
    from opbuild.builder.job import REUSED

    builder = planning_builder(session)
    explainer = Explainer(builder.store, builder.others, WHEN_ASKED)
    operators = []
    for plan in builder.plan(needed):
        if isinstance(plan.decision, Rebuild):
            reason = explainer.explain(plan.key, plan.decision.reason)
            operators.append(OperatorReport(plan.name, "built", str(reason), plan.nodes))
        else:
            source = plan.decision.source
            why = f"taken from {source}" if source else str(REUSED)
            operators.append(OperatorReport(plan.name, "shared" if source else "reused", why, plan.nodes))
    return tuple(operators)


def planning_builder(session: Session) -> Builder:
    """Return a builder that only decides: it remembers the compiler in no file, as a build does."""
    from opbuild.kernel.identity import identify

    builder = make_builder(session)
    memo = session.config.compiler_memo if session.compiler.library() is None else None
    builder.use_identity(identify(session.compiler, memo, session.trust))
    return builder


class CheckedNode(NamedTuple):
    """One node of a model that was checked.

    Attributes:
        name: Its name.
        op_type: Its operator's type.
        fits: Whether an offline model can have it.
        remark: Why no kernel serves it; empty if one does.
    """

    name: str
    op_type: str
    fits: bool
    remark: str


@dataclass(frozen=True)
class CheckedModel:
    """What a check found.

    Attributes:
        name: The model's name.
        nodes: Its nodes in order.
    """

    name: str
    nodes: tuple[CheckedNode, ...]

    @property
    def without_kernel(self) -> tuple[CheckedNode, ...]:
        """The nodes that no kernel serves."""
        return tuple(node for node in self.nodes if node.remark)

    @property
    def failed(self) -> tuple[CheckedNode, ...]:
        """The nodes that an offline model can not have."""
        return tuple(node for node in self.nodes if not node.fits)

    def to_json(self) -> dict[str, Any]:
        """Return the check as ATC writes it to ``check_result.json``; a cause of code 0 is a remark, no failure."""
        return {
            "name": self.name,
            "result": "failed" if self.failed else "success",
            "total": len(self.nodes),
            "pass": len(self.nodes) - len(self.failed),
            "fail": len(self.failed),
            "op": [_as_json(node) for node in self.nodes],
        }


def _as_json(node: CheckedNode) -> dict[str, Any]:
    cause = {"cause": [{"code": 0 if node.fits else UNSUPPORTED, "message": node.remark}]} if node.remark else {}
    return {"name": node.name, "type": node.op_type, "result": "success" if node.fits else "failed", **cause}


def check(
    model: Path,
    *,
    soc_version: str = "host",
    input_shapes: ShapeMap | None = None,
    variants: Sequence[ShapeMap] | None = None,
    ranges: RangeMap | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
) -> CheckedModel:
    """Look for every operator of a model that has no kernel; nothing is compiled and the compiler is not needed.

    Args:
        model: The model's file; the others are as for ``build_offline``.
        soc_version: The machine to build for.
        input_shapes: Shapes by input name.
        variants: Several input signatures.
        ranges: Shapes with open extents.
        config: Settings.
        observer: Told warnings.

    Raises:
        ModelError: If the model is at fault as a whole.
        OptionError: If an argument is at fault.
    """
    from opbuild.frontend.onnx_inspect import check_nodes

    nodes = check_nodes(model)
    if any(node.problem for node in nodes):
        return CheckedModel(model.stem, tuple(CheckedNode(n.name, n.op_type, not n.problem, n.problem) for n in nodes))
    found: dict[str, CheckedNode] = {}
    try:
        planned = _plan(model, _session(soc_version, config, observer), input_shapes, variants, ranges)
        found.update((name, _checked(each)) for name, each in planned.host.items())
    except NotPortableError as error:
        types = {node.name: node.op_type for node in nodes}
        found.update((name, CheckedNode(name, types.get(name, ""), False, why)) for name, why in error.nodes.items())
    except UnsupportedOperatorError as error:
        blamed = next((node for node in nodes if repr(node.name) in error.message), None)
        if blamed is None:
            raise
        found[blamed.name] = CheckedNode(blamed.name, blamed.op_type, False, error.message)
    own = {node.name for node in nodes}
    checked = [found.get(node.name, CheckedNode(node.name, node.op_type, True, "")) for node in nodes]
    return CheckedModel(model.stem, (*checked, *(node for name, node in found.items() if name not in own)))


def _checked(host: HostNode) -> CheckedNode:
    where = "numpy evaluates it" if host.portable else "it runs only where the onnx package is installed"
    return CheckedNode(host.node.name, host.node.op_type, host.portable, f"{host.why}: {where}")


def _session(soc_version: str, config: Config | None, observer: Observer | None) -> Session:
    target = resolve_soc_version(soc_version)
    return open_session(config or Config.from_environment(), target, observer, use_images=False, runs_elsewhere=True)


class _Planned(NamedTuple):
    """What a build would do: the network's name, descriptors with the nodes that need them, nodes without a kernel."""

    network: str
    needed: Mapping[OpDesc, tuple[str, ...]]
    host: Mapping[str, HostNode]


def _plan(
    model: Model,
    session: Session,
    input_shapes: ShapeMap | None,
    variants: Sequence[ShapeMap] | None,
    ranges: RangeMap | None,
) -> _Planned:
    if ranges:
        plan, _ = read_ranges(model, session, input_shapes or {}, variants, ranges)
        return _Planned(plan.first.name, plan.kernels, plan.host)
    graphs, _ = read_graphs(model, session, input_shapes or {}, variants)
    clock, needed, host = Clock(), dict[OpDesc, tuple[str, ...]](), dict[str, HostNode]()
    for program in (lower_graph(graph, session, clock) for graph in graphs):
        host.update(host_nodes(program))
        for desc, nodes in program.descriptors().items():
            needed[desc] = tuple(dict.fromkeys((*needed.get(desc, ()), *nodes)))
    return _Planned(graphs[0].name, needed, host)
