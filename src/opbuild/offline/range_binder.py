"""RangeBinder: binds an offline model to any size in its ranges, without the compiler and the onnx package."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from opbuild.backend.evaluate import evaluate
from opbuild.errors import (
    BuildError,
    InvalidModelError,
    ModelError,
    RunError,
    ShapeError,
    UnsupportedOperatorError,
)
from opbuild.files.trust import parse_json
from opbuild.graph.cut import Answer, Cut
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.host import compared
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.kernel.stored_desc import desc_from_json
from opbuild.models.endpoints import outputs_of_any
from opbuild.models.sizes import Sizes, make_sizes
from opbuild.offline.file import UNSOUND, OfflineModel
from opbuild.offline.format import GRAPH, WEIGHTS
from opbuild.offline.ranges import lower_to, optimized
from opbuild.pipeline.stages import host_nodes, require_portable
from opbuild.platform.sources import own_sources
from opbuild.program import Program
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Arena, Executor
from opbuild.runtime.in_parts import InParts
from opbuild.runtime.library import Library
from opbuild.runtime.parts import KnownParts, Part, Parts
from opbuild.runtime.record import Constant, Pieces, Places
from opbuild.runtime.reports import stored_report
from opbuild.runtime.weights import Packer

if TYPE_CHECKING:
    from opbuild.frontend.walk import Walked


class RangeBinder:
    """Binds an offline model to any size in its ranges, and what comes behind the cuts of a network in parts.

    Args:
        offline: The file.
        library: Its kernels.
        blocks: The memory that bindings run in.

    Raises:
        InvalidModelError: If the file's section is not sound.
    """

    def __init__(self, offline: OfflineModel, library: Library | None, blocks: Blocks[Arena]) -> None:
        from opbuild.frontend.portable import PortableModel
        from opbuild.lowering.available import Available
        from opbuild.lowering.context import Options

        self._offline, self._library, self._blocks = offline, library, blocks
        try:
            content = parse_json(offline.container.section(GRAPH).tobytes())
            self._sources = str(content["sources"])
            tensors = _mapped(offline, [(nbytes, offset) for nbytes, offset in content["tensors"]])
            self._model = PortableModel.from_json(content["model"], tensors)
            outputs = tuple(name for name, _, _ in self._model.block.outputs)
            if (self._model.inputs, outputs) != (offline.inputs, offline.outputs):
                raise ValueError("its network has other inputs or outputs")
            self.sizes = _sizes([name for name, _ in self._model.inputs], content["ranges"])
            kernels = [(desc_from_json(parts), str(symbol)) for parts, symbol in content["kernels"]]
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in content["options"].items()
            }
            self._options, self._force_float32 = Options(**given), bool(content["force_float32"])
            places = [(nbytes, offset) for _, nbytes, offset in content["packed"]]
            sources = [str(source) for source, _, _ in content["packed"]]
            self._packer = Packer(known=dict(zip(sources, _mapped(offline, places), strict=True)))
            self._symbols = dict(kernels)
            self._kernels = Available([desc for desc, _ in kernels])
        except (OSError, ShapeError, *UNSOUND) as error:
            where = repr(str(offline.container.path))
            raise InvalidModelError(f"{where} is no sound offline model: {error!r}", "write it again") from error
        self._known = KnownParts()

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs; an extent that differs between the sizes that are served is -1."""
        if self.sizes is None:
            return self._offline.endpoints
        return tuple(
            Endpoint(name, TensorType(dtype, tuple(low if low == high else FREE for low, high in ranges)))
            for (name, dtype), ranges in zip(self._model.inputs, self.sizes.ranges, strict=True)
        )

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs: an extent that differs between sizes is -1; of a network in parts as the model has them.

        Raises:
            ShapeError: If the network takes none of the sizes that were tried.
        """
        if self.sizes is None or self._offline.record(0).cut is not None:
            declared = self._model.block.outputs
            return tuple(Endpoint(name, TensorType(dtype, cast("Any", shape))) for name, dtype, shape in declared)
        return outputs_of_any(self._model, self.sizes, self._offline.signatures)

    def bind(self, shapes: Shapes) -> Bound:
        """Make the network ready for a size.

        Raises:
            ShapeError: If the size is outside the ranges, or the network itself does not take it.
            BuildError: If the file was written by another version of opbuild.
        """
        if self.sizes is not None:
            self.sizes.check(shapes)
        clock = Clock()
        walked = self._walk(shapes, clock)
        binding, rest = self._bind(walked, clock), walked.without_graph()
        return binding if rest.cut is None else self._in_parts(binding, rest.cut, shapes, lambda _: rest)

    def bind_stored(self, binding: Binding, cut: Cut, shapes: Shapes) -> Bound:
        """Return a network in parts for a size, the first part of which is stored whole.

        Raises:
            InvalidModelError: If the cut behind it is not sound.
            BuildError: If the file was written by another version of opbuild.
        """
        self._require_same_version()
        return self._in_parts(binding, cut, shapes, partial(self._walk, shapes))

    def _in_parts(self, binding: Binding, cut: Cut, shapes: Shapes, walked: Callable[[Clock], Walked]) -> InParts:
        first = Part(binding.executor, cut, binding.report, walked)
        inputs = zip(self._model.inputs, shapes, strict=True)
        types = {name: TensorType(dtype, shape) for (name, dtype), shape in inputs}
        with self._sound():
            return InParts(first, Parts(self._next, evaluate, self._known), types, self._offline.outputs)

    def _next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        """Return the part behind another one, or the first one of its loop's body; see ``runtime.parts.BindNext``."""
        from opbuild.backend.host.evaluate import evaluate_native

        clock = Clock()
        before = part.walked(clock)
        rest = before.body if body else before.rest
        with self._sound(), clock("read"):
            if rest is None:
                raise ValueError(f"nothing comes after {part.cut.path}")
            walked = self._model.go_on(rest.answered(answer, part.cut.path), evaluate_native)
        binding = self._bind(walked, clock)
        with self._sound():
            if walked.cut is None or {port.name: port.type for port in binding.executor.inputs} != types:
                raise ValueError(f"what comes after {part.cut.path} is another network")
        found = walked.without_graph()
        return Part(binding.executor, walked.cut, binding.report, lambda _: found)

    def _walk(self, shapes: Shapes, clock: Clock) -> Walked:
        from opbuild.backend.host.evaluate import evaluate_native

        self._require_same_version()
        with self._sound(), clock("read"):
            return self._model.walk(shapes, evaluate_native)

    def _bind(self, walked: Walked, clock: Clock) -> Binding:
        """Make a part ready with the kernels that are there."""
        from opbuild.pipeline.stages import Built
        from opbuild.pipeline.steps import assemble, pack

        with self._sound(), clock("lower"):  # what is said of kernels may not be what their families say
            program = self._lowered(walked.graph)
        with self._sound():
            packed = pack(program, self._packer, clock)
        with self._sound(), clock("start"):
            network = assemble(packed, Built(self._symbols, operators=self._operators(program)))
            executor = Executor(network.record, self._library, network.constants.arrays, evaluate, self._blocks)
        return Binding(executor, stored_report(network.record, clock, compared(self._offline.level)))

    def _lowered(self, graph: Graph) -> Program:
        """Return the program of a graph; all of it runs on the host if that can not take what was fused alone."""
        level, options = self._offline.level, self._options
        try:
            program = lower_to(optimized(graph, self._force_float32), level, options, self._kernels)
            require_portable(host_nodes(program).values())
        except UnsupportedOperatorError:
            on_host = frozenset(node.name for node in graph.nodes)
            program = lower_to(graph, level, replace(options, on_host=on_host), self._kernels)
            require_portable(host_nodes(program).values())
        return program

    def _require_same_version(self) -> None:
        if self._sources == own_sources():
            return
        in_parts = self._offline.record(0).cut is not None
        served = "runs none of it" if in_parts else f"runs only {self._offline.served[0]}"
        raise BuildError(
            f"{str(self._offline.container.path)!r} was written by another version of opbuild, which may choose "
            f"kernels otherwise; this one {served}",
            "write the file again with this version",
        )

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """Turn what a network raises that is none, though its file is sealed, into an error of opbuild."""
        try:
            yield
        except (ModelError, RunError):
            raise
        except (BuildError, *UNSOUND) as error:
            where = repr(str(self._offline.container.path))
            raise InvalidModelError(f"{where} is no sound offline model: {error!r}", "write it again") from error

    def _operators(self, program: Program) -> dict[OpDesc, OperatorReport]:
        return {
            desc: OperatorReport(self._symbols[desc], "reused", "in the stored network", nodes)
            for desc, nodes in program.descriptors().items()
        }


def _sizes(names: Sequence[str], ranges: Any) -> Sizes | None:
    return None if ranges is None else make_sizes(names, [[(low, high) for low, high in each] for each in ranges])


def _mapped(offline: OfflineModel, places: Sequence[tuple[Any, Any]]) -> Sequence[Array]:
    """Return pieces of the file's weights, read-only."""
    constants = Places.of(Constant(int(nbytes), "", int(offset)) for nbytes, offset in places)
    return Pieces(constants, offline.container.section(WEIGHTS), {})
