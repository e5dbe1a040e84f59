"""The meaning of ``to_float``: a cell casts its inputs and parameters, and gives results in a type of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from opbuild.dtypes import is_float
from opbuild.mindspore.execution import cast
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor

_CURRENT: ContextVar[str] = ContextVar("float type", default="")


def computed(cell: Any, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the results of ``construct`` in the cell's own float type, or in that of the cell around it.

    Tensors among the arguments and the cell's own trained parameters are cast; what is not trained, such as running
    statistics, stays.

    Args:
        cell: The cell, with ``_float`` and ``_float_out``: names of element types, empty for none.
        construct: Computes the result.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    dtype = cell._float or _CURRENT.get()
    if not dtype:
        return construct(*args, **kwargs)
    token = _CURRENT.set(dtype)
    try:
        with _cast_parameters(cell, dtype):
            result = construct(*_cast(args, dtype), **_cast(dict(kwargs), dtype))
    finally:
        _CURRENT.reset(token)
    return _cast(result, cell._float_out) if cell._float_out else result


@contextmanager
def _cast_parameters(cell: Any, dtype: str) -> Iterator[None]:
    """Let attributes that are parameters give their elements in another type."""
    own = {
        name: parameter
        for name, parameter in cell._params.items()
        if parameter.requires_grad and cell.__dict__.get(name) is parameter and is_float(parameter.type.dtype)
    }
    try:
        for name, parameter in own.items():
            cell.__dict__[name] = cast(parameter, dtype)
        yield
    finally:
        cell.__dict__.update(own)


def _cast(value: Any, dtype: str) -> Any:
    """Return a nest with its float tensors in another type; parameters are cast where a cell owns them."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return cast(value, dtype) if is_float(value.type.dtype) else value
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_cast(item, dtype) for item in value)
    if isinstance(value, list):
        return [_cast(item, dtype) for item in value]
    if isinstance(value, dict):
        return {key: _cast(item, dtype) for key, item in value.items()}
    return value
