"""Bundle: files of a cache in one file, sealed by digests, the same bytes for the same contents.

    opbuild bundle 2 <BLAKE3 of the list> <bytes of the list>, a line
    the list: JSON, the target, the compilers, and name, size and BLAKE3 of each file, sorted by name
    the files' contents, one after the other

Nothing of it is unpacked by an archiver: names are compared with the forms that a cache's files have, so that no name
leads outside the folder; sizes must add up to the bundle's own; each content must have its digest. It is not
compressed: whoever ships it does that, and equal contents stay equal bytes whatever compressor is installed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any

from opbuild.errors import BuildError, OptionError
from opbuild.kernel.key import CompilerIdentity
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.private import private_path, sweep
from opbuild.platform.files.trust import LISTING, PRIVATE, SignatureError, Trust, parse_json
from opbuild.platform.files.writing import create
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.store import networks
from opbuild.store.operators import ENTRIES
from opbuild.store.weights import WEIGHTS
from opbuild.text.canonical import canonical_json
from opbuild.text.plural import listed

OPERATORS, NETWORKS = "kernel_meta/", "network_meta/"
"""What names of files begin with."""

_FORMS = {
    "kernel_meta": (ENTRIES,),
    "network_meta": (ENTRIES, networks.NETWORKS, networks.MODELS),
    "network_meta/weights": (WEIGHTS,),
}
"""What may lie in each folder."""

_HEADER = re.compile(rb"opbuild bundle ([0-9]{1,9}) ([0-9a-f]{64}) ([0-9]{1,12})\n")
_FORMAT = 2
_HEADER_LIMIT = 128


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
    """Write a bundle, whole or not at all; an existing file is replaced.

    Returns:
        Its size in bytes.

    Raises:
        OptionError: If the file cannot be written.
    """
    contents = dict(sorted(files))
    content = {
        "target": target,
        "compilers": sorted([each.name, each.version, each.digest] for each in set(compilers)),
        "files": [[name, len(data), blake3_of(data)] for name, data in contents.items()],
    }
    listing = canonical_json(trust.signed("bundle", content)).encode()
    header = f"opbuild bundle {_FORMAT} {blake3_of(listing)} {len(listing)}\n".encode()
    sweep(path.parent)
    try:
        with private_path(path.parent) as temporary:
            with create(temporary) as file:
                for part in (header, listing, *contents.values()):
                    file.write(part)
                size = file.tell()
            temporary.replace(path)
    except OSError as error:
        message = f"the bundle {str(path)!r} cannot be written: {error.strerror or error}"
        raise OptionError(message, "name a file in a folder that you may write to") from error
    return size


def read_bundle(path: Path, trust: Trust = PRIVATE) -> Bundle:
    """Read a bundle and check it whole.

    Raises:
        OptionError: If the file cannot be read or is no bundle, or others can write to it.
        BuildError: If any content is not what was written, or it is not signed; names each.
    """
    try:
        descriptor, state = trust.open(path)
        with os.fdopen(descriptor, "rb") as file:
            return _read(path, file, state.st_size, trust)
    except OSError as error:
        message = f"the bundle {str(path)!r} cannot be read: {error.strerror or error}"
        raise OptionError(message, "give a file that 'opbuild cache export' wrote") from error
    except MemoryError as error:
        raise OptionError(f"the bundle {str(path)!r} does not fit into memory", "export less of the cache") from error


def _read(path: Path, file: IO[bytes], size: int, trust: Trust) -> Bundle:
    """Read an open bundle; nothing is read whose size was not compared with the file's.

    Raises:
        OSError: If it cannot be read.
    """
    header = _HEADER.match(file.read(_HEADER_LIMIT))
    if header is None:
        raise OptionError(f"{str(path)!r} is not a bundle", "give a file that 'opbuild cache export' wrote")
    if int(header[1]) != _FORMAT:
        message = f"{str(path)!r} has the bundle format {int(header[1])}, this release reads {_FORMAT}"
        raise OptionError(message, "export it with this release of opbuild")
    start = header.end() + int(header[3])
    file.seek(header.end())
    data = file.read(int(header[3])) if start <= size and int(header[3]) <= LISTING else b""
    if len(data) != int(header[3]) or blake3_of(data) != header[2].decode():
        raise _damaged(path, ["its list of files"])
    target, places = _places(path, _listing(path, data, trust))
    if sum(nbytes for _, nbytes, _ in places) != size - start:
        raise _damaged(path, [f"its length: {size - start} bytes follow the list"])
    files = dict(_split(places, memoryview(file.read(size - start))))
    bad = [name for name, nbytes, digest in places if len(files[name]) != nbytes or blake3_of(files[name]) != digest]
    if bad:
        raise _damaged(path, bad)
    return Bundle(target, files)


def _listing(path: Path, data: bytes, trust: Trust) -> Any:
    try:
        return trust.unsigned("bundle", dict(parse_json(data)))
    except SignatureError as error:
        hint = "export it with this key (OPBUILD_SIGNING_KEY), or import it without one"
        raise BuildError(f"nothing of the bundle {str(path)!r} was imported: {error}", hint) from None
    except (TypeError, ValueError) as error:
        raise _damaged(path, ["its list of files"]) from error


def _places(path: Path, listing: Any) -> tuple[str, list[tuple[str, int, str]]]:
    """Return the target, and name, size and digest of each file."""
    try:
        target = str(listing["target"])
        places = [(str(name), int(size), str(digest)) for name, size, digest in listing["files"]]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _damaged(path, ["its list of files"]) from error
    wrong = [name for name, size, _ in places if size < 0 or not _is_of_a_cache(name)]
    if wrong or len({name for name, _, _ in places}) != len(places):
        raise _damaged(path, [f"the name {name!r:.250}" for name in wrong] or ["a name that is there twice"])
    return target, places


def _is_of_a_cache(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    stem, suffix = os.path.splitext(file)  # noqa: PTH122  no path yet
    return any(form.fits(stem, (suffix,)) for form in _FORMS.get(folder, ()))


def _split(places: Sequence[tuple[str, int, str]], data: memoryview) -> Iterator[tuple[str, memoryview]]:
    offset = 0
    for name, size, _ in places:
        yield name, data[offset : offset + size]
        offset += size


def _damaged(path: Path, what: Sequence[str]) -> BuildError:
    return BuildError(
        f"the bundle {str(path)!r} is damaged, and nothing of it was imported; not what was exported:\n" + listed(what),
        "copy or export it again",
    )
