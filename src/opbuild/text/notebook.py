"""Views for notebooks instead of a ``repr``: small tables, in the colours of the page around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from opbuild.text.visible import visible

_CELL = ' style="text-align:left;vertical-align:top"'


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table; everything in it is text.

    Args:
        header: The names of the columns; empty for none.
        rows: The rows' cells.
    """
    head = f"<thead><tr>{_cells('th', header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def titled(title: str, *parts: str) -> str:
    """Return HTML under a line of text."""
    return f"<div><p><strong>{escape(visible(title))}</strong></p>{''.join(parts)}</div>"


def folded(title: str, content: str) -> str:
    """Return HTML that is shown when its title is clicked."""
    return f"<details><summary>{escape(visible(title))}</summary>{content}</details>"


def _cells(tag: str, values: Sequence[object]) -> str:
    return "".join(f"<{tag}{_CELL}>{escape(visible(str(value)))}</{tag}>" for value in values)
