"""Built networks and packed weights as stores keep them, without knowing their content.

Beside a network its *answers* are kept: the queries that lowering asked families, and the variants taken, perhaps of
tuning. What a family is asked next may depend on what it answered before, and on nothing else. So a build that would
answer each question of a network as it was answered then, would come to the same kernels: by that a stored network is
found without lowering, and its name has of tuning what differs from the families' own answers, nothing of who found it
where.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from opbuild.platform.digest import blake3_of
from opbuild.platform.records import NamedTuple
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    import numpy as np  # takes as long to load as all else of the compile server, which needs none


Bytes: TypeAlias = "np.ndarray[tuple[Any, ...], np.dtype[np.uint8]]"

FORMAT = 2
"""Raised whenever the meaning of what is stored changes; it is part of the key."""

_TUNED = "tuned"
"""The component of a key that holds what tuning chose; none if that is nothing."""


class NetworkKey(NamedTuple):
    """The key of a stored network: everything it was made from.

    Attributes:
        network: The network's name, for the files' names.
        components: Named JSON values: the model, its input signature, options, opbuild itself, the target.
        installed: Returns the digest of the compiler that is installed; empty if none is. It is asked only where a
            compiler made what is stored: 165 MB are read for it.
    """

    network: str
    components: Mapping[str, Any]
    installed: Callable[[], str] = lambda: ""

    @property
    def stem(self) -> str:
        """The network's name in its store: ``<network>_<number>``, the first 64 bits of the key's digest."""
        digest = blake3_of(canonical_json({"format": FORMAT, **self.components}).encode())
        name = re.sub(r"[^a-z0-9_]+", "_", self.network.lower())[:60].strip("_") or "network"
        return f"{name}_{int(digest[:16], 16)}"

    @property
    def target(self) -> str:
        """The name of the target that it is for: a level, or a device and the level beside it."""
        device = self.components.get("device")
        beside = device[:1] if isinstance(device, list) else []
        return " with ".join(str(each) for each in (self.components.get("target"), *beside))

    def tuned(self, digest: str) -> NetworkKey:
        """Return the key of the same network with other answers of families, by their digest; empty: their own."""
        parts = {name: value for name, value in self.components.items() if name != _TUNED}
        return self._replace(components=parts | ({_TUNED: digest} if digest else {}))

    @property
    def is_tuned(self) -> bool:
        """Whether tuning chose some of its variants."""
        return _TUNED in self.components

    def suits(self, compiler: str) -> bool:
        """Return whether a network may be used whose kernels this compiler made: none, the one installed, or any."""
        return not compiler or self.installed() in ("", compiler)


class StoredNetwork(NamedTuple):
    """A network as it is stored.

    Attributes:
        record: JSON values; weights are named by their digests, as texts.
        library: Its shared library.
        constants: The bytes of all constants that are not kept as weights.
        states: By digest, what the store of weights said of each the last time: see ``Weight``.
        compiler: Digest of the compiler that made its kernels; empty: a release brings all of them.
    """

    record: Any
    library: bytes
    constants: Bytes
    states: Mapping[str, Any] = {}
    compiler: str = ""


class Weight(NamedTuple):
    """Packed weights.

    Attributes:
        digest: BLAKE3 of the bytes.
        array: The bytes.
        state: A JSON value by which the store knows the next time that nobody touched them; None: it will look again.
    """

    digest: str
    array: Bytes
    state: Any = None


class Answered(NamedTuple):
    """A question of lowering, and its answer.

    Attributes:
        family: The family's name.
        arguments: What it was asked with, as canonical JSON.
        default: The family's own answer.
        choice: What was taken.
        passed: What records said before, and was not taken: variants that the family does not name, or whose kernels
            the release lacks; each with whether the release's database said so.
    """

    family: str
    arguments: str
    default: dict[str, Any] | None
    choice: dict[str, Any] | None
    passed: Sequence[tuple[dict[str, Any] | None, bool]] = ()


Answers = Sequence[Answered]
"""All of a network, in the order in which they were asked."""


def digest_of(answers: Answers) -> str:
    """Return a digest of the answers that are not the families' own; empty if all are."""
    chosen = sorted(canonical_json([each.family, each.arguments, each.choice]) for each in answers if _is_tuned(each))
    return blake3_of(canonical_json(chosen).encode()) if chosen else ""


def answers_to_json(answers: Answers) -> list[Any]:
    """Return answers as JSON values; of most there is nothing but the family's own."""
    return [
        [each.family, each.arguments, each.default, *([each.choice, list(map(list, each.passed))] * _is_told(each))]
        for each in answers
    ]


def answers_from_json(parts: Any) -> tuple[Answered, ...]:
    """Return the answers that ``answers_to_json`` wrote.

    Raises:
        ValueError: If it is something else; or ``TypeError``, ``LookupError``.
    """
    return tuple(_answered(*each) for each in parts)


def with_answers(known: Iterable[Answers], answers: Answers, most: int) -> list[Answers]:
    """Return the answers that are known, the newest last; of those to one effect one."""
    digest = digest_of(answers)
    return [*(each for each in known if digest_of(each) != digest), answers][-most:]


def _answered(family: str, arguments: str, default: Any, choice: Any = ..., passed: Any = ()) -> Answered:
    choice = default if choice is ... else choice
    variants = (default, choice, *(variant for variant, _ in passed))
    if not all(isinstance(each, (dict, type(None))) for each in variants) or not isinstance(arguments, str):
        raise ValueError("these are no answers")
    return Answered(str(family), arguments, default, choice, [(variant, bool(shipped)) for variant, shipped in passed])


def _is_tuned(each: Answered) -> bool:
    return each.choice != each.default


def _is_told(each: Answered) -> bool:
    return _is_tuned(each) or bool(each.passed)
