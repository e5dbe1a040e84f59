"""Draw what field.py measured: a bar for each network, opbuild's time relative to that of the best other runtime.

python benchmarks/field_picture.py FOLDER PICTURE.svg [--threads N]
"""

from __future__ import annotations

import argparse
import json
import sys
from html import escape
from pathlib import Path

WIDTH, NAME, BAR, ROW = 720, 170, 400, 22
"""Pixels: of the picture, of a name, of a bar of ratio 1, of a row."""

HEAD, FOOT = 52, 44
"""Pixels above and below the bars, of title and axis."""


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
    title = f"Time of one call, {rows[0]['settings']['machine']}, {arguments.threads} threads"
    arguments.picture.write_text(drawn(ratios, title), encoding="utf-8")
    return 0


def drawn(ratios: dict[str, float], title: str) -> str:
    """Return the picture as SVG: a bar for each network, and below them the axis, which says what is better."""
    bottom = HEAD + ROW * len(ratios)
    parts = [
        f'<text x="8" y="18" font-weight="bold">{escape(title)}</text>',
        '<text x="8" y="36">opbuild relative to the fastest of the other runtimes for that network; '
        "shorter is better</text>",
    ]
    for quarter in range(5):
        x, width = NAME + quarter * BAR / 4, 1 + quarter // 4
        parts.append(f'<line x1="{x}" y1="{HEAD - 6}" x2="{x}" y2="{bottom}" stroke="#999" stroke-width="{width}"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{quarter / 4:g}</text>')
    for place, (name, ratio) in enumerate(sorted(ratios.items(), key=lambda each: each[1])):
        top, width = HEAD + place * ROW, min(ratio * BAR, WIDTH - NAME - 50)
        color = "#2a7f62" if ratio <= 1 else "#b3532d"
        parts.append(f'<text x="{NAME - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{NAME}" y="{top}" width="{width:.1f}" height="{ROW - 6}" fill="{color}"/>')
        parts.append(
            f'<text x="{NAME + width - 6:.1f}" y="{top + 13}" text-anchor="end" fill="white">{ratio:.2f}</text>'
        )
    label = '<text x="{}" y="{}" text-anchor="{}">{}</text>'
    parts.append(label.format(NAME, bottom + 34, "start", "← opbuild is faster"))
    parts.append(label.format(NAME + BAR, bottom + 34, "middle", "as fast as the fastest other"))
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + FOOT}" font-family="sans-serif" '
        f'font-size="12">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    sys.exit(main())
