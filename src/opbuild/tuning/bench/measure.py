"""Measuring a model in several runtimes that take turns, so that a machine that slows down slows all of them."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import IO, Any, TypeVar, cast

import numpy as np

from opbuild.errors import RunError
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field
from opbuild.runtime.accuracy import relative_error
from opbuild.tuning.bench.decoder import DecoderLayout
from opbuild.tuning.bench.runtimes import COLUMNS, RUNTIMES, Array

SETTLE = 0.05
"""Seconds between two turns: the threads of the one before may still be spinning."""


@dataclass
class Figures:
    """The measurements of a runtime with a number of threads.

    Attributes:
        runtime: Its name in ``RUNTIMES``.
        failure: Why it was not measured; empty if it was.
        first: Seconds from before its import to the first outputs, nothing being there but what the package brings.
        again: The same in the next process, with what the first one kept.
        seconds: The median seconds of a call, of each round.
        with_gaps: The same by the milliseconds between calls.
        memory: The most memory that the process had, in bytes.
        error: The greatest difference of its outputs to the reference's, relative to the greatest value there; None
            if it is the reference.
        device: What it says of a GPU: ``calls`` of kernels there, ``cpu_calls``, and ``bytes`` of its memory.
    """

    runtime: str
    threads: int
    version: str = ""
    failure: str = ""
    first: float = 0.0
    again: float = 0.0
    seconds: list[float] = field(default_factory=list)
    with_gaps: dict[float, list[float]] = field(default_factory=dict)
    memory: int = 0
    error: float | None = None
    device: dict[str, int] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The runtime's title and version."""
        return f"{RUNTIMES[self.runtime].title} {self.version}".strip()

    @property
    def median(self) -> float:
        """The median seconds of a call."""
        return statistics.median(self.seconds)

    def median_after(self, gap: float) -> float:
        """The median seconds of a call that comes some milliseconds after the one before."""
        return statistics.median(self.with_gaps[gap])

    def is_right(self, tolerance: float) -> bool:
        """Whether it ran, and computes the reference's results but for ``tolerance``: only such a time counts."""
        return not self.failure and (self.error is None or self.error <= tolerance)

    @property
    def spread(self) -> float:
        """The distance of the quarters of the rounds, relative to the median."""
        if len(self.seconds) < 2:
            return 0.0
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return (high - low) / self.median


@dataclass
class TextFigures(Figures):
    """The measurements of a runtime that generates texts; ``seconds`` are medians of a token behind the prompt.

    Attributes:
        text: Seconds from before its import to the end of the first text, nothing being there but what the package
            brings.
        prompts: The seconds of the prompt, of each round.
        same: Tokens that are the reference's, until one is not; None if it is the reference.
    """

    text: float = 0.0
    prompts: list[float] = field(default_factory=list)
    same: int | None = None

    @property
    def prompt(self) -> float:
        """The median seconds of a prompt."""
        return statistics.median(self.prompts)


AnyFigures = TypeVar("AnyFigures", bound=Figures)


class _EndedError(Exception):
    """A runtime's process ended; says why."""


class _Process:
    """A runtime in a process that waits for its turns."""

    def __init__(self, job: Mapping[str, Any], log: IO[bytes]) -> None:
        self._log = log
        self._process = subprocess.Popen(
            ["/usr/bin/env", *job["environment"], sys.executable, "-m", "opbuild.tuning.bench.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        self._questions = cast("IO[str]", self._process.stdin)
        self._answers = cast("IO[str]", self._process.stdout)
        try:
            self.started = self._request(job)
        except BaseException:
            self.kill()
            raise

    def turn(self, seconds: float, gap: float) -> float:
        """Return the median seconds of a call in one turn."""
        return float(self._request([seconds, gap]))

    def text(self) -> tuple[float, float]:
        """Return the seconds of a prompt, and the median of those of a token behind it."""
        prompt, token = self._request([])
        return prompt, token

    def close(self) -> int:
        """End it and return the most memory that it had, in bytes."""
        answer, _ = self._process.communicate()
        return int(json.loads(answer))

    def kill(self) -> None:
        """End it at once, unless it has ended."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def _request(self, what: object) -> Any:
        try:
            self._questions.write(json.dumps(what) + "\n")
            self._questions.flush()
            line = self._answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.seek(0)
            said = self._log.read().decode(errors="replace").strip().splitlines()
            code = self._process.wait()
            raise _EndedError(said[-1] if said else f"its process ended with {code}")
        return json.loads(line)


def measure(
    model: Path,
    data: Mapping[str, Array],
    runtimes: Sequence[str],
    threads: int,
    *,
    rounds: int,
    seconds: float,
    gaps: Sequence[float] = (),
    environments: Mapping[str, Mapping[str, str]] | None = None,
    level: str = "",
) -> list[Figures]:
    """Measure a model in several runtimes with a number of threads.

    Each is started twice in a process of its own, the first time with an empty cache folder. Outputs are compared with
    those of the first runtime that is not opbuild, else of opbuild.

    Args:
        model: An ONNX file.
        data: Its inputs by name.
        runtimes: Names in ``RUNTIMES``.
        threads: Threads that run the network.
        rounds: How many turns each has.
        seconds: How long a turn lasts; at least three calls.
        gaps: Milliseconds between calls, which are measured too.
        environments: Variables that a runtime's process has besides, by its name.
        level: The level of opbuild's code, beyond which other runtimes do not go that can be kept from it; empty: all
            that this machine has; ``cuda``: the GPU.

    Returns:
        The figures of each runtime, in the order given.

    Raises:
        RunError: If none of them can run the model.
    """
    figures = {name: Figures(name, threads) for name in runtimes}
    with _running(figures, model, data, level, environments or {}) as (running, folder):
        _compare(figures, list(running), folder)
        _take_turns(figures, running, rounds, seconds, gaps)
    return list(figures.values())


def measure_texts(
    model: Path,
    decoder: DecoderLayout,
    runtimes: Sequence[str],
    threads: int,
    *,
    prompt: int,
    tokens: int,
    rounds: int,
    level: str = "",
) -> list[TextFigures]:
    """Measure the generation of texts by a decoder in several runtimes with a number of threads.

    Args:
        model: Its file.
        decoder: Its inputs and outputs.
        runtimes: Names in ``RUNTIMES``, of those that run a model on any inputs.
        threads: Threads that run the network.
        prompt: Tokens of a prompt.
        tokens: Tokens that follow it.
        rounds: How many texts each generates, in turn.
        level: As of ``measure``.

    Returns:
        The figures of each runtime, in the order given.

    Raises:
        RunError: If none of them can run the model.
    """
    figures = {name: TextFigures(name, threads) for name in runtimes}
    more = {"decoder": decoder._asdict(), "prompt": prompt, "tokens": tokens}
    with _running(figures, model, {}, level, {}, more) as (running, folder):
        _compare_texts(figures, list(running), folder)
        for _ in range(rounds):
            for name, process in running.items():
                time.sleep(SETTLE)
                seconds, token = process.text()
                figures[name].prompts.append(seconds)
                figures[name].seconds.append(token)
    return list(figures.values())


@contextmanager
def _running(
    figures: Mapping[str, AnyFigures],
    model: Path,
    data: Mapping[str, Array],
    level: str,
    environments: Mapping[str, Mapping[str, str]],
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[tuple[dict[str, _Process], Path]]:
    """Start the runtimes that can run a model; yield them, and the folder where each leaves its outputs."""
    with tempfile.TemporaryDirectory(prefix="opbuild-bench-") as folder, ExitStack() as stack:
        running: dict[str, _Process] = {}
        for name, each in figures.items():
            try:
                variables = {**limits(name, level), **environments.get(name, {})}
                job = {**_job(each, model, data, Path(folder), variables, level), **more}
                running[name] = stack.enter_context(_measure_two_starts(each, data, job))
            except _EndedError as error:
                each.failure = str(error)
        if not running:
            reasons = "; ".join(f"{name}: {each.failure}" for name, each in figures.items())
            raise RunError(f"no runtime can run {str(model)!r}: {reasons}")
        yield running, Path(folder)


def limits(runtime: str, level: str) -> Mapping[str, str]:
    """Return the variables that keep a runtime from instructions beyond a level; none if nothing does."""
    return (RUNTIMES | COLUMNS)[runtime].limits.get(level, {})


def _job(
    figures: Figures,
    model: Path,
    data: Mapping[str, Array],
    folder: Path,
    environment: Mapping[str, str],
    level: str,
) -> dict[str, Any]:
    """Return the job of a runtime's process, as it reads it."""
    place = folder / figures.runtime
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(place / "cache" / "inductor"), **environment}
    return {
        "environment": [f"{name}={value}" for name, value in variables.items()],
        "runtime": figures.runtime,
        "model": str(model),
        "names": list(data),
        "data": str(place / "data.npz"),
        "outputs": str(place / "outputs.npz"),
        "threads": figures.threads,
        "cache": str(place / "cache"),
        "level": level,
    }


@contextmanager
def _measure_two_starts(figures: Figures, data: Mapping[str, Array], job: Mapping[str, Any]) -> Iterator[_Process]:
    """Start a runtime with an empty cache, and again with its kept files; the second process waits for its turns."""
    place = Path(job["data"]).parent
    place.mkdir()
    np.savez(place / "data.npz", *data.values())
    with (place / "log").open("w+b") as log:
        first = _Process(job, log)
        first.close()  # in order, so that it keeps what it would keep
        process = _Process(job, log)
        figures.first, figures.again = first.started["seconds"], process.started["seconds"]
        figures.version, figures.device = process.started["version"], process.started.get("device", {})
        if isinstance(figures, TextFigures):
            figures.text = first.started["text"]
        try:
            yield process
            figures.memory = process.close()
        finally:
            process.kill()


def _take_turns(
    figures: Mapping[str, Figures],
    running: Mapping[str, _Process],
    rounds: int,
    seconds: float,
    gaps: Sequence[float],
) -> None:
    for _ in range(rounds):
        for gap in (0.0, *gaps):
            for name, process in running.items():
                time.sleep(SETTLE)
                each = figures[name]
                times = each.with_gaps.setdefault(gap, []) if gap else each.seconds
                times.append(process.turn(seconds, gap / 1e3))


def _compare(figures: Mapping[str, Figures], running: Sequence[str], folder: Path) -> None:
    """Compare the results of each with those of the first one that is not opbuild."""
    reference = _reference(running)
    expected = _outputs(folder / reference)
    for name in running:
        if name != reference:
            pairs = zip(_outputs(folder / name), expected, strict=True)
            figures[name].error = max((relative_error(*pair) for pair in pairs), default=0.0)


def _compare_texts(figures: Mapping[str, TextFigures], running: Sequence[str], folder: Path) -> None:
    """Count the tokens of each that are those of the first one that is not opbuild."""
    reference = _reference(running)
    (expected,) = _outputs(folder / reference)
    for name in running:
        if name != reference:
            (tokens,) = _outputs(folder / name)
            figures[name].same = int((tokens == expected).cumprod().sum())


def _reference(running: Sequence[str]) -> str:
    return next((name for name in running if not name.startswith("opbuild")), running[0])


def _outputs(place: Path) -> list[Array]:
    with np.load(place / "outputs.npz") as file:
        return [file[name] for name in file.files]
