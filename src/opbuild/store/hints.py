"""Hints: memos whose loss costs a compile or a lowering. What they name is looked up as any entry or network.

    network_meta/<optype>_<number>.origins     what defined an operator (``Key.origin``) by the digests of its pipelines
    network_meta/<network>_<number>.answers    the answers of families by which tuned networks of a model were made
    network_meta/<network>_<number>.chosen     which answers databases come to here, by a digest of all that decides it

The number is that of the operator's key without its sources, so the record is found whatever they are now, or that of
the network's without tuning. Two writers at once may lose a line.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opbuild.kernel.networks import Answers, answers_from_json, answers_to_json, with_answers
from opbuild.store.items import REFUSED, FileForm

if TYPE_CHECKING:
    from opbuild.kernel.key import Key
    from opbuild.kernel.reason import Reason
    from opbuild.store.blobs import Memos

ORIGINS_SUFFIX, ANSWERS_SUFFIX, CHOSEN = ".origins", ".answers", ".chosen"

ORIGINS = FileForm("origin", (ORIGINS_SUFFIX,), r"[a-z0-9_]+_[0-9]+")
ANSWERS = FileForm("memo", (ANSWERS_SUFFIX, CHOSEN), r"[a-z0-9_]+_[0-9]+")

MOST = 16
"""Pipelines of an operator, networks of a model, and choices, that are remembered."""

_OPERATOR, _PIPELINES, _NETWORKS = "operator", "pipelines", "networks"


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
        latest = dict([*older.items(), (pipeline, key.origin)][-MOST:])
        return self._memos.write(key.operator_stem, {_OPERATOR: key.operator, _PIPELINES: latest})

    def pipeline(self, stem: str, sources: str) -> str:
        """Return the digest of the pipeline that sources define for an operator's number; empty: it is not known."""
        with contextlib.suppress(*REFUSED):
            known = self._memos.read(stem)[_PIPELINES].items()
            return next((str(pipeline) for pipeline, of in known if of == sources), "")
        return ""


def answers_of(record: Any) -> list[Answers]:
    """Return the answers in a stored network's record; none if it has none."""
    with contextlib.suppress(*REFUSED):
        return [answers_from_json(record["answers"])]
    return []


def known_answers(memos: Memos, stem: str) -> list[Answers]:
    """Return the answers of a model's tuned networks, the newest last."""
    with contextlib.suppress(*REFUSED):
        return [answers_from_json(each) for each in memos.read(stem)[_NETWORKS]]
    return []


def note_answers(memos: Memos, stem: str, record: Any) -> Reason | None:
    """Remember how a network was tuned, by its stored record; return None, or why the storage refused."""
    for answers in answers_of(record):
        known = known_answers(memos, stem)
        if (latest := with_answers(known, answers, MOST)) != known:
            return memos.write(stem, {_NETWORKS: list(map(answers_to_json, latest))})
    return None


def chosen_answers(memos: Memos, stem: str, decides: str) -> str | None:
    """Return the digest of the answers that databases come to; None if it is not remembered."""
    found = memos.read(stem).get(decides)
    return found if isinstance(found, str) else None


def note_chosen(memos: Memos, stem: str, decides: str, digest: str) -> None:
    """Remember which answers databases come to, by a digest of all that decides it."""
    others = {each: known for each, known in memos.read(stem).items() if each != decides}
    memos.write(stem, dict([*others.items(), (decides, digest)][-MOST:]))
