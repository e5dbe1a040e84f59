"""Operators that are no arithmetic: assignment and marks, those of all ranks, functions of functions, own gradients."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbuild.dtypes import is_float
from opbuild.errors import DTypeError, ShapeError
from opbuild.frontend.cell import Symbol, Trace, current
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import COLLECTIVES, Node
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, TensorTypeError, one_of
from opbuild.mindspore.communication import GlobalComm, check_group, get_group_size
from opbuild.mindspore.dtype import Type
from opbuild.mindspore.execution import cast, emit, symbol_of
from opbuild.mindspore.ops.arithmetic import add, sub
from opbuild.mindspore.ops.arranging import replaced
from opbuild.mindspore.ops.declaration import Primitive, formula, need_tensor, of_tensor, primitive
from opbuild.mindspore.ops.shaping import zeros_like
from opbuild.mindspore.tensor import Tensor


def assign(variable: Any, value: Any) -> Tensor:
    """Give a parameter new elements and return it."""
    given = value if isinstance(value, Tensor) else Tensor(value)
    target = need_tensor(variable, "assign")
    if given.shape != target.shape and given.size != 1:
        raise ArgumentValueError(f"assign of shape {given.shape} to shape {target.shape}", "the shapes must be equal")
    return replaced(target, cast(given, target.type.dtype), "assign")


def assign_add(variable: Any, value: Any) -> Tensor:
    """Add to the elements of a parameter and return it."""
    return replaced(variable, add(variable, value), "assign_add")


def assign_sub(variable: Any, value: Any) -> Tensor:
    """Subtract from the elements of a parameter and return it."""
    return replaced(variable, sub(variable, value), "assign_sub")


def print_(*operands: Any) -> None:
    """Print each operand on a line of its own, when the network runs."""
    for operand in operands:
        print(repr(operand) if isinstance(operand, Tensor) else operand)


class ReduceOp:
    """The reductions of ``AllReduce`` and ``ReduceScatter``."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"


_REDUCTIONS = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD)


def _together(kind: str, tensor: Any, **attributes: Any) -> Tensor:
    """Record an operator of all ranks if a trace is active in this thread, else run it."""
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"{kind} was given a {type(tensor).__name__}", "give a Tensor")
    attributes["ranks"] = get_group_size()
    if current() is not None:
        return emit(kind, tensor, domain=COLLECTIVES, **attributes)
    from opbuild.ranks.world import run

    array = tensor.asnumpy()
    try:
        infer_node(Node(kind, ("x",), ("y",), attributes, kind, COLLECTIVES), [tensor.type], [None])
    except ShapeError as error:
        raise TensorShapeError(error.message, error.hint) from None
    except DTypeError as error:
        raise TensorTypeError(error.message, error.hint) from None
    del attributes["ranks"]
    return Tensor.of(run(kind, array, **attributes))


class _Collective(Primitive):
    def __init__(self, group: str, **attributes: Any) -> None:
        super().__init__()
        check_group(group)
        self.group = group
        self.attributes.update(attributes, group=group)


class _Reducing(_Collective):
    def __init__(self, op: str = ReduceOp.SUM, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__(group, op=op)
        self.op = one_of(op, _REDUCTIONS, f"the op of {self.name}")

    def __call__(self, input_x: Tensor) -> Tensor:
        """Apply the operator."""
        return _together(self.name, input_x, reduction=self.op)


class AllReduce(_Reducing):
    """The elements of all ranks' tensors combined, on every rank.

    Args:
        op: ``ReduceOp.SUM``, ``MAX``, ``MIN`` or ``PROD``.
        group: The group of all ranks.
    """


class ReduceScatter(_Reducing):
    """The elements of all ranks' tensors combined, and the first dimension divided among the ranks.

    Args:
        op: As for ``AllReduce``.
        group: The group of all ranks.
    """


class AllGather(_Collective):
    """All ranks' tensors, one after the other in the first dimension, on every rank.

    Args:
        group: The group of all ranks.
    """

    def __init__(self, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__(group)

    def __call__(self, input_x: Tensor) -> Tensor:
        """Apply the operator."""
        return _together(self.name, input_x)


class Broadcast(_Collective):
    """The tensors of one rank, on every rank.

    Args:
        root_rank: The rank whose tensors all get.
        group: The group of all ranks.
    """

    def __init__(self, root_rank: int, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__(group, root_rank=root_rank)
        if isinstance(root_rank, bool) or not isinstance(root_rank, int):
            raise ArgumentTypeError(f"the root_rank of Broadcast is {root_rank!r}", "give an integer")
        self.root_rank = root_rank

    def __call__(self, input_x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Apply the operator to each tensor of a tuple."""
        if not isinstance(input_x, (tuple, list)):
            raise ArgumentTypeError(f"Broadcast was given a {type(input_x).__name__}", "give a tuple of tensors: (x,)")
        size = get_group_size()
        if not 0 <= self.root_rank < size:
            raise ArgumentValueError(f"the root_rank of Broadcast is {self.root_rank}", f"it must be in [0, {size})")
        return tuple(_together(self.name, tensor, root=self.root_rank) for tensor in input_x)


_KINDS: dict[str, Any] = {
    "tensor": Tensor, "bool": bool, "number": numbers.Number, "int": int, "float": float, "string": str,
    "none": type(None), "typenone": type(None), "tuple": tuple, "list": list, "dictionary": dict, "function": Callable,
    "type": Type,
}  # fmt: skip
"""Types as ``MultitypeFuncGraph.register`` is given them, in lower case."""


def _is(value: Any, kind: str) -> bool:
    return isinstance(value, _KINDS[kind]) and not (isinstance(value, bool) and kind in ("number", "int"))


class MultitypeFuncGraph:
    """One function for each list of types of the arguments; programs register them.

    Args:
        name: Its name.
        read_value: Kept for programs that give it.
    """

    def __init__(self, name: str, read_value: bool = False) -> None:
        self.name = name
        self._entries: list[tuple[tuple[str, ...], Callable[..., Any]]] = []

    def register(self, *type_names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that makes a function the one for these types: ``Tensor``, ``Number``, ``Tuple``, ..."""
        kinds = tuple(str(getattr(name, "__name__", name)).lower().removeprefix("mindspore.") for name in type_names)
        for kind in kinds:
            if kind not in _KINDS:
                raise ArgumentValueError(
                    f"{self.name} registers a function for {kind!r}", f"there are {sorted(_KINDS)}"
                )

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self._entries.append((kinds, function))
            return function

        return register

    def __call__(self, *args: Any) -> Any:
        """Call the first function that is registered for the types of the arguments."""
        for kinds, function in self._entries:
            if len(kinds) == len(args) and all(map(_is, args, kinds)):
                return function(*args)
        given = ", ".join(type(arg).__name__ for arg in args)
        raise ArgumentTypeError(f"{self.name} has no function for ({given})", "register one")


class _Mapping:
    """Applies a function, else the first argument of a call, to the items of sequences, those of one place together."""

    _goes_deep = False

    def __init__(self, ops: Callable[..., Any] | None = None, reverse: bool = False) -> None:
        self.ops, self.reverse = ops, reverse

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results; the sequences must be equally long."""
        function, given = (args[0], args[1:]) if self.ops is None else (self.ops, args)
        result: tuple[Any, ...] = self._applied(function, given)
        return result

    def _applied(self, function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        lengths = {len(each) for each in given}
        if len(lengths) != 1:
            raise ArgumentValueError(f"{type(self).__name__} was given sequences of {sorted(lengths)} items",
                                     "they must be equally long")  # fmt: skip
        places = range(lengths.pop())
        found = {place: self._one(function, [each[place] for each in given])
                 for place in (reversed(places) if self.reverse else places)}  # fmt: skip
        return tuple(found[place] for place in places)

    def _one(self, function: Callable[..., Any], items: list[Any]) -> Any:
        if self._goes_deep and all(isinstance(item, (tuple, list)) for item in items):
            return self._applied(function, tuple(items))
        return function(*items)


class Map(_Mapping):
    """Applies a function to the items of sequences."""


class HyperMap(_Mapping):
    """Applies a function to the items of sequences, and of sequences in them."""

    _goes_deep = True


def partial(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return the function with its first arguments given."""
    return functools.partial(function, *args, **kwargs)


class Partial(Primitive):
    """Gives a function its first arguments."""

    def __call__(self, *operands: Any, **kwargs: Any) -> Any:
        """Return the function, the first operand, with the others given."""
        return partial(*operands, **kwargs)


def with_own_gradient(
    trace: Trace, cell: Any, construct: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return the results of ``construct``, through which only the gradients of the cell's ``bprop`` flow back."""
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


Print = primitive(print_, "Prints each operand on a line of its own, when the network runs.")
depend = formula("``value``; ``expr`` was computed before, since Python runs in order", lambda value, expr: value)
stop_gradient = formula("the tensor, through which no gradient flows back",
    of_tensor(lambda value: emit("Identity", value, stop_gradient=1) if current() is not None else value))  # fmt: skip

names.export(vars(), but="with_own_gradient")
