"""By which answers of families a model's networks were made (``kernel.answers``), as stores of networks remember it.

    network_meta/<network>_<number>.answers    the answers of networks that tuning chose variants of
    network_meta/<network>_<number>.chosen     which answers banks come to here, by a digest of all that decides it

The number is that of the key without tuning. Both are hints, whose loss costs a lowering: what they name is looked up
as any network.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from opbuild.kernel.networks import Answers, answers_from_json, answers_to_json, with_answers
from opbuild.store.items import REFUSED, FileForm

if TYPE_CHECKING:
    from opbuild.kernel.reason import Reason
    from opbuild.store.blobs import Memos

SUFFIX, CHOSEN = ".answers", ".chosen"

ANSWERS = FileForm("memo", (SUFFIX, CHOSEN), r"[a-z0-9_]+_[0-9]+")

MOST = 16
"""Networks of a model, and choices, that are remembered."""

_NETWORKS = "networks"


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
    """Return the digest of the answers that banks come to; None if it is not remembered."""
    found = memos.read(stem).get(decides)
    return found if isinstance(found, str) else None


def note_chosen(memos: Memos, stem: str, decides: str, digest: str) -> None:
    """Remember which answers banks come to, by a digest of all that decides it."""
    others = {each: known for each, known in memos.read(stem).items() if each != decides}
    memos.write(stem, dict([*others.items(), (decides, digest)][-MOST:]))
