"""Face: what a model shows without being read, and the file that remembers it.

network_meta/<network>_<number>.model    JSON: the model's digest, its inputs and outputs
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from opbuild.kernel.limits import MEMO
from opbuild.kernel.trust import PRIVATE, Trust
from opbuild.runtime.image import seal, unseal

SUFFIX = ".model"


class Face(NamedTuple):
    """What a model shows without being read.

    Attributes:
        name: The network's name.
        inputs: Name, element type and declared shape of each input: -1 for an open extent, None for an open rank.
        outputs: Names of the outputs.
        external: The files that hold the model's external data, relative to the model.
    """

    name: str
    inputs: tuple[tuple[str, str, tuple[int, ...] | None], ...]
    outputs: tuple[str, ...]
    external: tuple[str, ...]


def face_bytes(path: Path, face: Face, model: str, trust: Trust = PRIVATE) -> bytes:
    """Return what a file holds that remembers the face of the model with this digest."""
    content = {
        "model": model,
        "name": face.name,
        "inputs": [[name, dtype, None if shape is None else list(shape)] for name, dtype, shape in face.inputs],
        "outputs": list(face.outputs),
        "external": list(face.external),
    }
    return seal(content, path.name, trust)


def read_face(path: Path, trust: Trust = PRIVATE) -> tuple[Face, str]:
    """Return the face that a file remembers, and the digest of the model whose it is.

    Raises:
        OSError: If it can not be read or others can write to it.
        ValueError: If it is not what was written into a file of this name, or not signed; or ``KeyError``,
            ``TypeError``.
    """
    content = unseal(trust.read(path, MEMO), path.name, trust)
    inputs = tuple((n, d, None if s is None else tuple(map(int, s))) for n, d, s in content["inputs"])
    face = Face(content["name"], inputs, tuple(content["outputs"]), tuple(content["external"]))
    return face, str(content["model"])
