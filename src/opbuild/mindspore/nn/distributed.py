"""``DistributedGradReducer``: gradients combined over the ranks of a job, many in one operator."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from opbuild.frontend.cell import current
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.communication import GlobalComm, get_group_size
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.arithmetic import mul
from opbuild.mindspore.ops.communication import AllReduce, Broadcast
from opbuild.mindspore.ops.shaping import concat, reshaped, split
from opbuild.mindspore.parallel_context import fusion, get_auto_parallel_context, is_data_parallel
from opbuild.mindspore.tensor import Tensor

BUCKET = 25 << 20
"""Bytes of gradients that go into one operator: with more of them nothing is saved, and buffers become larger."""


class DistributedGradReducer(Cell):
    """The sum, or the mean, of each gradient over all ranks.

    Gradients of one element type are joined and go through ``AllReduce`` together.

    Args:
        parameters: The parameters, in the gradients' order.
        mean: Whether to take the mean; by default as ``gradients_mean`` of ``set_auto_parallel_context`` says.
        degree: What a mean divides by; the number of ranks by default.
        fusion_type: Kept for programs that give it.
        group: The group of all ranks.
    """

    def __init__(self, parameters: Sequence[Any], mean: bool | None = None, degree: int | None = None,
                 fusion_type: int = 1, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:  # fmt: skip
        super().__init__(auto_prefix=False)
        if degree is not None and (isinstance(degree, bool) or not isinstance(degree, int) or degree < 1):
            raise ArgumentValueError(f"degree of DistributedGradReducer is {degree!r}", "give an integer from 1 on")
        self.mean = bool(get_auto_parallel_context("gradients_mean") if mean is None else mean)
        size, told = get_group_size(), get_auto_parallel_context("device_num")
        if told not in (None, size):
            raise ArgumentValueError(f"device_num is {told}", f"the job has {size} ranks: leave it out")
        self.degree = size if degree is None else degree
        self.count = len(parameters)
        self.all_reduce = AllReduce(group=group)

    def construct(self, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradients of all ranks combined, in their order."""
        if len(grads) != self.count:
            raise ArgumentTypeError(f"DistributedGradReducer was given {len(grads)} gradients", f"not {self.count}")
        reduced = dict(pair for bucket in _buckets(grads) for pair in self._together(grads, bucket))
        return tuple(reduced[place] for place in range(len(grads)))

    def _together(self, grads: Sequence[Tensor], places: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        flat = [reshaped(grads[place], (grads[place].size,)) for place in places]
        whole = self.all_reduce(concat(flat) if len(flat) > 1 else flat[0])
        if self.mean and self.degree > 1:
            whole = mul(whole, 1.0 / self.degree)
        parts = split(whole, [each.size for each in flat]) if len(flat) > 1 else [whole]
        for place, part in zip(places, parts, strict=True):
            yield place, reshaped(part, grads[place].shape)


def combining(parameters: Sequence[Any], network: Cell) -> Callable[[Any], Any]:
    """Return the step's operation on its gradients: the one that ``set_auto_parallel_context`` asks for.

    With ``parameter_broadcast`` the network gets the parameters of rank 0.
    """
    if not is_data_parallel():
        return tuple
    if get_auto_parallel_context("parameter_broadcast"):
        first = Broadcast(0)
        for parameter in network.get_parameters():
            parameter.set_data(first((parameter,))[0])
    return DistributedGradReducer(parameters)


def _buckets(grads: Sequence[Tensor]) -> list[list[int]]:
    """Return places of gradients that go together, those first that the backward pass computes first."""
    depths, (most, bounds) = _depths(grads), fusion()
    most = BUCKET if most is None else most
    open_: dict[tuple[str, int], tuple[list[int], int]] = {}
    full: list[list[int]] = []
    for place in sorted(range(len(grads)), key=lambda place: (depths[place], -place)):
        kind, size = (grads[place].type.dtype, bisect_right(bounds, place)), grads[place].nbytes
        places, held = open_.get(kind, ([], 0))
        if places and held + size > most and not bounds:
            full.append(places)
            places, held = [], 0
        open_[kind] = [*places, place], held + size
    return full + [places for places, _ in open_.values()]


def _depths(grads: Sequence[Tensor]) -> list[int]:
    """Return the least number of operators of a trace before each gradient, one behind the other."""
    trace = current()
    depths: dict[str, int] = {}
    for node in () if trace is None else trace.nodes:
        depth = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return [0 if each.symbol is None else depths.get(each.symbol.name, 0) for each in grads]


__all__ = names.public(vars(), Cell)
