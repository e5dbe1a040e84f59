"""The needs of an offline model, for its signatures or ranges: the start of a build, a preview and a check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from opbuild.config import Config
from opbuild.errors import OptionError, ShapeError, UnsupportedOperatorError
from opbuild.events import Observer
from opbuild.frontend.input_shape import format_input_shape
from opbuild.frontend.models.declaration import inputs_of, outputs_of_any
from opbuild.frontend.models.sizes import Sizes, make_sizes
from opbuild.frontend.models.source import Model, ModelSource, open_model
from opbuild.graph.types import DTYPES, Graph, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.offline.dry_run import dry_run
from opbuild.offline.ranges import RangePlan, Search, at_break, waits_at
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.source import FirstSegment
from opbuild.pipeline.stages import HostNode, Planned, require_portable
from opbuild.pipeline.stores import deciding_builder
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.binding import Shapes
from opbuild.runtime.endpoint import Endpoint, common
from opbuild.session import Session
from opbuild.target.host import resolve_level
from opbuild.target.level import BuildTarget
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.job import OperatorJob
    from opbuild.frontend.onnx_inspect import NodeCheck


ShapeMap = Mapping[str, Sequence[int]]
RangeMap = Mapping[str, Sequence[int | tuple[int, int]]]


DRY_RUN_SIZES = 4
"""Sizes in ranges at which a network is run on made-up values."""


@dataclass(frozen=True, eq=False)
class FilePlan:
    """The needs of an offline model.

    Attributes:
        needed: Programs and kernels.
        outputs: Names of the network's outputs.
        source: The model; None for a graph.
        ranges: What serves every size in the ranges, or what comes behind the graph breaks of a network; None if there
            are only signatures, each of which is bound whole.
        waits: The nodes at which segments of the network are bound when it is called.
    """

    needed: Planned
    outputs: tuple[str, ...]
    source: ModelSource | None = None
    ranges: RangePlan | None = None
    waits: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The model's digest; empty if it has none."""
        return "" if self.source is None else self.source.digest

    def require_unchanged(self) -> None:
        """Refuse a model of which somebody may have changed a file while it was built."""
        if self.source is not None and self.source.edited:
            raise self.source.changed_error()


def set_up_file(target: str | BuildTarget, config: Config | None, observer: Observer | None) -> Setup:
    """Check the request for an offline model; a target that is no text is one that a file need not be for."""
    target = resolve_level(target) if isinstance(target, str) else target
    return set_up(config or Config.from_environment(), target, observer, stores_networks=False, runs_elsewhere=True)


def plan_file(
    model: Model | Graph,
    session: Session,
    *,
    input_shapes: ShapeMap | None,
    variants: Sequence[ShapeMap] | None,
    ranges: RangeMap | None,
    portable: bool = True,
) -> FilePlan:
    """Return the needs of an offline model; arguments as for ``export``.

    Of a network in segments without ``portable`` only what is sure to be needed before it is called with data.

    Raises:
        ModelError: If the model is at fault, or a shape is open.
        OptionError: If arguments do not go together.
    """
    input_shapes, clock = input_shapes or {}, Clock()
    if ranges:
        if isinstance(model, Graph) or variants:
            given = "several signatures" if variants else "a graph, which has its own shapes"
            raise OptionError(f"ranges of shapes were given with {given}", "give one of them")
        source = open_model(model, session.stores.models)
        return _plan_segments(source, session, sizes=_sizes(source, input_shapes, ranges))
    if isinstance(model, Graph):
        if input_shapes or variants:
            raise OptionError("shapes were given for a graph, which has its own", "leave input_shapes and variants out")
        return FilePlan(session.plan([model], clock), model.outputs)
    source = open_model(model, session.stores.models)
    signatures = _signatures(source, input_shapes, variants)
    source.keeps = True
    walked = [source.walk(shapes, clock) for shapes in signatures]
    if all(each.follows is None for each in walked):
        return FilePlan(session.plan([each.graph for each in walked], clock), _outputs(source), source)
    if portable:
        return _plan_segments(source, session, signatures)
    met = dry_run(source, _first(source, signatures), signatures)
    certain = [each.source.graph(shapes, clock) for each in met for shapes in each.certain]
    waits = waits_at(found for each in met for found in each.breaks.values())
    return FilePlan(session.plan(certain, clock), _outputs(source), source, waits=tuple(waits.values()))


def _outputs(source: ModelSource) -> tuple[str, ...]:
    return tuple(output.name for output in source.declaration.outputs)


def _first(source: ModelSource, signatures: Sequence[Shapes]) -> FirstSegment:
    """Return the first segment of a model; an extent is open in which its signatures differ."""
    declared = [common([TensorType("", shape) for shape in shapes]).shape for shapes in zip(*signatures, strict=True)]
    return FirstSegment(source, declared)


def _plan_segments(
    source: ModelSource, session: Session, signatures: Sequence[Shapes] = (), sizes: Sizes | None = None
) -> FilePlan:
    """Return the needs of a file that binds the segments of a network where it is run: for signatures or ranges."""
    _require_tensors(source)
    samples, clock = sizes.samples() if sizes else signatures, Clock()
    source.keeps = True
    first = _first(source, samples)
    met = dry_run(source, first, samples, DRY_RUN_SIZES if sizes else len(samples))
    breaks = [found for each in met for found in each.breaks.values() if found is not None]
    stored = [*met[0].certain][:1] if sizes else signatures
    walked = [source.walk(shapes, clock) for shapes in stored]
    whole = session.plan([each.graph for each in walked], clock)
    search = Search(session)
    search.add(whole.kernels, whole.host)
    segments = [
        search.segment(first, samples, sizes.drawn() if sizes else ()),
        *(search.segment(each.source, [*each.breaks]) for each in met[1:] if each.breaks),
    ]
    for each in breaks:
        search.add({}, at_break(each))
    plan = RangePlan(
        model=source.digest,
        declared=first.declaration.inputs,
        sizes=sizes,
        outputs=outputs_of_any(source.graph, sizes, stored) if sizes and not breaks else _declared(source),
        segments=tuple(segments),
        breaks=tuple(each.follows for each in walked),
        waits=tuple(waits_at(breaks).values()),
    )
    return FilePlan(search.planned(whole, segments), _outputs(source), source, plan, plan.waits)


def _signatures(source: ModelSource, input_shapes: ShapeMap, variants: Sequence[ShapeMap] | None) -> list[Shapes]:
    """Return the input signatures of a file, each once."""
    signatures: list[Shapes] = []
    for variant in variants or [{}]:
        given = {**input_shapes, **variant}
        _, shapes = inputs_of(source.declaration, given)
        if shapes is None:
            types = {name: given.get(name, shape) for name, _, shape in source.declaration.inputs}
            name = next(name for name, shape in types.items() if shape is None or min(shape, default=0) < 0)
            raise ShapeError(
                f"input {name!r} has an open shape",
                f"give it: input_shapes={{{name!r}: (...)}}; for a file of many sizes give variants or ranges",
                command=f'give it: --shape "{name}:..."',
            )
        if shapes not in signatures:
            signatures.append(shapes)
    return signatures


def _declared(source: ModelSource) -> tuple[Endpoint, ...]:
    outputs = source.declaration.outputs
    return tuple(Endpoint(name, TensorType(dtype, cast("Any", shape))) for name, dtype, shape in outputs)


def _require_tensors(source: ModelSource) -> None:
    """Refuse a network with other inputs than tensors."""
    other = next((each.name for each in source.declaration.inputs if each.dtype not in DTYPES), None)
    if other is not None:
        raise UnsupportedOperatorError(
            f"input {other!r} is no tensor, and an offline model can have only tensors as inputs",
            "use opbuild.compile",
            command="use opbuild run or build",
        )


def _sizes(source: ModelSource, input_shapes: ShapeMap, ranges: RangeMap) -> Sizes:
    """Return the ranges of all inputs."""
    _check_ranks(source, ranges)
    fixed = {name: shape for name, shape in input_shapes.items() if name not in ranges}
    least = {name: [_least_extent(extent) for extent in shape] for name, shape in ranges.items()}
    _, shapes = inputs_of(source.declaration, {**fixed, **least})
    if shapes is None:
        name = next(
            name
            for name, _, shape in source.declaration.inputs
            if name not in {**fixed, **ranges} and (shape is None or FREE in shape)
        )
        raise ShapeError(f"input {name!r} has an open shape, and no range", "give it a shape or a range too")
    names = [name for name, _, _ in source.declaration.inputs]
    whole = [ranges.get(name, shape) for name, shape in zip(names, shapes, strict=True)]
    return make_sizes(names, whole)


def _check_ranks(source: ModelSource, ranges: Mapping[str, Sequence[int | tuple[int, int]]]) -> None:
    """Refuse ranges that have other numbers of dimensions than their inputs, in the words in which they were given."""
    for name, _, declared in source.declaration.inputs:
        if name in ranges and declared is not None and len(ranges[name]) != len(declared):
            raise ShapeError(
                f"input {name!r} has {counted(len(declared), 'dimension')}, and "
                f"{format_input_shape({name: ranges[name]})!r} has {len(ranges[name])}",
                "give a number or a range for each dimension",
            )


def _least_extent(extent: int | tuple[int, int]) -> int:
    return max(extent, 1) if isinstance(extent, int) else extent[0]


def preview(
    model: Model,
    *,
    target: str | BuildTarget = "host",
    input_shapes: ShapeMap | None = None,
    variants: Sequence[ShapeMap] | None = None,
    ranges: RangeMap | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
    portable: bool = True,
) -> Report:
    """Return a report of the operators that ``export`` with these arguments would compile and reuse, and why.

    With ``portable`` operators that run only where onnx is installed are refused, as ``export`` does. Without
    it is what ``compile`` would do, which takes a lower level's operators where nothing can be compiled. Operators are
    reported as ``built`` if they would be; their milliseconds are 0.

    The report's ``breaks`` are the nodes of a network in segments behind which it is bound when it is called. An
    offline model has the operators that made-up data lead to, which are reported too; without ``portable`` they are
    not, as other data may lead to others.

    Raises:
        ModelError: If the model is at fault.
        OptionError: If an argument is at fault.
        BuildError: If the compiler is not installed.
    """
    setup = set_up_file(target, config, observer)
    session = Session(setup)
    shapes: Any = {"input_shapes": input_shapes, "variants": variants, "ranges": ranges}
    plan = plan_file(model, session, **shapes, portable=portable)
    needed, builder = plan.needed, deciding_builder(setup, session.stores)
    if portable:
        require_portable(needed.host.values())
    else:
        session, needed, builder = session.served(needed, builder, Clock())
    host = Counter(each.node.op_type for each in needed.host.values())
    jobs = builder.plan(needed.kernels)
    level = session.setup.level_text_with(sum(job.is_borrowed for job in jobs))
    stayed = {said: count for program in needed.programs for said, count in program.stayed.items()}
    waits, tuned, explained = plan.waits, _tuned(needed), _explained(jobs, builder)
    return Report(needed.name, explained, host, level=level, breaks=waits, tuned=tuned, stayed=stayed)


def _tuned(needed: Planned) -> dict[str, str]:
    return {node: said for program in needed.programs for node, said in program.tuned.items()}


def _explained(jobs: Sequence[OperatorJob], builder: Builder) -> tuple[OperatorReport, ...]:
    from opbuild.builder.explain import WHEN_ASKED, Explainer

    builder.adopt(jobs)
    explain = Explainer(builder.store, builder.others, WHEN_ASKED).explain
    return tuple(OperatorReport(job.name, job.outcome, str(explain(job.key, job.reason)), job.nodes) for job in jobs)


UNSUPPORTED = 1
"""ATC's code for an operator of a type that it does not know."""


@dataclass(frozen=True)
class CheckedModel:
    """The result of a check: the model's name, and its nodes in order."""

    name: str
    nodes: tuple[NodeCheck, ...]

    @property
    def without_kernel(self) -> tuple[NodeCheck, ...]:
        """The nodes that no kernel serves."""
        return tuple(node for node in self.nodes if node.remark)

    @property
    def failed(self) -> tuple[NodeCheck, ...]:
        """The nodes that an offline model cannot have."""
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


def _as_json(node: NodeCheck) -> dict[str, Any]:
    cause = {"cause": [{"code": 0 if node.fits else UNSUPPORTED, "message": node.remark}]} if node.remark else {}
    return {"name": node.name, "type": node.op_type, "result": "success" if node.fits else "failed", **cause}


def check(
    model: Path,
    *,
    target: str = "host",
    input_shapes: ShapeMap | None = None,
    variants: Sequence[ShapeMap] | None = None,
    ranges: RangeMap | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
) -> CheckedModel:
    """Look for every operator of a model that has no kernel; nothing is compiled and the compiler is not needed.

    Arguments are those of ``export``.
    """
    from opbuild.frontend.onnx_inspect import check_nodes

    nodes = check_nodes(model)
    if not all(node.fits for node in nodes):
        return CheckedModel(model.stem, nodes)
    remarked: dict[str, NodeCheck] = {}
    setup = set_up_file(target, config, observer)
    try:
        plan = plan_file(model, Session(setup), input_shapes=input_shapes, variants=variants, ranges=ranges)
        remarked.update((name, _checked(each)) for name, each in plan.needed.host.items())
    except UnsupportedOperatorError as error:
        faulty = next((node for node in nodes if node.name == error.node), None)
        if faulty is None:
            raise
        remarked[faulty.name] = faulty._replace(fits=False, remark=error.message)
    own = {node.name for node in nodes}
    checked = [remarked.get(node.name, node) for node in nodes]
    return CheckedModel(model.stem, (*checked, *(node for name, node in remarked.items() if name not in own)))


def _checked(host: HostNode) -> NodeCheck:
    from opbuild.frontend.onnx_inspect import NodeCheck

    where = "numpy evaluates it" if host.portable else "it runs only where the onnx package is installed"
    return NodeCheck(host.node.name, host.node.op_type, host.portable, f"{host.why}: {where}")
