"""Stores, where one build finds earlier entries and keeps its own; and the builder that works on them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from opbuild.config import quota_environment
from opbuild.events import Warned
from opbuild.frontend.models.memory import ModelMemory
from opbuild.pipeline.setup import Setup, release_pack
from opbuild.pipeline.stored_networks import BuildNetworks
from opbuild.platform.background_writer import BACKGROUND_WRITER
from opbuild.platform.lazy_property import lazy_property
from opbuild.platform.paths import Path
from opbuild.platform.sources import own_packing_sources
from opbuild.runtime.stored_network import StoredNetworks
from opbuild.store.blobs import Folder, Memory

if TYPE_CHECKING:
    from opbuild.builder.build import Builder, LowerLevel
    from opbuild.builder.result import BuildResult
    from opbuild.kernel.interfaces import Claims, Looks, Store
    from opbuild.kernel.key import CompilerIdentity
    from opbuild.kernel.networks import StoredNetwork
    from opbuild.pipeline.remote import Remote
    from opbuild.runtime.weights import Packer
    from opbuild.store.flights import Flights
    from opbuild.store.pack import Pack
    from opbuild.store.policy import Policy
    from opbuild.target.level import Target


class Stores:
    """The stores of one build; each is opened when it is first asked for.

    Args:
        setup: Says where they are, whether they are used, and whose files are believed.
        like: Stores of the same network, whose weights and memory are shared.

    Attributes:
        setup: The same.
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
        from opbuild.store.shared import rank_stores
        from opbuild.store.tiers import TieredStore

        config = self._config
        open_store = partial(
            operators_in, device_id=config.device_id, keep_times=self.policy.ages, trust=self.setup.trust
        )  # what opens a folder outlives these stores, whom it does not know
        folders = config.kernel_meta, config.network_meta
        operators, runtimes = (open_store(each) if config.uses_folder else Operators(Memory()) for each in folders)
        if not config.uses_cache or config.forces:
            return operators, runtimes
        near = rank_stores(config, open_store) if config.uses_folder else (operators, runtimes)
        pack = [] if self.pack is None else [self.pack]
        if self.remote is None:
            return TieredStore(near[0], pack) if pack else near[0], near[1]
        from opbuild.store.remote.single_flight import SingleFlight

        below, turns, offer = self.remote.operators, self._turns, self.remote.offer_operator
        known = self.remote.check_operator if self.remote.checks else None

        def tiered(own: Store, *tiers: Looks) -> Store:
            far = below if turns is None else SingleFlight(own, below, turns)
            return TieredStore(own, [*tiers, far], offer, known)

        return tiered(near[0], *pack), tiered(near[1])

    def _check_operators(self, network: StoredNetwork) -> None:
        """Have the operators of a stored network in the remote store too, and the compiler's runtime library."""
        from opbuild.kernel.entry import Entry
        from opbuild.store.inspect import read
        from opbuild.store.operators import operators_in
        from opbuild.store.remote.manifest import operators_of

        if self.remote is None:
            return
        folders = self._config.kernel_meta, self._config.network_meta
        operators, runtimes = (operators_in(each, self._config.device_id, trust=self.setup.trust) for each in folders)
        named = [(operators, name) for stem in operators_of(network.record) for name in operators.names_of(stem)[:1]]
        found = list[Entry]()
        for store, name in [*named, *((runtimes, name) for name in runtimes.names())]:
            entry = read(store.blobs, name)
            if isinstance(entry, Entry):
                self.remote.check_operator(entry)
                found += [entry] if store is operators else []
        self.remote.check_group(found)

    @property
    def _turns(self) -> Flights | None:
        """Which process of this host asks for what several lack; None where they share no folder."""
        from opbuild.store.flights import Flights
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
        """Return the identity of the pack's compiler; None if the pack is not used, or there is none for the level."""
        return None if self.pack is None else self.pack.compiler()

    @lazy_property
    def pack(self) -> Pack | None:
        """The release's pack; None if it is not used."""
        return release_pack(self.setup)

    @property
    def has_remote(self) -> bool:
        """Whether a network that was never built here may come whole from others, so that nothing is begun early."""
        return self.remote is not None and not self.remote.writes

    @lazy_property
    def images(self) -> BuildNetworks:
        """The networks that are stored whole; their keys say tuning's choices, here or elsewhere."""
        config = self._config
        if config.tune_bank_path.strip() and self.setup.uses_bank and self.remote is not None:
            self.remote.take_bank(config.tune_bank)
        return BuildNetworks(
            self.setup, self._stored_networks, None if self._like is None else self._like.images.blocks
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
        from opbuild.store.shared import rank_networks

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
        from opbuild.store.fleet import FleetClaims

        return FleetClaims(near, self.remote.claims, self.remote.after_uploads)

    def _host_claims(self) -> Claims:
        from opbuild.store.claims import FolderClaims
        from opbuild.store.peers import claims_folder

        claims = FolderClaims(claims_folder(self._config), self._config.rank_id)
        if problem := claims.problem:
            self.setup.observer(Warned(f"others may compile the same at the same time: {problem}"))
        return claims

    def packer(self) -> Packer:
        """Return the packer of the constants of one build; it finds what this process has packed before."""
        BACKGROUND_WRITER.finish()
        return self._stored_networks.packer(stored=self.setup.stores_networks, reuse=self.setup.starts_stored)

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
    from opbuild.store.publish import write_debug_files

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
        release=stores.pack,
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
        force=setup.config.forces, rebuilt=stores.rebuilt, claims=stores.claims, remembers=False,
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
