"""Origins: from which sources an operator was compiled before, and what those defined.

    network_meta/<optype>_<number>.origins    what defined an operator (``Key.origin``) by the digests of its pipelines

The number is that of the operator's key without its sources, so the file is found whatever they are now. It is a hint:
what it names is looked up as any entry, and has to be of that pipeline. Two writers at once may lose a line, which
costs a compile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from opbuild.files.private import publish
from opbuild.files.trust import Trust
from opbuild.kernel.key import Key
from opbuild.platform.paths import Path
from opbuild.store.items import REFUSED, Form

SUFFIX = ".origins"

ORIGINS = Form("origin", (SUFFIX,), r"[a-z0-9_]+_[0-9]+")

_MOST = 16
"""Pipelines that are remembered of an operator."""

_OPERATOR, _PIPELINES = "operator", "pipelines"


def with_origin(known: Mapping[str, str], pipeline: str, sources: str) -> dict[str, str]:
    """Return an operator's origins, with the one of what was just compiled."""
    older = {each: of for each, of in known.items() if each != pipeline and of != sources}
    return dict([*older.items(), (pipeline, sources)][-_MOST:])


def origins_content(key: Key, known: Mapping[str, str]) -> dict[str, Any]:
    """Return the content of an operator's file."""
    return {_OPERATOR: key.operator, _PIPELINES: dict(known)}


def origins_of(content: Mapping[str, Any], key: Key) -> dict[str, str]:
    """Return the origins in the content of an operator's file.

    Raises:
        ValueError: If it is of another one, or nothing of the kind; or ``KeyError``, ``AttributeError``.
    """
    if content[_OPERATOR] != key.operator:
        raise ValueError("it is of another operator")
    return {str(pipeline): str(sources) for pipeline, sources in content[_PIPELINES].items()}


def known_origins(folder: Path, key: Key, trust: Trust) -> dict[str, str]:
    """Return the origins of an operator of a folder; none where they can not be read."""
    with contextlib.suppress(*REFUSED):
        return origins_of(trust.read_memo(_path(folder, key)), key)
    return {}


def remembered_pipeline(folder: Path, stem: str, sources: str, trust: Trust) -> str:
    """Return the digest of the pipeline that sources define for an operator, by its number; empty: it is not known."""
    with contextlib.suppress(*REFUSED):
        known = trust.read_memo(folder / f"{stem}{SUFFIX}")[_PIPELINES].items()
        return next((str(pipeline) for pipeline, of in known if of == sources), "")
    return ""


def note_origin(folder: Path, key: Key, pipeline: str, trust: Trust) -> None:
    """Remember what the sources of a key define; storage that refuses forgets it."""
    known = known_origins(folder, key, trust)
    if known.get(pipeline) != key.origin:
        path = _path(folder, key)
        with contextlib.suppress(OSError):
            publish(path, trust.write_memo(path, origins_content(key, with_origin(known, pipeline, key.origin))))


def _path(folder: Path, key: Key) -> Path:
    """Return where a folder of operators has what is remembered of one: in ``network_meta``, beside or inside it."""
    is_beside = folder.name in ("kernel_meta", "network_meta")
    return (folder.parent if is_beside else folder) / "network_meta" / f"{key.operator_stem}{SUFFIX}"
