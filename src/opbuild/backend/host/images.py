"""ImageDecoder, by the Pillow package where that is installed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.types import Array, Node

_MODES = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


@implements("ImageDecoder")
def _decode(node: Node, inputs: Any) -> Sequence[Array]:
    """Return the pixels of an image file, ``[height, width, channels]``."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedOperatorError(
            f"ImageDecoder node {node.name!r} needs the Pillow package, which is not installed",
            "install it (pip install pillow), or decode images before the network",
        ) from error
    pixel_format = node.text("pixel_format", "RGB")
    try:
        with Image.open(io.BytesIO(inputs[0].tobytes())) as image:
            pixels = np.asarray(image.convert(_MODES[pixel_format]), np.uint8)
    except OSError as error:
        raise ValueError(f"it is not given the contents of an image file: {error}") from error
    pixels = pixels.reshape(*pixels.shape[:2], -1)
    return (np.ascontiguousarray(pixels[..., ::-1]) if pixel_format == "BGR" else pixels,)
