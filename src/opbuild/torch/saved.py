"""A module as ``opbuild.torch.save`` writes it: its graph, and what its calls must be like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opbuild.errors import FileError, InvalidModelError
from opbuild.files.private import publish
from opbuild.files.sealed import seal, unseal
from opbuild.platform.records import NamedTuple
from opbuild.torch.flat import Flat

_FORM = "opbuild torch module 1"


class Given(NamedTuple):
    """What one input of the graph is.

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
    """What becomes of one result of the graph.

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
        arguments: The structure of the arguments, as torch's ``treespec_dumps`` writes it.
        returned: The same of what a call returns.
        ranges: Least and greatest value of each extent that may differ; the greatest may be None.
        constants: Element type, shape and bytes (in base64) of tensors that are no state of the module.
        training: Whether the module was in its training mode.
    """

    graph: Flat
    given: tuple[Given, ...]
    results: tuple[Result, ...]
    arguments: str
    returned: str
    ranges: Mapping[str, tuple[int, int | None]]
    constants: Mapping[str, tuple[str, Sequence[int], str]]
    training: bool


def write_saved(path: Path, saved: Saved) -> None:
    """Write a saved module; a file that is there is replaced as a whole.

    Raises:
        FileError: If it can not be written.
    """
    content = saved._asdict() | {"graph": saved.graph.to_json(), "form": _FORM}
    try:
        publish(path, seal(content, _FORM))
    except OSError as error:
        raise FileError(f"{path} can not be written: {error.strerror or error}", "give another path") from error


def read_saved(path: Path) -> Saved:
    """Read a saved module.

    Raises:
        FileError: If it can not be read.
        InvalidModelError: If it is none, or damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{path} can not be read: {error.strerror or error}", "give the path of a saved module"
        ) from error
    try:
        content = dict(unseal(data, _FORM))
        if content.pop("form") != _FORM:
            raise ValueError("it has another form")
        content["graph"] = Flat.from_json(content["graph"])
        content["given"] = tuple(Given(*each) for each in content["given"])
        content["results"] = tuple(Result(*each) for each in content["results"])
        return Saved(**content)
    except (ValueError, TypeError, LookupError) as error:
        raise InvalidModelError(f"{path} is no saved module: {error}", "save the module again") from error
