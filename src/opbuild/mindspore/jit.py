"""``@jit``: a function that is traced and built as one network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opbuild.frontend.cell import current
from opbuild.mindspore.closures import state_of
from opbuild.mindspore.networks import Networks


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Callable[..., Any]:
    """Return the function as a network of its own for each input signature; inside a cell it is part of the cell's.

    Args:
        function: A function of tensors.
        options: MindSpore's options of compiling (``jit_level``, ``capture_mode``, ...); they change nothing here.
    """
    if function is None:
        return functools.partial(jit, **options)
    networks = Networks(function.__name__, function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return function(*args, **kwargs)
        return networks.call(args, kwargs, state_of(function))

    return call


ms_function = jit


def jit_class(cls: type) -> type:
    """Return the class: any class may be used in ``construct``."""
    return cls


def mutable(input_data: Any, dynamic_len: bool = False) -> Any:
    """Return the data: plain values are part of the signature, tensors are not."""
    return input_data
