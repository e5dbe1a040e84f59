"""The pack: kernels that a release ships, a store that is only read.

    opbuild/packs/<level>/<family>.pack

What it holds is part of the release as the code is. So a look-up does not ask which compiler is installed, nor whether
one is: which one made the objects is written in the pack. It asks for the same operator, level and sources of the
family: of what was edited after the pack was made it is to be shown first that it defines the same (``origins``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from opbuild.families.catalogue import find
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import CompilerIdentity, Key, make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.store.pack_file import SUFFIX, PackFile, read_pack
from opbuild.target.level import BY_NAME

PACKS = Path(__file__).parents[1] / "packs"
"""Where a release keeps them."""

NAME = "the pack"
"""What people call it."""

_ABSENT = Missing(Reason("absent", f"not in {NAME}"))


class Pack:
    """The kernels that the release brings for one level. Threads may share it.

    Args:
        level: The level's name.
        folder: Where the packs of all levels are.
    """

    def __init__(self, level: str, folder: Path = PACKS) -> None:
        self.folder = folder / level

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry that serves for ``key``, under the name that it has here, or why there is none.

        Codes of the reason: ``absent``, ``stale`` (the family's sources were edited since), ``damaged``.
        """
        file = self.file(str(key.components["family"]))
        if file is None:
            return _ABSENT
        if isinstance(file, Reason):
            return Missing(file)
        own = file.key(key)
        if own is None:
            return Missing(Reason("stale", f"{file.family} was edited since {NAME} was made"))
        try:
            object_ = file.object(own)
            if object_ is None:
                return _ABSENT
            desc = OpDesc.from_components(own.components)
            cost, pipeline = find(desc.family).cost(desc), file.pipeline(own) or ""
            return Found(make_entry(desc, own, 0, Artifact(object_), cost, pipeline=pipeline), NAME, stays=True)
        except ValueError as error:
            return Missing(Reason("damaged", f"{self._path(file.family)}: {error}"))

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the pipeline of its kernel, by its sources."""
        return [self._origins(key) for key in keys]

    def _origins(self, key: Key) -> Mapping[str, str]:
        file = self.file(str(key.components["family"]))
        pipeline = file.pipeline(file.own_key(key)) if isinstance(file, PackFile) else None
        return {pipeline: file.sources.code} if isinstance(file, PackFile) and pipeline else {}

    def has(self, desc: OpDesc) -> bool:
        """Return whether it holds a kernel, whatever the family's sources are by now."""
        file = self.file(desc.family)
        if not isinstance(file, PackFile):
            return False
        return file.pipeline(make_key(desc, BY_NAME[file.level], file.compiler, file.sources.code)) is not None

    def file(self, family: str) -> PackFile | Reason | None:
        """Return the pack of a family, why it cannot be used, or None if there is none."""
        return _read(self._path(family))

    def families(self) -> tuple[str, ...]:
        """Return the names of the families that there are packs of, sorted."""
        try:
            return tuple(sorted(path.stem for path in self.folder.iterdir() if path.suffix == SUFFIX))
        except OSError:
            return ()

    def count(self) -> int:
        """Return the number of its kernels for the level."""
        files = map(self.file, self.families())
        return sum(len(file) for file in files if isinstance(file, PackFile))

    def compiler(self) -> CompilerIdentity | None:
        """Return the identity of its compiler; None if there is no pack for the level."""
        files = map(self.file, self.families())
        return next((file.compiler for file in files if isinstance(file, PackFile)), None)

    def _path(self, family: str) -> Path:
        return self.folder / f"{family}{SUFFIX}"


@lru_cache(maxsize=256)
def _read(path: Path) -> PackFile | Reason | None:
    """Return a file, read once: a release does not change while a process runs."""
    try:
        return read_pack(path)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        return Reason("damaged", f"{path} cannot be used: {getattr(error, 'strerror', None) or error}")
