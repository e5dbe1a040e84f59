"""Bundle: files of a cache in one archive, for a machine where they are put into a cache again.

The list says the target and the compilers. Names are compared with the forms that a cache's files have, so that none
leads outside the folder. It is not compressed: whoever ships it does that, and equal contents stay equal bytes whatever
compressor is installed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from opbuild.kernel.key import CompilerIdentity
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store import networks
from opbuild.store.archive import ArchiveKind, archive_parts, read_archive, write_whole
from opbuild.store.operators import ENTRIES
from opbuild.store.weights import WEIGHTS

OPERATORS, NETWORKS = "kernel_meta/", "network_meta/"
"""What names of files begin with."""

_FORMS = {
    "kernel_meta": (ENTRIES,),
    "network_meta": (ENTRIES, networks.NETWORKS, networks.MODELS),
    "network_meta/weights": (WEIGHTS,),
}
"""What may lie in each folder."""

_KIND = ArchiveKind("bundle", 2, "opbuild cache export", "nothing of it was imported", "export it again")


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle: its target, and contents of files by name."""

    target: str
    files: Mapping[str, memoryview]


def write_bundle(
    path: Path,
    target: str,
    compilers: Iterable[CompilerIdentity],
    files: Iterable[tuple[str, bytes | memoryview]],
    trust: Trust = PRIVATE,
) -> int:
    """Write a bundle, whole or not at all, and return its size in bytes; an existing file is replaced.

    Raises:
        OptionError: If the file cannot be written.
        BuildError: If the disk is full.
    """
    made_by = sorted([each.name, each.version, each.digest] for each in set(compilers))
    about = {"target": target, "compilers": made_by}
    return write_whole(path, archive_parts(_KIND, about, dict(files), trust), "bundle")


def read_bundle(path: Path, trust: Trust = PRIVATE) -> Bundle:
    """Read a bundle and check it whole.

    Raises:
        OptionError: If the file cannot be read or is no bundle, or others can write to it.
        BuildError: If any content is not what was written, or it is not signed; names each.
    """
    archive = read_archive(path, _KIND, trust)
    wrong = [f"the name {name!r:.250}" for name in archive.files if not _is_of_a_cache(name)]
    if "target" not in archive.about:
        wrong.append("its list of files")
    if wrong:
        raise _KIND.damaged(path, wrong)
    return Bundle(str(archive.about["target"]), archive.files)


def _is_of_a_cache(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    stem, suffix = os.path.splitext(file)  # noqa: PTH122  no path yet
    return any(form.fits(stem, (suffix,)) for form in _FORMS.get(folder, ()))
