"""Calls of kernels on a GPU: the parameters of all of them, packed at once, and calls that are replayed as one graph.

A call launched by itself takes some microseconds of the host, often more than the GPU takes for it. So calls that
follow each other are recorded as a graph when they are made again with the same numbers, and the graph is one launch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from opbuild.errors import LinkError, RunError
from opbuild.graph.types import Array
from opbuild.platform.finalizers import Finalizer
from opbuild.runtime.devices.cuda.code import ADDRESS, EXTENT, CudaKernel
from opbuild.runtime.devices.cuda.context import Context
from opbuild.runtime.devices.cuda.driver import DriverError
from opbuild.runtime.devices.device import KernelCalls, Step

_LARGEST = 2**31 - 1
"""The largest extent that a kernel is given, and the most programs along the first axis."""
_MOST = np.array([_LARGEST, 65_535, 65_535])
_ALIGNMENT = 64
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: memory may be made and given back meanwhile


class Parameters:
    """The numbers with which kernels are launched: a row of each argument, and of each factor of a grid.

    Args:
        kernels: The kernels.
        calls: Their calls.

    Attributes:
        at: For each call the address of the addresses of its parameters.
        grids: For each the extents of its grid.
    """

    def __init__(self, kernels: Sequence[CudaKernel], calls: KernelCalls) -> None:
        called, starts = calls.called, calls.ends - np.diff(calls.ends, prepend=0)
        rows, call = _rows([each.launch.arguments for each in kernels], called)
        kind, operand, dim, offset = rows.T
        tiles, tiled = _rows([each.launch.tiles for each in kernels], called)
        for number, which, dims in ((call, operand, np.where(kind == ADDRESS, -1, dim)), (tiled, *tiles.T[1:3])):
            _refuse_others(kernels, calls, number, which, dims)
        sizes = np.array([-(-each.launch.nbytes // _ALIGNMENT) * _ALIGNMENT for each in kernels], np.int64)[called]
        blocks = sizes.cumsum() - sizes
        self._bytes = np.zeros(int(sizes.sum()) + _ALIGNMENT, np.uint8)
        begin = -self._bytes.ctypes.data % _ALIGNMENT
        self._words = self._bytes[begin : begin + int(sizes.sum())].view(np.int64)
        self._halves = self._words.view(np.int32)
        places, argument = blocks[call] + offset, starts[call] + operand
        # extents and strides are numbered by the dimensions of all operands
        pair = calls.dims.first[calls.shape[argument]] + dim
        is_address, is_extent = kind == ADDRESS, kind == EXTENT
        is_stride = ~(is_address | is_extent)
        self._addresses = places[is_address] // 8, argument[is_address]
        self._strides = places[is_stride] // 8, pair[is_stride]
        self._extents = places[is_extent] // 4, pair[is_extent], call[is_extent]
        self._tiles = tiled, tiles[:, 0], calls.dims.first[calls.shape[starts[tiled] + tiles[:, 1]]] + tiles[:, 2]
        self._tile_sizes = tiles[:, 3]
        counts = np.array([len(each.launch.offsets) for each in kernels], np.int64)[called]
        offsets, owner = _rows([each.launch.offsets[:, np.newaxis] for each in kernels], called)
        self._pointers = (self._words.ctypes.data + blocks[owner] + offsets[:, 0]).astype(np.uint64)
        self.at = (self._pointers.ctypes.data + 8 * (counts.cumsum() - counts)).tolist()
        self._names = [kernels[kind].symbol for kind in called.tolist()]
        self.grids: list[tuple[int, int, int]] = []

    def fill(self, addresses: Array, pairs: Array) -> bool:
        """Write the numbers of a size; return whether they are others than those before.

        Raises:
            RunError: If a kernel cannot be launched with them.
        """
        place, number, call = self._extents
        extents = pairs[number, 0]
        self._refuse(call, extents > _LARGEST, "extents of at most 2,147,483,647")
        grids = np.ones((len(self._names), len(_MOST)))
        call, axis, number = self._tiles
        np.multiply.at(grids, (call, axis), -(-pairs[number, 0] // self._tile_sizes))
        self._refuse(
            np.arange(len(grids)), (grids > _MOST).any(1), "grids of at most 2,147,483,647 x 65,535 x 65,535 tiles"
        )
        before = self._words.tobytes(), self.grids
        self._halves[place] = extents
        place, number = self._strides
        self._words[place] = pairs[number, 1]
        place, number = self._addresses
        self._words[place] = addresses[number]
        self.grids = [(x, y, z) for x, y, z in grids.astype(np.int64).tolist()]
        return before != (self._words.tobytes(), self.grids)

    def _refuse(self, call: Array, is_wrong: Any, what: str) -> None:
        wrong = np.flatnonzero(is_wrong)
        if len(wrong):
            name = self._names[int(call[wrong[0]])]
            raise RunError(f"kernel {name} is for {what} on the GPU", "give smaller inputs, or run it on the CPU")


def _rows(tables: Sequence[Array], called: Array) -> tuple[Array, Array]:
    """Return the rows of each call's kernel, one call after the other, and for each row its call."""
    lengths = np.array([*map(len, tables)], np.int64)
    counts = lengths[called]
    call = np.repeat(np.arange(len(called)), counts)
    within = np.arange(len(call)) - (counts.cumsum() - counts)[call]
    return np.concatenate(tables)[(lengths.cumsum() - lengths)[called][call] + within], call


def _refuse_others(kernels: Sequence[CudaKernel], calls: KernelCalls, call: Array, operand: Array, dim: Array) -> None:
    """Refuse rows that name operands or dimensions that their calls do not have."""
    counts = np.diff(calls.ends, prepend=0)
    is_wrong = operand >= counts[call]
    argument = np.where(is_wrong, 0, (calls.ends - counts)[call] + operand)
    wrong = np.flatnonzero(is_wrong | (dim >= calls.dims.rank[calls.shape[argument]]))
    if len(wrong):
        name = kernels[int(calls.called[call[wrong[0]]])].symbol
        raise LinkError(f"kernel {name} is launched with operands that its calls lack", "build the network again")


class Launcher:
    """Launches calls one by one.

    Args:
        context: Where.
        calls: The calls.
    """

    def __init__(self, context: Context, calls: KernelCalls) -> None:
        self.context = context
        kernels: list[CudaKernel] = [each.function for each in calls.callees]
        self.parameters = Parameters(kernels, calls)
        self._kernels = [kernels[kind] for kind in calls.called.tolist()]

    def launch(self, number: int) -> None:
        """Have a call served behind all that was asked for before.

        Raises:
            RunError: If it cannot be.
        """
        self.context.enter()
        self.put(number, self.context.stream)

    def put(self, number: int, stream: int) -> None:
        """Launch a call on a stream; none where there is nothing to compute."""
        x, y, z = self.parameters.grids[number]
        if not (x and y and z):
            return
        kernel = self._kernels[number]
        threads, shared = kernel.launch.threads, kernel.launch.shared
        self.context.asked.append(kernel.symbol)
        self.context.call(
            "cuLaunchKernel", kernel.function, x, y, z, threads, 1, 1, shared, stream, self.parameters.at[number], None,
            doing=f"kernel {kernel.symbol} cannot be launched",
        )  # fmt: skip

    def names(self, numbers: Sequence[int]) -> list[str]:
        """Return the kernels of some calls."""
        return [self._kernels[number].symbol for number in numbers]


class Replay:
    """Calls one after the other: launched one by one, and from the second time at the same numbers as a graph.

    Args:
        launcher: Launches them.
        calls: Which they are.
    """

    def __init__(self, launcher: Launcher, calls: Sequence[int]) -> None:
        self._launcher, self._calls, self._names = launcher, calls, launcher.names(calls)
        self._graph: _Recording | None = None
        self._is_known = self._is_refused = False

    def forget(self) -> None:
        """Let go of the graph: the numbers are others."""
        self._graph, self._is_known = None, False

    def run(self) -> None:
        """Have the calls served behind all that was asked for before.

        Raises:
            RunError: If one cannot be.
        """
        context = self._launcher.context
        context.enter()
        if self._graph is None and self._is_known and not self._is_refused:
            self._graph = self._recorded(context)
            self._is_refused = self._graph is None
        if self._graph is not None:
            context.asked.extend(self._names)
            context.call("cuGraphLaunch", self._graph.handle, context.stream, doing="calls cannot be replayed")
            return
        for number in self._calls:
            self._launcher.put(number, context.stream)
        self._is_known = True

    def _recorded(self, context: Context) -> _Recording | None:
        """Return the calls as a graph; None if the driver makes none of them: then they are launched one by one.

        They are recorded on a stream of their own: what other threads ask for meanwhile is no part of it.
        """
        with context.is_recorded:
            try:
                return _Recording(context, self._launcher, self._calls)
            except DriverError as error:
                if error.is_fatal:
                    raise
                return None


class _Recording:
    """Calls that are recorded as a graph; it goes with this object.

    Attributes:
        handle: The driver's, of what is launched.
    """

    def __init__(self, context: Context, launcher: Launcher, numbers: Sequence[int]) -> None:
        context.call("cuStreamBeginCapture_v2", context.recording, _RELAXED)
        graph = ctypes.c_void_p()
        recorded = Finalizer(self, partial(context.driver.functions["cuGraphDestroy"], graph))
        try:
            for number in numbers:
                launcher.put(number, context.recording)
        finally:
            code = context.driver.functions["cuStreamEndCapture"](context.recording, ctypes.byref(graph))
            if not graph:
                recorded.detach()
        if code:
            raise context.error("cuStreamEndCapture", code)
        self.handle = context.handle("cuGraphInstantiateWithFlags", graph, 0)
        recorded.run()
        context.give_back(self, "cuGraphExecDestroy", self.handle)


class CudaCalls:
    """Calls of kernels and their parameters; see ``devices.Prepared``.

    Args:
        context: Where they run.
        calls: The calls.

    Attributes:
        steps: What is called, in order.
    """

    def __init__(self, context: Context, calls: KernelCalls) -> None:
        self._launcher = Launcher(context, calls)
        self.steps: list[Step] = [(self._launcher.launch, (number,)) for number in range(len(calls.called))]
        self._replays: dict[Sequence[int], Replay] = {}

    def fill(self, addresses: Array, pairs: Array, /) -> None:
        """Write the numbers of a size.

        Raises:
            RunError: If a kernel cannot be launched with them.
        """
        if self._launcher.parameters.fill(addresses, pairs):
            for each in self._replays.values():
                each.forget()

    def join(self, numbers: Sequence[int], /) -> Step:
        """Return the step that makes some calls in their order, the same one each time."""
        calls = tuple(numbers)
        if calls not in self._replays:
            self._replays[calls] = Replay(self._launcher, calls)
        return self._replays[calls].run, ()
