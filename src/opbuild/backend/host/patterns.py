"""RE2's regular expressions, which ONNX's operators on text have: a pattern as a tree, and its matches in a text.

Python's ``re`` has no such syntax, and takes time that doubles with each letter for some patterns.

All ways through a pattern are followed side by side, letter by letter (Thompson, "Regular Expression Search
Algorithm", 1968); which places of the pattern are reached, and by which letter, is remembered, as RE2 does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from unicodedata import category

Tree = tuple[Any, ...]
"""``("set", contains)``, ``("all", trees)``, ``("one", trees)``, ``("repeat", tree, least, most)``, ``("at", place)``;
nothing is all of none."""

Contains = Callable[[str], bool]

MOST_REPEATS = 1000
"""Times that a part is repeated at most by a number, as RE2 has it; those of parts inside are multiplied."""

MOST_DEEP = 150
"""Groups inside each other."""

_CLASSES = {
    "alnum": "09AZaz", "alpha": "AZaz", "ascii": "\x00\x7f", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f",
    "digit": "09", "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~", "space": "\t\r  ", "upper": "AZ",
    "word": "09AZaz__", "xdigit": "09AFaf", "d": "09", "w": "09AZaz__", "s": "\t\n\f\r  ",
}  # fmt: skip
"""The ranges of POSIX's classes, which stand inside brackets, and of Perl's."""

_LETTERS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}

_PLACES = {"A": "begin", "z": "end", "b": "boundary", "B": "inside"}


def parse(text: str) -> Tree:
    """Return the tree of a pattern.

    Raises:
        ValueError: If it is not one that RE2 takes, or has scripts of Unicode, which are not supported.
    """
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._flags = frozenset[str]()
        self._depth = 0

    def whole(self) -> Tree:
        tree = self._choice()
        if self._at < len(self._text):
            raise self._error("a ) without its (")
        return tree

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"the pattern {self._text!r} is not valid at {self._at}: {problem}")

    def _takes(self, text: str) -> bool:
        found = self._text.startswith(text, self._at)
        self._at += len(text) if found else 0
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._error("it ends too soon")
        self._at += 1
        return self._text[self._at - 1]

    # -- what stands beside each other --------------------------------------------------------------------------------

    def _choice(self) -> Tree:
        self._depth += 1
        if self._depth > MOST_DEEP:
            raise self._error(f"more than {MOST_DEEP} groups are inside each other")
        parts = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        self._depth -= 1
        return parts[0] if len(parts) == 1 else ("one", tuple(parts))

    def _sequence(self) -> Tree:
        parts: list[Tree] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            if self._takes(r"\Q"):
                end = self._text.find(r"\E", self._at)
                quoted = self._text[self._at : end if end >= 0 else None]
                self._at += len(quoted)
                parts += map(self._letter, quoted)
            elif not self._takes(r"\E"):
                part = self._part()
                if part is None:
                    continue
                parts.append(part)
            if parts:
                parts[-1] = self._repeated(parts[-1])
        return ("all", tuple(parts))

    def _repeated(self, tree: Tree) -> Tree:
        bounds = self._bounds()
        if bounds is None:
            return tree
        self._takes("?")  # which of the matches it prefers: that there is one, and the longest, is the same
        least, most = bounds
        found = ("repeat", tree, least, most)
        if (most is not None and most < least) or _repeats(found) > MOST_REPEATS:
            raise self._error(f"it repeats more than {MOST_REPEATS} times, or from more to less")
        if self._bounds() is not None:
            raise self._error("what is repeated is repeated")
        return found

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._takes(sign):
                return bounds
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : max(end, 0)].partition(",")
        is_number = all(each.isascii() and each.isdigit() and len(each) < 9 for each in filter(None, (least, most)))
        if not self._text.startswith("{", self._at) or end < 0 or not least or not is_number:
            return None
        self._at = end + 1
        return int(least), int(most) if most else None if comma else int(least)

    def _part(self) -> Tree | None:
        """Return the next part; None for flags, which are none."""
        letter = self._next()
        if letter in "*+?":
            raise self._error("there is nothing to repeat")
        if letter == "(":
            return self._group()
        if letter == "[":
            return ("set", self._set())
        if letter == "\\":
            return self._escape()
        if letter == ".":
            return ("set", (lambda _: True) if "s" in self._flags else lambda each: each != "\n")
        if letter in "^$":
            place = "begin" if letter == "^" else "end"
            return ("at", f"{place} of line" if "m" in self._flags else place)
        return self._letter(letter)

    def _letter(self, letter: str) -> Tree:
        return ("set", self._folded(_in_ranges(letter * 2)))

    def _folded(self, contains: Contains) -> Contains:
        if "i" not in self._flags:
            return contains
        return lambda each: any(len(case) == 1 and contains(case) for case in (each, each.lower(), each.upper()))

    # -- groups -------------------------------------------------------------------------------------------------------

    def _group(self) -> Tree | None:
        flags = self._flags
        if self._takes("?P<") or self._takes("?<"):
            name = self._take_until(">")
            if not name.replace("_", "a").isalnum():
                raise self._error(f"{name!r} is no name of a group")
        elif self._takes("?") and self._changes_flags():
            return None
        tree = self._choice()
        if not self._takes(")"):
            raise self._error("a ( without its )")
        self._flags = flags
        return tree

    def _take_until(self, sign: str) -> str:
        end = self._text.find(sign, self._at)
        if end < 0:
            raise self._error(f"a {sign} is missing")
        found, self._at = self._text[self._at : end], end + len(sign)
        return found

    def _changes_flags(self) -> bool:
        """Take the flags of a group; return whether they are for the rest, and there is no group."""
        adds, flags = True, set(self._flags)
        while (sign := self._next()) not in ":)":
            if sign == "-" and adds:
                adds = False
            elif sign in "imsU":
                flags = flags | {sign} if adds else flags - {sign}
            else:
                raise self._error(f"RE2 has no groups that begin with (?{sign}")
        self._flags = frozenset(flags)
        return sign == ")"

    # -- letters ------------------------------------------------------------------------------------------------------

    def _escape(self) -> Tree:
        if self._text[self._at : self._at + 1] in _PLACES and self._at < len(self._text):
            return ("at", _PLACES[self._next()])
        found = self._escaped()
        return self._letter(found) if isinstance(found, str) else ("set", self._folded(found))

    def _escaped(self) -> str | Contains:
        """Return the letter, or the set of letters, that follows a backslash."""
        letter = self._next()
        if letter in "dwsDWS":
            contains = _in_ranges(_CLASSES[letter.lower()])
            return contains if letter.islower() else _negated(contains)
        if letter in "pP":
            return self._category(is_negated=letter == "P")
        if letter in _LETTERS:
            return _LETTERS[letter]
        if letter == "x":
            digits = self._take_until("}") if self._takes("{") else self._next() + self._next()
            return self._coded(digits, 16)
        if letter == "0":
            digits = self._text[self._at : self._at + 2]
            digits = digits[: next((i for i, each in enumerate(digits) if each not in "01234567"), len(digits))]
            self._at += len(digits)
            return self._coded("0" + digits, 8)
        if letter.isascii() and not letter.isalnum():
            return letter
        raise self._error(f"RE2 has no \\{letter} there")

    def _coded(self, digits: str, base: int) -> str:
        try:
            return chr(int(digits, base))
        except (ValueError, OverflowError):
            raise self._error(f"{digits!r} is the number of no letter") from None

    def _category(self, *, is_negated: bool) -> Contains:
        name = self._take_until("}") if self._takes("{") else self._next()
        if name.startswith("^"):
            name, is_negated = name[1:], not is_negated
        if not name or (name != "Any" and not any(category(chr(each)).startswith(name) for each in _SAMPLES)):
            raise self._error(f"the class {name!r} of Unicode is not supported")
        contains: Contains = lambda each: name == "Any" or category(each).startswith(name)  # noqa: E731  typed by the line
        return _negated(contains) if is_negated else contains

    def _set(self) -> Contains:
        """Return the set of letters in brackets."""
        is_negated, ranges, others = self._takes("^"), "", list[Contains]()
        is_first = True
        while is_first or not self._takes("]"):
            is_first = False
            found = self._set_item()
            if not isinstance(found, str):
                others.append(found)
                continue
            last: str | Contains = found
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                last = self._set_item()
            if not isinstance(last, str) or last < found:
                raise self._error("a range has no end, or ends before it begins")
            ranges += found + last
        contains = self._folded(_any_contains([_in_ranges(ranges), *others]))
        return _negated(contains) if is_negated else contains

    def _set_item(self) -> str | Contains:
        if self._takes("[:"):
            name = self._take_until(":]")
            if name.removeprefix("^") not in _CLASSES:
                raise self._error(f"there is no class {name!r}")
            contains = _in_ranges(_CLASSES[name.removeprefix("^")])
            return _negated(contains) if name.startswith("^") else contains
        letter = self._next()
        return self._escaped() if letter == "\\" else letter


_SAMPLES = (*range(0x3100), 0xAC00, 0xD800, 0xE000, 0xFB1D, 0x10FFFF)
"""Characters of all categories of Unicode."""


def _repeats(tree: Tree) -> int:
    """Return the number of times a part is repeated, by numbers, with the repetitions that it lies in."""
    if tree[0] in ("all", "one"):
        return max(map(_repeats, tree[1]), default=1)
    return max(tree[2], tree[3] or 0, 1) * _repeats(tree[1]) if tree[0] == "repeat" else 1


def _in_ranges(ranges: str) -> Contains:
    pairs = tuple(zip(ranges[::2], ranges[1::2], strict=True))
    return lambda each: any(first <= each <= last for first, last in pairs)


def _any_contains(parts: list[Contains]) -> Contains:
    return lambda each: any(contains(each) for contains in parts)


def _negated(contains: Contains) -> Contains:
    return lambda each: not contains(each)


MOST_STEPS = 10_000
"""Steps of a pattern, with what is repeated by a number written out; RE2 has such a limit too."""

MOST_REMEMBERED = 2**18
"""Steps in what is remembered to be reached, before that begins anew."""

_MATCH = 0
"""The step at the end of a pattern."""

_Reached = tuple[frozenset[int], str]
"""The steps to go on with, and what stands before: a letter of a word (``w``), an end of line, another, or nothing."""


class RegularExpression:
    """A regular expression of RE2's syntax.

    Args:
        text: The expression.

    Raises:
        ValueError: If it is none, or too large.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps: list[tuple[str, Contains | str | None, tuple[int, ...]]] = [("match", None, ())]
        self._first = self._written(parse(text), _MATCH)
        self._known: dict[tuple[_Reached, str], tuple[bool, _Reached]] = {}
        self._remembered = 0

    def fullmatch(self, text: str) -> bool:
        """Return whether the whole of a text matches."""
        reached: _Reached = (frozenset((self._first,)), "")
        for letter in text:
            reached = self._states_after(reached, letter)[1]
            if not reached[0]:
                return False
        return self._states_after(reached, "")[0]

    def search(self, text: str, start: int) -> tuple[int, int] | None:
        """Return the span of the first match from a place on, the longest of those that begin there."""
        for first in range(start, len(text) + 1):
            end = self._end(text, first)
            if end is not None:
                return first, end
        return None

    def _end(self, text: str, first: int) -> int | None:
        reached: _Reached = (frozenset((self._first,)), _kind(text[first - 1]) if first else "")
        end = None
        for place in range(first, len(text) + 1):
            is_match, reached = self._states_after(reached, text[place : place + 1])
            end = place if is_match else end
            if not reached[0]:
                break
        return end

    def _states_after(self, reached: _Reached, letter: str) -> tuple[bool, _Reached]:
        """Return whether the pattern ends before a letter, and the states after it; "" is the end of the text."""
        found = self._known.get((reached, letter))
        if found is None:
            if self._remembered >= MOST_REMEMBERED:
                self._known.clear()
                self._remembered = 0
            found = self._known[reached, letter] = self._step_over(*reached, letter)
            self._remembered += len(reached[0]) + 1
        return found

    def _step_over(self, steps: Iterable[int], before: str, letter: str) -> tuple[bool, _Reached]:
        after, is_match = _kind(letter), False
        open_, seen, onward = [*steps], set(steps), set[int]()
        while open_:
            step = open_.pop()
            kind, condition, follow = self._steps[step]
            is_match = is_match or step == _MATCH
            if kind == "set":
                if letter and condition(letter):  # type: ignore[operator, misc]  # a set's is a function
                    onward.update(follow)
            elif kind == "split" or (kind == "at" and _is_at(str(condition), before, after)):
                open_ += (each for each in follow if each not in seen)
                seen.update(follow)
        return is_match, (frozenset(onward), after)

    # -- writing a tree as steps --------------------------------------------------------------------------------------

    def _written(self, tree: Tree, onward: int) -> int:
        """Write a tree as steps; return its first one, all ways from which lead to ``onward``."""
        if tree[0] == "all":
            for part in reversed(tree[1]):
                onward = self._written(part, onward)
            return onward
        if tree[0] == "one":
            return self._step("split", None, tuple(self._written(part, onward) for part in tree[1]))
        if tree[0] == "repeat":
            _, part, least, most = tree
            return self._repeated(part, least, most, onward)
        return self._step(tree[0], tree[1], (onward,))

    def _repeated(self, tree: Tree, least: int, most: int | None, onward: int) -> int:
        end = onward
        if most is None:
            again = self._step("split", None, ())
            self._steps[again] = ("split", None, (self._written(tree, again), end))
            onward = again
        for _ in range((most or least) - least):
            onward = self._step("split", None, (self._written(tree, onward), end))
        for _ in range(least):
            onward = self._written(tree, onward)
        return onward

    def _step(self, kind: str, condition: Contains | str | None, follow: tuple[int, ...]) -> int:
        if len(self._steps) >= MOST_STEPS:
            raise ValueError(f"the pattern {self._text!r} has more than {MOST_STEPS} steps, with what it repeats")
        self._steps.append((kind, condition, follow))
        return len(self._steps) - 1


def _kind(letter: str) -> str:
    """Return the class of a letter: part of a word, the end of a line, or another."""
    is_word = letter.isascii() and (letter.isalnum() or letter == "_")
    return "w" if is_word else letter if letter in ("", "\n") else "o"


def _is_at(place: str, before: str, after: str) -> bool:
    if place.startswith("begin"):
        return before == "" or (place == "begin of line" and before == "\n")
    if place.startswith("end"):
        return after == "" or (place == "end of line" and after == "\n")
    return ((before == "w") != (after == "w")) == (place == "boundary")
