"""``--report`` and ``--trace``: what a build and a run did, written to files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from opbuild.cli.option_values import OnePath, new_file
from opbuild.cli.options import option_group
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import Observer

if TYPE_CHECKING:
    from opbuild.page.recording import Recording
    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])

report_option = click.option(
    "--report",
    metavar="FILE.html",
    type=OnePath("the file to write"),
    help="Write what was built as a page to look at.",
)
trace_option = click.option(
    "--trace",
    metavar="FILE.json",
    type=OnePath("the file to write"),
    help="Write a trace for Perfetto or Chrome: what each worker compiled when, and a run.",
)
picture_options = option_group(report_option, trace_option)


@dataclass
class Picture:
    """The files to write, and the recording of a build for them.

    Attributes:
        report: Where the page goes; None: nowhere.
        trace: Where the trace goes; None: nowhere.
        recording: What the build told, once ``watching`` was called.
    """

    report: Path | None
    trace: Path | None
    recording: Recording | None = None
    _ended: float = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether anything is to be written."""
        return self.report is not None or self.trace is not None

    def watching(self, observer: Observer) -> Observer:
        """Return an observer that passes events on, and records them if they are needed.

        Raises:
            OptionError: If a file can not be written; that is known before anything is built.
        """
        if not self.is_wanted:
            return observer
        from opbuild.page.recording import Recording

        for name, path in (("report", self.report), ("trace", self.trace)):
            if path is not None:
                new_file(name, str(path), "the file to write")
        self.recording = Recording(observer)
        return self.recording

    def built(self) -> None:
        """Note that the build ended: what follows is no part of it."""
        if self.recording is not None:
            self._ended = self.recording.milliseconds

    def write(self, network: Network, config: Config, profile: Profile | None = None) -> None:
        """Write what is to be written.

        Args:
            network: The network, built.
            config: Its settings.
            profile: The times of its calls; None: they were not taken.

        Raises:
            OptionError: If a file can not be written.
        """
        from opbuild.cli.tables import say

        spans = self.recording.spans(self._ended) if self.recording is not None else ()
        if self.report is not None:
            _write("report", self.report, _page(network, config, spans, profile))
            say(f"{self.report}: the build as a page", soft_wrap=True)
        if self.trace is not None:
            from opbuild.page.trace import trace

            _write("trace", self.trace, trace(network.name, spans, profile))
            say(f"{self.trace}: a trace, for https://ui.perfetto.dev", soft_wrap=True)


def nominal_peak(threads: int) -> float | None:
    """Return the float32 GFLOP/s that so many cores of this machine have nominally."""
    from opbuild.kernel.host import here
    from opbuild.platform.peak import nominal_gflops

    machine = here()
    return nominal_gflops(machine.lanes, min(threads, machine.cores))


def _page(network: Network, config: Config, spans: Any, profile: Profile | None) -> str:
    from opbuild.page.contents import gather
    from opbuild.page.render import render
    from opbuild.version import __version__

    contents = gather(
        network.report,
        network.runners,
        spans=spans,
        profile=profile,
        networks=_networks(config, network.name),
        peak=nominal_peak(config.num_threads),
        threads=config.num_threads,
        version=__version__,
    )
    return render(contents)


def _networks(config: Config, own: str) -> Mapping[str, list[str]]:
    """Return by operator the names of the other networks in the store that use it."""
    from opbuild.cache.folder import Cache, Description

    cache = Cache.of(config)
    found: dict[str, set[str]] = {}
    for item in cache.items("image"):
        described = cache.describe(item)
        if isinstance(described, Description) and described.network != own:
            for operator, _ in described.operators:
                found.setdefault(operator, set()).add(described.network)
    return {operator: sorted(names) for operator, names in found.items()}


def _write(option: str, path: Path, text: str) -> None:
    from opbuild.files.private import publish

    try:
        publish(path, text.encode())
    except OSError as error:
        raise OptionError(
            f"--{option} is {str(path)!r}, which can not be written: {error.strerror}", "give another place"
        ) from error
