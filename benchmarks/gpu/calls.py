"""Calls of the kernels: grids and arguments for tensors of any size, without saying who launches them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from cases import ALIGNED, CASES

ITEM_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "i32": 4, "i64": 8}


@dataclass(frozen=True)
class Tensor:
    """Memory of a device as an array.

    Attributes:
        pointer: Address of the first element.
        shape: Extents.
        element: ``fp16``, ``bf16``, ``fp32``, ``i32`` or ``i64``.
        strides: In elements; those of a dense array if not given.
    """

    pointer: int
    shape: tuple[int, ...]
    element: str
    strides: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.strides:
            dense = tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))
            object.__setattr__(self, "strides", dense)

    @cached_property
    def size(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self.element]

    def part(self, offset: int, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Return a view from an element on."""
        return Tensor(self.pointer + offset * self.item, tuple(shape), self.element, tuple(strides))


@dataclass(frozen=True)
class Call:
    """One launch.

    Attributes:
        name: The binary.
        grid: Programs along three axes; 0 where there is nothing to do.
        arguments: By name: tensors for pointers and tensor maps, and numbers.
    """

    name: str
    grid: tuple[int, int, int]
    arguments: dict[str, Any]

    def __post_init__(self) -> None:
        for argument in CASES[self.name].aligned:
            value = self.arguments[argument]
            at = value.pointer if isinstance(value, Tensor) else value
            if at % ALIGNED:
                raise ValueError(f"{self.name}: {argument} is {at}, which is no multiple of {ALIGNED}")


def _blocks(extent: int, block: int) -> int:
    return -(-extent // block)


def _two(tensor: Tensor) -> tuple[int, int]:
    """Return the rows of a matrix and their stride."""
    if len(tensor.shape) != 2 or (tensor.shape[1] > 1 and tensor.strides[1] != 1):
        raise ValueError(f"no matrix with its rows' elements side by side: {tensor}")
    return tensor.shape[0], tensor.strides[0]


def matmul(name: str, a: Tensor, b: Tensor, bias: Tensor, out: Tensor) -> Call:
    """Return ``out[m, n] = activation(a[m, k] @ b[k, n] + bias[n])``; with tensor maps ``b`` is ``[n, k]``."""
    constants = CASES[name].constants
    (m, k), n = a.shape, out.shape[1]
    tiles = _blocks(m, constants["BLOCK_M"]) * _blocks(n, constants["BLOCK_N"])
    arguments = {"a": a, "b": b, "bias": bias, "out": out, "m": m, "n": n, "k": k}
    if "PROGRAMS" in constants:
        return Call(name, (min(tiles, constants["PROGRAMS"]), 1, 1), arguments)
    strides = {f"{x}_stride": _two(tensor)[1] for x, tensor in (("a", a), ("b", b), ("out", out))}
    return Call(name, (tiles, 1, 1), {**arguments, **strides})


def softmax(name: str, x: Tensor, out: Tensor) -> Call:
    """Return the softmax of each row."""
    (rows, x_stride), (_, out_stride), columns = _two(x), _two(out), x.shape[1]
    arguments = {"x": x, "out": out, "columns": columns, "x_stride": x_stride, "out_stride": out_stride}
    return Call(name, (rows if columns else 0, 1, 1), arguments)


def add_layer_norm(
    name: str, x: Tensor, other: Tensor, scale: Tensor, bias: Tensor, out: Tensor, epsilon: float
) -> Call:
    """Return the layer normalization of each row of a sum."""
    (rows, x_stride), (_, other_stride), (_, out_stride), columns = _two(x), _two(other), _two(out), x.shape[1]
    if columns > CASES[name].constants["BLOCK"]:
        raise ValueError(f"{name}: rows of {columns} elements are longer than a block")
    arguments = {
        "x": x, "other": other, "scale": scale, "bias": bias, "out": out, "columns": columns, "x_stride": x_stride,
        "other_stride": other_stride, "out_stride": out_stride, "epsilon": epsilon,
    }  # fmt: skip
    return Call(name, (rows if columns else 0, 1, 1), arguments)


def multiply_add(name: str, a: Tensor, b: Tensor, c: Tensor, out: Tensor) -> Call:
    """Return ``out = a * b + c`` over three axes; operands of extent 1 are broadcast."""
    strides = {
        f"{letter}{axis}": 0 if tensor.shape[axis] == 1 else tensor.strides[axis]
        for letter, tensor in (("a", a), ("b", b), ("c", c), ("out", out))
        for axis in range(3)
    }
    arguments = {"a": a, "b": b, "c": c, "out": out, "d1": out.shape[1], "d2": out.shape[2], "size": out.size}
    return Call(name, (_blocks(out.size, CASES[name].constants["BLOCK"]), 1, 1), {**arguments, **strides})


def reduce_sum(name: str, x: Tensor, out: Tensor) -> Call:
    """Return the sum of each row."""
    rows, x_stride = _two(x)
    return Call(name, (rows, 1, 1), {"x": x, "out": out, "columns": x.shape[1], "x_stride": x_stride})


def attention(name: str, q: Tensor, k: Tensor, v: Tensor, out: Tensor, scale: float) -> Call:
    """Return attention of tensors ``[batch, heads, rows, features]``."""
    batch, heads, queries, width = q.shape
    constants = CASES[name].constants
    if width != constants["WIDTH"]:
        raise ValueError(f"{name}: heads of {width} features")
    strides = {
        f"{letter}_{axis}": tensor.strides[i]
        for letter, tensor in (("q", q), ("k", k), ("v", v), ("out", out))
        for i, axis in enumerate(("batch", "head", "row"))
    }
    arguments = {
        "q": q, "k": k, "v": v, "out": out, "scale": scale, "heads": heads, "queries": queries, "keys": k.shape[2],
    }  # fmt: skip
    return Call(name, (_blocks(queries, constants["BLOCK_Q"]), batch * heads, 1), {**arguments, **strides})


def gather(name: str, table: Tensor, indices: Tensor, out: Tensor, fault: Tensor) -> Call:
    """Return rows of a table by their indices."""
    (rows, table_stride), (count, out_stride), columns = _two(table), _two(out), table.shape[1]
    arguments = {
        "table": table, "indices": indices, "out": out, "fault": fault, "rows": rows, "columns": columns,
        "table_stride": table_stride, "out_stride": out_stride,
    }  # fmt: skip
    return Call(name, (count, _blocks(columns, CASES[name].constants["BLOCK"]), 1), arguments)


CALLS: dict[str, Callable[..., Call]] = {
    "matmul": matmul,
    "matmul_tma": matmul,
    "softmax": softmax,
    "add_layer_norm": add_layer_norm,
    "multiply_add": multiply_add,
    "reduce_sum": reduce_sum,
    "attention": attention,
    "gather": gather,
}
"""By kernel."""
