"""The text of ``--shape``: shapes of a network's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opbuild.errors import OptionError
from opbuild.kernel.opdesc import FREE

Extent = int | tuple[int, int]
"""A fixed extent, ``FREE`` (-1) for any, or a range: the least and the greatest, which may be ``FREE``."""

Shape = tuple[Extent, ...]

MOST = 2**31 - 1

_HINT = 'write it as "data:1,3,224,224", and several inputs as "a:1,8;b:1,16"'
_OPEN_HINT = f"a dimension is a whole number, -1 for any, or a range such as 1~640; {_HINT}"


class InputShapeError(OptionError):
    """A text gives no shapes; ATC has a code of its own for it."""


def parse_input_shape(text: str) -> dict[str, tuple[int, ...]]:
    """Parse ``name:n,c,h,w;name2:...`` into shapes by input name.

    An input's name may hold colons; the last one separates it from its extents. ``name:`` is a scalar.

    Raises:
        InputShapeError: If the text is not of that form; the message shows the part at fault.
    """
    shapes, ranges = split_shapes(_parse(text, _HINT))
    if ranges:
        shape = next(iter(ranges.values()))
        problem = f"--shape {text!r} has the dimension {format_extent(shape[open_axes(shape)[0]])!r}"
        raise InputShapeError(problem, f"give a number: only .om files leave dimensions open; {_HINT}")
    return shapes


def parse_open_shape(text: str) -> dict[str, Shape]:
    """Parse ``name:-1,3,1~640,1~640;name2:...``: as ``parse_input_shape``, but extents may be left open.

    Raises:
        InputShapeError: If the text is not of that form; the message shows the part at fault.
    """
    return _parse(text, _OPEN_HINT)


def _parse(text: str, hint: str) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for part in text.split(";"):
        if not part.strip():
            continue
        name, colon, extents = (piece.strip() for piece in part.rpartition(":"))
        if not colon or not name:
            raise InputShapeError(f"--shape {part.strip()!r} does not name an input and its shape", hint)
        if name in shapes:
            raise InputShapeError(f"--shape gives {name!r} twice", "give each input once")
        shapes[name] = tuple(_extent(part, piece.strip(), hint) for piece in extents.split(",")) if extents else ()
    if not shapes:
        raise InputShapeError("--shape is empty", hint)
    return shapes


def _extent(part: str, text: str, hint: str) -> Extent:
    least, tilde, greatest = (piece.strip() for piece in text.partition("~"))
    if text == "-1":
        return FREE
    if tilde:
        low, high = _whole_number(least), FREE if greatest == "-1" else _whole_number(greatest)
        if low is not None and high is not None and (high == FREE or 1 <= low <= high):
            return low if low == high else (low, high)
    elif (value := _whole_number(text)) is not None:
        return value
    raise InputShapeError(f"--shape {part.strip()!r} has the dimension {text!r}", f"use whole numbers; {hint}")


def _whole_number(text: str) -> int | None:
    value = int(text) if text.isascii() and text.isdecimal() and len(text) <= 10 else MOST + 1
    return value if value <= MOST else None


def open_axes(shape: Shape) -> list[int]:
    """Return the axes of a shape whose extent is not fixed."""
    return [axis for axis, extent in enumerate(shape) if not isinstance(extent, int) or extent == FREE]


def split_shapes(shapes: Mapping[str, Shape]) -> tuple[dict[str, tuple[int, ...]], dict[str, Shape]]:
    """Return the shapes that are fixed, and those that leave an extent open."""
    ranges = {name: shape for name, shape in shapes.items() if open_axes(shape)}
    fixed = {n: tuple(e for e in shape if isinstance(e, int)) for n, shape in shapes.items() if n not in ranges}
    return fixed, ranges


def format_extent(extent: Extent) -> str:
    """Return the text of one extent: ``3``, ``-1``, ``1~640``."""
    if isinstance(extent, int):
        return str(extent)
    return f"{extent[0]}~{extent[1]}"


def format_input_shape(shapes: Mapping[str, Sequence[Extent]]) -> str:
    """Return the text that ``parse_input_shape`` or ``parse_open_shape`` reads back."""
    return ";".join(f"{name}:{','.join(map(format_extent, shape))}" for name, shape in shapes.items())
