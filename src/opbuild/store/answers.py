"""By which answers of families a model's networks were made (``kernel.answers``), as a folder of networks remembers it.

    network_meta/<network>_<number>.answers    the answers of networks that tuning chose variants of
    network_meta/<network>_<number>.chosen     which answers banks come to here, by a digest of all that decides it

The number is that of the key without tuning. Both are hints, whose loss costs a lowering: what they name is looked up
as any network.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.files.private import publish
from opbuild.files.trust import Trust
from opbuild.kernel.answers import Answers, answers_from_json, answers_to_json, with_answers
from opbuild.platform.paths import Path
from opbuild.store.items import REFUSED, Form

_ANSWERS, _CHOSEN = ".answers", ".chosen"

ANSWERS = Form("memo", (_ANSWERS, _CHOSEN), r"[a-z0-9_]+_[0-9]+")

MOST = 16
"""Networks of a model, and choices, that are remembered."""

_NETWORKS = "networks"


def answers_content(known: Sequence[Answers]) -> dict[str, Any]:
    """Return the content of a model's file."""
    return {_NETWORKS: list(map(answers_to_json, known))}


def answers_in(content: Mapping[str, Any]) -> list[Answers]:
    """Return the answers in the content of a model's file; none where it is something else."""
    with contextlib.suppress(*REFUSED):
        return [answers_from_json(each) for each in content[_NETWORKS]]
    return []


def answers_of(record: Any) -> list[Answers]:
    """Return the answers in what the runtime stored of a network; none if it has none."""
    with contextlib.suppress(*REFUSED):
        return [answers_from_json(record["answers"])]
    return []


def known_answers(folder: Path, stem: str, trust: Trust) -> list[Answers]:
    """Return the answers of a model's tuned networks, the newest last."""
    return answers_in(_read(folder / f"{stem}{_ANSWERS}", trust))


def note_answers(folder: Path, stem: str, answers: Answers, trust: Trust) -> None:
    """Remember the answers of a network; storage that refuses forgets it."""
    known = with_answers(known_answers(folder, stem, trust), answers, MOST)
    _write(folder / f"{stem}{_ANSWERS}", answers_content(known), trust)


def chosen_answers(folder: Path, stem: str, decides: str, trust: Trust) -> str | None:
    """Return the digest of the answers that banks come to; None if it is not remembered."""
    found = _read(folder / f"{stem}{_CHOSEN}", trust).get(decides)
    return found if isinstance(found, str) else None


def note_chosen(folder: Path, stem: str, decides: str, digest: str, trust: Trust) -> None:
    """Remember which answers banks come to, by a digest of all that decides it."""
    path = folder / f"{stem}{_CHOSEN}"
    others = {each: known for each, known in _read(path, trust).items() if each != decides}
    _write(path, dict([*others.items(), (decides, digest)][-MOST:]), trust)


def _read(path: Path, trust: Trust) -> Mapping[str, Any]:
    with contextlib.suppress(*REFUSED):
        return trust.read_memo(path)
    return {}


def _write(path: Path, content: Mapping[str, Any], trust: Trust) -> None:
    with contextlib.suppress(OSError):
        publish(path, trust.write_memo(path, content))
