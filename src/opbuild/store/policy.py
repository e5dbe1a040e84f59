"""The policy of a cache folder: how large it may grow and how much ageing leaves, from ``op_cache.ini``.

The file counts for every user of the folder if both its values are valid; otherwise the environment counts, then the
defaults. The file that opbuild makes holds both values as comments, so that it changes nothing until somebody edits it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Mapping

from opbuild.config import Config
from opbuild.platform.files.private import private_path, sweep
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.platform.files.writing import write_new
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

SECTION = "op_compiler_cache"
SIZE, RATIO = "max_op_cache_size", "remain_cache_size_ratio"
REMOTE = "remote"
MEGABYTE = 2**20
NO_AGEING = -1

FOLDER_MEGABYTES = 500
"""ATC's limit of the folder of one level."""

STORE_MEGABYTES = 5000
"""That of a store in which all that a user builds lies, with packed weights as large as the models."""

_DEFAULTS = {SIZE: FOLDER_MEGABYTES, RATIO: 50}
_ALLOWED = {SIZE: "-1 or an integer of at least 1", RATIO: "an integer from 1 to 100"}
_VARIABLES = {SIZE: "ASCEND_MAX_OP_CACHE_SIZE", RATIO: "ASCEND_REMAIN_CACHE_SIZE_RATIO"}
_READ_AT_MOST = 65536
_NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""There is no file, or no folder that could hold one: who stores there says it."""

_CONTENT = f"""\
# How large the cache of operators in this folder may grow. Remove the '#' before both lines to set it for every user of
# the folder. Otherwise {_VARIABLES[SIZE]} and {_VARIABLES[RATIO]} count, then the values
# below.
[{SECTION}]
# Megabytes of this folder, or of each level's if levels have folders; -1: no limit, and times of use are not kept.
#{SIZE}=%d
# When it is larger, what nobody used for half an hour goes, least recently used first, until this percentage remains.
#{RATIO}={_DEFAULTS[RATIO]}
# A store that others share, from which comes what this folder lacks; OPBUILD_REMOTE wins over it.
#{REMOTE}=redis://host
"""


@dataclass(frozen=True)
class Policy:
    """The limits of a cache folder.

    Attributes:
        max_megabytes: The most it should hold; -1: no limit.
        remain_ratio: Percentage of it that ageing leaves.
        origin: Where the values are from: the file's path, ``environment`` or ``default``.
        remote: The URL of a remote store that the file names; empty: none.
    """

    max_megabytes: int = _DEFAULTS[SIZE]
    remain_ratio: int = _DEFAULTS[RATIO]
    origin: str = "default"
    remote: str = ""

    @property
    def ages(self) -> bool:
        """Whether entries age at all, and the times of their last use are kept."""
        return self.max_megabytes != NO_AGEING

    @property
    def max_bytes(self) -> int:
        """Bytes beyond which entries age."""
        return self.max_megabytes * MEGABYTE

    @property
    def remaining_bytes(self) -> int:
        """Bytes at which ageing stops."""
        return self.max_bytes * self.remain_ratio // 100


def usual_megabytes(config: Config) -> int:
    """Return the greatest size of a cache where nobody gives one."""
    return STORE_MEGABYTES if config.op_compiler_cache_dir is None else FOLDER_MEGABYTES


def read_policy(
    file: Path, environment: tuple[str, str] = ("", ""), trust: Trust = PRIVATE, megabytes: int = FOLDER_MEGABYTES
) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy of a folder, and a warning for each value that is not valid.

    Args:
        file: ``op_cache.ini``; it may be missing.
        environment: ``ASCEND_MAX_OP_CACHE_SIZE`` and ``ASCEND_REMAIN_CACHE_SIZE_RATIO`` as they stand, "" if not set.
        trust: Whose file counts.
        megabytes: The size where nobody says one.
    """
    usual = {**_DEFAULTS, SIZE: megabytes}
    values, remote, problems = _read_file(file, trust)
    if values is not None:
        return Policy(values[SIZE], values[RATIO], str(file), remote), tuple(problems)
    given = {}
    for name, text in zip((SIZE, RATIO), environment, strict=True):
        value = _number(name, text)
        if value is not None:
            given[name] = value
        elif text:
            problems.append(f"{_VARIABLES[name]} is {text!r}; it must be {_ALLOWED[name]}, so {usual[name]} is used")
    chosen = {**usual, **given}
    return Policy(chosen[SIZE], chosen[RATIO], "environment" if given else "default", remote), tuple(problems)


def create_policy_file(file: Path, megabytes: int = FOLDER_MEGABYTES) -> None:
    """Put an ``op_cache.ini`` of comments into a folder that exists and has none; failures are left."""
    with contextlib.suppress(OSError):
        sweep(file.parent)
        if not file.exists():
            with private_path(file.parent) as whole:
                write_new(whole, (_CONTENT % megabytes).encode())
                _link_unless_there(whole, file)


def _link_unless_there(whole: Path, file: Path) -> None:
    """Give a private file its own name unless somebody has just made one."""
    try:
        file.hardlink_to(whole)
    except OSError:
        if not file.exists():  # a file system without hard links
            whole.replace(file)
            return
    whole.unlink()


def _read_file(file: Path, trust: Trust) -> tuple[Mapping[str, int] | None, str, list[str]]:
    """Return both values if both are valid, else None; the remote store, and the problem."""
    try:
        with os.fdopen(trust.open(file)[0], "rb") as opened:
            text = opened.read(_READ_AT_MOST).decode("utf-8-sig", errors="replace")
    except OSError as error:
        if error.errno in _NO_FOLDER:
            return None, "", []
        return None, "", [f"{file} cannot be read and does not count: {error.strerror or error}"]
    if "\0" in text:
        return None, "", [f"{file} is no text and does not count"]
    values, remote, problems = _parse(file, text)
    if not problems and len(values) == 1:
        missing = next(name for name in (SIZE, RATIO) if name not in values)
        problems.append(f"{file} does not count: it gives no {missing}; give both values or none")
    return (values if not problems and len(values) == len(_DEFAULTS) else None), remote, problems


def _parse(file: Path, text: str) -> tuple[dict[str, int], str, list[str]]:
    values: dict[str, int] = {}
    remote = ""
    problems: list[str] = []
    section = ""
    for number, written in enumerate(text.splitlines(), 1):
        line = _without_comment(written).strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        name, _, given = (part.strip() for part in line.partition("="))
        if name == REMOTE and section == SECTION:
            remote = given
        if name not in _DEFAULTS:
            continue
        value = _number(name, given)
        if section != SECTION:
            problems.append(f"{file} line {number} does not count: {name}={given} stands outside [{SECTION}]")
        elif value is None:
            problems.append(f"{file} line {number} does not count: {name} is {given!r}; it must be {_ALLOWED[name]}")
        else:
            values[name] = value
    return values, remote, problems


def _without_comment(line: str) -> str:
    """Return a line up to a ``#`` or ``;`` that is its first character or follows a blank."""
    for place, letter in enumerate(line):
        if letter in "#;" and (place == 0 or line[place - 1].isspace()):
            return line[:place]
    return line


def _number(name: str, text: str) -> int | None:
    """Return a value, None if it is not allowed."""
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 12):
        return None
    value = int(text)
    allowed = value == NO_AGEING or value >= 1 if name == SIZE else 1 <= value <= 100
    return value if allowed else None
