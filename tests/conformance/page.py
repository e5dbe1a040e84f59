"""The page of ONNX's own cases: counts, a row for each operator, and each case that does not pass."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import onnx

import opbuild
from conformance.outcomes import COMPILED, HOST, RANDOM, REFUSED, STATES, WRONG, Outcome
from opbuild.cli.operators import short

INTRODUCTION = """# ONNX's own cases

The `onnx` package ships {count} cases for operators and small networks (`onnx.backend.test`: node, simple,
pytorch-converted and pytorch-operator). They run here through [`opbuild.onnx_backend`](python_api.md), and what comes
out is compared as ONNX's own runner compares it. `make conformance` runs them all and writes this page; the test suite
runs a part of them and compares with what is written down.

{counts}
"""

MEANINGS = {
    COMPILED: "passed, every operator by a kernel or when the network was built",
    HOST: "passed, some operators fell back to numpy, without a kernel",
    RANDOM: "random values: element types and shapes are right",
    REFUSED: "refused by an error that says why",
    WRONG: "another result than expected",
}


def page(found: Mapping[str, Outcome]) -> str:
    """Return the page as Markdown."""
    counts = Counter(each.state for each in found.values())
    passed = counts[COMPILED] + counts[HOST]
    others = len(found) - counts[RANDOM]
    table = ["| | cases | |", "|---|---|---|", *(f"| {s} | {counts[s]} | {MEANINGS[s]} |" for s in STATES)]
    shares = f"{passed / others:.1%} of the cases that are not random pass, {counts[COMPILED] / others:.1%} compiled."
    table += ["", f"With onnx {onnx.__version__}: {shares}"]
    head = INTRODUCTION.format(count=len(found), counts="\n".join(table))
    return "\n".join([head, *_operators(found), "", *_problems(found)])


def _operators(found: Mapping[str, Outcome]) -> Iterable[str]:
    yield from (
        "## Operators",
        "",
        "How many of the cases with an operator pass compiled, with that operator on the host, or not at all; the",
        "element types for which it has kernels and for which the host computes it ([more on them](operators.md)); and",
        "the operator sets that defined it anew.",
        "",
        "| operator | compiled | host | refused | kernels for | falls back to numpy | since |",
        "|---|---|---|---|---|---|---|",
    )
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for each in found.values():
        for op_type in each.operators:
            counts[op_type][COMPILED if each.state == HOST and op_type not in each.host else each.state] += 1
    types = _types()
    for op_type, states in sorted(counts.items()):
        kernels, host = types.get(op_type, ("", ""))
        row = (op_type, *(states[state] or "" for state in (COMPILED, HOST, REFUSED)), kernels, host, _since(op_type))
        yield f"| {' | '.join(map(str, row))} |"


def _types() -> dict[str, tuple[str, str]]:
    """Return the types of each operator's kernels and of what the host computes, over all its forms."""
    kernels: defaultdict[str, dict[str, None]] = defaultdict(dict)
    host: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for record in opbuild.operators():
        kernels[record.name].update(dict.fromkeys(record.kernel))
        host[record.name].update(dict.fromkeys(record.host))
    shown = {name: (tuple(kernels[name]), tuple(t for t in host[name] if t not in kernels[name])) for name in kernels}
    return {name: tuple(short(each).replace("*", "\\*") for each in sides) for name, sides in shown.items()}


def _since(op_type: str) -> str:
    versions: defaultdict[str, set[int]] = defaultdict(set)
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.name == op_type:
            versions[schema.domain].add(schema.since_version)
    return "; ".join(f"{domain} {_listed(each)}".strip() for domain, each in sorted(versions.items()))


def _listed(versions: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(versions)))


def _problems(found: Mapping[str, Outcome]) -> Iterable[str]:
    by_reason: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, each in found.items():
        if each.state in (REFUSED, WRONG):
            by_reason[each.state, each.reason].append(name)
    yield from ("## Cases that do not pass", "", "| | case | reason |", "|---|---|---|")
    for (state, reason), names in sorted(by_reason.items()):
        shown = reason.replace("|", "\\|").replace("<", "&lt;")
        yield f"| {state} | {', '.join(f'`{name}`' for name in names)} | {shown} |"
    yield ""
