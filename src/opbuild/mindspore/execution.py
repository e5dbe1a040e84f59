"""Runs operators: appends them to the trace that is recorded, or builds and calls a network of one operator at once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.errors import DTypeError, ShapeError
from opbuild.frontend.cell import Symbol, Trace, current, location
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import Array, Attribute, Graph
from opbuild.mindspore.arguments import TensorShapeError, TensorTypeError
from opbuild.mindspore.context import build_config
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.states import current_states
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.locks import Lock

Call = Callable[[Sequence[Array]], Sequence[Array]]
Operand = Tensor | Array | None
"""A tensor is data; an array is a value that the operator needs to know when it is built; None is an absent input."""

_EAGER_LIMIT = 4096


class _EagerNetworks:
    """Networks of one operator that this process has used last, by what they compute."""

    def __init__(self) -> None:
        self._calls: OrderedDict[Hashable, Call] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, build_call: Callable[[], Call]) -> Call:
        with self._lock:
            call = self._calls.get(key)
            if call is not None:
                self._calls.move_to_end(key)
                return call
        call = build_call()
        with self._lock:
            self._calls[key] = call
            if len(self._calls) > _EAGER_LIMIT:
                self._calls.popitem(last=False)
        return call


_EAGER = _EagerNetworks()


def build(graph: Graph) -> Call:
    """Build a graph and return a function from arrays in the order of its inputs to arrays in that of its outputs.

    Raises:
        BuildError: If an operator cannot be built.
    """
    from opbuild.api import compile_graph

    network = compile_graph(graph, config=build_config())

    def call(arrays: Sequence[Array]) -> Sequence[Array]:
        result: Any = network(*arrays)
        return [result] if isinstance(result, np.ndarray) else list(result)

    return call


def new_trace(name: str) -> Trace:
    """Return an empty trace."""
    return Trace(name, infer_node)


def emit(op_type: str, *operands: Operand, domain: str = "", **attrs: Attribute) -> Tensor:
    """Apply an operator of one output: ``emit_many`` of it."""
    return emit_many(op_type, operands, attrs, domain, 1)[0]


def emit_many(
    op_type: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute], domain: str = "", outputs: int = 1
) -> tuple[Tensor, ...]:
    """Record an operator if a trace is active in this thread, else build and run it.

    Raises:
        TensorShapeError: If the shapes do not fit the operator (a ``ValueError`` too).
        TensorTypeError: If the element types do not fit (a ``TypeError`` too).
        BuildError: If it cannot be built.
    """
    trace = current()
    try:
        if trace is not None:
            symbols = trace.apply(op_type, [_symbol(trace, op) for op in operands], attrs, domain, outputs)
            return tuple(Tensor.of(symbol) for symbol in symbols)
        return _run(op_type, operands, attrs, domain, outputs)
    except ShapeError as error:
        raise TensorShapeError(f"{error.message}{location()}", error.hint) from None
    except DTypeError as error:
        raise TensorTypeError(f"{error.message}{location()}", error.hint) from None


def cast(tensor: Tensor, dtype: str) -> Tensor:
    """Return the tensor in another element type; itself if it has it."""
    if tensor.type.dtype == dtype:
        return tensor
    return emit("Cast", tensor, to=to_type(dtype).code)


def symbol_of(trace: Trace, operand: Tensor | Array) -> Symbol:
    """Return the symbol of a tensor or array in a trace: a value of it, a state, or a constant."""
    if isinstance(operand, np.ndarray):
        return trace.constant(operand)
    symbol = operand.symbol
    if symbol is not None:
        return symbol
    states = current_states()
    if states is not None and isinstance(operand, Parameter):
        return states.read(operand)
    return trace.constant(operand.asnumpy())


def _symbol(trace: Trace, operand: Operand) -> Symbol | None:
    return None if operand is None else symbol_of(trace, operand)


def _run(
    op_type: str, operands: Sequence[Operand], attrs: Mapping[str, Attribute], domain: str, outputs: int
) -> tuple[Tensor, ...]:
    key = (op_type, domain, outputs, tuple(sorted(attrs.items())), tuple(_key(operand) for operand in operands))

    def build_call() -> Call:
        trace = new_trace(op_type)
        symbols = [_placeholder(trace, operand) for operand in operands]
        return build(trace.finish(trace.apply(op_type, symbols, attrs, domain, outputs)))

    call = _EAGER.get(key, build_call)
    arrays = [operand.asnumpy() for operand in operands if isinstance(operand, Tensor)]
    return tuple(Tensor.of(array) for array in call(arrays))


def _placeholder(trace: Trace, operand: Operand) -> Symbol | None:
    return trace.input(operand.type) if isinstance(operand, Tensor) else _symbol(trace, operand)


def _key(operand: Operand) -> Hashable:
    if isinstance(operand, Tensor):
        operand.asnumpy()  # a traced tensor outside its trace has no data: say so here
        return operand.type
    return None if operand is None else (operand.dtype.name, operand.shape, operand.tobytes())
