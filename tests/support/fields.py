"""Fields of what is read: one changed to a hostile value, sealed again, and what reading it did beside returning.

A format is a tree of JSON values, a function that writes it as a sound file with its digests, and one that reads that
as users do. Reading must give an answer or an error of opbuild, run no code, and touch no file outside its folder.
"""

from __future__ import annotations

import copy
import os
import random
import re
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opbuild.errors import OpbuildError
from support.fuzzing import HOSTILE
from support.seeds import try_seeds

CANARY = "opbuild_planted"
"""A module that can be imported, whose import leaves a file."""

GROWTH = 2**30
"""Bytes by which a process's greatest size may grow while it reads fifty of these: compilers and torch are large."""

NAMES: Sequence[Any] = (
    *(CANARY, f"{CANARY}.Class", f"{CANARY}:main", "os.system", "os", "builtins.eval", "__import__", "__class__"),
    *("load_library.__call__.__call__", "aten.from_file.default", "aten.add_.Tensor", "sym.pow", "part.0", "__init__"),
    *("..", ".", "/", "../" * 30 + "tmp/planted", "a/../../b", "x" * 255, "x" * 100_000, "a\0b", "a\nb", " ", "-rf"),
    *("\x1b]52;c;AAAA\x07", "\x9b2J", "\u202eabc", "\ufeff", "é" * 200, "float16", "int64", "-1", "1e9", "nan", "True"),
    *(-(2**31), 2**32, 2**64, 10**300, -0.0, [0] * 5000, [[[]]] * 50, {"": 0}, {"ref": "x"}, {"float": "nan"}),
    *({"class": [CANARY, [], []]}, {"list": [None]}, {"map": {}}, [None], ["a", "a"], False, "0" * 63, "f" * 64),
)
"""More values than ``fuzzing.HOSTILE``: names of code, of places and of other fields, long, and of no letters."""


@dataclass(frozen=True)
class Format:
    """A format.

    Attributes:
        name: What it is called.
        sound: What a sound file holds.
        write: Writes what it is given, sealed.
        read: Reads it, and returns an outcome in a word; errors of opbuild are one.
        roots: Folders in which reading may write.
    """

    name: str
    sound: Any
    write: Callable[[Any], None]
    read: Callable[[], str]
    roots: tuple[Path, ...] = ()


def places(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every value in a JSON value, also to lists and objects."""
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        path, here = stack.pop()
        if path:
            yield path
        inner = here.items() if isinstance(here, dict) else enumerate(here) if isinstance(here, list) else ()
        stack += [((*path, name), each) for name, each in inner]


def changed(value: Any, draw: random.Random, ways: Sequence[tuple[Any, ...]]) -> Any:
    """Return a JSON value with one field changed, which of them and how by chance."""
    whole = copy.deepcopy(value)
    *way, last = draw.choice(ways)
    holder = whole
    for step in way:
        holder = holder[step]
    kind = draw.randrange(10)
    if kind == 0 and isinstance(holder, dict):
        del holder[last]
    elif kind == 1 and isinstance(holder, list):
        holder.insert(last, holder[last]) if draw.random() < 0.5 else holder.pop(last)
    elif kind == 2:
        holder[last] = _nested(draw.choice((3, 100, 700)), draw.randrange(2))
    elif kind in (3, 4):
        holder[last] = copy.deepcopy(_at(value, draw.choice(ways)))
    elif kind == 5 and isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
        holder[last] = draw.choice((holder[last] + 1, holder[last] - 1, -holder[last] - 1, holder[last] * 2**33))
    elif kind == 5 and isinstance(holder[last], str):
        text = holder[last]
        holder[last] = draw.choice(
            (text + "x", text[:-1], "../" + text, text + "\0", text.upper(), text + "\n", text * 40)
        )
    elif kind == 6 and isinstance(holder, dict):
        holder[str(draw.choice(NAMES))] = holder.pop(last) if draw.random() < 0.5 else holder[last]
    else:
        holder[last] = copy.deepcopy(draw.choice((*HOSTILE, *NAMES)))
    return whole


def _at(value: Any, way: Sequence[Any]) -> Any:
    for step in way:
        value = value[step]
    return value


def _nested(depth: int, kind: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = {"a": value} if kind else [value]
    return value


def try_fields(formats: Sequence[Format], planted: Path, seeds: range) -> dict[str, Counter[str]]:
    """Read each format with many changes, in processes of their own; return how often each outcome was.

    Args:
        formats: The formats.
        planted: An empty folder, for the module ``CANARY``.
        seeds: What changes are drawn from.

    Raises:
        AssertionError: If reading raised something foreign, crashed, hung, took much memory, ran code or touched what
            it should not; tells format and seed.
    """
    mark = planted / "ran"
    (planted / f"{CANARY}.py").write_text(f"open({str(mark)!r}, 'w').close()\n\nclass Class: ...\n")
    sys.path.insert(0, str(planted))
    found, faults = dict[str, Counter[str]](), list[str]()
    try:
        for each in formats:
            tally = try_seeds(f"fields of {each.name}", _one(each, mark), seeds)
            each.write(each.sound)
            found[each.name] = tally.outcomes
            faults += [f"{each.name}, seed {seed}: {outcome}: {said}" for seed, outcome, said in tally.faults]
    finally:
        sys.path.remove(str(planted))
    assert not faults, "\n".join(faults[:20])
    return found


def _read(form: Format) -> str:
    try:
        return form.read()
    except OpbuildError as error:
        said = str(error)
    assert 0 < len(said) < 20_000, f"a message of {len(said)} letters: {said[:300]}"
    return "refused"


def _one(form: Format, mark: Path) -> Callable[[int], tuple[str, str]]:
    ways = list(places(form.sound))
    seen = list[str]()
    watched = set[int]()

    def one(seed: int) -> tuple[str, str]:
        draw = random.Random(f"{form.name} {seed}")
        try:
            form.write(changed(form.sound, draw, ways))
        except (ValueError, TypeError, RecursionError, OverflowError, KeyError, AttributeError):
            return "not written", ""  # by this test: the file would have to be sound up to there
        if os.getpid() not in watched:
            watched.add(os.getpid())
            _watch(form.roots, seen)
        seen.clear()
        size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        outcome = _read(form)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size) * 1024
        assert grown < GROWTH, f"it took {grown} bytes"
        assert not seen, f"it did {seen[:5]}"
        assert not mark.exists(), "it ran what was planted"
        return outcome, ""

    return one


_RUNS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "subprocess.Popen", "pickle.find_class")
_CHANGES = (
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.chown",
    "os.truncate",
)
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


_CLAIM = re.compile(r"weights_[0-9a-f]+\.claim")
"""A claim on weights, by its name in the cache's folder, which is open: the event does not say in which."""


def _watch(roots: Sequence[Path], seen: list[str]) -> None:
    """Note what this process does from now on that reading has no reason to do."""
    allowed = [str(root.resolve()) + "/" for root in roots] + ["/dev/", "/proc/"]

    def is_outside(path: Any) -> bool:
        text = os.path.abspath(os.fsdecode(path)) if isinstance(path, (str, bytes, os.PathLike)) else ""
        return bool(text) and not any((text + "/").startswith(root) for root in allowed) and "__pycache__" not in text

    def is_wrong(event: str, args: Any) -> bool:
        if event == "open":
            is_written = isinstance(args[2], int) and bool(args[2] & _WRITES)
            return is_written and not _CLAIM.fullmatch(str(args[0])) and is_outside(args[0])
        if event in _CHANGES:
            in_a_folder = isinstance(args[-1], int) and args[-1] >= 0  # which is open: the name is one in it
            return not in_a_folder and any(map(is_outside, args[:2]))
        if event == "ctypes.dlopen":
            return bool(args[0]) and is_outside(args[0]) and not _is_installed(str(args[0]))
        if event == "subprocess.Popen" and Path(str(args[0])).name.startswith("ld"):
            return False  # a network that is built is linked
        return event in _RUNS or (event == "import" and str(args[0]).startswith(CANARY))

    def hook(event: str, args: Any) -> None:
        if is_wrong(event, args):
            seen.append(f"{event} {args!r:.300}")

    sys.addaudithook(hook)


def _is_installed(path: str) -> bool:
    return "/" not in path or any(part in path for part in ("/site-packages/", "/src/opbuild/", "/usr/lib", "/lib/"))
