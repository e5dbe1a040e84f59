"""RE2's syntax of regular expressions, which RegexFullMatch has, as Python's."""

from __future__ import annotations

import re

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ",
    "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
"""POSIX's classes of characters, which stand inside brackets; Python takes them for sets of their letters."""

_SPACE = r"\t\n\f\r "
"""What RE2 takes for white space; Python adds the vertical tab."""

_PART = re.compile(r"\\(?:x\{[0-9A-Fa-f]+\}|.)|\[:\^?\w+:\]|\(\?<?[=!]|\(\?>|\(\?\(|\(\?P=|[*+?}]\+|.", re.DOTALL)


def pattern_of(text: str) -> str:
    """Return a pattern of RE2's syntax in Python's.

    Raises:
        ValueError: If it uses what Python has and RE2 has not, or what only RE2 has.
    """
    found: list[str] = []
    is_set, begun = False, -1
    for number, match in enumerate(_PART.finditer(text)):
        part = match.group()
        if is_set:
            if part == "]" and number > begun:
                is_set = False
            elif part == "^" and number == begun:
                begun += 1
            found.append(_inside(part))
        elif part == "[":
            is_set, begun = True, number + 1
            found.append(part)
        else:
            found.append(_outside(part))
    return "".join(found)


def _inside(part: str) -> str:
    """Return a part of a set of characters."""
    if part.startswith("[:"):
        name = part[2:-2]
        if name not in _CLASSES:
            raise ValueError(f"the class {part} is not supported in a pattern")
        return _CLASSES[name]
    if part == r"\s":
        return _SPACE
    if part == r"\S":
        raise ValueError(r"\S inside brackets is not supported in a pattern")
    return r"\[" if part == "[" else _escape(part)


def _outside(part: str) -> str:
    if part == "$":
        return r"\Z"  # Python's $ matches before a newline at the end, too
    if part == r"\s":
        return f"[{_SPACE}]"
    if part == r"\S":
        return f"[^{_SPACE}]"
    if len(part) > 1 and not part.startswith("\\"):
        raise ValueError(f"{part!r} is not part of RE2's syntax of patterns")
    return _escape(part)


def _escape(part: str) -> str:
    if part == r"\z":
        return r"\Z"
    if part.startswith(r"\x{"):
        return re.escape(chr(int(part[3:-1], 16)))
    if len(part) == 2 and part[0] == "\\" and (part[1] in "123456789pPCQEZ"):
        raise ValueError(f"{part!r} is not supported in a pattern")
    return part
