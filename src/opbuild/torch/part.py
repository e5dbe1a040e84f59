"""Part: what runs in the place of operators that opbuild computes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch

from opbuild.api import compile_source
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.frontend.torch.builder import output_sizes
from opbuild.frontend.torch.program import Program
from opbuild.report import Report
from opbuild.runtime.network import Network
from opbuild.torch.memory import to_array, to_tensor
from opbuild.torch.report import Graph
from opbuild.torch.source import ProgramSource


class Part:
    """Calls a network with torch's tensors. Any thread may call it.

    The network is built at the first call, when the weights are there; where one of them has changed since, it is made
    again with the new ones, for which nothing is compiled.

    Args:
        program: What it computes.
        config: Settings of the build.
        graph: What is told what becomes of it.
    """

    def __init__(self, program: Program, config: Config, graph: Graph) -> None:
        self._program = program
        self._config = config
        self._graph = graph
        self._lock = threading.Lock()
        self._weights: tuple[tuple[int, int], ...] | None = None
        self._network: Network | None = None
        self._sizes: dict[Any, list[int]] = {}
        graph.networks.append(self.report)
        self._given = [(index, program.inputs[index]) for index in program.given]

    def __call__(self, *args: Any) -> Any:
        """Run the network.

        Args:
            args: A tensor or a number for each of the program's inputs.

        Raises:
            ModelError, BuildError: If it can not be built.
            RunError: If it fails while it runs.
        """
        network = self._network_for(args)
        arrays = [
            to_array(args[index], each.order) if each.kind == "tensor" else _as_extent(args[index])
            for index, each in self._given
        ]
        results = network(*arrays)
        tensors = iter(results if isinstance(results, tuple) else (results,))
        sizes = iter(self._output_sizes(arrays) if len(self._program.tensors) < len(self._program.outputs) else ())
        found = [
            next(sizes) if each.is_size else to_tensor(next(tensors), each.order) for each in self._program.outputs
        ]
        return found[0] if len(found) == 1 else tuple(found)

    def report(self) -> Report:
        """Return what the build did for the sizes and weights that it was called with last."""
        return Report(self._program.name) if self._network is None else self._network.report

    def _network_for(self, args: Sequence[Any]) -> Network:
        weights = tuple([(args[index].data_ptr(), args[index]._version) for index in self._program.frozen])
        if self._network is not None and weights == self._weights:
            return self._network
        with self._lock:
            if self._network is None or weights != self._weights:
                if self._network is not None:
                    self._graph.refrozen += 1
                self._network, self._weights = self._frozen_network(args), weights
            return self._network

    def _frozen_network(self, args: Sequence[Any]) -> Network:
        program = self._program
        frozen = [to_array(args[index], range(args[index].dim())) for index in program.frozen]
        return compile_source(ProgramSource(program, frozen), self._config)

    def _output_sizes(self, arrays: Sequence[Any]) -> list[int]:
        shapes = tuple(array.shape for array in arrays)
        found = self._sizes.get(shapes)
        if found is None:
            found = self._sizes[shapes] = output_sizes(self._program.thawed(), shapes, (), evaluate)
        return found


def _as_extent(size: int) -> Any:
    """Return a size as the extent of an array without elements."""
    return torch.empty((size, 0), dtype=torch.uint8).numpy()
