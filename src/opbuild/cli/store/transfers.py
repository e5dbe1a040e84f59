"""Transfers: operators and networks go from one store to another, by a file or by a store that others share.

Every command that carries some chooses, adds and counts them here, and returns one table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import chain
from typing import Any

from opbuild.backend.compilers import make_compiler
from opbuild.builder.build import Builder
from opbuild.cli.store.folder import looked_at
from opbuild.config import COMPILER_MEMO, Config
from opbuild.errors import BuildError
from opbuild.frontend.models.source import ModelSource
from opbuild.kernel.entry import Entry
from opbuild.kernel.identity import identify, memo_of, remember, remembered
from opbuild.kernel.interfaces import Compiler, Found
from opbuild.kernel.key import CompilerIdentity
from opbuild.kernel.networks import NetworkKey
from opbuild.kernel.opdesc import OpDesc, runtime_desc
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import Trust, make_trust
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes
from opbuild.session import Session
from opbuild.store.operators import entry_in, operators_in
from opbuild.target.level import BuildTarget, target_named

Kernels = Mapping[OpDesc, tuple[str, ...]]

Named = tuple[str, str]
"""The name of an item, and why it was left out."""


@dataclass(frozen=True)
class Transfer:
    """The table of a transfer.

    Attributes:
        target: The target that everything is for.
        operators: Number of operators that went or came.
        networks: Number of networks, with their weights.
        nbytes: Bytes of the bundle, or sent and received.
        present: Number of operators that were there already.
        records: Number of tuning records.
        replaced: Number of objects that were damaged there and are written again.
        left_out: The items that did not go or come, and why.
        others: Number of operators of each other level, which were not asked for.
        warnings: Warnings for the user.
        lacking: Models whose networks were asked for, and are not there.
    """

    target: BuildTarget
    operators: int
    networks: int
    nbytes: int = 0
    present: int = 0
    records: int = 0
    replaced: int = 0
    left_out: tuple[Named, ...] = ()
    others: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    lacking: tuple[Path, ...] = ()

    def table(self, *columns: str) -> dict[str, Any]:
        """Return some columns as JSON values; ``added`` is another name of ``operators``, ``bytes`` of ``nbytes``."""
        others = {
            "target": self.target.name, "added": self.operators, "bytes": self.nbytes,
            "left_out": dict(self.left_out), "warnings": list(self.warnings),
        }  # fmt: skip
        return {name: others[name] if name in others else getattr(self, name) for name in columns}


@dataclass(frozen=True)
class Chosen:
    """The sound entries for a target, those left out, and the number of those for each other level."""

    entries: list[Entry]
    left_out: list[Named]
    others: Counter[str]


def choose(found: Iterable[tuple[str, Entry | Reason]], target: BuildTarget, tell: Callable[[Reason], str]) -> Chosen:
    """Return which of some entries, by name, are for a target; ``tell`` puts a reason in words."""
    chosen = Chosen([], [], Counter())
    for name, entry in found:
        if isinstance(entry, Reason):
            chosen.left_out.append((name, tell(entry)))
        elif target_of(entry) in target.names:
            chosen.entries.append(entry)
        else:
            chosen.others[target_of(entry)] += 1
    return chosen


def add(entries: Iterable[Entry], folder: Path, trust: Trust, refused: Callable[[str], BuildError]) -> int:
    """Put the entries that a folder lacks there; return how many; ``refused`` makes the error of a fault."""
    lacked = [entry for entry in entries if isinstance(entry_in(looked_at(folder, trust), entry.name), Reason)]
    store = operators_in(folder, trust=trust)
    for entry in lacked:
        if problem := store.publish(entry):
            raise refused(problem)
    return len(lacked)


def trust_of(config: Config) -> Trust:
    """Return the trust in a cache's files; refuse a cache that others can write to."""
    trust = make_trust(config)
    problem = trust.folder_problem(config.kernel_meta, config.network_meta)
    if problem is not None:
        raise BuildError(f"the cache is not used: {problem}", "or name another cache")
    return trust


def networks_of(source: ModelSource, shapes: Shapes, session: Session) -> list[tuple[NetworkKey, Kernels]]:
    """Return the networks that serve a model at a size, and the kernels of each.

    That is the network of this size alone, or those with symbolic extents where these are stored and that is not.
    """
    needed = session.plan([source.graph(shapes, Clock())], Clock())
    known = session.stores.networks
    key = known.key(source.declaration.name, source.digest, source.types(shapes))
    own = known.made_by(key, needed.programs[0].answers)
    opened = [] if known.is_stored(own) else list(known.dynamic_networks(source))
    return opened or [(own, needed.kernels)]


def entries_of(kernels: Kernels, builder: Builder) -> list[Entry]:
    """Return the entries of kernels, all of them stored."""
    builder.lower = tuple  # a bundle has one level's operators
    plans = builder.plan(kernels)
    entries = [plan.entry for plan in plans if plan.entry is not None]
    missing = [plan.name for plan in plans if plan.must_compile]
    if builder.needs_runtime(entries):
        key = builder.key(runtime_desc())
        stored = builder.runtime_store.lookup(key) if builder.runtime_store is not None else None
        if isinstance(stored, Found):
            entries.append(stored.entry)
        else:
            missing.append(key.name(builder.config.device_id))
    if missing:
        raise BuildError(
            f"the cache lacks {len(missing)} of the operators that the model needs: {', '.join(missing[:5])}"
            + (" ..." if len(missing) > 5 else ""),
            "build the model first, with the same shapes and level; 'opbuild explain' says more",
        )
    return entries


def note_compilers(entries: Iterable[Entry], config: Config, trust: Trust) -> tuple[str, ...]:
    """Remember the compilers of operators that came here, where none is installed; warn where another one is."""
    found: defaultdict[str, set[CompilerIdentity]] = defaultdict(set)
    for entry in entries:
        found[target_named(target_of(entry)).device].add(compiler_of(entry))
    warned = (
        _note_compiler(
            make_compiler(name), sorted(found[name], key=str), memo_of(name, config.network_meta / COMPILER_MEMO), trust
        )
        for name in sorted(found)
    )
    return tuple(chain.from_iterable(warned))


def _note_compiler(
    compiler: Compiler, found: Collection[CompilerIdentity], memo: Path | None, trust: Trust
) -> tuple[str, ...]:
    """Do the same for the operators of one class of devices."""
    if compiler.library() is None:
        known = None
        if memo is not None:
            for identity in found:
                remember(memo, identity, trust)
            known = remembered(memo, trust)
        others = [f"{each.name} {each.version}" for each in found if each != known]
        return tuple(f"operators that {other} compiled are not found where it is not installed" for other in others)
    installed = identify(compiler, memo, trust)
    if installed in found:
        return ()
    compilers = ", ".join(f"{each.name} {each.version}" for each in found)
    return (f"{compilers} compiled what came; {installed.name} {installed.version} is installed and finds none of it",)


def target_of(entry: Entry) -> str:
    """Return the level that an entry is for."""
    return str(entry.info["key"]["components"]["target"])


def compiler_of(entry: Entry) -> CompilerIdentity:
    """Return the identity of the compiler that compiled an entry."""
    parts = entry.info["key"]["components"]["compiler"]
    return CompilerIdentity(str(parts["name"]), str(parts["version"]), str(parts["digest"]))
