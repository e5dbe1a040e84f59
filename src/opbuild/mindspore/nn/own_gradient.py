"""Cells that state their own gradients: ``bprop(*inputs, out, dout)``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbuild.dtypes import is_float
from opbuild.frontend.cell import Symbol, Trace
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.execution import emit, symbol_of
from opbuild.mindspore.ops.control import stop_gradient
from opbuild.mindspore.ops.shaping import zeros_like
from opbuild.mindspore.tensor import Tensor


def with_own_gradient(
    trace: Trace, cell: Any, construct: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the results of ``construct``, through which only the gradients of the cell's ``bprop`` flow back.

    Args:
        trace: What is recorded.
        cell: The cell.
        construct: Computes its results.
        args: Its arguments.
        kwargs: Its arguments by name.
    """
    result = construct(*[stop_gradient(each) if isinstance(each, Tensor) else each for each in args], **kwargs)
    outputs = list(result) if isinstance(result, (tuple, list)) else [result]
    tensors = [each for each in args if isinstance(each, Tensor)]
    marked: list[Any] = []
    for place, output in enumerate(outputs):
        if not isinstance(output, Tensor) or not is_float(output.type.dtype):
            marked.append(output)
            continue
        found = emit("Identity", output, *tensors)
        trace.own_gradients[symbol_of(trace, found).name] = _flowing(trace, cell, args, result, outputs, place)
        marked.append(found)
    return type(result)(marked) if isinstance(result, (tuple, list)) else marked[0]


def _flowing(
    trace: Trace, cell: Any, args: Sequence[Any], result: Any, outputs: Sequence[Tensor], place: int
) -> Callable[[Symbol], list[Symbol | None]]:
    """Return a function from an output's own gradient to the gradients of the tensors among the arguments.

    Where there are several outputs, it is the part that comes through this one.
    """

    def flow(gradient: Symbol) -> list[Symbol | None]:
        given: list[Any] = [Tensor.of(gradient) if at == place else zeros_like(each) for at, each in enumerate(outputs)]
        dout = given[0] if isinstance(result, Tensor) else tuple(given)
        found = cell.bprop(*args, result, dout)
        parts = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(parts) != len(args):
            raise ArgumentTypeError(
                f"bprop of {type(cell).__name__} gives {len(parts)} gradients", f"it has {len(args)} inputs"
            )
        pairs = zip(args, parts, strict=True)
        wanted = [part for arg, part in pairs if isinstance(arg, Tensor)]
        return [None, *(symbol_of(trace, part) if isinstance(part, Tensor) else None for part in wanted)]

    return flow
