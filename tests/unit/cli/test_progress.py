"""Progress of a build on a terminal and without one."""

from __future__ import annotations

import io
import re
import threading
from pathlib import Path

import pytest
from rich.console import Console

import opbuild
from opbuild.cli.progress import BarProgress, BuildState, LineProgress, build_progress
from opbuild.events import (
    LINKING,
    PACKING,
    PREPARING,
    READING,
    WRITING,
    BuildFinished,
    BuildStarted,
    CompileFinished,
    CompileStarted,
    Event,
    Warned,
    Working,
)
from support.small_network import SHAPE, SmallNetwork
from support.until import PATIENCE


def test_the_state_follows_the_events() -> None:
    """Operators in work are those begun and not finished."""
    state = BuildState()
    state.update(BuildStarted("net", 5, 3))
    for name in "abc":
        state.update(CompileStarted(name, "not in the store"))
    state.update(CompileFinished("b", 10.0, 1, 3))
    assert (state.network, state.done, state.to_compile, state.running) == ("net", 1, 3, ["a", "c"])
    state.update(BuildFinished("net", 3, 2, 0.1))
    assert state.running == []


def test_a_silent_compile_still_writes_lines() -> None:
    """Minutes without a word look like a hang: lines come while nothing happens, naming what is compiled (F70)."""
    lines: list[str] = []
    three = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) >= 3:
            three.set()

    progress = LineProgress(write, interval=0.01)
    progress(BuildStarted("net", 5, 3))
    progress(CompileStarted("conv_relu_1_0", "not in the store"))
    assert three.wait(PATIENCE)
    progress.close()
    assert lines[0] == "net: 3 of 5 operators to compile"
    assert lines[-1].startswith("net: 0 of 3 operators compiled, ")
    assert lines[-1].endswith(", compiling conv_relu")


def test_without_a_terminal_the_longest_silence_is_ten_seconds() -> None:
    """The interval that build_progress uses is the one that is promised (F70)."""
    with build_progress(Console(file=io.StringIO())) as observer:
        assert isinstance(observer, LineProgress)
        assert observer._interval <= 10.0


def test_the_lines_go_on_while_a_network_is_put_together_and_stop_with_the_command() -> None:
    """Linking and packing a large network take long too; the end is one line, and the thread that wrote others ends."""
    lines: list[str] = []
    two = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len([each for each in lines if "putting the network together" in each]) == 2:
            two.set()

    progress = LineProgress(write, interval=0.01)
    progress(BuildStarted("net", 2, 1))
    progress(BuildFinished("net", 1, 1, 0.25))
    assert two.wait(PATIENCE)
    progress.close()
    assert "net: 1 operator built, 1 reused, 0.25 s" in lines
    assert lines[-1] == "net: putting the network together, 0 s"
    count = len(lines)
    threading.Event().wait(0.05)
    assert len(lines) <= count + 1


def test_a_build_that_compiles_nothing_is_not_silent_either() -> None:
    """What is left of it is said, not that nothing of nothing is compiled."""
    lines: list[str] = []
    progress = LineProgress(lines.append, interval=1000, clock=lambda: 0.0)
    progress(BuildStarted("net", 9, 0))
    progress.tick()
    assert lines == ["net: putting the network together, 0 s"]


def test_a_terminal_shows_that_a_model_is_read_and_that_a_network_is_put_together() -> None:
    """Before the first and after the last compile too; nothing is drawn once it is closed."""
    stream = io.StringIO()
    bar = BarProgress(Console(file=stream, force_terminal=True, width=160), patience=0.0)
    bar.begin()
    bar._show_later()  # as the thread does, some time
    bar._progress.refresh()
    assert "reading the model" in stream.getvalue()
    bar(BuildStarted("net", 9, 4))
    bar(BuildFinished("net", 4, 5, 0.1))
    bar._progress.refresh()
    bar.close()
    assert "putting the network together" in stream.getvalue()
    shown = stream.getvalue()
    bar._draw()
    assert stream.getvalue() == shown


@pytest.mark.parametrize("terminal", [True, False])
def test_a_warning_is_shown_as_it_is(terminal: bool) -> None:
    """Square brackets in a message are text, not markup, whichever way progress is shown."""
    stream = io.StringIO()
    with build_progress(Console(file=stream, force_terminal=terminal, color_system=None, width=200)) as observer:
        observer(Warned("the store [/tmp/x] could not be written"))
    assert "warning: the store [/tmp/x] could not be written" in stream.getvalue()


def test_the_bar_shows_network_count_and_operators_in_work() -> None:
    """On a terminal one line says how far the build is and what is compiled now."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=160)
    with build_progress(console) as observer:
        assert isinstance(observer, BarProgress)
        observer(BuildStarted("net", 9, 4))
        observer(CompileStarted("conv_relu_1_0", "not in the store"))
        observer(CompileFinished("softmax_2_0", 30.0, 2, 4))
        observer._progress.refresh()
        shown = stream.getvalue()
        observer(BuildFinished("net", 4, 5, 0.1))
    for text in ("net", "2/4", "conv_relu"):
        assert text in shown


def test_a_build_with_nothing_to_compile_draws_nothing() -> None:
    """A warm start leaves the terminal alone."""
    stream = io.StringIO()
    with build_progress(Console(file=stream, force_terminal=True)) as observer:
        observer(BuildStarted("net", 9, 0))
    assert stream.getvalue() == ""


def test_the_bar_goes_when_a_build_fails() -> None:
    """An error in the middle leaves no drawing thread and a visible cursor behind."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True)
    before = set(threading.enumerate())

    def build() -> None:
        with build_progress(console) as observer:
            observer(BuildStarted("net", 9, 4))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        build()
    shown = stream.getvalue()
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") == 1
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def test_the_time_left_follows_from_what_is_done() -> None:
    """After a quarter of the operators in 30 s, 90 s are left; before the first one nothing is foretold."""
    now = [100.0]
    lines: list[str] = []
    progress = LineProgress(lines.append, interval=1000, clock=lambda: now[0])
    progress(BuildStarted("net", 9, 8))
    now[0] += 12
    progress.tick()
    for done in (1, 2):
        progress(CompileFinished(f"op_{done}_0", 10.0, done, 8))
    now[0] += 18
    progress.tick()
    progress.close()
    assert lines[1:] == [
        "net: 0 of 8 operators compiled, 12 s",
        "net: 2 of 8 operators compiled, 30 s, about 1 min 30 s left",
    ]


def test_nothing_is_foretold_from_the_first_moment() -> None:
    """The first kilobytes of 8 MB that took a second to write said "22 s left"."""
    now = [0.0]
    state = BuildState(clock=lambda: now[0])
    state.update(BuildStarted("net", 9, 0))
    state.update(Working(WRITING, MB // 10, 8 * MB))
    now[0] = 0.4
    assert state.left is None
    now[0] = 2.0
    state.update(Working(WRITING, 4 * MB, 8 * MB))
    assert state.left == 2.0


def test_the_step_is_whole_in_a_terminal_of_80_characters() -> None:
    """Its megabytes ended in an ellipsis."""
    stream = io.StringIO()
    bar = BarProgress(Console(file=stream, force_terminal=True, width=80, color_system=None), patience=0.0)
    bar(BuildStarted("inception_v1", 9, 0))
    bar(Working(WRITING, 100 * MB, 600 * MB))
    bar._show_later()
    bar.close()
    assert re.search(r"100/600 MB +writing the network ", stream.getvalue())


def test_a_model_that_takes_long_to_read_is_not_silent() -> None:
    """Lines come before the build starts too; a build that is quick says nothing in between."""
    now = [0.0]
    lines: list[str] = []
    two = threading.Event()

    def write(line: str) -> None:
        lines.append(line)
        if len(lines) == 2:
            two.set()

    progress = LineProgress(write, interval=0.01, clock=lambda: now[0])
    now[0] = 20.0
    progress.begin()
    assert two.wait(PATIENCE)
    progress.close()
    assert lines[:2] == ["reading the model, 20 s"] * 2


def test_a_build_that_begins_after_the_command_writes_no_lines_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a network is built as it runs: its thread went on writing for as long as the process lived."""
    begun: list[str] = []
    monkeypatch.setattr("opbuild.cli.progress.begin", lambda _, name: begun.append(name))
    progress = LineProgress(lambda _: None)
    progress(BuildStarted("net", 2, 1))
    progress.close()
    progress(BuildStarted("net", 2, 1))
    progress.begin()
    assert begun == ["opbuild-progress"]


def test_a_quiet_build_writes_only_in_between() -> None:
    """Where start and end are not wanted, a short build leaves no line and a long one a sign of life."""
    lines: list[str] = []
    progress = LineProgress(lines.append, interval=1000, clock=lambda: 0.0, ends=False)
    progress(BuildStarted("net", 2, 1))
    progress.tick()
    progress(BuildFinished("net", 1, 1, 0.25))
    assert lines == ["net: 0 of 1 operator compiled, 0 s"]


def test_the_bar_shows_the_time_left() -> None:
    """On a terminal too."""
    stream = io.StringIO()
    now = [0.0]
    bar = BarProgress(Console(file=stream, force_terminal=True, width=160), clock=lambda: now[0])
    bar(BuildStarted("net", 9, 4))
    now[0] = 7.0
    bar(CompileFinished("softmax_2_0", 30.0, 1, 4))
    bar._progress.refresh()
    bar.close()
    assert "21 s left" in stream.getvalue()


MB = 10**6


def test_packing_linking_and_writing_are_steps_with_names_and_the_time_left_is_theirs_too() -> None:
    """It said "0 s left" for the 20 s in which 560 MB of weights were packed, and "linking" once all was written."""
    now = [0.0]
    lines: list[str] = []
    progress = LineProgress(lines.append, interval=1000, clock=lambda: now[0])
    steps: list[tuple[float, Event]] = [
        (0.0, BuildStarted("net", 2, 2)),
        (0.0, Working(PACKING)),
        (1.0, CompileFinished("a_1_0", 10.0, 1, 2)),
        (4.0, Working(PACKING, 100 * MB, 600 * MB)),
        (5.0, CompileFinished("b_2_0", 10.0, 2, 2)),
        (8.0, Working(PACKING, 200 * MB, 600 * MB)),
        (24.0, Working(PACKING, 600 * MB, 600 * MB)),
        (24.0, BuildFinished("net", 2, 0, 24.0)),
        (24.0, Working(LINKING)),
        (25.0, Working(WRITING)),
        (26.0, Working(WRITING, 300 * MB, 600 * MB)),
        (27.0, Working(WRITING, 600 * MB, 600 * MB)),
    ]
    for when, event in steps:
        now[0] = when
        progress(event)
        if not isinstance(event, (BuildStarted, BuildFinished)):
            progress.tick()
    progress.close()
    assert [line.removeprefix("net: ") for line in lines] == [
        "2 of 2 operators to compile",
        "0 of 2 operators compiled, 0 s",
        "1 of 2 operators compiled, 1 s, about 1 s left",
        "1 of 2 operators compiled, packing weights: 100 of 600 MB, 4 s, about 20 s left",
        "packing weights: 100 of 600 MB, 5 s, about 25 s left",
        "packing weights: 200 of 600 MB, 8 s, about 16 s left",
        "linking, 24 s",
        "2 operators built, 0 reused, 24.00 s",
        "linking, 24 s",
        "writing the network, 25 s",
        "writing the network: 300 of 600 MB, 26 s, about 1 s left",
        "writing the network, 27 s",
    ]


def test_a_terminal_shows_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where nothing is compiled, after a while; with NO_COLOR there are no colours."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    bar = BarProgress(Console(file=stream, force_terminal=True, width=160), patience=0.0)
    bar(BuildStarted("net", 9, 0))
    bar(Working(PACKING, 100 * MB, 600 * MB))
    bar._show_later()
    assert re.search(r"100/600 MB +(\x1b\[2m)?packing weights", stream.getvalue())
    for step in (LINKING, WRITING):
        bar(Working(step))
        assert step in stream.getvalue()
    bar.close()
    assert "\x1b[3" not in stream.getvalue()


def test_a_build_says_each_step_and_counts_the_bytes_of_its_weights(
    small_network: SmallNetwork, tmp_path: Path
) -> None:
    """From Python too: steps come in order, and their bytes grow to all of them."""
    seen: list[Working] = []

    def observe(event: Event) -> None:
        if isinstance(event, Working):
            seen.append(event)

    shapes = {"x": SHAPE}
    with small_network.replayed():
        opbuild.compile(small_network.path, cache_path=tmp_path, input_shapes=shapes, observer=observe)
        opbuild.export(small_network.path, tmp_path / "small", input_shapes=shapes, observer=observe)
    names = [each.step for each in seen]
    assert list(dict.fromkeys(names)) == [READING, PREPARING, PACKING, LINKING, WRITING]
    for step in (PACKING, WRITING):
        assert (seen[-1 - names[::-1].index(step)].done, True) == (256 * 256 * 4, names.count(step) > 1)


def test_what_is_waited_for_may_come_while_it_is_shown() -> None:
    """In another thread; the one that shows it went on with nothing, and died."""

    class Vanishing(dict[str, str]):
        def __len__(self) -> int:
            """What there is, which is gone then."""
            found = super().__len__()
            self.clear()
            return found

    state = BuildState()
    state.waiting = Vanishing(conv_1_2="another process")
    assert state.compiled_by == "waiting for conv, which another process compiles"
