"""The arguments of ``Network.run``: outputs, inputs, and the form of the results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opbuild.errors import InputError
from opbuild.platform.records import NamedTuple

FORMS = "write run({'name': array}), run(['output'], {'name': array}) or run(None, {'name': array})"

BY_POSITION = f"{FORMS}; net(array) takes arrays in the order of the inputs"


class RunRequest(NamedTuple):
    """The request of a call of ``run``.

    Attributes:
        names: The outputs that are wanted; None or empty for all.
        feeds: Arrays by the input's name.
        as_list: Whether the results are wanted as a list; else they come by name.
        out: Arrays by the output's name that take its value.
    """

    names: Sequence[str] | None
    feeds: Mapping[str, Any]
    as_list: bool
    out: Mapping[str, Any]


def read_request(args: tuple[Any, ...], kwargs: Mapping[str, Any], inputs: Collection[str]) -> RunRequest:
    """Return the request in the arguments of ``run``.

    Args:
        args: Those given by position.
        kwargs: Those given by name; one that is an input's name is that input's array.
        inputs: The inputs' names.

    Raises:
        InputError: If they cannot be understood.
    """
    arrays = dict(kwargs)
    options = {name: arrays.pop(name) for name in _OPTIONS if name in arrays and name not in inputs}
    given = list(args)
    if given and isinstance(given[0], Mapping):
        _take(options, "feeds", given.pop(0))
    for option, value in zip(("output_names", "input_feed", "run_options"), given, strict=False):
        _take(options, option, value)
    if len(given) > 3 or ("feeds" in options and (given or "input_feed" in options)):
        raise InputError(f"run was given {len(args)} arguments that it does not know together", FORMS)
    if options.get("run_options") is not None:
        raise InputError("run was given run_options, which opbuild does not have", "leave them out")
    feeds = options.get("feeds", options.get("input_feed"))
    if feeds is not None and not isinstance(feeds, Mapping):
        raise InputError(f"run was given a value of type {type(feeds).__name__} for the inputs", BY_POSITION)
    if feeds is not None and arrays:
        raise InputError(f"input {next(iter(arrays))!r} was given beside a dictionary of inputs", FORMS)
    out = options.get("out")
    if out is not None and not isinstance(out, Mapping):
        message = f"run was given a value of type {type(out).__name__} for out"
        raise InputError(message, "give a dictionary from names of outputs to arrays")
    return RunRequest(
        _names(options.get("output_names")), arrays if feeds is None else feeds, "output_names" in options, out or {}
    )


_OPTIONS = ("feeds", "output_names", "input_feed", "run_options", "out")


def _take(options: dict[str, Any], option: str, value: Any) -> None:
    if option in options:
        raise InputError(f"{option} was given twice", "give it by position or by name")
    options[option] = value


def _names(given: Any) -> Sequence[str] | None:
    if given is None or (isinstance(given, Sequence) and not isinstance(given, (str, bytes))):
        return given
    if isinstance(given, str):
        message = f"run was given the text {given!r} for the names of outputs"
        raise InputError(message, f"give a list such as [{given!r}], or None for all outputs")
    raise InputError(f"run was given a value of type {type(given).__name__} for a dictionary", BY_POSITION)
