"""The text of ``--input_shape``: shapes of a network's inputs."""

from __future__ import annotations

from opbuild.errors import OptionError

_HINT = 'write it as "data:1,3,224,224", and several inputs as "a:1,8;b:1,16"'


def parse_input_shape(text: str) -> dict[str, tuple[int, ...]]:
    """Parse ``name:n,c,h,w;name2:...`` into shapes by input name.

    An input's name may hold colons; the last one separates it from its extents. ``name:`` is a scalar.

    Raises:
        OptionError: If the text is not of that form; the message shows the part at fault.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, colon, extents = (piece.strip() for piece in part.rpartition(":"))
        if not colon or not name:
            raise OptionError(f"input_shape {part.strip()!r} does not name an input and its shape", _HINT)
        if name in shapes:
            raise OptionError(f"input_shape gives {name!r} twice", "give each input once")
        shapes[name] = tuple(_extent(part, piece) for piece in extents.split(",")) if extents else ()
    if not shapes:
        raise OptionError("input_shape is empty", _HINT)
    return shapes


def _extent(part: str, text: str) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        value = -1
    if not 0 <= value < 2**31:
        raise OptionError(
            f"input_shape {part.strip()!r} has the extent {text.strip()!r}", f"use whole numbers; {_HINT}"
        )
    return value


def format_input_shape(shapes: dict[str, tuple[int, ...]]) -> str:
    """Return the text that ``parse_input_shape`` reads back."""
    return ";".join(f"{name}:{','.join(map(str, shape))}" for name, shape in shapes.items())
