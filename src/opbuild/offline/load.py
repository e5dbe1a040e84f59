"""Loading offline models: neither the compiler nor the model's reader is needed."""

from __future__ import annotations

import os

from opbuild.arguments import checks_arguments
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.errors import BuildError, InvalidModelError, ShapeError, TargetError
from opbuild.files.trust import make_trust
from opbuild.offline.file import UNSOUND, OfflineModel, read_offline
from opbuild.offline.format import GRAPH
from opbuild.offline.range_binder import RangeBinder
from opbuild.platform.limits import names_limits
from opbuild.platform.paths import Path
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Arena, Executor, load_code
from opbuild.runtime.network import Network
from opbuild.runtime.reports import stored_report
from opbuild.target.host import compared, runs_here

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
            ``build_offline`` does. Who writes into it changes their numbers, and who cuts it ends them (SIGBUS).
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
    config = Config.from_environment(num_threads=num_threads, copy_weights=copy_weights)
    return open_offline(Path(path), config, verify=verify)[0]


def open_offline(path: Path, config: Config, *, verify: bool = True) -> tuple[Network, str]:
    """Load an offline model as ``load`` does; return it with the shapes that it serves, as text."""
    model = read_offline(path, verify=verify, trust=make_trust(config), copies=config.copy_weights)
    problem = runs_here(model.level)
    if problem:
        raise TargetError(
            f"{str(path)!r} cannot run here: {problem}",
            "build it for this machine: soc_version='host', or a lesser one",
            command="build it for this machine: --soc_version=host, or a lesser one",
        )
    loaded = _Loaded(model, config.num_threads)
    only_one = len(model.signatures) == 1 and not loaded.has_ranges
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
        self._sizes = self.ranges.sizes if self.ranges else None

    def outputs(self) -> tuple[Endpoint, ...]:
        """Return the outputs; an extent that differs between the sizes that the file serves is -1."""
        return self.ranges.outputs() if self.ranges else self._model.output_endpoints()

    def bind(self, shapes: Shapes) -> Bound:
        if self.ranges and shapes not in self._model.signatures:
            return self.ranges.bind(shapes)
        clock = Clock()
        with clock("load"):
            record = self._model.record(self._model.signatures.index(shapes))
            if self.ranges and record.follows:  # what is stored whole ends before a graph break
                return self.ranges.bind(shapes)
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
        if self._sizes:
            self._sizes.check(shapes)
        elif shapes not in self._model.signatures:
            raise ShapeError(
                f"the offline model {self._model.name} has no plan for {self._text(shapes)}",
                f"it serves {self.served}",
            )

    @property
    def has_ranges(self) -> bool:
        """Whether the file serves all sizes in ranges."""
        return self._sizes is not None

    @property
    def served(self) -> str:
        """The shapes that the file serves."""
        if self._sizes:
            return self._sizes.text()
        shown = list(map(self._text, self._model.signatures[:MOST_SHOWN]))
        more = len(self._model.signatures) - len(shown)
        return " or ".join([*shown, *([f"{more} more"] if more else [])])

    def _text(self, shapes: Shapes) -> str:
        names = [name for name, _ in self._model.inputs]
        return ", ".join(f"{name}:{','.join(map(str, shape))}" for name, shape in zip(names, shapes, strict=True))
