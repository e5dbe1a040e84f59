"""Part: the runner in the place of operators that opbuild computes; ProgramSource: its program, for the data path."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from opbuild.api import compile_source
from opbuild.backend.evaluate import evaluate
from opbuild.errors import ChangesError, OpbuildError
from opbuild.frontend.models.declaration import Declaration, Declared
from opbuild.frontend.torch.builder import build_graph, output_sizes
from opbuild.frontend.torch.capture import DTYPES
from opbuild.frontend.torch.program import AtenProgram, Input, Output, floats_in_doubles, size_shape
from opbuild.graph.constants import array_digest
from opbuild.graph.types import MOST_ELEMENTS, Array
from opbuild.graph.types import Graph as BoundGraph
from opbuild.platform.digest import blake3_of
from opbuild.platform.locks import Lock, lazy_property
from opbuild.platform.records import replace
from opbuild.report import Clock, Report
from opbuild.runtime.binding import Shapes
from opbuild.runtime.devices.network import DeviceNetwork
from opbuild.runtime.network import Network
from opbuild.text.visible import visible
from opbuild.torch.devices import HOST
from opbuild.torch.report import Graph
from opbuild.torch.settings import Settings
from opbuild.torch.tensors import Weights, dense, to_array, to_tensor, turned_back


class ProgramSource:
    """A program with its weights; see ``pipeline.opening.Openable``.

    Args:
        program: The program.
        frozen: The values of its frozen inputs.

    Attributes:
        keeps: Whether it is for several sizes; what it is read from stays in memory anyway.
    """

    edited = False

    def __init__(self, program: AtenProgram, frozen: Sequence[Array]) -> None:
        self.program = program
        self.frozen = frozen
        self.keeps = False

    @lazy_property
    def declaration(self) -> Declaration:
        """The declaration of the network: its name, and its inputs."""
        program = self.program
        inputs = tuple(
            Declared(program.inputs[index].name, kind.dtype, kind.shape)
            for index in program.given
            for kind in (program.declared(index),)
        )
        outputs = tuple(Declared(f"y{index}", "", None) for index in program.tensors)
        return Declaration(program.name, inputs, outputs, ())

    @lazy_property
    def digest(self) -> str:
        """Digest of the program and its weights."""
        return blake3_of("\n".join((self.program.digest, *map(array_digest, self.frozen))).encode())

    def graph(self, shapes: Shapes, clock: Clock) -> BoundGraph:
        """Return the graph for the shapes of the program's inputs.

        Raises:
            ModelError: As ``build_graph``.
        """
        with clock("read"):
            return build_graph(self.program, shapes, self.frozen, evaluate)

    def forget(self) -> None:
        """Nothing is kept that the module does not have."""

    def reading(self) -> AbstractContextManager[None]:
        """Nothing is read that may change."""
        return nullcontext()


_TORCH_TYPES = {name: dtype for dtype, name in DTYPES.items()}

MOST_CHANGES = 2
"""Changes of a weight after which it is no constant any more, but read at each call."""


class Part:
    """Calls a network with torch's tensors. Any thread may call it.

    The network is built at the first call, when the weights are there. Where one of them has changed since, it is made
    again with the new ones, for which nothing is compiled; a tensor that changes again and again is read at each call.

    Args:
        program: What it computes.
        eager: Computes the same with torch.
        settings: How it is built.
        graph: Is told what becomes of it.
        was_built: Whether the same was built for one size before, and is handed over again with open ones.
        reopens: Whether the same may be handed over again with open sizes.
        tell: Told what each build did.
    """

    def __init__(
        self,
        program: AtenProgram,
        eager: Callable[..., Any],
        settings: Settings,
        graph: Graph,
        *,
        was_built: bool = False,
        reopens: bool = False,
        tell: Callable[[Report], None] = lambda _: None,
    ) -> None:
        # on a device a replacement is the call's affair: the same network computes what is not replaced
        self._updates = () if settings.device == HOST.type else program.updates
        program = program if settings.device == HOST.type else replace(program, updates=())
        self._program, self._eager, self._settings, self._graph = program, eager, settings, graph
        self._was_built, self._reopens = was_built, reopens
        self._tell = tell
        self._told: Report | None = None
        self._built_before = 0
        self._lock = Lock()
        self._weights: Weights | None = None
        self._network: Network | None = None
        self._changes: Counter[int] = Counter()
        self._sizes: dict[Any, list[int]] = {}
        self._failed = False
        self._numbers = [index for index in program.given if program.inputs[index].kind == "size"]
        self._floats = floats_in_doubles(program)
        graph.parts.append(self)

    def __call__(self, *args: Any) -> Any:
        """Run the network.

        Args:
            args: A tensor or a number for each of the program's inputs.

        A number that no tensor could have as an extent is left to torch, with all that is computed of it. So is a float
        of Python's, which comes with all its digits where torch declared float32, if they would be seen.

        Raises:
            ModelError, BuildError: If it cannot be built.
            RunError: If it fails while it runs.
        """
        if self._failed:
            return self._eager(*args)
        if self._is_out_of_range(args):
            self._note(f"{self._program.name}: torch computes calls with a number that no kernel takes exactly")
            return self._eager(*args)
        try:
            return self._run(args)
        except OpbuildError as error:
            if self._settings.on_error == "raise" or isinstance(error, ChangesError):
                raise
            self._leave(error)
            return self._eager(*args)

    @property
    def report(self) -> Report:
        """The report of the build for the sizes and weights that it was called with last."""
        return Report(self._program.name) if self._network is None else self._network.report

    @property
    def built(self) -> int:
        """Operators that were compiled for all sizes and weights together."""
        return self._built_before + (0 if self._network is None else self._network.built)

    def _leave(self, error: OpbuildError) -> None:
        """Leave all further calls to torch, and say so once."""
        with self._lock:
            if self._failed:
                return
            self._failed = True
            self._graph.leave(self._program.operators, "it could not be built")
        self._note(str(error))
        warnings.warn(f"opbuild leaves a part of {visible(self._graph.name)} to torch: {error}", stacklevel=3)

    def _note(self, why: str) -> None:
        if why not in self._graph.fallbacks:
            self._graph.fallbacks.append(why)

    def _is_out_of_range(self, args: Sequence[Any]) -> bool:
        return any(abs(args[index]) > MOST_ELEMENTS for index in self._numbers) or any(
            args[index].dtype is torch.float64 for index in self._floats
        )

    def _run(self, args: Sequence[Any]) -> Any:
        program, network = self._current(args)
        arrays = [
            _array_of(args[index], program.inputs[index])
            if program.inputs[index].kind == "tensor"
            else np.empty(size_shape(args[index]), np.uint8)
            for index in program.given
        ]
        results = self._results(program, network, arrays)
        if network.report is not self._told:
            self._told = network.report
            self._tell(network.report)
        tensors = iter(results)
        sizes = iter(self._output_sizes(program, arrays, args))
        replaced = dict(program.updates or self._updates)
        found = [
            next(sizes)
            if each.is_size
            else _tensor_of(next(tensors), each, args[replaced[i]] if i in replaced else None)
            for i, each in enumerate(program.outputs)
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def _results(self, program: AtenProgram, network: Network, arrays: Sequence[Any]) -> Sequence[Any]:
        """Return a call's results: arrays of the host's, or tensors on the device that computes."""
        if isinstance(network, DeviceNetwork):
            updates = {
                program.tensors.index(output): program.given.index(index)
                for output, index in self._updates
                if index in program.given
            }
            return network.call_on_device(arrays, self._empty, updates)
        results = network(*arrays)
        return results if isinstance(results, tuple) else (results,)

    def _empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> torch.Tensor:
        return torch.empty(shape, dtype=_TORCH_TYPES[dtype.name], device=torch.device(self._settings.device, 0))

    def _current(self, args: Sequence[Any]) -> tuple[AtenProgram, Network]:
        """Return the program and its network for the weights as they are now."""
        with self._lock:
            tensors = [args[index] for index in self._program.frozen]
            if self._network is None or self._weights is None:
                self._freeze(args)
            elif not self._weights.are(tensors):
                self._note_changes(self._weights.changed(tensors))
                self._freeze(args)
            assert self._network is not None  # noqa: S101 - just made
            return self._program, self._network

    def _freeze(self, args: Sequence[Any]) -> None:
        program, tensors = self._program, [args[index] for index in self._program.frozen]
        weights = Weights(tensors)
        arrays = [to_array(each, range(each.dim())) for each in tensors]
        is_first = self._network is None
        built = self.built
        self._network = compile_source(
            ProgramSource(program, arrays),
            self._settings.config,
            image=is_first,  # what changes again and again would fill the folder
            was_built=self._was_built,
            reopens=is_first and self._reopens,
            device=None if self._settings.device == HOST.type else self._settings.device,
        )
        self._built_before = built
        self._weights = weights

    def _note_changes(self, changed: Sequence[int]) -> None:
        self._graph.refrozen += 1
        self._changes.update(self._program.frozen[position] for position in changed)
        often = {index for index, count in self._changes.items() if count > MOST_CHANGES}
        if often:
            self._program = self._program.thawed(often)
            self._changes.clear()

    def _output_sizes(self, program: AtenProgram, arrays: Sequence[Any], args: Sequence[Any]) -> list[int]:
        if len(program.tensors) == len(program.outputs):
            return []
        shapes = tuple(array.shape for array in arrays)
        found = self._sizes.get(shapes)
        if found is None:
            frozen = [to_array(args[index], range(args[index].dim())) for index in program.frozen]
            found = self._sizes[shapes] = output_sizes(program, shapes, frozen, evaluate)
        return found


def _tensor_of(array: Array | torch.Tensor, output: Output, replaced: torch.Tensor | None) -> torch.Tensor:
    """Return a result; the tensor itself that it replaces, if it could be replaced in place."""
    if isinstance(array, torch.Tensor):
        is_same = replaced is not None and array.data_ptr() == replaced.data_ptr()
        return replaced if replaced is not None and is_same else turned_back(array, output.order)
    if replaced is not None and array.ctypes.data == replaced.data_ptr():
        return replaced
    return to_tensor(array, output.order)


def _array_of(tensor: torch.Tensor, given: Input) -> Any:
    """Return a tensor as the network takes it: an array of the host's, or a dense tensor where it lies."""
    if given.type.dtype == "float32" and tensor.dtype is torch.float64:
        tensor = tensor.float()
    return to_array(tensor, given.order) if tensor.device == HOST else dense(tensor, given.order)
