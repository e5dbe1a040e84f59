"""``load_param_into_net``: gives a cell's parameters the data of others, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.errors import ModelError
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.notices import warn
from opbuild.mindspore.parameter import Parameter

_FAMILIES = (("bfloat16", "float16", "float32", "float64"), ("int8", "int16", "int32", "int64"))


class LoadError(ModelError, RuntimeError):
    """A parameter of a file does not fit the network's."""


def load_param_into_net(
    net: Cell, parameter_dict: Mapping[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Give the parameters of a cell the data of those of the same names.

    Args:
        net: The cell.
        parameter_dict: What ``load_checkpoint`` returned.
        strict_load: Whether element types must be equal and names whole. Otherwise floats become the network's floats
            and integers its integers, and names in the dictionary may have one more prefix than in the network.
        remove_redundancy: Kept for programs that give it.

    Returns:
        The network's names that were not loaded, and the dictionary's that were not used.

    Raises:
        LoadError: If a shape or an element type does not fit (a ``RuntimeError`` too).
        ArgumentTypeError: If there is no cell or no dictionary of parameters.
    """
    _check(net, parameter_dict)
    missing: list[str] = []
    unused = list(parameter_dict)
    for parameter in net.get_parameters():
        if parameter.name not in parameter_dict:
            missing.append(parameter.name)
        elif isinstance(parameter_dict[parameter.name], Parameter):
            _update(parameter, parameter_dict[parameter.name], strict_load)
            unused.remove(parameter.name)
    if missing and not strict_load:
        _load_with_prefix(net, parameter_dict, missing)
    if missing:
        names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        warn(f"{len(missing)} of the network's parameters are not loaded, as the dictionary has none: {names}")
    return missing, unused


def _check(net: Any, parameter_dict: Any) -> None:
    if not isinstance(net, Cell):
        raise ArgumentTypeError(f"load_param_into_net was given a {type(net).__name__}", "give a Cell first")
    if not isinstance(parameter_dict, Mapping):
        raise ArgumentTypeError(
            f"load_param_into_net was given a {type(parameter_dict).__name__}", "give what load_checkpoint returned"
        )
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str, list)):
            raise ArgumentTypeError(
                f"load_param_into_net was given {name!r} with a {type(value).__name__}", "give parameters by name"
            )


def _update(parameter: Parameter, new: Parameter, strict: bool) -> None:
    if _extents(parameter) != _extents(new):
        raise LoadError(
            f"{parameter.name} has the shape {parameter.shape} in the network and {new.shape} in the checkpoint",
            "is the checkpoint of this network?",
        )
    first, second = parameter.type.dtype, new.type.dtype
    if first != second:
        if strict or not any(first in family and second in family for family in _FAMILIES):
            raise LoadError(
                f"{parameter.name} is {first} in the network and {second} in the checkpoint",
                "is the checkpoint of this network?" if not strict else "strict_load=False converts",
            )
        warn(f"{parameter.name} is converted from {second} to {first}")
    parameter.set_data(new.asnumpy().reshape(parameter.shape))


def _extents(tensor: Parameter) -> list[int]:
    """Return the shape without extents of 1 at its end: MindSpore loads (8, 3, 1, 1) into (8, 3)."""
    extents = list(tensor.shape)
    while extents and extents[-1] == 1:
        extents.pop()
    return extents


def _load_with_prefix(net: Cell, parameter_dict: Mapping[str, Any], missing: list[str]) -> None:
    """Load parameters that are in the dictionary under one more prefix, such as ``network.`` of a training cell."""
    by_name = {parameter.name: parameter for parameter in net.get_parameters()}
    prefix = _prefix(parameter_dict, missing)
    while prefix:
        warn(f"the checkpoint's names without their prefix {prefix!r} are the network's")
        for name in list(missing):
            new = parameter_dict.get(prefix + name)
            if isinstance(new, Parameter):
                _update(by_name[name], new, False)
                missing.remove(name)
        before, prefix = prefix, _prefix(parameter_dict, missing)
        prefix = "" if prefix == before else prefix


def _prefix(parameter_dict: Mapping[str, Any], missing: list[str]) -> str:
    for name in missing:
        for known in parameter_dict:
            if known.endswith(name) and known != name:
                return known[: -len(name)]
    return ""
