"""Declaration: a model's inputs and outputs as it declares them, and the file that remembers it.

network_meta/<network>_<number>.model    JSON: the model's digest, its inputs and outputs
"""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.files.trust import MEMO, PRIVATE, Trust, seal, unseal
from opbuild.kernel.free import FREE
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.store.networks import MODELS

SUFFIX = MODELS.suffixes[0]


class Declared(NamedTuple):
    """The declaration of an input or output of a model.

    Attributes:
        name: Its name.
        dtype: Its element type, a numpy name.
        shape: Its shape: -1 for an open extent, None for an open rank.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None


class Declaration(NamedTuple):
    """The declaration of a model; with it a network that was built before starts without the model being read.

    Attributes:
        name: The network's name.
        inputs: What it says of each input.
        outputs: What it says of each output; the element type is empty where that cannot be told.
        external: The files that hold the model's external data, relative to the model.
    """

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    external: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether some input may have several shapes."""
        return any(shape is None or FREE in shape for _, _, shape in self.inputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs, -1 where an extent is open; none has an open rank."""
        return tuple(shape or () for _, _, shape in self.inputs)


def declaration_bytes(path: Path, declaration: Declaration, model: str, trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a file that remembers the declaration of the model with this digest."""
    content = {
        "model": model,
        "name": declaration.name,
        "inputs": [list(declared) for declared in declaration.inputs],
        "outputs": [list(declared) for declared in declaration.outputs],
        "external": list(declaration.external),
    }
    return seal(content, path.name, trust)


def read_declaration(path: Path, trust: Trust = PRIVATE) -> tuple[Declaration, str]:
    """Return the declaration that a file remembers, and the digest of the model whose it is.

    Raises:
        OSError: If it cannot be read or others can write to it.
        ValueError: If it is not what was written into a file of this name, or not signed; or ``KeyError``,
            ``TypeError``.
    """
    content = unseal(trust.read(path, MEMO), path.name, trust)
    inputs, outputs = (tuple(_declared(*each) for each in content[side]) for side in ("inputs", "outputs"))
    return Declaration(content["name"], inputs, outputs, tuple(content["external"])), str(content["model"])


def _declared(name: str, dtype: str, shape: Sequence[int] | None) -> Declared:
    return Declared(str(name), str(dtype), None if shape is None else tuple(map(int, shape)))
