"""Networks that are stored whole: their keys, how they start, and when they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, count
from typing import TYPE_CHECKING

from opbuild.errors import BuildError, OpbuildError
from opbuild.events import Warned
from opbuild.graph import user_operators
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.free import FREE
from opbuild.kernel.networks import NetworkKey
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import Setup
from opbuild.platform.background_writer import BACKGROUND_WRITER, WriteJob
from opbuild.platform.lazy_property import lazy_property
from opbuild.platform.paths import Path
from opbuild.platform.sources import own_sources, own_sources_edited
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Arena, Executor, load_code
from opbuild.runtime.record import Record
from opbuild.runtime.reports import stored_report
from opbuild.runtime.stored_network import LoadedNetwork, StoredNetworks
from opbuild.store.shipped import deciding_digest
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.kernel.networks import Answers
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.pipeline.source import Source
    from opbuild.pipeline.stages import Assembled
    from opbuild.runtime.stored_network import LoadedDynamicNetwork
    from opbuild.runtime.weights import Packer
    from opbuild.store.blobs import LocalMemos

_UNKNOWN = Reason("absent", "there is none yet with the variants that tuning chooses")


class BuildNetworks:
    """The stored networks of one build.

    Args:
        setup: Settings, level and compiler, which are in every key.
        store: Where the networks are.
        blocks: The memory that they run in; default: their own.

    Attributes:
        blocks: The memory that all networks of this build run in.
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
            **({"device": self._setup.device_kernels} if self._setup.device is not None else {}),
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
        self._note_chosen(key, _digest_of(answers))
        return started

    def _started(self, image: LoadedNetwork | Reason, clock: Clock) -> Binding | str:
        if isinstance(image, Reason):
            return str(image)
        try:
            executor = self.run(image.record, image.library, image.constants)
            return Binding(executor, stored_report(image.record, clock, self._setup.level_text))
        except (OpbuildError, ValueError, LookupError, TypeError, ArithmeticError, OSError, MemoryError) as error:
            return f"it cannot be started: {error}"

    def stored(self, key: NetworkKey, clock: Clock) -> Report | None:
        """Return the report of a network that is stored, without loading its code; None if none is."""
        own = self.own(key) if self._setup.starts_stored else None
        image = None if own is None else self._store.load(own)
        if image is None or isinstance(image, Reason):
            return None
        try:
            return stored_report(image.record, clock, self._setup.level_text)
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

        self._note_chosen(key, _digest_of(network.answers))
        self._behind(own, packer, save, message)
        return True

    def _behind(self, key: NetworkKey, packer: Packer, save: Callable[[], None], message: str) -> None:
        """Store the waiting weights, and do the next step, in the background; tell failures."""
        folder = self._setup.config.network_meta
        was_there = _is_there(folder)

        def where_it_was(work: Callable[[], object]) -> Callable[[], None]:
            def done() -> None:
                try:
                    if _is_there(folder) or not was_there:  # else somebody has removed it, and it is not to come back
                        work()
                except Exception as error:  # nobody is there to whom it could be raised
                    self._setup.observer(Warned(f"{message}: {type(error).__name__}: {error}", 1))

            return done

        if packer.is_worth_waiting:
            BACKGROUND_WRITER.add(WriteJob(key.stem, map(where_it_was, packer.tasks()), where_it_was(save)))
        else:
            where_it_was(save)()

    def own(self, key: NetworkKey, elsewhere: Iterable[Answers] = ()) -> NetworkKey | None:
        """Return the key of a network as tuning chooses its variants here; None if that is known once it is lowered.

        Args:
            key: The same without tuning.
            elsewhere: By which answers others have made it.
        """
        own = self._at_level(key)
        if not self._setup.has_bank:
            return own
        from opbuild.store.answers import chosen_answers  # most starts have no bank

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
        return self._at_level(key).tuned(_digest_of(answers))

    def others(self, key: NetworkKey, elsewhere: Iterable[Answers] = ()) -> Iterator[NetworkKey]:
        """Return the keys of a network with other variants, which compute the same: without tuning, then as known."""
        untuned = self._at_level(key)
        yield untuned
        for answers in chain(self._store.networks.answers(untuned), elsewhere):
            if digest := _digest_of(answers):
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
        if self._setup.has_bank:
            from opbuild.store.answers import note_chosen

            note_chosen(self._chosen, self._at_level(key).stem, self._decides, digest)

    @lazy_property
    def _chosen(self) -> LocalMemos:
        """The memos of networks' variants as tuning chose them here."""
        from opbuild.store.answers import CHOSEN
        from opbuild.store.blobs import Folder, LocalMemos, Memory

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


def _digest_of(answers: Answers) -> str:
    from opbuild.kernel.networks import digest_of  # a start without banks never needs it

    return digest_of(answers)


def _is_there(folder: Path) -> bool:
    """Return whether there is a folder, and anybody may look."""
    try:
        return folder.is_dir()
    except OSError:
        return False
