"""RangeBinder: binds an offline model to any size in its ranges, without the compiler and the onnx package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, InvalidModelError, ShapeError
from opbuild.files.trust import parse_json
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.host import compared
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.models.endpoints import outputs_of_any
from opbuild.models.sizes import make_sizes
from opbuild.offline.file import OfflineModel
from opbuild.offline.format import GRAPH, WEIGHTS
from opbuild.offline.ranges import bind, lower_to
from opbuild.pipeline.stages import host_nodes, require_portable
from opbuild.platform.sources import own_sources
from opbuild.program import Program
from opbuild.report import Clock, OperatorReport
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Executor, Prepared
from opbuild.runtime.image import load_constants
from opbuild.runtime.library import Library
from opbuild.runtime.network import Binding, Shapes
from opbuild.runtime.record import Constant
from opbuild.runtime.reports import stored_report
from opbuild.runtime.weights import Packer


class RangeBinder:
    """Binds an offline model to any size in its ranges.

    Args:
        offline: The file.
        library: Its kernels.
        blocks: The memory that bindings run in.

    Raises:
        InvalidModelError: If the file's section is not sound.
    """

    def __init__(self, offline: OfflineModel, library: Library | None, blocks: Blocks[Prepared]) -> None:
        from opbuild.frontend.portable import PortableModel
        from opbuild.lowering.available import Available
        from opbuild.lowering.context import Options

        self._offline, self._library, self._blocks = offline, library, blocks
        try:
            content = parse_json(offline.container.section(GRAPH).tobytes())
            self._sources = str(content["sources"])
            tensors = _mapped(offline, [(nbytes, offset) for nbytes, offset in content["tensors"]])
            self._model = PortableModel.from_json(content["model"], tensors)
            names = [name for name, _ in self._model.inputs]
            self.sizes = make_sizes(names, [[(low, high) for low, high in each] for each in content["ranges"]])
            kernels = [(OpDesc.from_components(parts), str(symbol)) for parts, symbol in content["kernels"]]
            given: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in content["options"].items()
            }
            self._options, self._force_float32 = Options(**given), bool(content["force_float32"])
            places = [(nbytes, offset) for _, nbytes, offset in content["packed"]]
            sources = [str(source) for source, _, _ in content["packed"]]
            self._packer = Packer(known=dict(zip(sources, _mapped(offline, places), strict=True)))
        except (ValueError, KeyError, TypeError, AttributeError, OSError, ShapeError) as error:
            where = repr(str(offline.container.path))
            raise InvalidModelError(f"{where} is no sound offline model: {error!r}", "write it again") from error
        self._symbols = dict(kernels)
        self._kernels = Available([desc for desc, _ in kernels])

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs; an extent that has a range is -1."""
        return tuple(
            Endpoint(name, TensorType(dtype, tuple(low if low == high else FREE for low, high in ranges)))
            for (name, dtype), ranges in zip(self._model.inputs, self.sizes.ranges, strict=True)
        )

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs; an extent that differs between sizes in the ranges is -1.

        Raises:
            ShapeError: If the network takes none of the sizes that were tried.
        """
        return outputs_of_any(self._model, self.sizes, self._offline.signatures)

    def bind(self, shapes: Shapes) -> Binding:
        """Make the network ready for a size.

        Raises:
            ShapeError: If the size is outside the ranges, or the network itself does not take it.
            BuildError: If the file was written by another version of opbuild.
        """
        from opbuild.pipeline.stages import Built
        from opbuild.pipeline.steps import assemble, pack

        self.sizes.check(shapes)
        if self._sources != own_sources():
            raise BuildError(
                f"{str(self._offline.container.path)!r} was written by another version of opbuild, which may choose "
                f"kernels otherwise; this one runs only {self._offline.served[0]}",
                "write the file again with this version",
            )
        clock = Clock()
        with clock("read"):
            graph = bind(self._model, shapes, self._force_float32)
        with clock("lower"):
            program = lower_to(graph, self._offline.level, self._options, self._kernels)
            require_portable(host_nodes(program).values())
        packed = pack(program, self._packer, clock)
        with clock("start"):
            network = assemble(packed, Built(self._symbols, operators=self._operators(program)))
            executor = Executor(network.record, self._library, network.constants.arrays, evaluate, self._blocks)
        return Binding(executor, stored_report(network.record, clock, compared(self._offline.level)))

    def _operators(self, program: Program) -> dict[OpDesc, OperatorReport]:
        return {
            desc: OperatorReport(self._symbols[desc], "reused", "in the stored network", nodes)
            for desc, nodes in program.descriptors().items()
        }


def _mapped(offline: OfflineModel, places: Sequence[tuple[Any, Any]]) -> tuple[Array, ...]:
    """Return pieces of the file's weights, read-only."""
    constants = [Constant(int(nbytes), "", int(offset)) for nbytes, offset in places]
    return load_constants(constants, offline.container.section(WEIGHTS))
