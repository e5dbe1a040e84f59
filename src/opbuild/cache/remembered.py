"""What a cache only remembers: memos, counters and settings, and what is wrong with each.

    network_meta/*.model, *.digest, *.seen       of models, their files, the files of weights
    network_meta/weights/*.json                  which bytes a source packs to
    network_meta/compiler.json                   of the compiler
    network_meta/counters.jsonl, counters.old.jsonl, size.jsonl
    op_cache.ini

A build that meets a wrong one goes on without it; here it is found although no build asks for it.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from opbuild.config import COMPILER_MEMO
from opbuild.files.trust import SignatureError, Trust, UntrustedError
from opbuild.kernel.interfaces import Reason
from opbuild.models.declaration import SUFFIX, read_declaration
from opbuild.store.counters import FILE, OLD_FILE, check_counters
from opbuild.store.inventory import Item, Kind
from opbuild.store.measured import FILE as SIZE_FILE
from opbuild.store.measured import read_measured
from opbuild.store.policy import read_policy

_DIGEST = re.compile(r"[0-9a-f]{64}")


def remembered_items(network_meta: Path, settings: Path | None) -> list[Item]:
    """Return the files that remember something, sorted by name; what can not be read counts as absent."""
    found = [*_files(network_meta, _is_memo), *_files(network_meta / "weights", _is_reference)]
    items = [_item(path, "memo") for path in sorted(found)]
    return items + ([_item(settings, "settings")] if settings is not None and settings.is_file() else [])


def problem_of_remembered(item: Item, trust: Trust) -> Reason | None:
    """Return what is wrong with a file that remembers something, None if it is sound or gone."""
    path = Path(item.mark)
    if item.kind == "settings":
        _, warnings = read_policy(path, trust=trust)
        return Reason("invalid", warnings[0].removeprefix(f"{path} ")) if warnings else None
    try:
        _reader(path)(path, trust)
    except FileNotFoundError:
        return None
    except SignatureError as error:
        return Reason(error.code, str(error))
    except UntrustedError as error:
        return Reason("untrusted", f"it is not used: {error.strerror}")
    except OSError as error:
        code = "damaged" if error.errno == errno.EFBIG else "unreadable"
        return Reason(code, f"it can not be read: {error.strerror or error}")
    except (ValueError, KeyError, TypeError):
        return Reason("damaged", "it is not what was written into a file of this name")
    return None


def weights_sizes(network_meta: Path, trust: Trust) -> dict[str, int]:
    """Return the bytes that packed weights must have, by digest, as far as it is remembered."""
    sizes = {}
    for path in _files(network_meta / "weights", _is_reference):
        try:
            digest, nbytes = _read_reference(path, trust)
        except (OSError, ValueError, KeyError, TypeError):
            continue
        sizes[digest] = nbytes
    return sizes


def _reader(path: Path) -> Callable[[Path, Trust], Any]:
    if path.name in (FILE, OLD_FILE):
        return check_counters
    if path.name == SIZE_FILE:
        return read_measured
    if path.suffix == SUFFIX:
        return read_declaration
    if path.parent.name == "weights":
        return _read_reference
    return _read_digest if path.suffix == ".digest" else _read_memo


def _read_memo(path: Path, trust: Trust) -> None:
    trust.read_memo(path)


def _read_digest(path: Path, trust: Trust) -> None:
    if not _DIGEST.fullmatch(trust.read_memo(path)["blake3"]):
        raise ValueError("it holds no digest")


def _read_reference(path: Path, trust: Trust) -> tuple[str, int]:
    content = trust.read_memo(path)
    digest, nbytes = content["blake3"], content["nbytes"]
    if not _DIGEST.fullmatch(digest) or not isinstance(nbytes, int):
        raise ValueError("it names no weights")
    return digest, nbytes


def _is_memo(name: str) -> bool:
    if name.startswith("."):
        return False
    return name in (COMPILER_MEMO, FILE, OLD_FILE, SIZE_FILE) or name.endswith((SUFFIX, ".digest", ".seen"))


def _is_reference(name: str) -> bool:
    return name.endswith(".json") and _DIGEST.fullmatch(name.removesuffix(".json")) is not None


def _files(folder: Path, wanted: Callable[[str], bool]) -> Iterator[Path]:
    try:
        yield from (path for path in folder.iterdir() if wanted(path.name))
    except OSError:
        return


def _item(path: Path, kind: Kind) -> Item:
    try:
        state = path.lstat()
    except OSError:
        return Item(kind, path.name, (str(path),), 0, 0.0)
    return Item(kind, path.name, (str(path),), state.st_size, max(state.st_atime, state.st_mtime))
