"""Reading an FX graph of ATen's operators as a ``AtenProgram``."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from opbuild.frontend.torch.builder import FUNCTIONS, rule_of
from opbuild.frontend.torch.program import AtenProgram, AtenStep, Input, Output, Ref
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE

DTYPES: Mapping[torch.dtype, str] = {
    getattr(torch, name): name
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "bfloat16",
        "float32", "float64",
    )
}  # fmt: skip
"""The element types that are served, by numpy's names."""

_SYM_MODULES = (operator, torch)
_AS_STRIDED = torch.ops.aten.as_strided.default


def target_of(node: fx.Node) -> str:
    """Return the name by which a node's operator has its rule; empty if it can have none."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return "aten.alias.default" if target is _AS_STRIDED and _is_as_it_lies(node) else str(target)
    if target is operator.getitem:
        return "sym.getitem"
    name = getattr(target, "__name__", "")
    return f"sym.{name}" if any(getattr(module, name, None) is target for module in _SYM_MODULES) else ""


def _is_as_it_lies(node: fx.Node) -> bool:
    """Return whether a view by strides is of all elements where they lie; torch's pooling makes such ones."""
    source = node.args[0].meta["val"] if isinstance(node.args[0], fx.Node) else None
    found = node.meta["val"]
    return (
        source is not None
        and source.shape == found.shape
        and not any(isinstance(each, torch.SymInt) for each in (*found.shape, *found.stride(), *source.stride()))
        and source.storage_offset() == found.storage_offset()
        and all(a == b or e == 1 for a, b, e in zip(source.stride(), found.stride(), found.shape, strict=True))
    )


def why_not(node: fx.Node, device: str = "cpu") -> str:
    """Return the reason that an operator is left to torch; empty if it has a rule and its tensors are served.

    They are on one kind of device; a number that the graph is given, which torch has on the CPU, is read from there.
    """
    target = target_of(node)
    if target == "sym.getitem":
        source = node.args[0]
        return why_not(source, device) if isinstance(source, fx.Node) and source.op == "call_function" else "no tensor"
    if target not in FUNCTIONS and rule_of(target) is None:
        return "there is no rule for it"
    for each in (*node.all_input_nodes, node):
        for value in _leaves(each.meta.get("val")):
            is_number = each.op == "placeholder" and isinstance(value, torch.Tensor) and not value.dim()
            problem = _problem(value, "cpu" if is_number and value.device.type == "cpu" else device)
            if problem:
                return problem
    if any(user.target is _AS_STRIDED and not _is_as_it_lies(user) for user in node.users):
        return "its memory is viewed by strides"
    return ""


def _leaves(value: Any) -> Sequence[Any]:
    return [leaf for each in value for leaf in _leaves(each)] if isinstance(value, (tuple, list)) else [value]


def _problem(value: Any, device: str) -> str:
    if value is None or isinstance(value, (bool, int)):
        return ""
    if isinstance(value, (torch.SymInt, torch.SymBool)):
        return "" if hint(value) is not None else "a size that is known only at run time"
    if not isinstance(value, torch.Tensor):
        return f"a value of type {type(value).__name__}"
    if value.device.type != device:
        return f"a tensor on {value.device.type}"
    if value.layout is not torch.strided or value.is_quantized:
        return "a sparse or quantised tensor"
    if value.dtype not in DTYPES:
        return f"a tensor of {str(value.dtype).removeprefix('torch.')}"
    if any(hint(each) is None for each in value.shape):
        return "a size that is known only at run time"
    return ""


def hint(size: Any) -> int | None:
    """Return the value of a size in the example; None if it has none."""
    if isinstance(size, (torch.SymInt, torch.SymBool)):
        found = size.node.hint
        return None if found is None else int(found)
    return int(size)


def order_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return a tensor's dimensions from the outermost in memory to the innermost; as they are if it is not dense."""
    shape, strides = ([hint(each) or 0 for each in side] for side in (tensor.shape, tensor.stride()))
    plain = tuple(range(len(shape)))
    for order in (plain, tuple(sorted(plain, key=lambda axis: (-strides[axis], axis)))):
        expected = 1
        for axis in reversed(order):
            if shape[axis] != 1 and strides[axis] != expected:
                break
            expected *= shape[axis]
        else:
            return order
    return plain


def type_of(value: Any) -> TensorType | None:
    """Return the type of a node's result, -1 for open extents; None if it is no tensor."""
    if not isinstance(value, torch.Tensor):
        return None
    shape = tuple(FREE if isinstance(each, torch.SymInt) else int(each) for each in value.shape)
    return TensorType(DTYPES[value.dtype], shape)


def capture(graph: fx.Graph, name: str, frozen: Collection[str]) -> tuple[AtenProgram, tuple[Any, ...]]:
    """Return a graph as a program, and its inputs as they are in the example.

    Args:
        graph: A graph of operators for which ``why_not`` has no objection.
        name: The network's name.
        frozen: Names of the placeholders that are constants.

    Returns:
        The program, and for each of its inputs the shape in the example or the value of a size.
    """
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    places = _places(placeholders)
    inputs, examples = [], list[Any]()
    for node in placeholders:
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            kind = type_of(value)
            assert kind is not None  # noqa: S101 - it is a tensor
            is_frozen = node.name in frozen and FREE not in kind.shape
            inputs.append(Input(node.name, "frozen" if is_frozen else "tensor", kind, order_of(value)))
            examples.append(tuple(hint(each) for each in value.shape))
        else:
            place = places.get(_symbol(value))
            inputs.append(Input(node.name, "size", TensorType("uint8", ()), (), place))
            examples.append(hint(value))
    steps = tuple(_step(node) for node in graph.nodes if node.op == "call_function")
    results: Any = graph.output_node().args[0]
    outputs = []
    for node in results if isinstance(results, (tuple, list)) else (results,):
        value = node.meta["val"]
        is_tensor = isinstance(value, torch.Tensor)
        outputs.append(Output(node.name, not is_tensor, order_of(value) if is_tensor else ()))
    return AtenProgram(name, tuple(inputs), steps, tuple(outputs)), tuple(examples)


def _places(placeholders: Sequence[fx.Node]) -> dict[Any, tuple[int, int]]:
    """Return the places where symbols are extents of tensors."""
    places: dict[Any, tuple[int, int]] = {}
    for index, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            for axis, extent in enumerate(value.shape):
                if isinstance(extent, torch.SymInt):
                    places.setdefault(_symbol(extent), (index, axis))
    return places


def _symbol(value: Any) -> Any:
    return value.node.expr if isinstance(value, torch.SymInt) else value


def _step(node: fx.Node) -> AtenStep:
    value = node.meta["val"]
    types = tuple(map(type_of, value)) if isinstance(value, (tuple, list)) else (type_of(value),)
    args, kwargs = _plain(node.args), {name: _plain(each) for name, each in node.kwargs.items()}
    return AtenStep(target_of(node), node.name, args, kwargs, types)


def _plain(value: Any) -> Any:
    if isinstance(value, fx.Node):
        return Ref(value.name)
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    if isinstance(value, torch.dtype):
        return DTYPES.get(value, str(value))
    if isinstance(value, (torch.device, torch.layout, torch.memory_format)):
        return None
    return value
