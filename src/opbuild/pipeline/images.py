"""Networks that are stored whole: what names them, how they start, and when they are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Protocol

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, OpbuildError
from opbuild.events import Warned
from opbuild.graph import user_operators
from opbuild.graph.cut import Cut
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.networks import ImageKey
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import Setup
from opbuild.platform.behind import BEHIND, Job
from opbuild.platform.lazily import lazily
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.platform.sources import own_sources, own_sources_edited
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Binding
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Arena, Executor
from opbuild.runtime.image import Image, ImageStore
from opbuild.runtime.library import Library
from opbuild.runtime.record import Record
from opbuild.runtime.reports import stored_report
from opbuild.store.shipped import deciding_digest
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.kernel.answers import Answers
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.models.declaration import Declaration
    from opbuild.pipeline.stages import Assembled, Built
    from opbuild.runtime.image import OpenImage
    from opbuild.runtime.weights import Constants, Packer

_UNKNOWN = Reason("absent", "there is none yet with the variants that tuning chooses")


class Declares(Protocol):
    """A model, or a part of one, as far as it names a template."""

    @property
    def declaration(self) -> Declaration:
        """What it is called, and its inputs."""

    @property
    def digest(self) -> str:
        """Digest of all that decides what it computes."""


class Ahead:
    """What is built with a network for the sizes that may come after it: nothing."""

    def lower(self) -> Mapping[OpDesc, tuple[str, ...]]:
        """Return kernels that are to be built too, with the nodes that need them; the network does not need them."""
        return {}

    def pack(self, packer: Packer, /) -> None:
        """Do what needs no kernel, while they are compiled, with what packed the network's constants."""

    def built(self, built: Built, library: Library | None, /) -> None:
        """Take note of all that was built, and of the library that it was loaded from."""


class Wanted(NamedTuple):
    """A network for one input signature, before anything of it is read.

    Attributes:
        key: What names it among stored networks; None: it can not be stored.
        read: Returns its graph, and takes the time that this needs.
        is_edited: Returns whether the graph may no longer be the one that the key names; raises ``ModelError`` if it
            surely is another.
        otherwise: Returns the network as it is ready without being stored or built for the signature, or None.
        ahead: What is built with it.
        cut: Returns what comes after it, once it was read, if it is a part of a network.
    """

    key: ImageKey | None
    read: Callable[[Clock], Graph]
    is_edited: Callable[[], bool] = lambda: False
    otherwise: Callable[[], Binding | None] = lambda: None
    ahead: Ahead = Ahead()
    cut: Callable[[], Cut | None] = lambda: None


class Images:
    """The stored networks of one build.

    Args:
        setup: Settings, level and compiler, which are in every key.
        store: Where the networks are.
        blocks: The memory that they run in; default: their own.

    Attributes:
        blocks: The memory that all networks of this build run in.
    """

    def __init__(self, setup: Setup, store: ImageStore, blocks: Blocks[Arena] | None = None) -> None:
        self._setup = setup
        self._store = store
        self.blocks: Blocks[Arena] = Blocks() if blocks is None else blocks

    def key(self, network: str, model: str, inputs: Mapping[str, TensorType], part: str = "") -> ImageKey:
        """Return the key of a network of the model with this digest, for one input signature, as it is without tuning.

        ``part`` is a digest of what else decides, if it is a part of a network that is bound in parts.
        """
        config = self._setup.config
        components = {
            "model": model,
            "inputs": [[name, type_.dtype, list(type_.shape)] for name, type_ in inputs.items()],
            "precision": list(config.precision),
            "opbuild": __version__,
            "sources": own_sources(),
            "user_operators": user_operators.digest(),
            "target": self._setup.level.name,
        }
        return ImageKey(network, components | ({"part": part} if part else {}), lambda: self._compiler_digest)

    def key_of_graph(self, graph: Graph) -> ImageKey | None:
        """Return the key of a graph; None if networks are not stored here, or it has what no digest can be taken of."""
        from opbuild.graph.identity import graph_digest

        if not self._setup.stores_networks:
            return None
        try:
            digest = graph_digest(graph)
        except ValueError:
            return None
        return self.key(graph.name, digest, {name: graph.types[name] for name in graph.inputs})

    def start(self, key: ImageKey | None, clock: Clock) -> Binding | str:
        """Return a network started from what is stored, or why it can not be; what can not be stored has no key."""
        if key is None:
            return "the graph can not be stored"
        if not self._setup.starts_stored:
            return "a rebuild was asked for" if self._setup.stores_networks else "stored networks are not used here"
        with clock("load"):
            return self._started(self._load(key), clock)

    def start_made(self, key: ImageKey | None, answers: Answers, clock: Clock) -> Binding | None:
        """Return a network started that had to be lowered to know what tuning chooses, if it is stored after all."""
        if key is None or not self._setup.starts_stored or self.own(key) is not None:
            return None
        with clock("load"):
            started = self._started(self._store.load(self.made_by(key, answers)), clock)
        if isinstance(started, str):
            return None
        self._note_chosen(key, _digest_of(answers))
        return started

    def _started(self, image: Image | Reason, clock: Clock) -> Binding | str:
        if isinstance(image, Reason):
            return str(image)
        try:
            executor = self.run(image.record, image.library, image.constants)
            return Binding(executor, stored_report(image.record, clock, self._setup.level_text))
        except (OpbuildError, ValueError, LookupError, TypeError, ArithmeticError, OSError, MemoryError) as error:
            return f"it can not be started: {error}"

    def stored(self, key: ImageKey, clock: Clock) -> Report | None:
        """Return the report of a network that is stored, without loading its code; None if none is."""
        own = self.own(key) if self._setup.starts_stored else None
        image = None if own is None else self._store.load(own)
        if image is None or isinstance(image, Reason):
            return None
        try:
            return stored_report(image.record, clock, self._setup.level_text)
        except (ValueError, LookupError, TypeError):
            return None

    def run(self, record: Record, library: bytes, constants: Sequence[Array]) -> Executor:
        """Load a network's kernels and make it ready to run, in the memory that all networks of this build share.

        Raises:
            LinkError: If the library can not be loaded or lacks a kernel.
        """
        loaded = Library(library, self._setup.config.num_threads) if library else None
        return Executor(record, loaded, constants, evaluate, self.blocks)

    def open_key(self, source: Declares, number: int) -> ImageKey:
        """Return the key of one of the templates of a model, counted from 0."""
        declared = {name: TensorType(dtype, shape or ()) for name, dtype, shape in source.declaration.inputs}
        key = self.key(source.declaration.name, source.digest, declared)
        return key._replace(components={**key.components, "template": number})

    def load_open(self, key: ImageKey) -> OpenImage | None:
        """Return a stored template, None if there is none that may be used."""
        found = self._store.load_open(self._at_level(key)) if self._setup.starts_stored else None
        return None if isinstance(found, Reason) else found

    def keep_open(self, key: ImageKey, record: Record, built: Built, constants: Constants, packer: Packer) -> None:
        """Store a template, behind; what can not be written is not told, since its network's images are told of."""
        if not self._setup.stores_networks or own_sources_edited():
            return
        own = self._at_level(key)

        def save() -> None:
            with contextlib.suppress(ValueError):
                self._store.save(own, record, built.library, constants, packer, built.compiler, built.symbols)

        self._behind(own, packer, save, f"what other sizes of {record.name} need is not stored")

    def keep(self, wanted: Wanted, network: Assembled, packer: Packer, then: Callable[[], None]) -> bool:
        """Store a network, behind, if it is what its key says: neither it nor opbuild changed meanwhile.

        Args:
            wanted: What was asked for.
            network: What was built.
            packer: What packed its constants.
            then: Called when it is stored, or can not be.

        Returns:
            Whether anything is to be stored; what can not be written is told.
        """
        key, built = wanted.key, network.built
        if key is None or not self._setup.stores_networks or wanted.is_edited() or not built.certain:
            return False
        if own_sources_edited():
            return False
        own, message = self.made_by(key, network.answers), f"the network {network.record.name} was built but not stored"

        def save() -> None:
            try:
                self._store.save(
                    own,
                    network.record,
                    built.library,
                    network.constants,
                    packer,
                    built.compiler,
                    answers=network.answers,
                )
            except ValueError as error:
                if not built.warned:  # a store that can not be written is said once
                    self._setup.observer(Warned(f"{message}: {error}", 1))
            then()

        self._note_chosen(key, _digest_of(network.answers))
        self._behind(own, packer, save, message)
        return True

    def _behind(self, key: ImageKey, packer: Packer, save: Callable[[], None], message: str) -> None:
        """Store what waits for it, and do what comes then, behind what the program does; tell what goes wrong."""
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
            BEHIND.add(Job(key.stem, map(where_it_was, packer.tasks()), where_it_was(save)))
        else:
            where_it_was(save)()

    def own(self, key: ImageKey, elsewhere: Iterable[Answers] = ()) -> ImageKey | None:
        """Return the key of a network as tuning chooses its variants here; None if that is known once it is lowered.

        Args:
            key: The same without tuning.
            elsewhere: By which answers others have made it.
        """
        own = self._at_level(key)
        if not self._setup.has_bank:
            return own
        from opbuild.store.answers import chosen_answers  # most starts have no bank

        config, trust = self._setup.config, self._setup.trust
        chosen = chosen_answers(config.network_meta, own.stem, self._decides, trust)
        if chosen is None:
            from opbuild.pipeline.tuned import chosen_answers as compared

            chosen = compared(chain(self._store.networks.answers(own), elsewhere), self._setup)
            if chosen is None:
                return None
            self._note_chosen(key, chosen)
        return own.tuned(chosen)

    def made_by(self, key: ImageKey, answers: Answers) -> ImageKey:
        """Return the key of a network that was made by some answers of families."""
        return self._at_level(key).tuned(_digest_of(answers))

    def others(self, key: ImageKey, elsewhere: Iterable[Answers] = ()) -> Iterator[ImageKey]:
        """Return the keys of a network with other variants, which compute the same: without tuning, then as known."""
        untuned = self._at_level(key)
        yield untuned
        for answers in chain(self._store.networks.answers(untuned), elsewhere):
            if digest := _digest_of(answers):
                yield untuned.tuned(digest)

    def _load(self, key: ImageKey) -> Image | Reason:
        """Return a stored network; where nothing can be compiled one with other variants will do."""
        own = self.own(key)
        found = _UNKNOWN if own is None else self._store.load(own)
        if isinstance(found, Reason) and self._setup.why_not_compiled:
            others = (self._store.load(each) for each in self.others(key) if each != own)
            return next((each for each in others if not isinstance(each, Reason)), found)
        return found

    def _note_chosen(self, key: ImageKey, digest: str) -> None:
        """Remember how tuning chooses a network's variants, so that the next start need not ask for it."""
        if self._setup.has_bank:
            from opbuild.store.answers import note_chosen

            config, trust = self._setup.config, self._setup.trust
            note_chosen(config.network_meta, self._at_level(key).stem, self._decides, digest, trust)

    def _at_level(self, key: ImageKey) -> ImageKey:
        """Return a key for this level, which may be lower than the one that was asked for."""
        return key._replace(components={**key.components, "target": self._setup.level.name})

    @lazily
    def _decides(self) -> str:
        """Digest of all that decides what banks answer."""
        setup = self._setup
        return deciding_digest(setup.level.name, setup.config, setup.trust, with_pack=setup.uses_pack)

    @lazily
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
            raise BuildError(f"{path} can not be read: {error}", "reinstall the compiler") from error


def _digest_of(answers: Answers) -> str:
    from opbuild.kernel.answers import digest_of  # a start without banks never needs it

    return digest_of(answers)


def _is_there(folder: Path) -> bool:
    """Return whether there is a folder, and anybody may look."""
    try:
        return folder.is_dir()
    except OSError:
        return False
