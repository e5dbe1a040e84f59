"""RangeBinder: binds an offline model to any size by its formulas, without the compiler and the onnx package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, InvalidModelError, ModelError, ShapeError
from opbuild.files.trust import parse_json
from opbuild.frontend.models.declaration import Declaration, Declared
from opbuild.frontend.models.sizes import Sizes, make_sizes
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.kernel.stored_desc import desc_from_json
from opbuild.offline.file import UNSOUND, OfflineModel
from opbuild.offline.format import GRAPH
from opbuild.pipeline.loaded import LoadedKernels
from opbuild.pipeline.segmented import Segments
from opbuild.pipeline.segments import FirstSegment
from opbuild.platform.locks import Lock
from opbuild.platform.records import NamedTuple
from opbuild.platform.sources import own_sources
from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.binding import Binding, Bound, Shapes, Unserved
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.devices.device import Modules
from opbuild.runtime.dynamic import DynamicNetwork, fitting
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Arena, Executor
from opbuild.runtime.record_json import from_json
from opbuild.runtime.reports import make_report
from opbuild.target.host import compared
from opbuild.target.machine import Machine

if TYPE_CHECKING:
    from opbuild.frontend.models.source import ModelSource
    from opbuild.pipeline.source import Source
    from opbuild.runtime.record import Record


class RangeBinder:
    """Binds an offline model to any size in its ranges, and what comes behind the graph breaks of a network.

    Args:
        offline: The file.
        modules: Its kernels.
        blocks: The memory that bindings run in.

    Raises:
        InvalidModelError: If the file's section is not sound.
    """

    def __init__(self, offline: OfflineModel, modules: Modules, blocks: Blocks[Arena]) -> None:
        self._offline = offline
        file = self._file = _SharedFile(offline, modules, blocks)
        with file.sound():
            content = parse_json(offline.container.section(GRAPH).tobytes())
            self._sources = str(content["sources"])
            inputs, outputs = (tuple(_declared(*each) for each in content[side]) for side in ("inputs", "outputs"))
            names = tuple(each.name for each in outputs)
            if (tuple(each[:2] for each in inputs), names) != (offline.inputs, offline.outputs):
                raise ValueError("its network has other inputs or outputs")
            self._outputs = tuple(Endpoint(name, TensorType(dtype, cast("Any", s))) for name, dtype, s in outputs)
            self.sizes = _sizes([each.name for each in inputs], content["ranges"])
            segments = {
                (str(digest), own): _Programs(file, own, programs)
                for digest, inputs_of, programs in content["segments"]
                for own in (tuple(_declared(*each) for each in inputs_of),)
            }
            file.kernels.add({desc_from_json(parts): str(name) for parts, name in content["kernels"]}, modules)
            model = _Model(str(content["model"]), Declaration(offline.name, inputs, outputs, ()))
            first = FirstSegment(cast("ModelSource", model), model.declaration.shapes)
            made = _Segments(file, segments)
            self._segments = Segments(cast("ModelSource", model), first, made)
            self._programs = made.programs(first)

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs; an extent that differs between the sizes that are served is -1."""
        if self.sizes is None:
            return self._offline.endpoints
        return tuple(
            Endpoint(name, TensorType(dtype, tuple(low if low == high else FREE for low, high in ranges)))
            for (name, dtype), ranges in zip(self._offline.inputs, self.sizes.ranges, strict=True)
        )

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs: an extent that differs between sizes is -1; of segments as the model has them."""
        return self._outputs

    def bind(self, shapes: Shapes) -> Bound:
        """Make the network ready for a size.

        Raises:
            ShapeError: If the size is outside the ranges, or no program is for it.
            BuildError: If the file was written by another version of opbuild.
        """
        if self.sizes is not None:
            self.sizes.check(shapes)
        self._require_same_version()
        first = self._programs.bind(shapes)
        if isinstance(first, Unserved):
            raise ShapeError(*first)
        with self._file.sound():
            return self._segments.bind(first, shapes)

    def _require_same_version(self) -> None:
        if self._sources == own_sources():
            return
        is_segment = self._offline.record(0).follows is not None
        served = "runs none of it" if is_segment else f"runs only {self._offline.served[0]}"
        raise BuildError(
            f"{str(self._offline.container.path)!r} was written by another version of opbuild, which may choose "
            f"kernels otherwise; this one {served}",
            "write the file again with this version",
        )


class _SharedFile:
    """The state that the segments of a file share; it knows nothing of them.

    Attributes:
        offline: The file.
        modules: Its kernels.
        blocks: The memory that bindings run in.
        kernels: The same kernels, as they are chosen from.
        lock: Held while a size is bound.
    """

    def __init__(self, offline: OfflineModel, modules: Modules, blocks: Blocks[Arena]) -> None:
        self.offline, self.modules, self.blocks = offline, modules, blocks
        self.kernels, self.lock = LoadedKernels(Machine.of(offline.level)), Lock()

    @contextmanager
    def sound(self) -> Iterator[None]:
        """Turn errors of a network that is none, though its file is sealed, into an error of opbuild."""
        try:
            yield
        except (OSError, ModelError, BuildError, *UNSOUND) as error:
            where = repr(str(self.offline.container.path))
            raise InvalidModelError(f"{where} is no sound offline model: {error!r}", "write it again") from error


class _Segments(NamedTuple):
    """The segments of a file, by digest and inputs."""

    file: _SharedFile
    known: Mapping[tuple[str, tuple[Declared, ...]], _Programs]

    def programs(self, source: Source) -> _Programs:
        """Return the programs of a segment."""
        found = self.known.get((source.digest or "", source.declaration.inputs))
        return _Programs(self.file, source.declaration.inputs, ()) if found is None else found


class _Programs:
    """The programs of a segment: read when they are needed, then bound by numbers.

    Args:
        file: The file.
        inputs: The segment's inputs.
        programs: For each its number, and the only size that it is for or None.
    """

    def __init__(self, file: _SharedFile, inputs: Sequence[Declared], programs: Sequence[Any]) -> None:
        self._file, self._inputs = file, inputs
        self._programs = [(int(number), _shapes(shapes)) for number, shapes in programs]
        self._networks: dict[int, DynamicNetwork] = {}

    def bind(self, shapes: Shapes) -> Binding | Unserved:
        """Return the segment, ready for a size; or why it is not, if no program is for it.

        Raises:
            InvalidModelError: If the file is not sound.
        """
        file, clock = self._file, Clock()
        with clock("bind"), file.lock, file.sound():
            bound = self._bound(shapes)
        if bound is None:
            return Unserved(
                f"{str(file.offline.container.path)!r} has no program for {self._told(shapes)}",
                "build it again with this size among the ranges' ends, or with fixed shapes",
            )
        return Binding(bound, self._report(bound.record, clock))

    def _bound(self, shapes: Shapes) -> Executor | None:
        """Return the executor of a size: of a program that suits it, its numbers filled in, if there is one."""
        own = next((number for number, only in self._programs if only == shapes), None)
        if own is not None:
            return self._fixed(own)
        networks = (self._network(number) for number, only in self._programs if only is None)
        found = fitting(networks, shapes, self._file.kernels.decide)
        return None if found is None else found[1].executor

    def _network(self, number: int) -> DynamicNetwork:
        if number not in self._networks:
            record, file = self._record(number), self._file
            constants = file.offline.constants(record)
            self._networks[number] = DynamicNetwork(record, constants, evaluate, file.blocks)
        return self._networks[number]

    def _fixed(self, number: int) -> Executor:
        record, file = self._record(number), self._file
        return Executor(record, file.modules, file.offline.constants(record), evaluate, file.blocks)

    def _record(self, number: int) -> Record:
        """Return a program's record.

        Raises:
            ValueError: If it is not sound, or of another segment.
        """
        offline = self._file.offline
        record = from_json(parse_json(offline.container.section(GRAPH, number).tobytes()))
        if [(port.name, port.type.dtype) for port in record.inputs] != [each[:2] for each in self._inputs if each.name]:
            raise ValueError(f"program {number} has other inputs than its segment")
        if record.follows is None and tuple(port.name for port in record.outputs) != offline.outputs:
            raise ValueError(f"program {number} has other outputs than the file says")
        return record

    def _report(self, record: Record, clock: Clock) -> Report:
        nodes: dict[str, dict[str, None]] = {}
        for kind, names in zip(record.steps.called.tolist(), record.steps.nodes, strict=True):
            nodes.setdefault(record.steps.kinds[kind].symbol, {}).update(dict.fromkeys(names))
        operators = [OperatorReport(name, "reused", "in the stored network", tuple(of)) for name, of in nodes.items()]
        return make_report(record, operators, clock, compared(self._file.offline.level))

    def _told(self, shapes: Shapes) -> str:
        names = [each.name or "numbers" for each in self._inputs]
        return ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(names, shapes, strict=True))


class _Model(NamedTuple):
    """The model of a file, as far as its segments need one: nothing can be read of it."""

    digest: str
    declaration: Declaration

    def types(self, shapes: Shapes) -> dict[str, TensorType]:
        """Return the types of the inputs in one signature, by name."""
        inputs = zip(self.declaration.inputs, shapes, strict=True)
        return {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}


def _declared(name: Any, dtype: Any, shape: Any) -> Declared:
    return Declared(str(name), str(dtype), None if shape is None else tuple(map(int, shape)))


def _shapes(parts: Any) -> Shapes | None:
    return None if parts is None else tuple(tuple(map(int, shape)) for shape in parts)


def _sizes(names: Sequence[str], ranges: Any) -> Sizes | None:
    return None if ranges is None else make_sizes(names, [[(low, high) for low, high in each] for each in ranges])
