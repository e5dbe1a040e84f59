"""Lowering with tuning records: a network with the variants that tuning found, of records that count for it.

Whether a record counts that neither the pack nor what is remembered tells of, is found out here once a network has use
for it: a compile worker makes the pipelines of what was measured, and nothing is compiled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from opbuild.errors import BuildError
from opbuild.events import Warned, ignore
from opbuild.families.family import TuningQuery, Variant
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.setup import Setup, release_pack
from opbuild.pipeline.tuned import applicable_records, database_problem
from opbuild.platform.records import replace
from opbuild.store.pack import Pack
from opbuild.store.tuning_database import TuningRecord

if TYPE_CHECKING:
    from opbuild.graph.types import Graph
    from opbuild.lowering.context import Options
    from opbuild.lowering.tuned import LoweringQuery
    from opbuild.pipeline.symbolic_lowering import SymbolicShapes
    from opbuild.program import Program
    from opbuild.target.level import Level


def lower_with_records(graph: Graph, setup: Setup, options: Options, opened: SymbolicShapes | None = None) -> Program:
    """Return a graph lowered with the variants that tuning found, and notes on them.

    What the release's database chooses is taken where its kernels come with the release, so that a first start that
    compiles nothing without that database compiles nothing with it. A database that cannot be read is told, and stops
    nothing.
    """
    problem = database_problem(setup)
    if problem:
        setup.observer(Warned(f"{problem}; families choose variants by their tables"))
    from opbuild.lowering.tuned import NoTuning, Tuned  # a network that is built starts without it

    pack, withheld = release_pack(setup), list[tuple[TuningQuery, Variant | None]]()
    records = applicable_records(setup)
    while True:
        chosen = Tuned(records or NoTuning(), withheld)
        program = _lowered(graph, setup.level, replace(options, chooser=chosen), opened)
        lacking = set[str]() if pack is None else _lacking_nodes(program, pack)
        found = [
            (query, each.answer)
            for query, each in chosen.queries.items()
            if each.origin and each.is_shipped and not each.sites.isdisjoint(lacking)
        ]
        if found:
            withheld += found
        elif records is None or not records.open:
            return replace(program, tuned=chosen.notes(), answers=chosen.answers())
        else:
            records.settle(_confirmed(graph, setup, options, opened, records.open, (chosen.queries, program)))


def _lowered(graph: Graph, level: Level, options: Options, opened: SymbolicShapes | None) -> Program:
    from opbuild.lowering.lower import lower

    return lower(graph, level, options) if opened is None else opened.lower(graph, level, options)


Lowered = tuple[Mapping["TuningQuery", "LoweringQuery"], "Program"]
"""A lowered network, and the queries of families meanwhile."""


def _confirmed(
    graph: Graph,
    setup: Setup,
    options: Options,
    opened: SymbolicShapes | None,
    records: Mapping[TuningQuery, TuningRecord],
    lowered: Lowered,
) -> dict[TuningQuery, bool]:
    """Return whether records count that answered queries: whether their kernels are the measured ones."""
    from opbuild.lowering.tuned import FixedAnswers, Tuned, kernels_of

    tables = Tuned(FixedAnswers({query: record.default for query, record in records.items()}))
    both = lowered, (tables.queries, _lowered(graph, setup.level, replace(options, chooser=tables), opened))
    kernels = {
        query: [desc for queries, program in both for desc in kernels_of(program, queries, query)] for query in records
    }
    defined = pipelines(setup, dict.fromkeys(chain.from_iterable(kernels.values())))
    return {
        query: dict(defined[desc] for desc in kernels[query] if desc in defined) == record.kernels
        for query, record in records.items()
    }


def pipelines(setup: Setup, descs: Iterable[OpDesc]) -> dict[OpDesc, tuple[str, str]]:
    """Return the names of operators and the digests of their present pipelines, as far as these can be known."""
    from opbuild.pipeline.stores import Stores, make_builder

    silent = replace(setup, observer=ignore, executor=None)
    with suppress(BuildError), make_builder(silent, Stores(silent)) as builder:
        return builder.defined(descs)
    return {}


def _lacking_nodes(program: Program, pack: Pack) -> set[str]:
    """Return the nodes whose kernels a pack lacks, of families that it has."""
    kernels = program.descriptors().items()
    return {node for desc, nodes in kernels if pack.file(desc.family) and not pack.has(desc) for node in nodes}
