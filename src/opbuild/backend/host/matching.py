"""Matching of regular expressions in time that grows as the text does, whatever the pattern is.

All ways through a pattern are followed side by side, letter by letter (Thompson, "Regular Expression Search
Algorithm", 1968); which places of the pattern are reached, and by which letter, is remembered, as RE2 does it.
"""

from __future__ import annotations

from collections.abc import Iterable

from opbuild.backend.host.patterns import Contains, Tree, parse

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
            reached = self._after(reached, letter)[1]
            if not reached[0]:
                return False
        return self._after(reached, "")[0]

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
            is_match, reached = self._after(reached, text[place : place + 1])
            end = place if is_match else end
            if not reached[0]:
                break
        return end

    def _after(self, reached: _Reached, letter: str) -> tuple[bool, _Reached]:
        """Return whether the pattern ends before a letter, and the states after it; "" is the end of the text."""
        found = self._known.get((reached, letter))
        if found is None:
            if self._remembered >= MOST_REMEMBERED:
                self._known.clear()
                self._remembered = 0
            found = self._known[reached, letter] = self._followed(*reached, letter)
            self._remembered += len(reached[0]) + 1
        return found

    def _followed(self, steps: Iterable[int], before: str, letter: str) -> tuple[bool, _Reached]:
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
