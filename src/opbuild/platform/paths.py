"""Paths as ``pathlib`` has them, without loading it: that takes a tenth of a start, of which URLs are the most.

What a start does with paths is here; all else is ``pathlib``'s, which is loaded when it is asked for. Equality and
order are the same for both kinds, digests are not: a set or the keys of a dictionary have one kind.
"""

from __future__ import annotations

import errno
import operator
import os
import stat
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["Path"]

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
else:

    def _as_pathlib(compare: Callable[[Any, Any], bool]) -> Callable[[Path, object], bool]:
        return lambda path, other: compare(path._standard(), other)

    class _Kind(type):
        def __getattr__(cls, name: str) -> Any:
            """Return an attribute that only ``pathlib.Path`` has, as ``cwd``."""
            if name.startswith("__"):
                raise AttributeError(name)
            import pathlib

            return getattr(pathlib.Path, name)

        def __instancecheck__(cls, other: object) -> bool:
            loaded = sys.modules.get("pathlib")
            return type(other) is cls or (loaded is not None and isinstance(other, loaded.Path))

    class Path(metaclass=_Kind):
        """A path, as ``pathlib.Path`` on POSIX systems."""

        __slots__ = ("_text",)

        def __init__(self, *parts: str | os.PathLike[str]) -> None:
            self._text = _normal(os.path.join(*map(_text_of, parts)) if parts else "")

        def __fspath__(self) -> str:
            return self._text

        __str__ = __fspath__

        def __repr__(self) -> str:
            return f"Path({self._text!r})"

        def __reduce__(self) -> tuple[type[Path], tuple[str]]:
            return Path, (self._text,)

        def __hash__(self) -> int:
            return hash(self._text)

        def __eq__(self, other: object) -> bool:
            return self._text == str(other) if isinstance(other, Path) else NotImplemented

        __lt__, __gt__, __le__, __ge__ = map(_as_pathlib, (operator.lt, operator.gt, operator.le, operator.ge))

        def __truediv__(self, other: str | os.PathLike[str]) -> Path:
            if type(other) is not str or "/" in other or other in ("", ".") or self._text[-1] in "/.":
                return Path(self._text, other)
            joined = object.__new__(Path)
            joined._text = f"{self._text}/{other}"
            return joined

        def __rtruediv__(self, other: str | os.PathLike[str]) -> Path:
            return Path(other, self._text)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self._standard(), name)

        @property
        def __class__(self) -> type:
            """The class that ``isinstance`` sees: a path of pathlib, to whoever has loaded it."""
            standard: type = getattr(
                sys.modules.get("pathlib"), "Path", Path
            )  # another thread may be loading it just now
            return standard

        def _standard(self) -> Any:
            import pathlib

            return pathlib.Path(self._text)

        @property
        def name(self) -> str:
            """The last part; empty for the root and the working folder."""
            return "" if self._text == "." else self._text.rpartition("/")[2]

        @property
        def stem(self) -> str:
            """The last part without its suffix."""
            return self.name.removesuffix(self.suffix) if self.suffix else self.name

        @property
        def suffix(self) -> str:
            """The last dot of the last part and all behind it."""
            before, dot, after = self.name.rpartition(".")
            return dot + after if before and after else ""

        @property
        def parent(self) -> Path:
            """The folder that it is in."""
            above, slash, last = self._text.rpartition("/")
            if slash and not last:
                return self
            return Path(above + slash if above in ("", "/") else above)

        def is_absolute(self) -> bool:
            """Return whether it begins at the root."""
            return self._text.startswith("/")

        def absolute(self) -> Path:
            """Return it from the root on."""
            return self if self.is_absolute() else Path(os.getcwd(), self._text)

        def stat(self) -> os.stat_result:
            """Return the state of the file it names."""
            return os.stat(self._text)

        def exists(self) -> bool:
            """Return whether it names anything."""
            return _names(self._text, lambda mode: True)

        def is_file(self) -> bool:
            """Return whether it names a file."""
            return _names(self._text, stat.S_ISREG)

        def is_dir(self) -> bool:
            """Return whether it names a folder."""
            return _names(self._text, stat.S_ISDIR)

        def unlink(self, missing_ok: bool = False) -> None:
            """Remove the file."""
            try:
                os.unlink(self._text)
            except FileNotFoundError:
                if not missing_ok:
                    raise

        def open(self, *args: Any, **kwargs: Any) -> Any:
            """Open the file as ``open`` does."""
            return open(self._text, *args, **kwargs)

        def read_bytes(self) -> bytes:
            """Return the bytes of the file."""
            with self.open("rb") as file:
                return file.read()

        def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
            """Return the text of the file."""
            with self.open(encoding=encoding, errors=errors) as file:
                return file.read()


def _text_of(part: Any) -> str:
    text = os.fspath(part)
    if not isinstance(text, str):
        raise TypeError(f"a path is text, not {type(text).__name__}")
    return text


def _normal(text: str) -> str:
    """Return a path without parts that say nothing."""
    if text and f"/{text}/".find("//", 0 if text[0] != "/" else 1) < 0 and "/./" not in f"/{text}/":
        return text
    root = text[: len(text) - len(text.lstrip("/"))]
    return ("/" if len(root) > 2 else root) + "/".join(part for part in text.split("/") if part not in ("", ".")) or "."


def _names(text: str, test: Callable[[int], bool]) -> bool:
    """Return whether a path names a file that passes a test of its mode."""
    try:
        return test(os.stat(text).st_mode)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP):
            raise
    except ValueError:  # a path with a zero in it names nothing
        pass
    return False
