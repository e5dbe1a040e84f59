"""``--report`` and ``--trace``: a build and a run, written to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from opbuild.cli.options import TO_WRITE, new_file, option_group, value_option
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import Observer
from opbuild.platform.files.private import private_path
from opbuild.platform.files.writing import same_file, unwritable, write_new
from opbuild.platform.limits import unwritten
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

if TYPE_CHECKING:
    from opbuild.cli.page.recording import EventRecording
    from opbuild.cli.page.render import InputSize
    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])

ANOTHER = "name another file to write"

trace_option = value_option(
    "--trace", "FILE.json", "Write a trace for Perfetto or Chrome: what each worker compiled when, and a run.", TO_WRITE
)
picture_options = option_group(
    value_option("--report", "FILE.html", "Write what was built as a page to look at.", TO_WRITE), trace_option
)


@dataclass
class Picture:
    """The files to write, and the recording of a build for them.

    Attributes:
        model: The model's file, over which nothing is written.
        page_option: The option that names the page.
        recording: What the build told, once ``watching`` was called.
    """

    model: Path
    report: Path | None
    trace: Path | None
    page_option: str = "report"
    recording: EventRecording | None = None
    _ended: float = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to be written."""
        return self.report is not None or self.trace is not None

    def watching(self, observer: Observer) -> Observer:
        """Return an observer that passes events on, and records them if needed; first it checks what can be written."""
        if not self.is_wanted:
            return observer
        from opbuild.cli.page.recording import EventRecording

        for option, path in ((self.page_option, self.report), ("trace", self.trace)):
            if path is None:
                continue
            new_file(option, str(path), "the file to write")
            if same_file(self.model, path):
                raise OptionError(f"--{option} is {str(path)!r}, which is the model", ANOTHER)
        if self.report is not None and self.trace is not None and self.report.resolve() == self.trace.resolve():
            raise OptionError(f"--trace is {str(self.trace)!r}, which --{self.page_option} writes", ANOTHER)
        if self.report is not None:
            from opbuild.cli.page.render import template

            template()  # which needs a package that is perhaps not installed
        self.recording = EventRecording(observer)
        return self.recording

    def built(self) -> None:
        """Note that the build ended: later events are no part of it."""
        if self.recording is not None:
            self._ended = self.recording.milliseconds

    def write(self, network: Network, config: Config, profile: Profile | None = None) -> None:
        """Write the files that were asked for, of a built network, with the times of its calls if they were taken."""
        from opbuild.cli.tables import say

        spans = self.recording.spans(self._ended) if self.recording is not None else ()
        if self.report is not None:
            _write(self.page_option, self.report, _page(network, config, spans, profile))
            say(f"{self.report}: the build as a page", soft_wrap=True)
        if self.trace is not None:
            from opbuild.cli.page.recording import trace

            _write("trace", self.trace, trace(network.name, spans, profile))
            say(f"{self.trace}: a trace, for https://ui.perfetto.dev", soft_wrap=True)


def nominal_peak(threads: int) -> float | None:
    """Return the float32 GFLOP/s that so many cores of this machine have nominally."""
    from opbuild.platform.processor import nominal_gflops
    from opbuild.target.host import host_machine

    machine = host_machine()
    return nominal_gflops(machine.lanes, min(threads, machine.cores))


def _page(network: Network, config: Config, spans: Any, profile: Profile | None) -> str:
    from opbuild.cli.page.render import gather, render
    from opbuild.version import __version__

    contents = gather(
        network.report,
        network.runners,
        inputs=_inputs(network),
        spans=spans,
        profile=profile,
        networks=_networks(config, network.name),
        peak=nominal_peak(config.num_threads),
        threads=config.num_threads,
        version=__version__,
    )
    return render(contents)


def _inputs(network: Network) -> list[InputSize]:
    """Return the inputs of a network as declared, and in the size that was bound last."""
    from opbuild.cli.page.render import InputSize
    from opbuild.kernel.free import FREE

    called = {each.name: each.shape for each in network.bound_inputs}
    return [
        InputSize(
            each.name,
            each.dtype.name,
            None if each.shape is None else
            [f"{each.name}[{axis}]" if extent == FREE else extent for axis, extent in enumerate(each.shape)],
            called.get(each.name, ()),
        )
        for each in network.inputs
    ]  # fmt: skip


def _networks(config: Config, own: str) -> Mapping[str, list[str]]:
    """Return by operator the names of the other networks in the store that use it."""
    from opbuild.cli.store.folder import Cache, Description

    cache = Cache.of(config)
    found: dict[str, set[str]] = {}
    for item in cache.items("network"):
        described = cache.describe(item)
        if isinstance(described, Description) and described.network != own:
            for operator, _ in described.operators:
                found.setdefault(operator, set()).add(described.network)
    return {operator: sorted(names) for operator, names in found.items()}


def _write(option: str, path: Path, text: str) -> None:
    """Write a file that appears whole; a place that no other file can take the name of, as a device, is written to."""
    place, data = path.resolve(), text.encode()
    try:
        if unwritable(place) or (place.exists() and not place.is_file()):
            place.write_bytes(data)
            return
        with private_path(place.parent) as temporary:
            write_new(temporary, data)
            temporary.replace(place)
    except OSError as error:
        raise unwritten(f"--{option} is {str(path)!r}, which", error, "give another place") from error
