"""Loading offline models, for the sizes they hold or by formulas: neither the compiler nor onnx is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from opbuild.arguments import checks_arguments
from opbuild.backend.evaluate import evaluate
from opbuild.config import CACHE_MODES, Config
from opbuild.errors import BuildError, InvalidModelError, ModelError, ShapeError, TargetError
from opbuild.events import log_warnings, tell_of_environment
from opbuild.frontend.models.declaration import Declaration, Declared, declared_from_json
from opbuild.frontend.models.sizes import Sizes, make_sizes
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE, desc_from_text
from opbuild.offline.file import UNSOUND, OfflineModel, read_offline
from opbuild.offline.format import GRAPH
from opbuild.pipeline.loaded import LoadedKernels
from opbuild.pipeline.segmented import Segments
from opbuild.pipeline.source import FirstSegment
from opbuild.platform.files.trust import make_trust, parse_json
from opbuild.platform.limits import names_limits
from opbuild.platform.locks import Lock
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.platform.sources import own_sources
from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.binding import Binding, Bound, Shapes, Unserved, tells_bindings
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.devices.device import Modules
from opbuild.runtime.dynamic import DynamicNetwork, fitting
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Arena, Executor, load_code
from opbuild.runtime.network import Network
from opbuild.runtime.record_json import from_json
from opbuild.runtime.reports import make_report, stored_report
from opbuild.target.host import compared, host_problem
from opbuild.target.machine import Machine

if TYPE_CHECKING:
    from opbuild.frontend.models.source import ModelSource
    from opbuild.pipeline.source import Source
    from opbuild.runtime.record import Record


class RangeBinder:
    """Binds an offline model to any size in its ranges, and the segments behind a network's graph breaks.

    Raises:
        InvalidModelError: If the file's section is not sound.
    """

    def __init__(self, offline: OfflineModel, modules: Modules, blocks: Blocks[Arena]) -> None:
        self._offline = offline
        file = self._file = _SharedFile(offline, modules, blocks)
        with file.sound():
            content = parse_json(offline.container.section(GRAPH).tobytes())
            self._sources = str(content["sources"])
            inputs, outputs = (
                tuple(declared_from_json(*each) for each in content[side]) for side in ("inputs", "outputs")
            )
            names = tuple(each.name for each in outputs)
            if (tuple(each[:2] for each in inputs), names) != (offline.inputs, offline.outputs):
                raise ValueError("its network has other inputs or outputs")
            self._outputs = tuple(Endpoint(name, TensorType(dtype, cast("Any", s))) for name, dtype, s in outputs)
            self.sizes = _sizes([each.name for each in inputs], content["ranges"])
            segments = {
                (str(digest), own): _Programs(file, own, programs)
                for digest, inputs_of, programs in content["segments"]
                for own in (tuple(declared_from_json(*each) for each in inputs_of),)
            }
            file.kernels.add({desc_from_text(desc): str(name) for desc, name in content["kernels"]}, modules)
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
        """Make the network ready for a size."""
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
        inputs: The segment's inputs.
        programs: For each its number, and the only size that it is for or None.
    """

    def __init__(self, file: _SharedFile, inputs: Sequence[Declared], programs: Sequence[Any]) -> None:
        self._file, self._inputs = file, inputs
        self._programs = [(int(number), _shapes(shapes)) for number, shapes in programs]
        self._networks: dict[int, DynamicNetwork] = {}

    @tells_bindings
    def bind(self, shapes: Shapes) -> Binding | Unserved:
        """Return the segment, ready for a size; or why it is not, if no program is for it."""
        file, clock = self._file, Clock()
        with clock("bind"), file.lock, file.sound():
            bound = self._bound(shapes)
        if bound is None:
            names = [each.name or "numbers" for each in self._inputs]
            return Unserved(
                f"{str(file.offline.container.path)!r} has no program for {_shapes_text(names, shapes)}",
                "build it again with this size among the ranges' ends, or with fixed shapes",
            )
        return Binding(bound, self._report(bound.record, clock))

    def _bound(self, shapes: Shapes) -> Executor | None:
        """Return the executor of a size: of a program that suits it, its numbers filled in, if there is one."""
        own = next((number for number, only in self._programs if only == shapes), None)
        if own is not None:
            record, file = self._record(own), self._file
            return Executor(record, file.modules, file.offline.constants(record), evaluate, file.blocks)
        networks = (self._network(number) for number, only in self._programs if only is None)
        found = fitting(networks, shapes, self._file.kernels)
        return None if found is None else found[1].executor

    def _network(self, number: int) -> DynamicNetwork:
        if number not in self._networks:
            record, file = self._record(number), self._file
            constants = file.offline.constants(record)
            self._networks[number] = DynamicNetwork(record, constants, evaluate, file.blocks)
        return self._networks[number]

    def _record(self, number: int) -> Record:
        """Return a program's record, which is sound and of this segment."""
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
        operators = [
            OperatorReport(name, "reused", "in the stored network", tuple(of), symbol=name)
            for name, of in nodes.items()
        ]
        return make_report(record, operators, clock, compared(self._file.offline.level))


class _Model(NamedTuple):
    """The model of a file, as far as its segments need one: nothing can be read of it."""

    digest: str
    declaration: Declaration

    def types(self, shapes: Shapes) -> dict[str, TensorType]:
        """Return the types of the inputs in one signature, by name."""
        inputs = zip(self.declaration.inputs, shapes, strict=True)
        return {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}


def _shapes(parts: Any) -> Shapes | None:
    return None if parts is None else tuple(tuple(map(int, shape)) for shape in parts)


def _shapes_text(names: Sequence[str], shapes: Shapes) -> str:
    return ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(names, shapes, strict=True))


def _sizes(names: Sequence[str], ranges: Any) -> Sizes | None:
    return None if ranges is None else make_sizes(names, [[(low, high) for low, high in each] for each in ranges])


MOST_SHOWN = 20
"""Input signatures of an offline model that a message lists."""


@checks_arguments
@names_limits(BuildError, "the network cannot be loaded")
def load(
    path: str | os.PathLike[str],
    *,
    num_threads: int | None = None,
    verify: bool = True,
    copy_weights: bool | None = None,
) -> Network:
    """Load an offline model; neither the compiler nor the model's reader is needed.

    Args:
        path: The ``.om`` file. Its weights are mapped: while networks run from it replace it by renaming another, as
            ``export`` does. Who writes into it changes their numbers, and who cuts it ends them (SIGBUS).
        num_threads: Threads that run the network (default ``OPBUILD_NUM_THREADS``, else the cores).
        verify: Whether to compare the weights with their digest, 20 ms for 100 MB; the rest of the file always is.
        copy_weights: Read the weights into memory instead, where nobody can change them (default
            ``OPBUILD_COPY_WEIGHTS``, else not); each process then has its own.

    Returns:
        The network; it takes the input shapes that the file was made for, others raise ``ShapeError``.

    Raises:
        InvalidModelError: If the file cannot be read, is no offline model, is damaged or not signed where there is a
            signing key, or others can write to it.
        TargetError: If it is for another machine than this one.
        LinkError: If its library cannot be loaded.
    """
    config = Config.from_environment(
        num_threads=num_threads, copy_weights=copy_weights, op_compiler_cache_mode=CACHE_MODES[2]
    )
    return open_offline(Path(path), config, verify=verify)[0]


def open_offline(path: Path, config: Config, *, verify: bool = True) -> tuple[Network, str]:
    """Load an offline model as ``load`` does; return it with the shapes that it serves, as text."""
    tell_of_environment(config.warnings, log_warnings)
    model = read_offline(path, verify=verify, trust=make_trust(config), copies=config.copy_weights)
    problem = host_problem(model.level)
    if problem:
        raise TargetError(
            f"{str(path)!r} cannot run here: {problem}",
            "build it for this machine: target='host', or a lesser one",
            command="build it for this machine: --target=host, or a lesser one",
        )
    loaded = _Loaded(model, config.num_threads)
    only_one = len(model.signatures) == 1 and loaded.sizes is None
    network = Network(
        model.name,
        loaded.inputs,
        model.outputs,
        loaded.bind,
        first=loaded.bind(model.signatures[0]) if only_one else None,
        check=loaded.check,
        declare=lambda _: loaded.outputs(),
    )
    return network, loaded.served


class _Loaded:
    """Binds an offline model to the signatures that it serves."""

    def __init__(self, model: OfflineModel, num_threads: int) -> None:
        self._model = model
        self._modules = load_code(model.library, num_threads)
        self._blocks: Blocks[Arena] = Blocks()
        self.ranges = RangeBinder(model, self._modules, self._blocks) if model.container.section(GRAPH).size else None
        self.inputs = self.ranges.inputs if self.ranges else model.endpoints
        self.outputs = self.ranges.outputs if self.ranges else model.output_endpoints
        self.sizes = self.ranges.sizes if self.ranges else None

    def bind(self, shapes: Shapes) -> Bound:
        if self.ranges and shapes not in self._model.signatures:
            return self.ranges.bind(shapes)
        clock = Clock()
        with clock("load"):
            record = self._model.record(self._model.signatures.index(shapes))
        if self.ranges and record.follows:  # what is stored whole ends before a graph break
            return self.ranges.bind(shapes)
        return self._started(record, clock)

    @tells_bindings
    def _started(self, record: Record, clock: Clock) -> Binding:
        with clock("load"):
            constants = self._model.constants(record)
        try:
            with clock("load"):
                executor = Executor(record, self._modules, constants, evaluate, self._blocks)
            return Binding(executor, stored_report(record, clock, compared(self._model.level)))
        except UNSOUND as error:
            where = repr(str(self._model.container.path))
            raise InvalidModelError(
                f"{where} cannot be used: its notes are not sound ({error!r})", "write it again"
            ) from error

    def check(self, shapes: Shapes) -> None:
        """Refuse shapes that the file does not serve."""
        if self.sizes:
            self.sizes.check(shapes)
        elif shapes not in self._model.signatures:
            raise ShapeError(
                f"the offline model {self._model.name} has no plan for {self._text(shapes)}",
                f"it serves {self.served}",
            )

    @property
    def served(self) -> str:
        """The shapes that the file serves."""
        if self.sizes:
            return self.sizes.text()
        shown = list(map(self._text, self._model.signatures[:MOST_SHOWN]))
        more = len(self._model.signatures) - len(shown)
        return " or ".join([*shown, *([f"{more} more"] if more else [])])

    def _text(self, shapes: Shapes) -> str:
        return _shapes_text([name for name, _ in self._model.inputs], shapes)
