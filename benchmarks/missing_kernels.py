"""Kernels that networks need beyond the pack, counted by family and by what the nearest kernel of the pack lacks.

Networks are lowered for a level, and nothing is compiled: those of a folder of ``make structures``, the held-out ones
unless others are asked for, or what ``first_answer.py --json`` found when it built.

    python benchmarks/missing_kernels.py FOLDER_OR_JSON [--level x86-64-v4] [--all] [--json FILE]
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import onnx
from measure import parser

from kernels.drawn import exported, family, held_out
from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from opbuild.kernel.free import FREE
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.pipeline.steps import optimize_graph
from opbuild.pipeline.symbolic_lowering import symbolic_shapes
from opbuild.store.pack import Pack, PackFile
from opbuild.target.level import BY_NAME
from opbuild.text.canonical import canonical_json

FIELDS = ("type", "attributes", "expression", "epilogue", "operands", "variant", "rank", "strides", "limits")
EXAMPLES = 3

Components = Mapping[str, Any]


def aspects(components: Components) -> dict[str, str]:
    """Return the properties that distinguish kernels of a family, each as text by its name."""
    attrs, operands = dict(components["attrs"]), (*components["inputs"], *components["outputs"])
    dims = [each["dims"] for each in operands]
    found = {
        "expression": attrs.pop("expression", None),
        "epilogue": attrs.pop("epilogue", None),
        "type": sorted({each["dtype"] for each in operands}),
        "attributes": attrs,
        "operands": len(operands),
        "variant": components["variant"],
        "rank": [len(each) for each in dims],
        "strides": [[dim[:2] for dim in each] for each in dims],
        "limits": [[dim[2:] for dim in each] for each in dims],
    }
    return {name: canonical_json(found[name]) for name in FIELDS}


def cause(components: Components, packed: Sequence[Mapping[str, str]]) -> str:
    """Return the aspects that the nearest kernel in the pack lacks, without those that follow from others."""
    if not packed:
        return "family"
    own = aspects(components)
    differing = min(([name for name in FIELDS if own[name] != each[name]] for each in packed), key=_weight)
    return " + ".join(_independent(differing)) or "names of its operators"


def _weight(differing: Sequence[str]) -> tuple[int, list[int]]:
    return len(_independent(differing)), [FIELDS.index(name) for name in differing]


def _independent(differing: Sequence[str]) -> list[str]:
    """Return aspects without those that follow from others: limits from a variant, strides from a rank."""
    follows = {"limits": {"variant", "rank", "operands"}, "strides": {"rank", "operands"}, "rank": {"operands"},
               "operands": {"expression", "epilogue"}}  # fmt: skip
    return [name for name in differing if not follows.get(name, set()) & set(differing)]


@lru_cache
def packed_aspects(level: str, name: str) -> tuple[Mapping[str, str], ...]:
    """Return the aspects of all kernels of a family in the pack."""
    file = Pack(level).file(name)
    return tuple(map(aspects, file.descriptors())) if isinstance(file, PackFile) else ()


def needed(path: Path, level: str) -> list[Components] | str:
    """Return the kernels that a network needs beyond the pack, or why it cannot be lowered."""
    pack = Pack(level)
    try:
        return [desc.components() for desc in _descriptors(path, level) if not pack.has(desc)]
    except OpbuildError as error:
        return str(error)


def _descriptors(path: Path, level: str) -> Iterator[Any]:
    proto = onnx.load(path)
    with np.load(path.with_suffix(".npz")) as feeds:
        shapes = {name: feeds[name].shape for name in feeds.files}
    model = load_model(proto)
    declared = [[FREE if extent in (None, -1) else extent for extent in each.shape] for each in model.inputs.values()]
    given = tuple(shapes[name] for name in model.inputs)
    if not any(FREE in each for each in declared):
        return iter(lower(optimize_graph(model.bind(shapes, evaluate)), BY_NAME[level], Options()).descriptors())
    opened = symbolic_shapes(declared, given)
    graph = optimize_graph(model.bind(dict(zip(model.inputs, opened.shapes, strict=True)), evaluate))
    return iter(opened.lower(graph, BY_NAME[level], Options()).descriptors())


def rows(source: Path, level: str, *, everything: bool) -> Iterator[dict[str, Any]]:
    """Yield for each network its name, its family, and the kernels beyond the pack or a problem."""
    if source.is_file():
        for row in json.loads(source.read_text())["rows"]:
            yield {"name": row["name"], "family": row["family"], "missing": row["opbuild"].get("missing", [])}
        return
    chosen = {name: path for name, path in exported(source).items() if everything or held_out(name)}
    with multiprocessing.Pool(1, maxtasksperchild=20) as pool:
        for (name, path), found in zip(
            chosen.items(), pool.imap(partial(needed, level=level), chosen.values()), strict=True
        ):
            outcome = {"problem": found, "missing": []} if isinstance(found, str) else {"missing": found}
            yield {"name": name, "family": family(path), **outcome}


def histogram(found: Sequence[Mapping[str, Any]], level: str) -> Iterator[str]:
    """Yield the lines of tables: networks by family, and distinct kernels by family and cause, with examples."""
    yield "| family | networks | none beyond the pack | median | nine of ten at most | most |"
    yield "|---|---:|---:|---:|---:|---:|"
    by_family: dict[str, list[int]] = defaultdict(list)
    for row in found:
        if not row.get("problem"):
            by_family[row["family"]].append(len(row["missing"]))
            by_family["all"].append(len(row["missing"]))
    for name, unsorted in by_family.items():
        counts = sorted(unsorted)
        tenth = counts[min(len(counts) - 1, int(0.9 * len(counts)))]
        yield (
            f"| {name} | {len(counts)} | {counts.count(0)} | {statistics.median(counts):g} | {tenth} | {counts[-1]} |"
        )
    networks: dict[tuple[str, str], set[str]] = defaultdict(set)
    kernels: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in found:
        for each in row["missing"]:
            place = each["family"], cause(each, packed_aspects(level, each["family"]))
            networks[place].add(row["name"])
            kernels[place][" ".join(each["op_types"])] += 1
    yield ""
    yield "| kernels of | the pack lacks the | networks | kernels, summed over networks | most frequent operators |"
    yield "|---|---|---:|---:|---|"
    for place in sorted(networks, key=lambda place: -sum(kernels[place].values())):
        examples = "; ".join(f"{types[:60]} ({count})" for types, count in kernels[place].most_common(EXAMPLES))
        yield f"| {place[0]} | {place[1]} | {len(networks[place])} | {kernels[place].total()} | {examples} |"
    for row in found:
        if row.get("problem"):
            yield f"\nnot lowered: {row['name']}: {row['problem'][:200]}"


def main() -> None:
    """Count and print."""
    arguments = parser(__doc__)
    arguments.add_argument("source", type=Path)
    arguments.add_argument("--level", default="x86-64-v4")
    arguments.add_argument("--all", action="store_true", help="also those that the pack may be made for")
    given = arguments.parse_args()
    found = list(rows(given.source, given.level, everything=given.all))
    if given.json:
        given.json.write_text(json.dumps(found))
    print("\n".join(histogram(found, given.level)))


if __name__ == "__main__":
    main()
