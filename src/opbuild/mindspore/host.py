"""Functions that numpy computes on data at once: those for which there is no operator to put into a network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.frontend.cell import current, location
from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.tensor import Tensor


def on_data(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function of tensors that a function of arrays stands for.

    Tensors among the arguments become arrays, arrays among the results tensors.

    Raises:
        InvalidModelError: By the function, if a tensor is traced and has no data yet.
        ArgumentValueError: By the function, if numpy refuses the data.
    """

    @wraps(function)
    def computed(*args: Any, **kwargs: Any) -> Any:
        given = _arrays((args, kwargs), function.__name__)
        with _mapped(function.__name__):
            return tensors(function(*given[0], **given[1]))

    return computed


def in_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``on_data`` of a function that is computed in float64 and returned in its first argument's type.

    Integers are returned as float32.
    """

    @wraps(function)
    def computed(first: Any, *args: Any, **kwargs: Any) -> Any:
        array, rest, named = _arrays((first, args, kwargs), function.__name__)
        array = floats(array)
        wide = [item.astype(np.float64) if isinstance(item, np.ndarray) and is_float(item.dtype.name) else item
                for item in rest]  # fmt: skip
        with np.errstate(all="ignore"), _mapped(function.__name__):
            result = function(array.astype(np.float64), *wide, **named)
        return tensors(_narrowed(result, array.dtype))

    return computed


@contextmanager
def _mapped(name: str) -> Iterator[None]:
    """Say which function refused its arguments when numpy did."""
    try:
        yield
    except OpbuildError:
        raise
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ArgumentValueError(f"{name} cannot take these arguments{location()}: {error}") from None


def not_traced(name: str) -> None:
    """Refuse a function that has no sense in a network that is traced once and run many times.

    Raises:
        InvalidModelError: While a network is traced.
    """
    if current() is not None:
        raise InvalidModelError(
            f"construct calls {name}{location()}, which would happen once, when the network is traced",
            "call it outside of construct and give its result as an argument, or use set_context(mode=PYNATIVE_MODE)",
        )


def floats(array: Any) -> Array:
    """Return an array of floats; integers become float32."""
    array = np.asarray(array)
    return np.asarray(array if is_float(array.dtype.name) else array.astype(np.float32))


def tensors(result: Any) -> Any:
    """Return arrays as tensors, also in tuples and lists."""
    if isinstance(result, (np.ndarray, np.generic)):
        array = np.asarray(result)
        return Tensor.of(np.ascontiguousarray(array).reshape(array.shape))
    if isinstance(result, (tuple, list)):
        return type(result)(tensors(item) for item in result)
    return result


def _narrowed(result: Any, dtype: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_narrowed(item, dtype) for item in result)
    array = np.asarray(result)
    return array.astype(dtype) if array.dtype == np.float64 else array


def _arrays(value: Any, name: str) -> Any:
    if isinstance(value, Tensor):
        if value.symbol is not None:
            raise InvalidModelError(
                f"construct calls {name} on a traced tensor{location()}: it is computed from data, by no operator",
                "call it outside of construct and give its result as an argument, "
                "or use set_context(mode=PYNATIVE_MODE)",
            )
        return value.asnumpy()
    if isinstance(value, dict):
        return {key: _arrays(item, name) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(_arrays(item, name) for item in value)
    return value


def need_array(value: Any, name: str) -> Array:
    """Return an array that was a tensor.

    Raises:
        ArgumentTypeError: If it is none.
    """
    if not isinstance(value, np.ndarray):
        raise ArgumentTypeError(f"{name} was given a {type(value).__name__}{location()}", "give a Tensor")
    return value
