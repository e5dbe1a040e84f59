"""Settings: the argument or the variable of the environment that gives each, and its check."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple, field

Check = Callable[[str, Any], Any]
"""Returns a setting for a name and what is said under it, by a caller or a variable; raises ``OptionError``."""


class Setting(NamedTuple):
    """The form of a setting; a caller's value wins over the environment's.

    Attributes:
        kind: What callers may give, as ``arguments`` knows kinds; empty: they cannot give it.
        hint: What they may give, in words.
        check: Checks what a caller gave.
        variable: The variable that says it where the caller does not; empty: none.
        read: Reads the variable's text; None: it says nothing.
        default: Returns the setting if neither says it; None: the field's own default.
    """

    kind: str = ""
    hint: str = ""
    check: Check = lambda name, given: given
    variable: str = ""
    read: Check = lambda name, text: text
    default: Callable[[], Any] | None = None

    def value(self, name: str, given: Any, environ: Mapping[str, str], default: Any) -> Any:
        """Return the setting.

        Args:
            name: Its name.
            given: What the caller gave; None: nothing.
            environ: The environment.
            default: The field's own default.

        Raises:
            OptionError: If what is said is not allowed; the message names who said it.
        """
        if given is not None:
            return self.check(name, given)
        text = environ.get(self.variable, "")
        value = self.read(self.variable, text) if text else None
        if value is not None:
            return value
        return self.default() if self.default is not None else default


def setting(default: Any, how: Setting, *, repr: bool = True) -> Any:  # noqa: A002  as dataclasses have it
    """Return a field of settings that says how it is told."""
    return field(default=default, metadata={"setting": how}, repr=repr)


def choice(allowed: Sequence[str]) -> Setting:
    """Return the setting of one of some words."""
    words = list(map(repr, allowed))
    return Setting("text", f"give {', '.join(words[:-1])} or {words[-1]}", one_of(allowed, " or ".join(allowed)))


def one_of(allowed: Sequence[Any], text: str) -> Check:
    """Return a check that a caller gave one of some values, of their very type."""

    def check(name: str, given: Any) -> Any:
        if type(given) is not type(allowed[0]) or given not in allowed:
            raise OptionError(f"{name} is {given!r}", f"it must be {text}")
        return given

    return check


def flag(variable: str) -> Setting:
    """Return the setting of yes or no."""
    return Setting("flag", "give True or False", variable=variable, read=read_flag)


def path(allowed: str, test: Callable[[str], bool], *, what: str = "a folder", variable: str = "") -> Setting:
    """Return the setting of a path; the test gets its text."""

    def check(name: str, given: Any) -> Path:
        text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else None
        if not isinstance(text, str) or not text.strip() or "\0" in text or not test(text):
            raise OptionError(f"{name} is {given if text is None else text!r}", f"it must be {allowed}")
        return Path(text)

    return Setting("path", f"give the path of {what}, as text or a pathlib.Path", check, variable)


def operator_types() -> Setting:
    """Return the setting of operator types; its value has each once, in the order given."""

    def check(name: str, given: str | Sequence[str]) -> tuple[str, ...]:
        names = [each.strip() for each in given.split(",")] if isinstance(given, str) else list(given)
        for each in names:
            if not isinstance(each, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", each):
                raise OptionError(f"{name} is {given!r}", "it must be names of operator types separated by commas")
        return tuple(dict.fromkeys(names))

    return Setting("texts", "give operator types such as ['Conv', 'Softmax']", check)


def at_least(least: int, greatest: int | None = None) -> Check:
    """Return a check of a caller's integer."""
    allowed = f"of at least {least}" if greatest is None else f"from {least} to {greatest}"

    def check(name: str, given: int) -> int:
        if given < least or (greatest is not None and given > greatest):
            raise OptionError(f"{name} is {given}", f"give an integer {allowed}")
        return given

    return check


def integer(least: int, greatest: int) -> Check:
    """Return a reader of a variable that is an integer in a range, or blank."""

    def read(name: str, text: str) -> int | None:
        text = text.strip()
        try:
            value = int(text) if text else None
        except ValueError:
            value = least - 1
        if value is not None and not least <= value <= greatest:
            raise OptionError(f"{name} is {text!r}", f"it must be an integer from {least} to {greatest}")
        return value

    return read


def read_flag(name: str, text: str) -> bool | None:
    """Return whether a variable says yes; None if it is blank.

    Raises:
        OptionError: If it says neither yes nor no.
    """
    word = text.strip().lower()
    if word in ("", "0", "false", "no", "off"):
        return False if word else None
    if word in ("1", "true", "yes", "on"):
        return True
    raise OptionError(f"{name} is {text!r}", "it must be 0 or 1")
