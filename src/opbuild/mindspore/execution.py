"""Runs operators: appends them to a trace, or builds and calls them at once, or computes on data with numpy."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import numpy as np

from opbuild.dtypes import is_float
from opbuild.errors import DTypeError, InvalidModelError, OpbuildError, ShapeError
from opbuild.frontend.cell import Symbol, Trace, current, location
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import Array, Attribute, Graph
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, TensorTypeError
from opbuild.mindspore.context import build_config, build_target
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.parameter import Parameter, current_states
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.locks import Lock

Call = Callable[[Sequence[Array]], Sequence[Array]]
Operand = Tensor | Array | None
"""A tensor is data; an array is a value that the operator needs to know when it is built; None is an absent input."""

_EAGER_LIMIT = 4096
_SIGNED = ("int8", "int16", "int32", "int64")
_FLOATS = ("bfloat16", "float16", "float32", "float64")
_WIDE_UNSIGNED = ("uint16", "uint32", "uint64")


class _EagerNetworks:
    """Networks of one operator that this process has used last, by the operator."""

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

    network = compile_graph(graph, config=build_config(), target=build_target())

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
        raise TensorShapeError(error.message, error.hint) from None
    except DTypeError as error:
        raise TensorTypeError(error.message, error.hint) from None


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
        symbols = [trace.input(each.type) if isinstance(each, Tensor) else _symbol(trace, each) for each in operands]
        return build(trace.finish(trace.apply(op_type, symbols, attrs, domain, outputs)))

    call = _EAGER.get(key, build_call)
    arrays = [operand.asnumpy() for operand in operands if isinstance(operand, Tensor)]
    return tuple(Tensor.of(array) for array in call(arrays))


def _key(operand: Operand) -> Hashable:
    if isinstance(operand, Tensor):
        operand.asnumpy()  # a traced tensor outside its trace has no data: say so here
        return operand.type
    return None if operand is None else (operand.dtype.name, operand.shape, operand.tobytes())


def promote(first: str, second: str) -> str:
    """Return the type that two tensors are converted to; as in MindSpore wide unsigned ones go with bool alone."""
    if second in (first, "bool"):
        return first
    if first == "bool":
        return second
    if first in _WIDE_UNSIGNED or second in _WIDE_UNSIGNED:
        raise TensorTypeError(
            f"{first} and {second} have no common element type", "convert one of the tensors with .astype()"
        )
    if {first, second} == {"bfloat16", "float16"}:
        return "float32"  # neither holds the other's numbers
    for family in (_FLOATS, _SIGNED):
        ranks = [family.index(name) for name in (first, second) if name in family]
        if len(ranks) == 2:
            return family[max(ranks)]
        if ranks and family is _FLOATS:
            return family[ranks[0]]
    return "int16" if "int8" in (first, second) else first if first in _SIGNED else second


def with_number(dtype: str, number: bool | int | float) -> str:
    """Return the type that a tensor and a Python number are converted to."""
    if isinstance(number, bool):
        return dtype
    if isinstance(number, int):
        return "int64" if dtype == "bool" else dtype
    return dtype if dtype in _FLOATS else "float32"


def operands(first: Any, second: Any, name: str) -> tuple[str, Any, Any]:
    """Return the common type of two operands and both as tensors or numbers, at least one of them a tensor."""
    first, second = _operand(first, name), _operand(second, name)
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return promote(first.type.dtype, second.type.dtype), first, second
    if isinstance(first, Tensor):
        return with_number(first.type.dtype, second), first, second
    if isinstance(second, Tensor):
        return with_number(second.type.dtype, first), first, second
    tensor = Tensor(first)
    return with_number(tensor.type.dtype, second), tensor, second


def _operand(value: Any, name: str) -> Any:
    if isinstance(value, (Tensor, bool, int, float)):
        return value
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        return Tensor(value)
    raise ArgumentTypeError(f"{name} was given a {type(value).__name__}", "give tensors or numbers")


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
        array = np.asarray(array)
        array = array if is_float(array.dtype.name) else array.astype(np.float32)
        wide = [item.astype(np.float64) if isinstance(item, np.ndarray) and is_float(item.dtype.name) else item
                for item in rest]  # fmt: skip
        with np.errstate(all="ignore"), _mapped(function.__name__):
            result = function(array.astype(np.float64), *wide, **named)

        def narrowed(part: Any) -> Any:
            found = np.asarray(part)
            return found.astype(array.dtype) if found.dtype == np.float64 else found

        return tensors(nested(result, narrowed))

    return computed


@contextmanager
def _mapped(name: str) -> Iterator[None]:
    """Say which function refused its arguments when numpy did."""
    try:
        yield
    except OpbuildError:
        raise
    except (ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
        raise ArgumentValueError(f"{name} cannot take these arguments: {error}") from None


def array_of(value: Any) -> Any:
    """Return the data of a tensor; anything else as it is."""
    return value.asnumpy() if isinstance(value, Tensor) else value


def tensors(result: Any) -> Any:
    """Return arrays as tensors, also in tuples and lists."""

    def tensor(value: Any) -> Any:
        if not isinstance(value, (np.ndarray, np.generic)):
            return value
        array = np.asarray(value)
        return Tensor.of(np.ascontiguousarray(array).reshape(array.shape))

    return nested(result, tensor)


def _arrays(value: Any, name: str) -> Any:
    def array(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.symbol is not None:
            raise InvalidModelError(
                f"construct calls {name} on a traced tensor{location()}: it is computed from data, by no operator",
                "call it outside of construct and give its result as an argument, "
                "or use set_context(mode=PYNATIVE_MODE)",
            )
        return array_of(leaf)

    return nested(value, array)


def nested(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return a nest of tuples, lists and dictionaries with what a function makes of all that is in it."""
    if isinstance(value, Mapping):
        return {key: nested(item, leaf) for key, item in value.items()}
    if isinstance(value, tuple):
        items = [nested(item, leaf) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [nested(item, leaf) for item in value]
    return leaf(value)
