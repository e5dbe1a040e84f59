"""Model packs: kernels that somebody packed for models of one's own, asked where the release's pack has none.

A model pack is an archive of pack files, ``<number>/<target>/<family>.pack``: of one compiler a number. It is read
where it lies and checked whole, once a process. Settings name some (``OPBUILD_PACK``); installed packages bring others,
whose metadata say so by an entry point:

    [opbuild.packs]
    my_models = my_models

The value is a package, which is not imported, and the pack is its file ``kernels.pack``. Metadata are read only where
no other pack has an operator. ``importlib.metadata`` would load 65 modules for that, and take twenty times as long.
"""

from __future__ import annotations

import os
import sys
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from opbuild.errors import OpbuildError, OptionError
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import Trust
from opbuild.platform.locks import Lock, lazy_property
from opbuild.platform.paths import Path
from opbuild.store.archive import ArchiveKind, read_archive
from opbuild.store.pack import ABSENT, SUFFIX, Pack, PackFile, parse_pack

GROUP = "opbuild.packs"
"""The group of entry points."""

INSTALLED = "kernels.pack"
"""The name of a model pack in the package that brings it."""

KIND = ArchiveKind("model pack", 1, "opbuild pack", "nothing of it is used", "make it again")

_PUBLIC = Trust(shared=True)
"""Who can write to installed packages decides what runs anyway."""


class PackArchive:
    """A model pack that was opened. Threads may share it.

    Args:
        path: The file.
        name: What reports call it.
        files: Its pack files, by name.
        about: What its maker said of it.
        problem: Why it cannot be used; None if it can.

    Attributes:
        path: The same.
        name: The same.
        about: The same.
        problem: The same.
    """

    def __init__(
        self,
        path: Path,
        name: str,
        files: Mapping[str, bytes | memoryview],
        about: Mapping[str, Any],
        problem: OpbuildError | None = None,
    ) -> None:
        self.path, self.name, self.about, self.problem = path, name, about, problem
        self._files, self._read = files, dict[str, PackFile | Reason]()
        self._told, self._lock = set[str](), Lock()

    def is_news(self, problem: str) -> bool:
        """Return whether this process was not told of a problem before; from now on it was."""
        with self._lock:
            is_news = problem not in self._told
            self._told.add(problem)
        return is_news

    def packs(self, target: str) -> list[ModelPack]:
        """Return its packs for a target, one for each compiler."""
        numbers = {name.partition("/")[0] for name in self._files if name.split("/")[1:-1] == [target]}
        return [ModelPack(self, number, target) for number in sorted(numbers)]

    def targets(self) -> list[str]:
        """Return the names of the targets that it has kernels for, sorted."""
        return sorted({name.split("/")[1] for name in self._files if name.count("/") == 2})

    def families(self, folder: str) -> tuple[str, ...]:
        """Return the families of a target and a compiler."""
        return tuple(sorted(name[len(folder) : -len(SUFFIX)] for name in self._files if name.startswith(folder)))

    def file(self, name: str) -> PackFile | Reason | None:
        """Return one of its files, why it cannot be used, or None if there is none."""
        if name not in self._files:
            return None
        if name not in self._read:
            try:
                self._read[name] = parse_pack(bytes(self._files[name]))
            except ValueError as error:
                self._read[name] = Reason("damaged", f"{name} of {self.name} cannot be used: {error}")
        return self._read[name]


class ModelPack(Pack):
    """The kernels of a model pack for one target, of one compiler."""

    def __init__(self, archive: PackArchive, number: str, target: str) -> None:
        super().__init__(target, Path(number))
        self.archive, self.name = archive, archive.name

    def file(self, family: str) -> PackFile | Reason | None:
        """Return the pack file of a family, why it cannot be used, or None if there is none."""
        return self.archive.file(f"{self.folder}/{family}{SUFFIX}")

    def families(self) -> tuple[str, ...]:
        """Return the names of the families that there are files of, sorted."""
        return self.archive.families(f"{self.folder}/")


class Packs:
    """The packs of a build: the release's, those that settings name, those that are installed. Threads may share it.

    Each is opened when none before it has an operator.

    Args:
        target: The target's name.
        release: The release's; None: it is not used, nor what is installed.
        named: The files that settings name.
        trust: Whose files are believed.
        tell: Told, once a process, of each that cannot be used.
    """

    def __init__(
        self, target: str, release: Pack | None, named: Sequence[Path], trust: Trust, tell: Callable[[str], None]
    ) -> None:
        self._target, self._release, self._paths = target, release, named
        self._trust, self._tell = trust, tell

    def of(self, target: str) -> Packs:
        """Return the same packs' kernels for another target."""
        release = None if self._release is None else self._release.of(target)
        return Packs(target, release, self._paths, self._trust, self._tell)

    def lookup(self, key: Key) -> Found | Missing:
        """Return the first entry that serves for ``key``, or why the first pack has none."""
        first = ABSENT
        for pack in self._all():
            answer = pack.lookup(key)
            if isinstance(answer, Found):
                return answer
            if isinstance(pack, ModelPack):
                self._note(pack, key, answer.reason)
            else:
                first = answer
        return first

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the pipelines of its kernels, by their sources."""
        known = [pack.origins(keys) for pack in self._all()]
        return [dict(ChainMap(*map(dict, each))) for each in zip(*known, strict=True)] or [{} for _ in keys]

    def compiler(self) -> CompilerIdentity | None:
        """Return the identity of the compiler of the first that has kernels; None if none has."""
        return next(filter(None, (pack.compiler() for pack in self._all())), None)

    @property
    def has_of_models(self) -> bool:
        """Whether there are packs besides the release's, for whatever target."""
        return bool(self._named or self._installed)

    def archives(self) -> list[PackArchive]:
        """Return the model packs, also those that have nothing for the target."""
        return [*self._named, *self._installed]

    def _all(self) -> Iterator[Pack]:
        if self._release is not None:
            yield self._release
        for archive in self._named:
            yield from archive.packs(self._target)
        for archive in self._installed:
            yield from archive.packs(self._target)

    @lazy_property
    def _named(self) -> list[PackArchive]:
        return [self._usable(opened(path, f"the pack {path}", self._trust)) for path in self._paths]

    @lazy_property
    def _installed(self) -> list[PackArchive]:
        found = () if self._release is None else _installed_packs(tuple(sys.path))
        return [self._usable(opened(path, f"the pack of {package}", _PUBLIC)) for package, path in found]

    def _usable(self, archive: PackArchive) -> PackArchive:
        if archive.problem is not None:
            text = f"{archive.problem.message} ({archive.problem.hint})"
            self._tell_once(archive, f"{text}; its kernels are compiled where they are not stored")
        return archive

    def _note(self, pack: ModelPack, key: Key, reason: Reason) -> None:
        """Tell of kernels that are there and are not used; what a pack lacks is nothing to tell."""
        file = pack.file(str(key.components["family"]))
        if reason.code == "damaged":
            self._tell_once(pack.archive, reason.text)
        elif isinstance(file, PackFile) and file.pipeline(file.own_key(key)) is not None:
            self._tell_once(
                pack.archive,
                f"{pack.name} was made with another release of opbuild, whose {file.family} differs: what this one "
                "defines otherwise is not taken from it; make it again with 'opbuild pack'",
            )

    def _tell_once(self, archive: PackArchive, problem: str) -> None:
        if archive.is_news(problem):
            self._tell(problem)


_OPENING = Lock()
"""Held while one is opened: threads that come at once would each have their own, and be told of it."""


def opened(path: Path, name: str, trust: Trust) -> PackArchive:
    """Return a model pack; one that cannot be used has no files and says why. It is read once as long as it stays."""
    with _OPENING:
        try:
            state = os.stat(path)  # noqa: PTH116  as quickly as can be
            known = (state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino)
        except (OSError, ValueError) as error:
            return _unusable(path, name, str(getattr(error, "strerror", None) or error))
        return _opened(path, name, trust, known)


@lru_cache(maxsize=32)
def _opened(path: Path, name: str, trust: Trust, _: tuple[int, ...]) -> PackArchive:
    try:
        archive = read_archive(path, KIND, trust)
    except OpbuildError as error:
        return PackArchive(path, name, {}, {}, error)
    return PackArchive(path, name, archive.files, archive.about)


@lru_cache(maxsize=32)
def _unusable(path: Path, name: str, why: str) -> PackArchive:
    error = OptionError(f"the model pack {str(path)!r} cannot be read: {why}", f"give a file that '{KIND.maker}' wrote")
    return PackArchive(path, name, {}, {}, error)


@lru_cache(maxsize=1)
def _installed_packs(places: tuple[str, ...]) -> tuple[tuple[str, Path], ...]:
    """Return name and file of the model packs that installed packages bring, in the order of Python's path."""
    found: dict[str, Path] = {}
    for place in dict.fromkeys(places):
        with suppress(OSError):
            for each in os.scandir(place or "."):
                if each.name.endswith(".dist-info"):
                    for package in _packages_with_packs(f"{each.path}/entry_points.txt"):
                        path = _file_of(package)
                        if path is not None:
                            found.setdefault(package, path)
    return tuple(found.items())


def _packages_with_packs(metadata: str) -> list[str]:
    """Return the packages that a file of entry points names in the group."""
    try:
        with open(metadata, "rb", buffering=0) as file:  # noqa: PTH123  hundreds are read
            text = file.read()
    except OSError:  # most packages have none
        return []
    if GROUP.encode() not in text:
        return []
    from configparser import ConfigParser, Error

    parser = ConfigParser(delimiters=("=",), interpolation=None)
    with suppress(Error, UnicodeDecodeError):
        parser.read_string(text.decode())
        return [value.partition(":")[0].strip() for value in parser[GROUP].values()] if GROUP in parser else []
    return []


def _file_of(package: str) -> Path | None:
    """Return the file of the model pack in a package, which is not imported unless it is part of another one."""
    from importlib.util import find_spec

    with suppress(ImportError, ValueError, AttributeError):
        spec = find_spec(package)
        for folder in () if spec is None else spec.submodule_search_locations or ():
            return Path(folder) / INSTALLED
    return None
