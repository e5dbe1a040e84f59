"""Origins: the sources that an operator was compiled from before, and their pipelines.

    network_meta/<optype>_<number>.origins    what defined an operator (``Key.origin``) by the digests of its pipelines

The number is that of the operator's key without its sources, so the record is found whatever they are now. It is a
hint: what it names is looked up as any entry, and has to be of that pipeline. Two writers at once may lose a line,
which costs a compile.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from opbuild.kernel.key import Key
from opbuild.store.items import REFUSED, FileForm

if TYPE_CHECKING:
    from opbuild.kernel.reason import Reason
    from opbuild.store.blobs import Memos

SUFFIX = ".origins"

ORIGINS = FileForm("origin", (SUFFIX,), r"[a-z0-9_]+_[0-9]+")

_MOST = 16
"""Pipelines that are remembered of an operator."""

_OPERATOR, _PIPELINES = "operator", "pipelines"


class Origins:
    """From which sources operators were compiled."""

    def __init__(self, memos: Memos) -> None:
        self._memos = memos

    def known(self, key: Key) -> dict[str, str]:
        """Return the sources of an operator, by their pipelines; none where that cannot be read."""
        with contextlib.suppress(*REFUSED):
            content = self._memos.read(key.operator_stem)
            if content[_OPERATOR] == key.operator:
                return {str(pipeline): str(sources) for pipeline, sources in content[_PIPELINES].items()}
        return {}

    def note(self, key: Key, pipeline: str) -> Reason | None:
        """Remember the pipeline of a key's sources; return None, or why the storage refused."""
        known = self.known(key)
        if not pipeline or known.get(pipeline) == key.origin:
            return None
        older = {each: of for each, of in known.items() if each != pipeline and of != key.origin}
        latest = dict([*older.items(), (pipeline, key.origin)][-_MOST:])
        return self._memos.write(key.operator_stem, {_OPERATOR: key.operator, _PIPELINES: latest})

    def pipeline(self, stem: str, sources: str) -> str:
        """Return the digest of the pipeline that sources define for an operator's number; empty: it is not known."""
        with contextlib.suppress(*REFUSED):
            known = self._memos.read(stem)[_PIPELINES].items()
            return next((str(pipeline) for pipeline, of in known if of == sources), "")
        return ""
