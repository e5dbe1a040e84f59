"""ATC's options that list sizes, and the input signatures of one offline model that follow from them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import count

from opbuild.cli.option_values import CONFLICTING, DEPENDENT, bad_value, required, wrong
from opbuild.frontend.input_shape import Shape, format_input_shape, open_axes
from opbuild.kernel.opdesc import FREE
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.plural import counted

MOST = 100
"""Values of each option at most, as ATC has it."""

Signature = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class DynamicSizes:
    """The sizes that one of the options lists.

    Attributes:
        option: Its name without dashes.
        text: Its value.
        sizes: The numbers of each value.
    """

    option: str
    text: str
    sizes: tuple[tuple[int, ...], ...]


class _Form(NamedTuple):
    """The values that one of the options takes, and the axes of an input that ``--input_shape`` must leave open."""

    takes: str
    opens: str
    example: str
    axes: tuple[list[int], ...] | None = None


_FORMS = {
    "dynamic_batch_size": _Form(
        'sizes of at least 1, such as "1,2,4,8"', "-1 first and nowhere else", "data:-1,3,224,224", ([0],)
    ),
    "dynamic_image_size": _Form(
        'heights and widths of at least 1, such as "224,224;448,448"',
        "-1 for height and width, the last two of four, and nowhere else", "data:1,3,-1,-1", ([2, 3],)
    ),
    "dynamic_dims": _Form(
        'lists of dimensions of at least 1, all as long, such as "1,224;4,448"', "-1 for each dimension of a list",
        "data:-1,3,-1,224"
    ),
}  # fmt: skip


def parse_sizes(option: str, text: str) -> DynamicSizes:
    """Parse the value of one of the options.

    Raises:
        OptionError: If the text is not of the option's form.
    """
    must = f"it must be 2 to {MOST} different {_FORMS[option].takes}"
    required(option, text, must)
    between = "," if option == "dynamic_batch_size" else ";"
    lists = [[piece.strip() for piece in part.split(",")] for part in text.split(between)]
    if any(not re.fullmatch("0*[1-9][0-9]{0,8}", piece) for pieces in lists for piece in pieces):
        raise bad_value(option, text, must)
    sizes = tuple(tuple(map(int, pieces)) for pieces in lists)
    lengths = {len(each) for each in sizes}
    right = len(lengths) == 1 and (option != "dynamic_image_size" or lengths == {2})
    if not right or not 2 <= len(sizes) <= MOST or len(set(sizes)) != len(sizes):
        raise bad_value(option, text, must)
    return DynamicSizes(option, text, sizes)


def signatures(shapes: Mapping[str, Shape], given: list[DynamicSizes]) -> tuple[Signature, ...]:
    """Return for each size the shapes of the inputs that ``--input_shape`` leaves open; empty if no option is given.

    Args:
        shapes: What ``--input_shape`` says.
        given: The options that stand on the command line.

    Raises:
        OptionError: If two are given, nothing is open, or more is open than the option fills.
    """
    if not given:
        return ()
    sizes, form = given[0], _FORMS[given[0].option]
    if len(given) > 1:
        raise wrong(
            CONFLICTING,
            f"--{sizes.option} is {sizes.text!r}, and --{given[1].option} is {given[1].text!r}",
            "give one of them",
        )
    opened = {name: open_axes(shape) for name, shape in shapes.items() if open_axes(shape)}
    if not opened:
        raise wrong(
            DEPENDENT,
            f"--{sizes.option} is {sizes.text!r}, and no input is open for it",
            f'give --input_shape with {form.opens}, such as "{form.example}"',
        )
    for name, axes in opened.items():
        if not _fills(sizes.option, shapes[name], axes):
            shown = format_input_shape({name: shapes[name]})
            raise wrong(
                CONFLICTING,
                f"--{sizes.option} is {sizes.text!r}, and --input_shape has {shown!r}",
                f"it must have {form.opens}; or leave --{sizes.option} out and give ranges",
            )
    wanted = sum(map(len, opened.values()))
    if sizes.option == "dynamic_dims" and wanted != len(sizes.sizes[0]):
        raise wrong(
            CONFLICTING,
            f"--dynamic_dims is {sizes.text!r}, and --input_shape has {wanted} times -1",
            f"each of its lists must have {counted(wanted, 'extent')}",
        )
    return tuple(_signature(shapes, opened, sizes.option, each) for each in sizes.sizes)


def _fills(option: str, shape: Shape, axes: list[int]) -> bool:
    """Return whether an option's numbers say all that a shape leaves open."""
    if any(shape[axis] != FREE for axis in axes):
        return False
    allowed = _FORMS[option].axes
    return allowed is None or (axes in allowed and (option != "dynamic_image_size" or len(shape) == 4))


def _signature(
    shapes: Mapping[str, Shape], opened: Mapping[str, list[int]], option: str, numbers: tuple[int, ...]
) -> Signature:
    """Return the open inputs with numbers for their -1: each input takes all, or, with ``dynamic_dims``, the next."""
    position = count()
    found: dict[str, tuple[int, ...]] = {}
    for name, axes in opened.items():
        taken = [next(position) for _ in axes] if option == "dynamic_dims" else range(len(axes))
        by_axis = dict(zip(axes, (numbers[index] for index in taken), strict=True))
        found[name] = tuple(
            by_axis.get(axis, extent if isinstance(extent, int) else FREE) for axis, extent in enumerate(shapes[name])
        )
    return found
