"""Stored networks, encoded and decoded: a record, a library, constants and weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from opbuild.graph.types import Array
from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.platform.records import NamedTuple, replace
from opbuild.runtime.record import ConstantPieces, Places, Record
from opbuild.runtime.record_json import from_json, to_json

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import NetworkStore, WeightStore
    from opbuild.kernel.networks import Answers
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.runtime.sharing import Sharing
    from opbuild.runtime.weights import PackedConstants, Packer


class LoadedNetwork(NamedTuple):
    """A stored network, verified, its constants mapped or copied."""

    record: Record
    library: bytes
    constants: Sequence[Array]


class LoadedDynamicNetwork(NamedTuple):
    """A stored program, verified, its constants mapped or copied.

    Attributes:
        record: The record, for several signatures.
        symbols: The symbol of each kernel in the library.
        library: Its kernels.
        constants: Its constants.
    """

    record: Record
    symbols: Mapping[OpDesc, str]
    library: bytes
    constants: Sequence[Array]


KERNELS = "kernels"
"""The part of a stored record for several signatures that holds its library's kernels and their symbols."""


class StoredNetworks:
    """Images in a store of networks and one of weights.

    Args:
        networks: Keeps records, libraries and small constants.
        weights: Keeps large constants.
        salt: Returns a digest of what else decides what sources are packed to: of opbuild's own code that packs.
        copies: Whether networks get copies of what is packed for them, instead of mappings.
    """

    def __init__(
        self, networks: NetworkStore, weights: WeightStore, salt: Callable[[], str] = str, *, copies: bool = False
    ) -> None:
        self.networks = networks
        self.weights = weights
        self._salt = salt
        self.copies = copies

    def packer(self, *, stored: bool = True, reuse: bool = True, sharing: Sharing | None = None) -> Packer:
        """Return the packer of the constants of one build.

        Args:
            stored: Whether large ones are to be stored.
            reuse: Whether those that were packed before are used.
            sharing: Says what other processes pack just now; None: nobody is asked.
        """
        from opbuild.runtime.weights import Packer  # a start never needs it

        store = self.weights if stored else None
        return Packer(store, self._salt(), reuse=reuse, copies=self.copies, sharing=sharing)

    def load(self, key: NetworkKey) -> LoadedNetwork | Reason:
        """Return the image of ``key``, or why there is none that may be used."""
        stored = self._lookup(key)
        if isinstance(stored, Reason):
            return stored
        try:
            record = from_json(stored.record)
        except ValueError as error:
            return Reason("damaged", str(error))
        if [[port.name, port.type.dtype, list(port.type.shape)] for port in record.inputs] != key.components.get(
            "inputs"
        ):
            return Reason("damaged", "it is for other inputs than its key says")
        constants = self._constants(key, record.constants, stored)
        return constants if isinstance(constants, Reason) else LoadedNetwork(record, stored.library, constants)

    def _lookup(self, key: NetworkKey) -> StoredNetwork | Reason:
        """Return the stored network of ``key``; if this process is just storing it, once it has."""
        BACKGROUND_WRITER.finish(key.stem)
        return self.networks.lookup(key)

    def _constants(self, key: NetworkKey, places: Places, stored: StoredNetwork) -> ConstantPieces | Reason:
        arrays, states = {}, {}
        for digest, nbytes in places.weights.items():
            weight = self.weights.get(digest, nbytes, stored.states.get(digest))
            if isinstance(weight, Reason):
                return weight
            arrays[digest], states[digest] = weight.array, weight.state
        try:
            constants = ConstantPieces(places, stored.constants, arrays)
        except OSError as error:
            return Reason("damaged", str(error))
        if states != stored.states:
            self.networks.note(key, states)
        return constants

    def load_dynamic(self, key: NetworkKey) -> LoadedDynamicNetwork | Reason:
        """Return the program of ``key``, or why there is none that may be used."""
        stored = self._lookup(key)
        if isinstance(stored, Reason):
            return stored
        from opbuild.kernel.opdesc import desc_from_text  # a start never needs it

        try:
            record = from_json(stored.record)
            symbols = [(desc_from_text(desc), str(symbol)) for desc, symbol in stored.record[KERNELS]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            return Reason("damaged", f"not a record for several signatures: {error!r}")
        constants = self._constants(key, record.constants, stored)
        if isinstance(constants, Reason):
            return constants
        return LoadedDynamicNetwork(record, dict(symbols), stored.library, constants)

    def save(
        self,
        key: NetworkKey,
        record: Record,
        library: bytes,
        constants: PackedConstants,
        packer: Packer,
        compiler: str = "",
        symbols: Mapping[OpDesc, str] | None = None,
        answers: Answers = (),
    ) -> None:
        """Store a network that was just built.

        ``compiler``: digest of the one that made its kernels; empty: a release brings all of them. ``symbols``: those
        of its kernels, if it is for several signatures. ``answers``: what families answered for it.

        Raises:
            ValueError: If the network cannot be stored, or its weights could not.
        """
        from opbuild.kernel.networks import answers_to_json  # a start never needs it

        packer.finish()
        packer.remember()
        packer.close()
        record = replace(record, constants=Places.of(packer.named(record.constants)))
        answered = answers_to_json(answers)
        more: dict[str, Any] = {"answers": answered}
        if symbols is not None:
            more = {KERNELS: [[desc.canonical(), symbol] for desc, symbol in symbols.items()]}
        stored = StoredNetwork(to_json(record) | more, library, constants.small, packer.states, compiler)
        problem = packer.problem or self.networks.publish(key, stored)
        if problem:
            raise ValueError(problem)
