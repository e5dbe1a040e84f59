"""The interfaces of stores and of a compiler, as the builder and the runtime know them."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import Entry
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.networks import Bytes, NetworkKey, StoredNetwork, Weight
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.reason import Reason
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

if TYPE_CHECKING:
    from opbuild.kernel.networks import Answers


@dataclass(frozen=True)
class Found:
    """A look-up's answer: the entry, checked.

    Attributes:
        entry: The entry.
        source: Whose it is, e.g. ``rank 2``, where another store lends it; publishing it makes it one's own.
        stays: Whether that store always has it, so that a copy of one's own would save nothing.
        is_kept: Whether it was published already.
        folder: Where its files lie, if publishing may link them.
    """

    entry: Entry
    source: str = ""
    stays: bool = False
    is_kept: bool = False
    folder: Path | None = None

    @property
    def is_lent(self) -> bool:
        """Whether it became or is to become one's own, so that it is there the next time."""
        return bool(self.source) and not self.stays

    @property
    def is_cacheable(self) -> bool:
        """Whether it is to be published for that."""
        return self.is_lent and not self.is_kept


@dataclass(frozen=True)
class Missing:
    """A look-up's answer: there is no entry that may be used, for exactly one reason."""

    reason: Reason


class Looks(Protocol):
    """Whatever has entries. It can only save work: none of its methods raises for a fault of the storage."""

    def lookup(self, key: Key) -> Found | Missing:
        """Return the entry of ``key``, checked byte for byte, or why there is none."""

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        """Return for each of several operators the digests of sources by those of the pipelines that they defined.

        Whatever the sources of the keys. There may be no entry any more; one has the pipeline's digest.
        """


class ListedEntries(Protocol):
    """The entries of one's own, to look through; they need not be sound."""

    def names(self, at_most: int | None = None) -> tuple[str, ...]:
        """Return the names of the entries present, sorted.

        Args:
            at_most: How many of the store's files to look at; None: all. If there are more, the names are any of them.
        """

    def last_use(self, name: str) -> float:
        """Return the time of the last use of the entry ``name``, in seconds since the epoch; 0 if that is not known."""

    def components(self, name: str) -> Mapping[str, Any] | None:
        """Return the key's components as the entry ``name`` states them; None if it cannot be read."""


class Store(Looks, Protocol):
    """A store of entries."""

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Add or replace an entry so that nobody ever sees part of it; return None, or why it could not be stored.

        Args:
            entry: The entry.
            linked_from: A folder that may have the same files: they are linked where they can be.
        """

    def note_origin(self, key: Key, pipeline: str) -> None:
        """Remember the digest of the pipeline that an operator's sources define, though nothing was compiled."""

    @property
    def listed(self) -> ListedEntries:
        """The entries of one's own."""


@runtime_checkable
class ManyAtOnce(Protocol):
    """A store that is asked for many entries in the time of one."""

    def lookup_all(self, keys: Sequence[Key]) -> list[Found | Missing]:
        """Return the answer of ``lookup`` for each of several keys."""


class Release(Looks, Protocol):
    """The entries that a release brings: they serve whatever compiler is asked for, and stay where they are."""

    def compiler(self) -> CompilerIdentity | None:
        """Return the identity of the compiler of the release's operators; None if there are none."""


def look_up(store: Looks, keys: Sequence[Key]) -> list[Found | Missing]:
    """Return a store's answer for each of several keys, asked together where it can be."""
    return store.lookup_all(keys) if isinstance(store, ManyAtOnce) else [store.lookup(key) for key in keys]


class NetworkStore(Protocol):
    """A store of built networks. As ``Store`` it can only save work."""

    def lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return the network of ``key``, library and constants checked byte for byte, or why there is none."""

    def publish(self, key: NetworkKey, network: StoredNetwork) -> str | None:
        """Add or replace a network so that nobody ever sees part of it; return None, or why it could not be stored."""

    def note(self, key: NetworkKey, states: Mapping[str, Any]) -> None:
        """Keep new states of a network's weights; lost ones only cost reading the weights once more."""

    def answers(self, key: NetworkKey) -> Iterator[Answers]:
        """Return the answers of families by which networks were made that differ from ``key`` in tuning alone."""


class WeightStore(Protocol):
    """A store of packed weights, by the digest of their bytes, each once for all networks. It only saves work."""

    def get(self, digest: str, nbytes: int, state: Any = None) -> Weight | Reason:
        """Return weights, checked by their digest unless ``state`` says that they were.

        Args:
            digest: BLAKE3 of the bytes.
            nbytes: Their number.
            state: What the store said of them before.
        """

    def put(self, digest: str, array: Bytes) -> Weight | Reason:
        """Add weights; return them as they are stored, or why they are not.

        Args:
            digest: BLAKE3 of the bytes.
            array: The bytes.
        """

    def find(self, source: str, nbytes: int) -> Weight | Reason:
        """Return the packed weight of a source, as ``remember`` was told, checked as by ``get``."""

    def remember(self, source: str, weight: Weight) -> str | None:
        """Write down the packed weight of a source, named by a digest; return None, or why it could not be."""


class PackingClaims(Protocol):
    """Claims on the packing of weights for one store, by digests of their sources. They end with the process."""

    def take(self, source: str) -> bool:
        """Return whether nobody else packs a source; then this process does."""

    def give(self, source: str) -> None:
        """Give a claim up; harmless if there is none."""

    def offer(self, source: str, descriptor: int) -> None:
        """Tell others by which of this process's descriptors they have what a source packs to."""

    def offered(self, source: str) -> tuple[int, int] | None:
        """Return the process and the descriptor that were offered last for a source; None: none."""

    def close(self) -> None:
        """Give up all claims, and leave nothing behind that is not in use."""


@dataclass(frozen=True)
class Holder:
    """Who compiles an operator just now; what is not known is 0 or empty.

    Attributes:
        process: Its process.
        host: Where that is.
        rank: Its rank.
        is_far: Whether each question costs a request to a remote store, and the end of its process is not seen.
    """

    process: int = 0
    host: str = ""
    rank: int = 0
    is_far: bool = False

    def __str__(self) -> str:
        where = f" on {self.host}" if self.host else ""
        return f"process {self.process}{where} (rank {self.rank})" if self.process else "another process"


class Claim(Protocol):
    """The right to compile an operator while others wait; it ends with the process at the latest."""

    def release(self) -> None:
        """Give it up, the entry published or not; harmless if it was."""


class Unclaimed:
    """A claim that binds nobody, and claims all of which are so: where there are none, or nobody is asked."""

    def take(self, key: Key, patience: float = math.inf) -> Unclaimed:
        """Return a claim that binds nobody."""
        return self

    def release(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


UNCLAIMED = Unclaimed()


class Claims(Protocol):
    """Who compiles what. Claims can only save work: where they do not hold, operators are compiled more than once."""

    def take(self, key: Key, patience: float = math.inf) -> Claim | Holder:
        """Return the claim on an operator, or who has it; where there can be no claims, one that binds nobody.

        Args:
            key: The operator's.
            patience: Seconds for which a far holder is believed that does not release it.
        """

    def close(self) -> None:
        """Leave nothing behind that is not in use."""


@runtime_checkable
class ManyClaims(Protocol):
    """Claims of which many are had in the time of one, which is that of several requests to a remote store."""

    def take_all(self, keys: Sequence[Key]) -> list[Claim | Holder]:
        """Return the answer of ``Claims.take`` for each of several operators."""


class Pipeline(Protocol):
    """The input of a compiler for one operator.

    Attributes:
        digest: Of all that decides the object but its symbol and the compiler, 32 hexadecimal digits.
    """

    digest: str

    def compile(self, symbol: str, /) -> Artifact:
        """Return the artifact, whose kernel has a symbol."""


class Compiler(Protocol):
    """What makes the artifacts of a target. An instance is cheap: nothing is loaded before ``prepare`` or ``define``.

    Attributes:
        import_string: ``module:Class`` by which a fresh process finds the class; it is called without arguments there.
        name: The compiler's name, which is in every key.
    """

    import_string: str
    name: str

    def version(self) -> str:
        """Return the compiler's release without importing it; empty if it is not installed."""

    def library(self) -> Path | None:
        """Return the file whose bytes are the compiler, without importing it; None if it is not installed."""

    def files(self) -> tuple[Path, ...]:
        """Return all files whose bytes are the compiler, ``library`` first; none if it is not installed."""

    def sources_digest(self, desc: OpDesc) -> str:
        """Return the digest of the source files that define the descriptor's family.

        In a process that has loaded them (``prepare``) it is another digest if they are not what was loaded.
        """

    def released_digest(self, desc: OpDesc) -> str:
        """Return the digest that these sources have in a release, where comments decide nothing."""

    def prepare(self) -> None:
        """Load the compiler; called once in the server process, before it forks."""

    def define(self, desc: OpDesc, target: Any, /) -> Pipeline:
        """Return the pipeline of one operator; called in a fresh process each time.

        Args:
            desc: What to compile.
            target: The ``Target`` that the code is for, of the class of devices that the compiler serves.
        """

    def inspect(self, desc: OpDesc, symbol: str, target: Any, /, options: Collection[str]) -> Mapping[str, bytes]:
        """Return the object of one operator compiled with debug options, and the files that they ask for, by suffix.

        Args:
            desc: What to compile.
            symbol: The name of the kernel's symbol.
            target: The ``Target`` that the code is for.
            options: Of ``kernel.debug``.

        Returns:
            The object is at ``.o``.
        """
