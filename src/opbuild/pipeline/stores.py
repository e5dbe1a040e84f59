"""Stores, where one build finds earlier entries and networks and keeps its own; and the builder that works on them.

Networks are stored whole: here are their keys, how they start, and when they are stored.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain, count
from typing import TYPE_CHECKING

from opbuild.config import quota_environment
from opbuild.errors import BuildError, OpbuildError
from opbuild.events import NetworkLoaded, Warned, tell
from opbuild.frontend.models.memory import ModelMemory
from opbuild.graph import user_operators
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.free import FREE
from opbuild.kernel.networks import Answers, NetworkKey, digest_of
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import Setup, release_pack
from opbuild.platform.background import BACKGROUND_WRITER, WriteJob
from opbuild.platform.digest import blake3_of
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path
from opbuild.platform.sources import own_packing_sources, own_sources, own_sources_edited
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Arena, Executor, load_code
from opbuild.runtime.record import Record
from opbuild.runtime.reports import stored_report
from opbuild.runtime.stored_network import LoadedNetwork, StoredNetworks
from opbuild.store.blobs import Folder, LocalMemos, Memory
from opbuild.store.hints import CHOSEN, chosen_answers, note_chosen
from opbuild.store.machine_class import deciding_digest
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.builder.build import Builder, LowerLevel
    from opbuild.builder.job import BuildResult
    from opbuild.kernel.interfaces import Claims, Looks, Store
    from opbuild.kernel.key import CompilerIdentity
    from opbuild.kernel.networks import Answers, StoredNetwork
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.pipeline.remote import Remote
    from opbuild.pipeline.source import Source
    from opbuild.pipeline.stages import Assembled
    from opbuild.runtime.sharing import Sharing
    from opbuild.runtime.stored_network import LoadedDynamicNetwork
    from opbuild.runtime.weights import Packer
    from opbuild.store.claims import Flights
    from opbuild.store.model_packs import Packs
    from opbuild.store.policy import Policy
    from opbuild.target.level import Target


class Stores:
    """The stores of one build; each is opened when it is first asked for.

    Args:
        setup: Says where they are, whether they are used, and whose files are believed.
        like: Stores of the same network, whose weights and memory are shared.

    Attributes:
        rebuilt: Digests of the keys that this build was forced to compile, and need not compile again.
    """

    def __init__(self, setup: Setup, like: Stores | None = None) -> None:
        self.setup = setup
        self._like = like
        self._config = setup.config
        self.rebuilt: set[str] = set()

    @lazy_property
    def lower(self) -> tuple[Stores, ...]:
        """The stores of lower levels whose code may serve, the highest first; none if code can be made."""
        return tuple(Stores(setup) for setup in self.setup.lower())

    @lazy_property
    def policy(self) -> Policy:
        """The limits of the cache folder; its user is told of faults in ``op_cache.ini``."""
        from opbuild.store.policy import Policy, read_policy, usual_megabytes

        config = self._config
        if not config.uses_folder:
            return Policy()
        policy, warnings = read_policy(
            config.policy_file, quota_environment(), self.setup.trust, usual_megabytes(config)
        )
        for warning in warnings:
            self.setup.observer(Warned(warning))
        return policy

    @lazy_property
    def operators_and_runtimes(self) -> tuple[Store, Store]:
        """The stores of operators and of the compiler's runtime library.

        What other ranks and the tiers below have is taken from them, unless everything is to be compiled.
        """
        from opbuild.store.operators import Operators, operators_in
        from opbuild.store.tiers import TieredStore, rank_stores

        config = self._config
        open_store = partial(
            operators_in, device_id=config.device_id, keep_times=self.policy.ages, trust=self.setup.trust
        )  # what opens a folder outlives these stores, whom it does not know
        folders = config.kernel_meta, config.network_meta
        operators, runtimes = (open_store(each) if config.uses_folder else Operators(Memory()) for each in folders)
        if not config.uses_cache or config.forces:
            return operators, runtimes
        near = rank_stores(config, open_store) if config.uses_folder else (operators, runtimes)
        packs = [] if self.packs is None else [self.packs.of(name) for name in self.setup.target.names]
        if self.remote is None:
            return TieredStore(near[0], packs) if packs else near[0], near[1]
        from opbuild.store.remote.operators import SingleFlight

        below, turns, offer = self.remote.operators, self._turns, self.remote.offer_operator
        known = self.remote.check_operator if self.remote.checks else None

        def tiered(own: Store, *tiers: Looks) -> Store:
            far = below if turns is None else SingleFlight(own, below, turns)
            return TieredStore(own, [*tiers, far], offer, known)

        return tiered(near[0], *packs), tiered(near[1])

    def _check_operators(self, network: StoredNetwork) -> None:
        """Have the operators of a stored network in the remote store too, and the compiler's runtime library."""
        from opbuild.kernel.entry import Entry
        from opbuild.store.operators import entry_in, operators_in
        from opbuild.store.remote.manifest import operators_of

        if self.remote is None:
            return
        folders = self._config.kernel_meta, self._config.network_meta
        operators, runtimes = (operators_in(each, self._config.device_id, trust=self.setup.trust) for each in folders)
        named = [(operators, name) for stem in operators_of(network.record) for name in operators.names_of(stem)[:1]]
        found = list[Entry]()
        for store, name in [*named, *((runtimes, name) for name in runtimes.names())]:
            entry = entry_in(store.blobs, name)
            if isinstance(entry, Entry):
                self.remote.check_operator(entry)
                found += [entry] if store is operators else []
        self.remote.check_group(found)

    @property
    def _turns(self) -> Flights | None:
        """The single flights of this host's processes; None where they share no folder."""
        from opbuild.store.claims import Flights
        from opbuild.store.peers import claims_folder

        return Flights(claims_folder(self._config)) if self._config.uses_folder else None

    @lazy_property
    def remote(self) -> Remote | None:
        """The store that others share; None if there is none, or it is not to be used."""
        config = self._config
        if config.remote_mode == "off" or not config.uses_cache or config.forces:
            return None
        url = config.remote or self.policy.remote
        if not url:
            return None
        from opbuild.pipeline.remote import open_remote  # nothing of it is loaded without one

        return open_remote("the remote store" if config.remote else f"remote in {config.policy_file}", url, self.setup)

    def packs_compiler(self) -> CompilerIdentity | None:
        """Return the identity of the packs' compiler; None if none is used, or there is none for the level."""
        return None if self.packs is None else self.packs.compiler()

    @lazy_property
    def packs(self) -> Packs | None:
        """The release's pack and those of models; None if none is used."""
        release, named = release_pack(self.setup), self.setup.model_packs
        if release is None and not named:
            return None
        from opbuild.store.model_packs import Packs

        setup = self.setup
        return Packs(setup.level.name, release, named, setup.trust, lambda problem: setup.observer(Warned(problem)))

    @property
    def has_own(self) -> bool:
        """Whether anything but packs may have operators: the folder, other ranks' folders, or a remote store."""
        from opbuild.builder.build import LOOKED_AT
        from opbuild.store.peers import Peers

        if self.remote is not None:
            return True
        operators, _ = self.operators_and_runtimes
        return self._config.uses_folder and (bool(operators.listed.names(LOOKED_AT)) or bool(Peers(self._config)()))

    @property
    def has_remote(self) -> bool:
        """Whether a network that was never built here may come whole from others, so that nothing is begun early."""
        return self.remote is not None and not self.remote.writes

    @lazy_property
    def networks(self) -> BuildNetworks:
        """The networks that are stored whole; their keys say tuning's choices, here or elsewhere."""
        config = self._config
        if config.tune_bank_path.strip() and self.setup.uses_tuning_database and self.remote is not None:
            self.remote.take_tuning_records(config.tune_bank)
        return BuildNetworks(
            self.setup, self._stored_networks, None if self._like is None else self._like.networks.blocks
        )

    @lazy_property
    def _stored_networks(self) -> StoredNetworks:
        if self._like is not None:
            return self._like._stored_networks
        from opbuild.store.networks import Networks
        from opbuild.store.weights import StoredWeights

        config, copies = self._config, self._config.copy_weights
        times, folder = self.setup.stores_networks and self.policy.ages, config.network_meta
        open_folder = partial(Folder, trust=self.setup.trust, copies=copies, is_judged=True)
        networks = Networks(open_folder(folder, keep_times=times) if config.uses_folder else Memory())
        weights = StoredWeights(open_folder(folder / "weights") if config.uses_folder else Memory())
        if self.remote is None or not self.setup.stores_networks:
            return StoredNetworks(networks, weights, own_packing_sources, copies=copies)
        from opbuild.store.tiers import rank_networks

        near = rank_networks(config, networks) if config.uses_folder else networks
        tiered = self.remote.below(near, weights, self.age, self._turns, self._check_operators)
        return StoredNetworks(tiered, weights, own_packing_sources, copies=copies)

    @lazy_property
    def models(self) -> ModelMemory:
        """The memory of models that were built."""
        setup = self.setup
        return ModelMemory(
            self._config.network_meta,
            setup.trust,
            reads=setup.starts_stored and self._config.uses_folder,
            writes=setup.stores_networks and self._config.uses_folder,
            keeps_times=setup.stores_networks and self.policy.ages,
        )

    @property
    def claims(self) -> Claims | None:
        """The claims on operators, among all processes, ranks and hosts that may need the same ones.

        Hosts ask each other only where what they build can be sent.
        """
        from opbuild.kernel.interfaces import UNCLAIMED

        if not self._config.uses_cache:
            return None
        near: Claims = self._host_claims() if self._config.uses_folder else UNCLAIMED
        if self.remote is None or not self.remote.writes:
            return near
        from opbuild.store.remote.leases import FleetClaims

        return FleetClaims(near, self.remote.claims, self.remote.after_uploads)

    def _host_claims(self) -> Claims:
        from opbuild.store.claims import FolderClaims
        from opbuild.store.peers import claims_folder

        claims = FolderClaims(claims_folder(self._config), self._config.rank_id)
        if problem := claims.problem:
            self.setup.observer(Warned(f"others may compile the same at the same time: {problem}"))
        return claims

    def packer(self, source: Source | None = None) -> Packer:
        """Return the packer of the constants of one build; it finds weights that this process has packed before.

        What is packed of a source is shared with other processes that pack the same; without one nothing is.
        """
        BACKGROUND_WRITER.finish()
        stores, reuses = self.setup.stores_networks, self.setup.starts_stored
        sharing = self._sharing(source) if source is not None and reuses and self._config.uses_folder else None
        return self._stored_networks.packer(stored=stores, reuse=reuses, sharing=sharing)

    def _sharing(self, source: Source) -> Sharing:
        """Return the part in packing a source's weights."""
        from opbuild.runtime.sharing import Sharing
        from opbuild.store.claims import WeightClaims
        from opbuild.store.peers import claims_folder

        folder, edited = claims_folder(self._config), lru_cache(maxsize=1)(own_sources_edited)
        store = blake3_of(os.path.relpath(self._config.network_meta, folder).encode())[:16]
        return Sharing(WeightClaims(folder, store), lambda: not (source.edited or edited()))

    def other_levels(self) -> list[Store]:
        """Return the stores of operators for other levels, for explaining; none where levels share a folder."""
        from opbuild.store.operators import operators_in

        config = self._config
        if config.op_compiler_cache_dir is None:
            return []
        try:
            folders = sorted(path for path in config.cache_folder.parent.iterdir() if path.is_dir())
        except OSError:
            return []
        return [operators_in(folder, trust=self.setup.trust) for folder in folders if folder != config.cache_folder]

    def count(self, result: BuildResult) -> None:
        """Add a build's results of look-ups to the counters that ``opbuild cache stats`` shows."""
        if self._config.uses_folder:
            from opbuild.store.counters import count_build

            times = [(each, result.entries[each.desc].milliseconds) for each in result.decisions]
            count_build(
                self._config.network_meta,
                [time for each, time in times if each.outcome != "built"],
                [(each.reason.code, time) for each, time in times if each.outcome == "built"],
            )

    def age(self) -> None:
        """Let old entries go if the cache folder is larger than it may be; to be called where something was added."""
        config = self._config
        if config.uses_folder:
            from opbuild.store.ageing import age_after_build
            from opbuild.store.claims import sweep_claims
            from opbuild.store.peers import claims_folder
            from opbuild.store.policy import create_policy_file, usual_megabytes

            sweep_claims(claims_folder(config))
            create_policy_file(config.policy_file, usual_megabytes(config))
            age_after_build(config.kernel_meta, config.network_meta, self.policy, self.setup.trust)


def make_builder(setup: Setup, stores: Stores, *, is_urgent: bool = True) -> Builder:
    """Return a builder that finds and keeps operators in a build's stores; ``is_urgent``: somebody waits for them."""
    from opbuild.builder.build import Builder
    from opbuild.runtime.devices.cpu.link import provided_symbols
    from opbuild.store.items import write_debug_files

    operators, runtimes = stores.operators_and_runtimes
    return Builder(
        operators,
        setup.compiler,
        setup.level,
        setup.config,
        setup.observer,
        runtime_store=runtimes,
        provided=provided_symbols(setup.level.triple),
        force=setup.config.forces,
        rebuilt=stores.rebuilt,
        others=stores.other_levels,
        debug=setup.debug,
        write_debug=partial(write_debug_files, Path(setup.debug.folder)),
        claims=stores.claims,
        lower=partial(_lower_levels, stores),
        release=stores.packs,
        is_urgent=is_urgent,
        executor=setup.executor if is_urgent else None,
        devices={} if setup.device is None else {setup.device.device: _device_builder(setup, stores, setup.device)},
    )


def _device_builder(setup: Setup, stores: Stores, target: Target) -> Builder:
    """Return the builder of the operators of another device: in the same store, by a compiler of its own."""
    from opbuild.backend.compilers import make_compiler
    from opbuild.builder.build import Builder

    operators, _ = stores.operators_and_runtimes
    return Builder(
        operators, make_compiler(target.device), target, setup.config, setup.observer,
        force=setup.config.forces, rebuilt=stores.rebuilt, claims=stores.claims,
        release=None if stores.packs is None else stores.packs.of(target.name),
    )  # fmt: skip


def _lower_levels(stores: Stores) -> list[LowerLevel]:
    from opbuild.builder.build import LowerLevel

    return [
        LowerLevel(each.setup.level, *each.operators_and_runtimes, each.setup.level_text)
        for each in stores.lower
        if each.setup.level != stores.setup.level
    ]


def deciding_builder(setup: Setup, stores: Stores) -> Builder:
    """Return a builder that only decides: unlike a build it remembers the compiler in no file."""
    from opbuild.kernel.identity import identify

    builder = make_builder(setup, stores)
    memo = setup.config.compiler_memo if setup.compiler.library() is None else None
    builder.use_identity(identify(setup.compiler, memo, setup.trust, stores.packs_compiler))
    return builder


_UNKNOWN = Reason("absent", "there is none yet with the variants that tuning chooses")


class BuildNetworks:
    """The stored networks of one build.

    Attributes:
        blocks: The memory that all networks of this build run in; default: their own.
    """

    def __init__(self, setup: Setup, store: StoredNetworks, blocks: Blocks[Arena] | None = None) -> None:
        self._setup = setup
        self._store = store
        self.blocks: Blocks[Arena] = Blocks() if blocks is None else blocks

    def key(self, network: str, model: str, inputs: Mapping[str, TensorType]) -> NetworkKey:
        """Return the key of a network of the model with this digest, for one input signature, before tuning."""
        config = self._setup.config
        components = {
            "model": model,
            "inputs": [[name, type_.dtype, list(type_.shape)] for name, type_ in inputs.items()],
            "precision": list(config.precision),
            "opbuild": __version__,
            "sources": own_sources(),
            "user_operators": user_operators.digest(),
            "target": self._setup.level.name,
            **self._setup.device_key,
        }
        return NetworkKey(network, components, lambda: self._compiler_digest)

    def start(self, key: NetworkKey | None, clock: Clock) -> Binding | str:
        """Return a network started from the store, or why it cannot be; one that cannot be stored has no key."""
        if not self._setup.starts_stored:
            return "a rebuild was asked for" if self._setup.stores_networks else "stored networks are not used here"
        if key is None:
            return "the graph cannot be stored"
        with clock("load"):
            return self._started(self._load(key), clock)

    def start_made(self, key: NetworkKey | None, answers: Answers, clock: Clock) -> Binding | None:
        """Return a network started that had to be lowered to know tuning's choices, if it is stored after all."""
        if key is None or not self._setup.starts_stored or self.own(key) is not None:
            return None
        with clock("load"):
            started = self._started(self._store.load(self.made_by(key, answers)), clock)
        if isinstance(started, str):
            return None
        self._note_chosen(key, digest_of(answers))
        return started

    def _started(self, found: LoadedNetwork | Reason, clock: Clock) -> Binding | str:
        if isinstance(found, Reason):
            return str(found)
        try:
            executor = self.run(found.record, found.library, found.constants)
            report = stored_report(found.record, clock, self._setup.level_text)
            tell(NetworkLoaded(report.network, len(report.operators)))
            return Binding(executor, report)
        except (OpbuildError, ValueError, LookupError, TypeError, ArithmeticError, OSError, MemoryError) as error:
            return f"it cannot be started: {error}"

    def stored(self, key: NetworkKey, clock: Clock) -> Report | None:
        """Return the report of a network that is stored, without loading its code; None if none is."""
        own = self.own(key) if self._setup.starts_stored else None
        found = None if own is None else self._store.load(own)
        if found is None or isinstance(found, Reason):
            return None
        try:
            return stored_report(found.record, clock, self._setup.level_text)
        except (ValueError, LookupError, TypeError):
            return None

    def run(self, record: Record, code: bytes, constants: Sequence[Array]) -> Executor:
        """Load a network's kernels and make it ready to run, in the memory that all networks of this build share.

        Raises:
            LinkError: If the code cannot be loaded or lacks a kernel.
        """
        modules = load_code(code, self._setup.config.num_threads)
        if not record.steps.hosts:
            return Executor(record, modules, constants, None, self.blocks)
        from opbuild.backend.evaluate import evaluate  # most networks have no steps on the host

        return Executor(record, modules, constants, evaluate, self.blocks)

    def dynamic_key(self, source: Source, number: int) -> NetworkKey:
        """Return the key of one of a source's networks with symbolic extents, counted from 0.

        Which extents are symbolic in it is among its conditions.
        """
        inputs = source.declaration.inputs
        declared = {name: TensorType(dtype, (FREE,) * len(shape or ())) for name, dtype, shape in inputs}
        key = self.key(source.declaration.name, source.digest or "", declared)
        return key._replace(components={**key.components, "program": number})

    def is_stored(self, key: NetworkKey) -> bool:
        """Return whether a network of this very key is stored."""
        return not isinstance(self._store.networks.lookup(key), Reason)

    def dynamic_networks(self, source: Source) -> Iterator[tuple[NetworkKey, Mapping[OpDesc, tuple[str, ...]]]]:
        """Yield the keys of the stored networks of a source that have symbolic extents, and the kernels of each."""
        for number in count():
            key = self.dynamic_key(source, number)
            found = self.load_dynamic(key)
            if found is None:
                return
            yield self.own(key) or key, dict.fromkeys(found.symbols, ())

    def load_dynamic(self, key: NetworkKey) -> LoadedDynamicNetwork | None:
        """Return a stored network with symbolic extents, None if there is none that may be used."""
        own = self.own(key) if self._setup.starts_stored else None
        found = None if own is None else self._store.load_dynamic(own)
        return None if isinstance(found, Reason) else found

    def keep(self, key: NetworkKey | None, network: Assembled, packer: Packer, then: Callable[[], None]) -> bool:
        """Store a network, in the background, if it is the one of its key: opbuild did not change meanwhile.

        Args:
            key: What names it; None: it cannot be stored.
            network: What was built.
            packer: What packed its constants.
            then: Called when it is stored, or cannot be.

        Returns:
            Whether anything is to be stored; what cannot be written is told.
        """
        built = network.built
        if key is None or not self._setup.stores_networks or not built.certain:
            return False
        if own_sources_edited():
            return False
        own, message = self.made_by(key, network.answers), f"the network {network.record.name} was built but not stored"

        def save() -> None:
            try:
                self._store.save(
                    own,
                    network.record,
                    built.code,
                    network.constants,
                    packer,
                    built.compiler,
                    None if network.record.symbolic is None else built.symbols,
                    network.answers,
                )
            except ValueError as error:
                if not built.warned:  # a store that cannot be written is said once
                    self._setup.observer(Warned(f"{message}: {error}", 1))
            then()

        self._note_chosen(key, digest_of(network.answers))
        self._write_in_background(own, packer, save, message)
        return True

    def _write_in_background(self, key: NetworkKey, packer: Packer, save: Callable[[], None], message: str) -> None:
        """Store the waiting weights, and do the next step, in the background; tell failures."""
        folder = self._setup.config.network_meta
        was_there = _is_there(folder)

        def unless_removed(work: Callable[[], object]) -> Callable[[], None]:
            def done() -> None:
                try:
                    if _is_there(folder) or not was_there:  # else somebody has removed it, and it is not to come back
                        work()
                except Exception as error:  # nobody is there to whom it could be raised
                    self._setup.observer(Warned(f"{message}: {type(error).__name__}: {error}", 1))

            return done

        if packer.is_worth_waiting:
            BACKGROUND_WRITER.add(WriteJob(key.stem, map(unless_removed, packer.tasks()), unless_removed(save)))
        else:
            unless_removed(save)()

    def own(self, key: NetworkKey, elsewhere: Iterable[Answers] = ()) -> NetworkKey | None:
        """Return the key of a network as tuning chooses its variants here; None if that is known once it is lowered.

        Args:
            key: The same without tuning.
            elsewhere: By which answers others have made it.
        """
        own = self._at_level(key)
        if not self._setup.has_tuning_database:
            return own
        chosen = chosen_answers(self._chosen, own.stem, self._decides)
        if chosen is None:
            from opbuild.pipeline.tuned import chosen_answers as compared

            chosen = compared(chain(self._store.networks.answers(own), elsewhere), self._setup)
            if chosen is None:
                return None
            self._note_chosen(key, chosen)
        return own.tuned(chosen)

    def made_by(self, key: NetworkKey, answers: Answers) -> NetworkKey:
        """Return the key of a network that was made by some answers of families."""
        return self._at_level(key).tuned(digest_of(answers))

    def others(self, key: NetworkKey, elsewhere: Iterable[Answers] = ()) -> Iterator[NetworkKey]:
        """Return the keys of a network with other variants, which compute the same: without tuning, then as known."""
        untuned = self._at_level(key)
        yield untuned
        for answers in chain(self._store.networks.answers(untuned), elsewhere):
            if digest := digest_of(answers):
                yield untuned.tuned(digest)

    def _load(self, key: NetworkKey) -> LoadedNetwork | Reason:
        """Return a stored network; where nothing can be compiled one with other variants will do."""
        own = self.own(key)
        found = _UNKNOWN if own is None else self._store.load(own)
        if isinstance(found, Reason) and self._setup.why_not_compiled:
            others = (self._store.load(each) for each in self.others(key) if each != own)
            return next((each for each in others if not isinstance(each, Reason)), found)
        return found

    def _note_chosen(self, key: NetworkKey, digest: str) -> None:
        """Remember how tuning chooses a network's variants, so that the next start need not ask for it."""
        if self._setup.has_tuning_database:
            note_chosen(self._chosen, self._at_level(key).stem, self._decides, digest)

    @lazy_property
    def _chosen(self) -> LocalMemos:
        """The memos of networks' variants as tuning chose them here."""
        config = self._setup.config
        folder = Folder(config.network_meta, self._setup.trust, is_judged=True) if config.uses_folder else Memory()
        return LocalMemos(folder, CHOSEN)

    def _at_level(self, key: NetworkKey) -> NetworkKey:
        """Return a key for this level, which may be lower than the one that was asked for."""
        return key._replace(components={**key.components, "target": self._setup.level.name})

    @lazy_property
    def _decides(self) -> str:
        """Digest of all that decides the answers of tuning databases."""
        setup = self._setup
        return deciding_digest(setup.level.name, setup.config, setup.trust, with_pack=setup.uses_pack)

    @lazy_property
    def _compiler_digest(self) -> str:
        """Digest of the installed compiler's bytes; empty if none is installed."""
        from opbuild.kernel.identity import files_digest

        files = self._setup.compiler.files()
        if not files:
            return ""
        try:
            return files_digest(files, self._setup.config.compiler_memo, self._setup.trust)
        except OSError as error:
            path = error.filename or files[0]
            raise BuildError(f"{path} cannot be read: {error}", "reinstall the compiler") from error


def _is_there(folder: Path) -> bool:
    """Return whether there is a folder, and anybody may look."""
    try:
        return folder.is_dir()
    except OSError:
        return False
