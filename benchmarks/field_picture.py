"""Draw what field.py measured: a bar for each network, opbuild's time relative to that of the best other runtime.

python benchmarks/field_picture.py FOLDER PICTURE.svg [--threads N]
"""

from __future__ import annotations

import argparse
import json
import sys
from html import escape
from pathlib import Path

WIDTH, NAME, BAR, ROW = 720, 170, 240, 22
"""Pixels: of the picture, of a name, of a bar of ratio 1, of a row."""


def main() -> int:
    """Write the picture; return 1 if there is nothing to draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    rows = [json.loads(path.read_text()) for path in sorted(arguments.folder.glob(f"*-{arguments.threads}.json"))]
    ratios = {each["network"]: each["ratios"]["0"] for each in rows if each["ratios"]}
    if not ratios:
        print(f"{arguments.folder} has nothing for {arguments.threads} threads")
        return 1
    title = f"Time relative to the best other runtime, threads: {arguments.threads}, {rows[0]['settings']['machine']}"
    arguments.picture.write_text(drawn(ratios, title), encoding="utf-8")
    return 0


def drawn(ratios: dict[str, float], title: str) -> str:
    """Return the picture as SVG: shorter bars are better, the line is where both are equal."""
    height = ROW * (len(ratios) + 2)
    equal = NAME + BAR
    parts = [f'<text x="8" y="16" font-weight="bold">{escape(title)}</text>']
    for place, (name, ratio) in enumerate(sorted(ratios.items(), key=lambda each: each[1]), 1):
        top, width = place * ROW + 6, min(ratio * BAR, WIDTH - NAME - 50)
        color = "#2a7f62" if ratio <= 1 else "#b3532d"
        parts.append(f'<text x="{NAME - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{NAME}" y="{top}" width="{width:.1f}" height="{ROW - 6}" fill="{color}"/>')
        parts.append(f'<text x="{NAME + width + 6:.1f}" y="{top + 13}">{ratio:.2f}</text>')
    parts.append(f'<line x1="{equal}" y1="{ROW}" x2="{equal}" y2="{height - 10}" stroke="#555" stroke-dasharray="4"/>')
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
