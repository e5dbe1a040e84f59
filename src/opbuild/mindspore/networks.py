"""Turns calls of cells and functions into networks: one trace and one build for each input signature."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.frontend.cell import Trace, location
from opbuild.mindspore import execution, printing
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.execution import Call, new_trace
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.records import dataclass

_LIMIT = 64


@dataclass(frozen=True)
class _Built:
    call: Call | None
    result: Any
    """What the function returned, with ``_Place`` where the network's outputs go."""
    lines: Sequence[printing.Line]
    """What it printed."""
    marks: Sequence[str]
    """The marks in these lines whose values are the last outputs."""


@dataclass(frozen=True)
class _Place:
    index: int


class Networks:
    """The networks of one function, by input signature and the state of what it reads.

    Args:
        name: The networks' name.
        function: What is traced.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._name = name
        self._function = function
        self._built: OrderedDict[Hashable, _Built] = OrderedDict()
        self._lock = threading.RLock()

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Hashable = ()) -> Any:
        """Run the network of this signature; trace and build it first if it is new.

        Args:
            args: Positional arguments: tensors, nests of them, and plain values that become part of the signature.
            kwargs: Arguments by name.
            state: What else decides the network: versions of parameters, training flags.
        """
        leaves: list[Tensor] = []
        nest = _split((args, dict(kwargs)), leaves)
        key = (_signature(nest), tuple(leaf.type for leaf in leaves), state)
        with self._lock:
            built = self._built.get(key)
            if built is None:
                built = self._trace(nest, leaves)
                self._built[key] = built
                if len(self._built) > _LIMIT:
                    self._built.popitem(last=False)
        arrays = built.call([leaf.asnumpy() for leaf in leaves]) if built.call else ()
        tensors = [Tensor.of(array) for array in arrays]
        printed = dict(zip(built.marks, tensors[len(tensors) - len(built.marks) :], strict=True))
        for line in built.lines:
            line.show(printed)
        return _fill(built.result, tensors)

    def clear(self) -> None:
        """Forget every network."""
        with self._lock:
            self._built.clear()

    def _trace(self, nest: Any, leaves: Sequence[Tensor]) -> _Built:
        trace = new_trace(self._name)
        traced = [Tensor.of(trace.input(leaf.type)) for leaf in leaves]
        with trace.active(), printing.kept() as lines:
            args, kwargs = _fill(nest, traced)
            returned = self._function(*args, **kwargs)
            outputs: list[Tensor] = []
            result = _split(returned, outputs)
            symbols = [output.symbol or _constant(trace, output) for output in outputs]
        printed = printing.marked(lines, trace.symbol)
        symbols += printed.values()
        call = execution.build(trace.finish(symbols)) if symbols else None
        return _Built(call, result, lines, list(printed))


def _constant(trace: Trace, output: Tensor) -> Any:
    return trace.constant(output.asnumpy())


def _split(value: Any, leaves: list[Tensor]) -> Any:
    """Return the nest with a ``_Place`` for each tensor, which is appended to ``leaves``."""
    if isinstance(value, Tensor):
        leaves.append(value)
        return _Place(len(leaves) - 1)
    if isinstance(value, Mapping):
        return {key: _split(item, leaves) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [_split(item, leaves) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_split(item, leaves) for item in value]
    if isinstance(value, np.ndarray):
        raise ArgumentTypeError(
            f"a numpy array where a network takes or gives tensors{location()}", "wrap it in Tensor()"
        )
    return value


def _fill(nest: Any, tensors: Sequence[Tensor]) -> Any:
    if isinstance(nest, _Place):
        return tensors[nest.index]
    if isinstance(nest, dict):
        return {key: _fill(item, tensors) for key, item in nest.items()}
    if isinstance(nest, tuple):
        items = [_fill(item, tensors) for item in nest]
        return type(nest)(*items) if hasattr(nest, "_fields") else tuple(items)
    if isinstance(nest, list):
        return [_fill(item, tensors) for item in nest]
    return nest


def _signature(nest: Any) -> Hashable:
    if isinstance(nest, dict):
        return ("dict", *((key, _signature(item)) for key, item in nest.items()))
    if isinstance(nest, (tuple, list)):
        return (type(nest).__name__, *map(_signature, nest))
    try:
        hash(nest)
    except TypeError:
        raise ArgumentTypeError(
            f"an argument of type {type(nest).__name__}{location()}", "a network takes tensors and plain values"
        ) from None
    return (type(nest).__name__, nest)
