"""The page: contents in, one HTML file out, which needs no network and reads without a script."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from opbuild.page.contents import PageContents
from opbuild.page.recording import STEPS
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted, first_of, size
from opbuild.text.visible import visible

if TYPE_CHECKING:
    from jinja2 import Template

WIDTH, ROW, CHART = 1000, 24, 160
"""Units of the drawings: their width, the height of a lane, and of the chart of the memory."""

SHOWN = 3
"""Nodes and networks that a row names; the others are in its title."""


class Bar(NamedTuple):
    """A span as it is drawn."""

    x: float
    y: int
    width: float
    kind: str
    title: str


def render(contents: PageContents) -> str:
    """Return the page."""
    total = max((span.began + span.milliseconds for span in contents.spans), default=0.0)
    memory = [layer.memory for layer in contents.layers]
    return _template().render(
        c=contents,
        report=contents.report,
        bars=_bars(contents, total),
        total=total,
        lanes=contents.lanes,
        row=ROW,
        width=WIDTH,
        chart=CHART,
        memory=_steps(memory, contents.report.arena),
        peak_memory=max((each for each in memory if each is not None), default=0),
        longest=max((layer.share for layer in contents.layers), default=0.0),
        counted=counted,
        first_of=lambda names: first_of(names, SHOWN),
        size=size,
        ms=_milliseconds,
    )


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # not what is markup already
    )
    return environment.from_string(Path(__file__).with_name("page.html.j2").read_text(encoding="utf-8"))


def _milliseconds(value: float | None) -> str:
    """Return a time with three figures that count."""
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _bars(contents: PageContents, total: float) -> list[Bar]:
    scale, lanes = WIDTH / total if total else 0.0, contents.lanes
    return [
        Bar(
            round(span.began * scale, 2),
            lanes.index(span.lane) * ROW,
            max(round(span.milliseconds * scale, 2), 1.0),
            "step" if span.lane == STEPS else "compile",
            f"{span.name}: {_milliseconds(span.milliseconds)} ms" + (f", {span.detail}" if span.detail else ""),
        )
        for span in contents.spans
    ]


def _steps(values: list[Any], arena: int) -> str:
    """Return the outline of a chart with a step for each value, as points of an SVG polygon."""
    top = max([arena, *(value or 0 for value in values)]) or 1
    wide = WIDTH / (len(values) or 1)
    points = [(0.0, float(CHART))]
    for index, value in enumerate(values):
        y = CHART * (1 - (value or 0) / top)
        points += [(index * wide, y), ((index + 1) * wide, y)]
    points.append((WIDTH, float(CHART)))
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
