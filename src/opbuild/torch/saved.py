"""A module as ``opbuild.torch.save`` writes it: its graph, and the form of its calls."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.errors import FileError, InvalidModelError, UnsupportedOperatorError
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import PRIVATE, SignatureError, Trust, UntrustedError, seal, unseal
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.torch.flat import Flat

_FORM, _OLD = "opbuild torch module 2", "opbuild torch module 1"

LARGEST = 2**30
"""Bytes of a saved module: what is large of it are tensors that are no state of the module."""

REFUSED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What taking a file apart raises that is something else."""

_LIMIT = 2**63


class Given(NamedTuple):
    """One input of the graph.

    Attributes:
        kind: ``state``: a parameter or buffer of the module; ``constant``: a tensor in the file; ``tensor`` or
            ``number``: a leaf of the call's arguments; ``fixed``: a leaf that must be what it was.
        name: The name of the parameter, buffer or constant; else of the input.
        leaf: The position among the leaves of the arguments.
        dtype: The element type of a tensor, by torch's name.
        shape: Its extents; a text is the name of one that may differ from call to call. Of a number: its name.
        value: What a fixed leaf must be.
    """

    kind: str
    name: str
    leaf: int = -1
    dtype: str = ""
    shape: Sequence[int | str] = ()
    value: Any = None


class Result(NamedTuple):
    """One result of the graph.

    Attributes:
        kind: ``output``: a leaf of what the call returns; ``state`` or ``leaf``: it is written into a buffer of the
            module, or into an argument.
        name: The buffer's name.
        leaf: The argument's position among the leaves.
    """

    kind: str
    name: str = ""
    leaf: int = -1


class Saved(NamedTuple):
    """A saved module.

    Attributes:
        graph: Its graph.
        given: What each of the graph's inputs is.
        results: What becomes of each of its results.
        arguments: The structure of the arguments; see ``trees``.
        returned: The same of what a call returns.
        ranges: Least and greatest value of each extent that may differ; the greatest may be None.
        constants: Element type, shape and bytes (in base64) of tensors that are no state of the module.
        training: Whether the module was in its training mode.
    """

    graph: Flat
    given: tuple[Given, ...]
    results: tuple[Result, ...]
    arguments: Any
    returned: Any
    ranges: Mapping[str, tuple[int, int | None]]
    constants: Mapping[str, tuple[str, Sequence[Any], str]]
    training: bool


def write_saved(path: Path, saved: Saved, trust: Trust = PRIVATE) -> None:
    """Write a saved module; a file that is there is replaced as a whole.

    Args:
        path: The file.
        saved: The module.
        trust: What it is signed with.

    Raises:
        FileError: If it cannot be written.
        UnsupportedOperatorError: If it is larger than what is read.
    """
    data = seal(saved._asdict() | {"graph": saved.graph.to_json()}, _FORM, trust)
    if len(data) > LARGEST:
        raise UnsupportedOperatorError(
            f"{path} would have {len(data)} bytes, and can have {LARGEST} at most",
            "register the module's large tensors as buffers (register_buffer): those are not in the file",
        )
    try:
        publish(path, data)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror or error}", "give another path") from error


def read_saved(path: Path, trust: Trust = PRIVATE) -> Saved:
    """Read a saved module; nothing of it is run.

    Args:
        path: The file.
        trust: Whose file is believed, and what it must be signed with.

    Raises:
        FileError: If it cannot be read.
        InvalidModelError: If it is none, damaged or not signed, or others can write to it.
    """
    try:
        data = trust.read(path, LARGEST)
    except UntrustedError as error:
        raise InvalidModelError(f"{path} is not used: {error.strerror}", "copy it to a file of yours") from None
    except OSError as error:
        raise FileError(
            f"{path} cannot be read: {error.strerror or error}", "give the path of a saved module"
        ) from error
    try:
        return _saved(unseal(data, _FORM, trust))
    except SignatureError as error:
        hint = "save it again with this key (OPBUILD_SIGNING_KEY), or load it without one"
        raise InvalidModelError(f"{path} is not used: {error}", hint) from None
    except REFUSED as error:
        what = f"is no saved module: {error!s:.500}"
        with contextlib.suppress(ValueError):
            unseal(data, _OLD)
            what = "was saved by an older opbuild"
        raise InvalidModelError(f"{path} {what}", "save the module again") from error


def _saved(found: Any) -> Saved:
    """Return the content of a file, each field of the kind that it has, or raise one of ``REFUSED``."""
    given = tuple(_parse_input(*each) for each in found["given"])
    results = tuple(_result(*each) for each in found["results"])
    ranges = {
        name: (_number(low), None if most is None else _number(most)) for name, (low, most) in found["ranges"].items()
    }
    constants = {name: (_text(dtype), _shape(shape), _text(data)) for name, (dtype, shape, data) in
                 found["constants"].items()}  # fmt: skip
    names = {extent for each in given for extent in each.shape if isinstance(extent, str)}
    if not names <= ranges.keys() or not {each.name for each in given if each.kind == "constant"} <= constants.keys():
        raise ValueError("an extent or a constant is missing")
    graph = Flat.from_json(found["graph"])
    if (len(graph.inputs), len(graph.outputs)) != (len(given), len(results)):
        raise ValueError("its graph has other inputs or outputs")
    if not all(each.kind == "output" or any(is_target(one, each) for one in given) for each in results):
        raise ValueError("a result is written to nothing")
    return Saved(
        graph, given, results, found["arguments"], found["returned"], ranges, constants, found["training"] is True
    )


def is_target(given: Given, result: Result) -> bool:
    """Return whether a result is written into an input."""
    if result.kind == "leaf":
        return given.leaf == result.leaf and given.kind == "tensor"
    return given.kind == "state" and given.name == result.name


def _parse_input(kind: Any, name: Any, leaf: Any, dtype: Any, shape: Any, value: Any) -> Given:
    is_leaf = kind in ("tensor", "number", "fixed")
    if kind not in ("state", "constant") and not is_leaf:
        raise ValueError(f"there is no input of kind {kind!r:.200}")
    if (_number(leaf) >= 0) is not is_leaf or not (value is None or isinstance(value, (bool, int, float, str))):
        raise ValueError("an input is none")
    return Given(kind, _text(name), leaf, _text(dtype), _shape(shape, are_named=is_leaf), value)


def _result(kind: Any, name: Any, leaf: Any) -> Result:
    if kind not in ("output", "state", "leaf"):
        raise ValueError(f"there is no result of kind {kind!r:.200}")
    return Result(kind, _text(name), _number(leaf))


def _shape(found: Any, *, are_named: bool = False) -> list[int | str]:
    if not isinstance(found, list):
        raise TypeError("a shape is no list")
    for each in found:
        if not (are_named and isinstance(each, str)) and _number(each) < 0:
            raise ValueError(f"an extent is {each!r:.200}")
    return found


def _number(found: Any) -> int:
    if type(found) is not int or abs(found) >= _LIMIT:
        raise ValueError(f"a number is {found!r:.200}")
    return found


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"a text is {found!r:.200}")
    return found
