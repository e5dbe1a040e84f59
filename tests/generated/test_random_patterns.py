"""Patterns of RE2: random ones against Python's ``re`` and RE2 itself, in steps that grow as the text does."""

from __future__ import annotations

import random
import re
import sys
from functools import partial

import pytest

from opbuild.backend.host.patterns import MOST_STEPS, RegularExpression
from support.fuzzing import check_seeds
from support.line_counter import lines_of
from support.tiers import spans

LETTERS = "aabbc.-_ \n\tAZ09é日😀"
ATOMS = (
    *(
        "a",
        "b",
        "ab",
        ".",
        r"\d",
        r"\w",
        r"\s",
        r"\W",
        "[ab]",
        "[^a]",
        "[a-c0-9]",
        r"[\d-]",
        "[]a]",
        "[^]a]",
        r"\.",
        r"\x61",
    ),
    *(
        r"\b",
        r"\B",
        "^",
        "$",
        "(?:)",
        "é",
        "日",
        "[日-本]",
        r"\x{65e5}",
        r"\t",
        "[[:alpha:]]",
        r"\pL",
        r"\p{Nd}",
        r"[^\S\n]",
    ),
)
REPEATS = ("", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}", "*?", "+?", "??", "{0}")


def random_pattern(draw: random.Random, depth: int = 3) -> str:
    """Return a pattern that both RE2 and Python take, but for what only RE2 has."""
    parts = []
    for _ in range(draw.randint(1, 3)):
        part = draw.choice(ATOMS)
        if depth and draw.random() < 0.4:
            head = draw.choice(("(", "(?:", "(?i:", "(?s:", "(?m:", f"(?P<n{draw.randrange(10**9)}>"))
            part = f"{head}{random_pattern(draw, depth - 1)})"
        parts.append(part if part in ("^", "$", r"\b", r"\B") else part + draw.choice(REPEATS))
    return ("|" if draw.random() < 0.3 else "").join(parts)


def in_python(pattern: str) -> str | None:
    """Return the pattern in Python's syntax; None if it has no such."""
    if re.search(r"\[\[:|\\p|\(\?m|\\B", pattern):
        return None
    return (
        pattern.replace("$", r"\Z")
        .replace(r"\x{65e5}", "日")
        .replace(r"\s", r"[\t\n\f\r ]")
        .replace(r"[^\S\n]", r"[\t\f\r ]")
    )


def compared(seed: int) -> tuple[str, str]:
    """Return the outcome of a random pattern on random texts."""
    draw = random.Random(seed)
    pattern = random_pattern(draw)
    ours, python = RegularExpression(pattern), in_python(pattern)
    texts = ["".join(draw.choices(LETTERS, k=draw.randint(0, 8))) for _ in range(12)]
    re2 = sys.modules.get("re2")
    for text in texts:
        found = ours.fullmatch(text)
        if python is not None and (re.fullmatch(python, text, re.ASCII) is not None) != found:
            return "wrong", f"{pattern!r} on {text!r}: {found}, unlike Python"
        if re2 is not None and (text.isascii() or r"\B" not in pattern):  # RE2 finds places inside of letters
            if (re2.fullmatch(pattern, text) is not None) != found:
                return "wrong", f"{pattern!r} on {text!r}: {found}, unlike RE2"
            options = re2.Options()
            options.longest_match = True
            wanted = re2.compile(pattern, options).search(text)
            if (wanted and wanted.span()) != ours.search(text, 0):
                return "wrong", f"{pattern!r} in {text!r}: {ours.search(text, 0)}, unlike RE2: {wanted}"
    text = "".join(draw.choices("ab", k=draw.randint(50, 100)))
    if lines_of(lambda: ours.fullmatch(text)) > 60 * len(ours._steps) * (len(text) + 1):
        return "wrong", f"{pattern!r} on {text!r}: too many steps"
    return "right", ""


@pytest.mark.parametrize("seeds", spans(200, 60))
def test_random_patterns_match_what_others_match(seeds: range) -> None:
    """Letters, sets, groups, flags, places and repeats, nested; RE2 itself is asked where it is installed."""
    try:
        import re2  # noqa: F401
    except ImportError:
        print("google-re2 is not installed: Python's re alone is asked")
    check_seeds("patterns", compared, seeds)


@pytest.mark.each
@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|aa)+b", "(a*)*b", "(a?){30}a{30}b", "(.*)(.*)(.*)(.*)b", "((a+)+)+b", "(a|b|ab)*c", "a*a*a*a*b"],
)
def test_nested_repeats_take_no_longer_than_others(pattern: str) -> None:
    """Four times the text takes about four times the steps: each letter is read once."""
    few, many = (lines_of(partial(RegularExpression(pattern).fullmatch, "a" * n)) for n in (1000, 4000))
    assert many <= 4.2 * few
    assert few < 200_000
    assert RegularExpression(pattern).fullmatch("a" * 31 + pattern[-1])


@pytest.mark.each
@pytest.mark.parametrize(
    "pattern", ["((a{100}){100}){100}", "a{1001}", "(a{40}){40}", "(" * 200 + ")" * 200, "(" * 100_000]
)
def test_patterns_that_would_become_large_are_refused(pattern: str) -> None:
    """Before they do."""
    with pytest.raises(ValueError, match="pattern"):
        RegularExpression(pattern)
    with pytest.raises(ValueError, match=f"more than {MOST_STEPS} steps"):
        RegularExpression("(abcdefghij|klmnopqrst){1000}")


@pytest.mark.each
@pytest.mark.parametrize(
    "pattern",
    [*("a**", "*a", "a|*", "(", ")", "(?<=a)b", "(?=a)", "(?!a)", "(?>a)", r"\1", "(?P=n)", "[b-a]", "[a", "[[:no:]]"),
     *(r"\p{Greek}", r"\p{}", r"\Z", r"\x{110000}", r"\xg0", "\\", "(?z)a", "(?P<n", "a{2}{3}", "a{3,2}", "a++")],
)  # fmt: skip
def test_what_is_no_pattern_of_re2_is_an_error(pattern: str) -> None:
    """The error has the pattern and the place in it."""
    with pytest.raises(ValueError, match="is not valid at"):
        RegularExpression(pattern)


@pytest.mark.each
@pytest.mark.parametrize(
    ("pattern", "text", "is_match"),
    [
        ("a$", "a\n", False),
        (r"a\z", "a", True),
        (r"\Qa+b\E*", "a+bbb", True),
        ("(?i)straße", "STRAßE", True),
        ("(?i)[a-z]", "İ", False),
        (r"\s", "\v", False),
        (r"[[:space:]]", "\v", True),
        ("a{,2}", "a{,2}", True),
        ("a{x", "a{x", True),
        (r"\pL+\PL", "日é1", True),
        (r"(?-s).", "\n", False),
        (r"(?s).", "\n", True),
        (r"(?m)a$\n^b", "a\nb", True),
        (r"\x{1F600}", "😀", True),
        (r"\0101", "\b1", True),
        ("(?P<x>a)(?<y>b)", "ab", True),
        ("", "", True),
        ("a||b", "", True),
    ],
)
def test_what_re2_has_in_its_own_way(pattern: str, text: str, is_match: bool) -> None:
    """Ends of text, white space, literal braces, classes of Unicode, flags and numbers of letters."""
    assert RegularExpression(pattern).fullmatch(text) == is_match
