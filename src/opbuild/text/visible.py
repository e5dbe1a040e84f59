"""Foreign words as they may be shown: names of models, nodes and files, texts of remote stores, compilers and systems.

Control characters in them would be orders to a terminal: to set its clipboard or title, to overwrite lines, to show
letters in another order than they stand in. Notebooks get small tables instead of a ``repr``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def visible(text: str) -> str:
    """Return a text in which unprintable letters are written as in Python's ``repr``, but for ends of lines."""
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


_CELL = ' style="text-align:left;vertical-align:top"'


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table, with a header if columns have names; everything in it is text."""
    head = f"<thead><tr>{_cells('th', header)}</tr></thead>" if header else ""
    body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def titled(title: str, *parts: str) -> str:
    """Return HTML under a line of text."""
    return f"<div><p><strong>{_html(title)}</strong></p>{''.join(parts)}</div>"


def folded(title: str, content: str) -> str:
    """Return HTML that is shown when its title is clicked."""
    return f"<details><summary>{_html(title)}</summary>{content}</details>"


def _html(text: str) -> str:
    from html import escape  # loads the names of all letters

    return escape(visible(text))


def _cells(tag: str, values: Sequence[object]) -> str:
    return "".join(f"<{tag}{_CELL}>{_html(str(value))}</{tag}>" for value in values)
