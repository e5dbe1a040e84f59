"""Functions as networks, ``jit``, ``grad`` and ``value_and_grad``; and ``run_check``."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from opbuild.errors import OpbuildError
from opbuild.frontend.cell import Trace, current
from opbuild.mindspore import ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.context import get_context
from opbuild.mindspore.execution import emit, symbol_of
from opbuild.mindspore.networks import Networks
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter, need_states
from opbuild.mindspore.tensor import Tensor
from opbuild.version import __version__

__all__ = [
    "get_grad", "grad", "jit", "jit_class", "ms_function", "mutable", "run_check", "value_and_grad",
]  # fmt: skip
_MOST = 64
"""Functions that one ``GradOperation`` remembers."""


def state_of(function: Callable[..., Any]) -> Any:
    """Return the parts and flags of a cell, or of those that a function reads from around it."""
    return function._state() if isinstance(function, Cell) else tuple(cell._state() for cell in _cells(function))


def _cells(function: Callable[..., Any]) -> list[Cell]:
    """Return the cells that a function reads from around it, whose flags decide its network."""
    inner = getattr(function, "__wrapped__", function)
    held = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or () if _is_set(cell)]
    code = getattr(inner, "__code__", None)
    space = getattr(inner, "__globals__", {})
    held += [space[name] for name in (code.co_names if code else ()) if name in space]
    held.append(getattr(inner, "__self__", None))
    return [each for each in held if isinstance(each, Cell)]


def _is_set(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def value_and_grad(fn: Callable[..., Any], grad_position: int | Sequence[int] | None = 0,
                   weights: Any = None, has_aux: bool = False,
                   return_ids: bool = False) -> Callable[..., Any]:  # fmt: skip
    """Return a function that returns the results of ``fn``, and gradients of the sum of all their elements.

    Args:
        fn: A function of tensors, or a cell. What it computes is traced in both modes: its Python runs once for each
            signature.
        grad_position: Which arguments to differentiate by, one or several; None for none.
        weights: Parameters to differentiate by: a list, a ``ParameterTuple``, or one.
        has_aux: Whether results behind the first one are only passed on: nothing flows back through them.
        return_ids: Whether each gradient comes as a pair with its position, or with its parameter's name, before it.

    Returns:
        A function that returns ``(result, gradients)``: a tensor for one position or one parameter, a tuple for
        several, and ``(of positions, of weights)`` where both are asked for.
    """
    if grad_position is None and weights is None:
        raise ArgumentValueError("grad was given neither a grad_position nor weights", "give one of them")
    differentiated = _Differentiated(fn, grad_position, weights, has_aux, return_ids)
    networks = Networks(getattr(fn, "__name__", type(fn).__name__), differentiated, has_states=True)

    @functools.wraps(fn.construct if isinstance(fn, Cell) else fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return differentiated(*args, **kwargs)
        state = state_of(fn)
        return networks.call(args, kwargs, state)

    return call


def grad(fn: Callable[..., Any], grad_position: int | Sequence[int] | None = 0, weights: Any = None,
         has_aux: bool = False, return_ids: bool = False) -> Callable[..., Any]:  # fmt: skip
    """Return ``value_and_grad`` without the value; with ``has_aux`` the results behind the first one stay."""
    both = value_and_grad(fn, grad_position, weights, has_aux, return_ids)

    @functools.wraps(both)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1:]) if has_aux else gradients

    return call


class GradOperation:
    """Makes functions that return gradients; ``grad`` is its younger form.

    Args:
        get_all: Whether to differentiate by all arguments; else by the first one.
        get_by_list: Whether to differentiate by parameters: instead of the first argument, or beside all.
        sens_param: Whether the last argument of the functions is what the result's gradient is: a tensor, or one for
            each result.
    """

    def __init__(self, get_all: bool = False, get_by_list: bool = False, sens_param: bool = False) -> None:
        for name, value in (("get_all", get_all), ("get_by_list", get_by_list), ("sens_param", sens_param)):
            if not isinstance(value, bool):
                raise ArgumentTypeError(f"{name} of GradOperation is {value!r}", "give True or False")
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param
        self._made: OrderedDict[Hashable, tuple[Any, Callable[..., Any]]] = OrderedDict()

    def __call__(self, fn: Callable[..., Any], weights: Any = None) -> Callable[..., Any]:
        """Return the function that returns gradients of ``fn``.

        Args:
            fn: A function of tensors, or a cell.
            weights: The parameters, with ``get_by_list``; default: those of the cell that can be trained.
        """
        if self.get_by_list and weights is None:
            if not isinstance(fn, Cell):
                raise ArgumentTypeError("GradOperation was given no weights", "give cell.trainable_params()")
            weights = fn.trainable_params()

        def call(*args: Any) -> Any:
            return self._function(fn, weights, len(args) - self.sens_param)(*args)

        return call

    def _function(self, fn: Callable[..., Any], weights: Any, count: int) -> Callable[..., Any]:
        """Return ``grad`` of a function of so many arguments; the same again for the same, which is built once."""
        listed = () if not self.get_by_list else (weights,) if isinstance(weights, Parameter) else tuple(weights)
        key = (id(fn), tuple(map(id, listed)), count)
        if key not in self._made:
            position = tuple(range(count)) if self.get_all else None if self.get_by_list else 0
            given = _weighted(fn) if self.sens_param else fn
            self._made[key] = fn, grad(given, position, weights if self.get_by_list else None)
            if len(self._made) > _MOST:
                self._made.popitem(last=False)
        return self._made[key][1]


def _weighted(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function whose last argument is the gradient of the results: they are multiplied by it."""

    def weighted(*args: Any) -> Any:
        result = fn(*args[:-1])
        if isinstance(result, (tuple, list)):
            return tuple(ops.mul(each, ops.stop_gradient(sens)) for each, sens in zip(result, args[-1], strict=True))
        return ops.mul(result, ops.stop_gradient(args[-1]))

    return weighted if isinstance(fn, Cell) else functools.wraps(fn)(weighted)


def get_grad(gradients: Any, identifier: Any) -> Tensor:
    """Return one of the gradients that ``grad`` with ``return_ids`` gave.

    Args:
        gradients: What it gave.
        identifier: The position of an argument, or a parameter.
    """
    wanted = identifier.name if isinstance(identifier, Parameter) else identifier
    for key, gradient in _pairs(gradients):
        if key == wanted:
            return gradient
    raise ArgumentValueError(f"get_grad was asked for {wanted!r}, which is not there", "give grad return_ids=True")


def _pairs(gradients: Any) -> Iterator[tuple[Any, Tensor]]:
    if isinstance(gradients, tuple) and len(gradients) == 2 and isinstance(gradients[0], (int, str)):
        yield gradients[0], gradients[1]
    elif isinstance(gradients, tuple):
        for each in gradients:
            yield from _pairs(each)


class _Differentiated:
    """The function that is traced: the function itself, and behind it the gradients."""

    def __init__(
        self, fn: Callable[..., Any], position: int | Sequence[int] | None, weights: Any, has_aux: bool, has_ids: bool
    ) -> None:
        self._fn, self._has_aux, self._has_ids = fn, has_aux, has_ids
        self._is_one = isinstance(position, int), isinstance(weights, Parameter)
        self._positions = () if position is None else (position,) if isinstance(position, int) else tuple(position)
        self._weights = () if weights is None else (weights,) if isinstance(weights, Parameter) else tuple(weights)
        self._by = position is not None, weights is not None
        if not all(isinstance(each, Parameter) for each in self._weights):
            raise ArgumentTypeError("the weights of grad are no parameters", "give cell.trainable_params()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        states = need_states()
        trace = states.trace
        given = list(args)
        for position in self._positions:
            if not -len(args) <= position < len(args) or not isinstance(args[position], Tensor):
                raise ArgumentTypeError(f"grad by argument {position}, which is no tensor")
            given[position] = emit("Identity", args[position])  # two arguments may be one value
        wanted = [symbol_of(trace, given[position]) for position in self._positions]
        wanted += [states.read(parameter) for parameter in self._weights]
        start = len(trace.nodes)
        result = self._fn(*given, **kwargs)
        return result, self._gradients(trace, start, result, wanted)

    def _gradients(self, trace: Trace, start: int, result: Any, wanted: Sequence[Any]) -> Any:
        from opbuild.frontend.cell import record_gradients

        results = result if isinstance(result, (tuple, list)) else (result,)
        outputs = [each for each in results[: 1 if self._has_aux else None] if isinstance(each, Tensor)]
        if not outputs:
            raise ArgumentTypeError(f"grad of a function that returns a {type(results[0]).__name__}")
        symbols = [symbol_of(trace, each) for each in outputs]
        found: list[Any] = [Tensor.of(each) for each in record_gradients(trace, start, symbols, wanted)]
        if self._has_ids:
            names = (*self._positions, *(each.name for each in self._weights))
            found = list(zip(names, found, strict=True))
        count = len(self._positions)
        inputs: Any = found[0] if self._is_one[0] else tuple(found[:count])
        weights: Any = found[count] if self._is_one[1] else tuple(found[count:])
        return (inputs, weights) if all(self._by) else inputs if self._by[0] else weights


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


def run_check() -> None:
    """Multiply two tensors and print whether the product is right."""
    print(f"opbuild version: {__version__}")
    try:
        product = ops.Mul()(Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0])).asnumpy().tolist()
    except OpbuildError as error:
        print(f"opbuild running check failed.\n{error}")
        return
    if product == [4.0, 10.0, 18.0]:
        print("The result of multiplication calculation is correct, opbuild has been installed on platform "
              f"[{get_context('device_target')}] successfully!")  # fmt: skip
    else:
        print(f"opbuild running check failed.\nThe result of multiplication is {product}, not [4.0, 10.0, 18.0].")
