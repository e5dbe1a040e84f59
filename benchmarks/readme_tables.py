"""Write the README's table of numbers from the results of the benchmarks; ``make bench`` calls it last."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- benchmarks: begin -->\n", "<!-- benchmarks: end -->\n"


def main() -> None:
    """Replace what stands between the two marks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=ROOT / "benchmarks" / "results")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    arguments = parser.parse_args()
    records = {name: json.loads((arguments.results / f"{name}.json").read_text()) for name in SECTIONS}
    text = arguments.readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    arguments.readme.write_text(before + BEGIN + section(records) + END + after)


def section(records: dict[str, Any]) -> str:
    """Return the text between the marks."""
    latency = records["latency"]
    parts = [
        f"{latency['machine']}, batch 1, float32, {latency['threads']} threads, ONNX Runtime {latency['onnxruntime']}, "
        f"side by side in one run, {latency['date']}; `make bench` repeats it.\n"
    ]
    parts += [table(records[name]["rows"]) for name, table in SECTIONS.items()]
    return "\n".join(parts)


def latency_table(rows: list[dict[str, Any]]) -> str:
    """Return the latencies, as ratios to ONNX Runtime's."""
    return markdown(
        ("latency", "opbuild ms", "ONNX Runtime ms", "ratio"),
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
    """Return what each network found built by those before it."""
    total = tuple(str(sum(row[key] for row in rows)) for key in ("needed", "built", "reused"))
    body = [(r["network"], str(r["needed"]), str(r["built"]), str(r["reused"])) for r in rows]
    return markdown(
        ("one after another, one store", "operators needed", "built", "reused"), [*body, ("together", *total)]
    )


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table."""
    lines = [head, ("---", *["---:"] * (len(head) - 1)), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


SECTIONS = {"latency": latency_table, "build_time": build_table, "sharing": sharing_table}

if __name__ == "__main__":
    main()
