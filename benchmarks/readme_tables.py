"""Write the tables of numbers into the documents, from the results of the benchmarks; ``make bench`` calls it last."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- benchmarks: begin -->\n", "<!-- benchmarks: end -->\n"


def main() -> None:
    """Replace what stands between the two marks of each document."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder with README.md and docs/")
    arguments = parser.parse_args()
    records = {name: json.loads((arguments.results / f"{name}.json").read_text()) for name in RESULTS}
    for document, section in (("README.md", latency_section), ("docs/concepts/sharing.md", sharing_section)):
        path = arguments.root / document
        before, _, rest = path.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        path.write_text(before + BEGIN + section(records) + END + after)


def latency_section(records: dict[str, Any]) -> str:
    """Return the README's text between the marks."""
    latency = records["latency"]
    return (
        f"{latency['machine']}, batch 1, float32, {latency['threads']} threads, ONNX Runtime {latency['onnxruntime']}, "
        f"side by side in one run, {latency['date']}; `make bench` repeats it.\n\n{latency_table(latency['rows'])}"
    )


def sharing_section(records: dict[str, Any]) -> str:
    """Return the text of the page about sharing between the marks."""
    build, sharing = records["build_time"], records["sharing"]
    return (
        f"{sharing['machine']}, {sharing['date']}. How many operators a network needs depends on the level: "
        "variants are chosen for its vector registers.\n\n"
        f"{build_table(build['rows'])}\n{sharing_table(sharing['rows'])}"
    )


def latency_table(rows: list[dict[str, Any]]) -> str:
    """Return the latencies, as ratios to ONNX Runtime's."""
    return markdown(
        ("one call", "opbuild ms", "ONNX Runtime ms", "ratio"),
        [
            (r["network"], f"{r['opbuild_ms']:.2f}", f"{r['onnxruntime_ms']:.2f}", f"**{r['ratio']:.2f}**")
            for r in sorted(rows, key=lambda row: row["ratio"])
        ],
    )


def build_table(rows: list[dict[str, Any]]) -> str:
    """Return the times from ``compile()`` to a callable network."""
    return markdown(
        ("ResNet-50, a new process each", "operators built", "reused", "seconds to callable"),
        [(r["build"], str(r["built"]), str(r["reused"]), f"{r['seconds']:.3f}") for r in rows],
    )


def sharing_table(rows: list[dict[str, Any]]) -> str:
    """Return the operators that each network found built by those before it."""
    total = tuple(str(sum(row[key] for row in rows)) for key in ("needed", "built", "reused"))
    body = [(r["network"], str(r["needed"]), str(r["built"]), str(r["reused"])) for r in rows]
    return markdown(
        ("one after another, one store", "operators needed", "built", "reused"), [*body, ("together", *total)]
    )


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


RESULTS = ("latency", "build_time", "sharing")

if __name__ == "__main__":
    main()
