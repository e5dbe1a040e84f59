"""Indexing: ``x[...]`` with integers, slices, ``...``, ``None`` and tensors of indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.frontend.cell import current, location
from opbuild.mindspore import ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.shaping import cut, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


def get_item(tensor: Tensor, index: Any) -> Tensor:
    """Return the part of a tensor that an index names; a view where the data are at hand.

    Raises:
        IndexError: If an integer is out of range.
        ArgumentTypeError, ArgumentValueError: If the index is of a kind that is not supported.
    """
    if current() is None:
        array = tensor.asnumpy()[_concrete(index)]
        return Tensor.of(np.asarray(array))
    return _Reader(tensor).read(index if isinstance(index, tuple) else (index,))


def set_item(tensor: Tensor, index: Any, value: Any) -> None:
    """Replace the part of a tensor that an index names.

    Raises:
        InvalidModelError: While a cell is traced: traced values have no places to change.
    """
    if current() is not None:
        raise InvalidModelError(
            f"construct assigns to a part of a tensor{location()}",
            "select with ops.where or join parts with ops.concat; traced tensors cannot be changed",
        )
    array = tensor.asnumpy()
    if not array.flags.writeable:
        array = array.copy()
        tensor._value = array
    array[_concrete(index)] = value.asnumpy() if isinstance(value, Tensor) else value
    if isinstance(tensor, Parameter):
        tensor.version += 1


def _concrete(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_concrete(item) for item in index)
    if isinstance(index, Tensor):
        return index.asnumpy()
    if isinstance(index, slice):
        return slice(*(_bound(item) for item in (index.start, index.stop, index.step)))
    return index


def _bound(value: Any) -> int | None:
    return None if value is None else int(value)


class _Reader:
    """Reads one index of a traced tensor: slices first, then indices, then the axes that go and come."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.bounds: list[tuple[int, int, int, int]] = []  # axis, start, end, step
        self.advanced: list[tuple[int, Tensor]] = []
        self.dropped: set[int] = set()
        self.added: list[int] = []  # places among the source's axes before which an axis of extent 1 comes

    def read(self, items: tuple[Any, ...]) -> Tensor:
        axis = 0
        for item in self._expanded(items):
            if item is None:
                self.added.append(axis)
            else:
                self._take(axis, item)
                axis += 1
        tensor = self.tensor
        if self.bounds:
            axes, starts, ends, steps = (list(column) for column in zip(*self.bounds, strict=True))
            tensor = cut(tensor, starts, ends, axes, steps)
        if self.advanced:
            return self._gathered(tensor)
        shape: list[int] = []
        for place in range(tensor.ndim + 1):
            shape.extend([1] * self.added.count(place))
            if place < tensor.ndim and place not in self.dropped:
                shape.append(tensor.shape[place])
        return reshaped(tensor, tuple(shape))

    def _expanded(self, items: tuple[Any, ...]) -> list[Any]:
        used = sum(item is not None and item is not Ellipsis for item in items)
        if used > self.tensor.ndim:
            raise ArgumentValueError(
                f"{used} indices of a tensor of shape {self.tensor.shape}{location()}", "give fewer"
            )
        rest = [slice(None)] * (self.tensor.ndim - used)
        if not any(item is Ellipsis for item in items):
            return [*items, *rest]
        place = next(index for index, item in enumerate(items) if item is Ellipsis)
        return [*items[:place], *rest, *items[place + 1 :]]

    def _take(self, axis: int, item: Any) -> None:
        extent = self.tensor.shape[axis]
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not -extent <= item < extent:
                raise IndexError(f"index {item} of axis {axis} of size {extent}{location()}")
            start = int(item) % extent
            self.bounds.append((axis, start, start + 1, 1))
            self.dropped.add(axis)
        elif isinstance(item, slice):
            start, stop, step = slice(*(_bound(part) for part in (item.start, item.stop, item.step))).indices(extent)
            if (start, stop, step) != (0, extent, 1):
                self.bounds.append((axis, start, stop if stop >= 0 else -(2**31), step))
        elif isinstance(item, (Tensor, list, np.ndarray)):
            self.advanced.append((axis, self._indices(item)))
        else:
            raise ArgumentTypeError(
                f"an index of type {type(item).__name__}{location()}",
                "use integers, slices, ..., None or tensors of indices",
            )

    def _indices(self, item: Any) -> Tensor:
        indices = item if isinstance(item, Tensor) else Tensor(np.asarray(item))
        if indices.type.dtype == "bool":
            if indices.symbol is not None:
                raise InvalidModelError(
                    f"construct selects by a mask that is computed{location()}",
                    "how many elements it selects is not known when the network is built: "
                    "use ops.where or ops.masked_fill",
                )
            (places,) = np.nonzero(indices.asnumpy())
            return Tensor.of(places)
        return indices

    def _gathered(self, tensor: Tensor) -> Tensor:
        axes = [axis for axis, _ in self.advanced]
        if (
            self.added
            or (self.dropped and axes[0] > min(self.dropped))
            or axes != list(range(axes[0], axes[0] + len(axes)))
        ):
            raise ArgumentValueError(
                f"an index that mixes tensors with None or integers{location()}", "index in two steps"
            )
        if self.dropped:
            kept = [extent for axis, extent in enumerate(tensor.shape) if axis not in self.dropped]
            tensor = reshaped(tensor, tuple(kept))
        if len(axes) == 1:
            return ops.gather(tensor, self.advanced[0][1], axes[0])
        if axes[0] != 0:
            raise ArgumentValueError(
                f"several tensors that index axes {axes}{location()}", "transpose these axes to the front"
            )
        shape = np.broadcast_shapes(*(indices.shape for _, indices in self.advanced))
        columns = [ops.broadcast_to(emit("Cast", indices, to=7), shape) for _, indices in self.advanced]
        return ops.gather_nd(tensor, ops.stack(columns, len(shape)))
