"""Foreign words as they may be shown: names of models, nodes and files, texts of remote stores, compilers and systems.

Control characters in them would be orders to a terminal: to set its clipboard or title, to overwrite lines, to show
letters in another order than they stand in.
"""

from __future__ import annotations


def visible(text: str) -> str:
    """Return a text in which unprintable letters are written as in Python's ``repr``, but for ends of lines."""
    if text.isprintable() or text.replace("\n", "").isprintable():
        return text
    return "".join(each if each == "\n" or each.isprintable() else _escaped(each) for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
