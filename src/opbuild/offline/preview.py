"""Preview: the effects of an offline build, decided as the build decides it, and nothing compiled or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opbuild.config import Config
from opbuild.events import Observer
from opbuild.frontend.models.source import Model
from opbuild.offline.plan import RangeMap, ShapeMap, plan_file, set_up_file
from opbuild.pipeline.stages import Planned, require_portable
from opbuild.pipeline.stores import deciding_builder
from opbuild.report import Clock, OperatorReport, Report
from opbuild.session import Session

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.builder.job import OperatorJob


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
    """Return a report of the operators that ``build_offline`` with these arguments would compile and reuse, and why.

    With ``portable`` operators that run only where onnx is installed are refused, as ``build_offline`` does. Without
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
    setup = set_up_file(soc_version, config, observer)
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
    return Report(needed.name, _explained(jobs, builder), host, level=level, breaks=plan.waits, tuned=_tuned(needed))


def _tuned(needed: Planned) -> dict[str, str]:
    return {node: said for program in needed.programs for node, said in program.tuned.items()}


def _explained(jobs: Sequence[OperatorJob], builder: Builder) -> tuple[OperatorReport, ...]:
    from opbuild.builder.explain import WHEN_ASKED, Explainer

    builder.adopt(jobs)
    explain = Explainer(builder.store, builder.others, WHEN_ASKED).explain
    return tuple(OperatorReport(job.name, job.outcome, str(explain(job.key, job.reason)), job.nodes) for job in jobs)
