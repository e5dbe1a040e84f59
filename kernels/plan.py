"""Which kernels a structure needs: at its sizes, at those between them, and at any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from kernels.alternatives import Alternatives, conversions
from kernels.models import OpenStructure
from kernels.operations import single_operations
from opbuild.backend.evaluate import evaluate
from opbuild.families.catalogue import find
from opbuild.families.family import Family, TuningQuery
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import Tuned
from opbuild.pipeline.steps import optimize_graph
from opbuild.pipeline.symbolic_lowering import kernels_for_all_sizes, symbolic_shapes
from opbuild.pipeline.tuned import ApplicableRecords, family_sources, was_measured
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.machine_class import shipped_databases
from opbuild.store.pack import Pack
from opbuild.store.tuning_database import TuningRecord, parse_database
from opbuild.target.level import Level
from opbuild.target.machine import Machine

SINGLE = 4
"""Nodes that a graph of a single operator has at most."""


def graphs_of(models: Iterator[onnx.ModelProto | Graph]) -> list[Graph]:
    """Return a structure's optimized graphs, one for each size."""
    graphs = []
    for proto in models:
        if isinstance(proto, Graph):
            graphs.append(optimize_graph(proto))
            continue
        model = load_model(proto)
        shapes = {name: each.shape or () for name, each in model.inputs.items()}
        graphs.append(optimize_graph(model.bind(shapes, evaluate)))
    return graphs


def open_descriptors(structure: OpenStructure, level: Level) -> dict[OpDesc, None]:
    """Return the kernels that a structure with open extents needs for a level: at its sizes, and at any."""
    proto, found = structure.write(), dict[OpDesc, None]()
    model = load_model(proto)
    inputs = [[each.dim_param or each.dim_value for each in value.type.tensor_type.shape.dim]
              for value in proto.graph.input]  # fmt: skip
    declared = [[FREE if isinstance(each, str) else each for each in shape] for shape in inputs]
    for size in structure.sizes:
        opened = symbolic_shapes(declared, tuple(tuple(size.get(each, each) for each in shape) for shape in inputs))
        graph = optimize_graph(model.bind(dict(zip(model.inputs, opened.shapes, strict=True)), evaluate))
        program = opened.lower(graph, level, Options())
        found |= dict.fromkeys((*program.descriptors(), *kernels_for_all_sizes(program, lambda desc: [desc])))
    return found | dict.fromkeys(_hiding(desc) for desc in tuple(found) if _attends(desc))


def descriptors(graphs: list[Graph], level: Level, *, between: bool = True) -> dict[OpDesc, None]:
    """Return the kernels that graphs of one structure need for a level, in the order in which they need them.

    First come those of each size, then those that sizes between them choose, then what the release's banks choose, then
    those without limits. A single operator has few sizes, and those between them are not looked at. Attention comes as
    torch's modules have it, too.

    Args:
        graphs: The structure at each size.
        level: The level.
        between: Whether sizes between them are looked at.
    """
    found: dict[OpDesc, None] = {}
    alternatives = Questions()
    options = Options(chooser=alternatives)
    asked = []
    for graph in graphs:
        alternatives.begin()
        found |= dict.fromkeys(lower(graph, level, options).descriptors())
        asked.append(dict(alternatives.questions))
    if between and len(graphs[0].nodes) > SINGLE:
        for _ in alternatives.turns():
            lower(graphs[0], level, options)
    found |= alternatives.wanted
    for tuned in map(Tuned, shipped_knowledge(level)):
        for graph, questions in zip(graphs, asked, strict=True):
            if any(tuned.choose((), *question) != answer for question, answer in questions.items()):
                found |= dict.fromkeys(lower(graph, level, Options(chooser=tuned)).descriptors())
    found |= dict.fromkeys(_hiding(desc) for desc in tuple(found) if _attends(desc))
    found |= dict.fromkeys(find(desc.family).without_limits(desc) for desc in tuple(found))
    return found


class Questions(Alternatives):
    """Alternatives that say what families were asked about the graph that is lowered, and what they answered.

    Attributes:
        questions: The answers by a family and its arguments.
    """

    def begin(self) -> None:
        """Begin to lower another size, with no questions."""
        super().begin()
        self.questions: dict[tuple[Family, tuple[Any, ...]], Any] = {}

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Any:
        """Return the variant, having noted the question."""
        answer = super().choose(site, family, arguments)
        self.questions.setdefault((family, arguments), answer)
        return answer


def shipped_knowledge(level: Level) -> list[ApplicableRecords]:
    """Return the tuning records of a release for a level, for each class of machines with each number of threads."""
    found: defaultdict[tuple[Path, str, str, int], dict[TuningQuery, TuningRecord]] = defaultdict(dict)
    for path in shipped_databases(level.name):
        for each in parse_database(path.read_bytes(), PRIVATE).records:
            if each.level == level.name:
                machine = path, each.machine, each.system, each.threads
                found[machine][TuningQuery(each.family, each.arguments)] = each
    return [ApplicableRecords(records, _counts) for records in found.values()]


def _counts(record: TuningRecord) -> bool:
    """Return whether a record was measured of the sources of now, or of the pack's kernels, whatever defines these."""
    is_current = record.sources == family_sources(record.family)
    return is_current or was_measured(record, Pack(record.level).file(record.family))


def of_every_network(level: Level) -> dict[OpDesc, None]:
    """Return the kernels that any network may need: those between layouts, dense and strided, and single operations."""
    found = dict.fromkeys(conversions(Machine.of(level)))
    found |= dict.fromkeys(_dense(desc) for desc in tuple(found))
    found |= dict.fromkeys(find(desc.family).without_limits(desc) for desc in tuple(found))
    return found | single_operations(Machine.of(level))


def _attends(desc: OpDesc) -> bool:
    """Return whether a kernel is one of attention, or of a softmax that only attention has."""
    return desc.family == "attention" or (desc.family == "softmax" and "zeros" in desc.attrs)


def _hiding(desc: OpDesc) -> OpDesc:
    """Return a kernel of attention as torch's own operators are: 0 for queries that see nothing, and only for these."""
    return replace(desc, attrs={**desc.attrs, "zeros": "hidden"})


def _dense(desc: OpDesc) -> OpDesc:
    """Return a kernel for operands whose innermost elements lie side by side."""
    inputs, outputs = (
        tuple(replace(each, dims=(replace(each.dims[0], stride=1), *each.dims[1:])) for each in operands)
        for operands in (desc.inputs, desc.outputs)
    )
    return replace(desc, inputs=inputs, outputs=outputs)
