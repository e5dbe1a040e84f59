"""The log: which events give which lines, and that nothing is said where nobody asked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from opbuild import events
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.events import with_subscribers
from opbuild.kernel.reason import Reason
from opbuild.monitoring.log import LINES, use_logging
from opbuild.platform.records import NamedTuple
from opbuild.store.blobs import Memory
from opbuild.store.remote.retry import Retried
from support.samples import conv, disk_builder, needed


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    """The logger of the package, as it was before when the test is over."""
    logger = logging.getLogger("opbuild")
    level, handlers = logger.level, [*logger.handlers]
    logger.setLevel(logging.NOTSET)
    yield logger
    logger.setLevel(level)
    logger.handlers = handlers


@contextmanager
def no_handlers() -> Iterator[None]:
    """Have no handlers, as a program that has set nothing up: pytest has some while a test runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger(), "handlers", [])
        yield


def build(config: Config, tiles: int = 2) -> None:
    """Build so many operators."""
    with disk_builder(config, with_subscribers(events.ignore)) as builder:
        builder.build(needed(*(conv(tile) for tile in range(tiles))), "net")


def test_a_build_is_logged_where_the_program_listens(
    config: Config, caplog: pytest.LogCaptureFixture, logger: logging.Logger
) -> None:
    """What is compiled, why, and how large it is; what is reused only to who asks for more."""
    use_logging("")
    logger.setLevel(logging.INFO)
    build(config)
    lines = [each.getMessage() for each in caplog.records]
    assert {each.name for each in caplog.records} == {"opbuild.builder"}
    assert lines[0] == "build of net: 2 operators, 2 to compile"
    assert [line for line in lines if line.startswith("compiled conv_relu_") and line.endswith("not in the store")]
    assert lines[-1].startswith("build of net: 2 operators built, 0 reused, ")
    caplog.clear()
    logger.setLevel(logging.DEBUG)
    build(config)
    reused = [each for each in caplog.records if each.getMessage().startswith("reused conv_relu_")]
    assert [each.levelname for each in reused] == ["DEBUG"] * 2
    assert reused[0].getMessage().endswith(": in the store")


@no_handlers()
def test_nothing_is_said_where_nobody_asked(config: Config, capfd: pytest.CaptureFixture[str]) -> None:
    """A program that has loaded ``logging``, and set nothing up, prints what it printed before."""
    use_logging("")
    build(config)
    events.tell(events.RemoteAsked("redis://host", "get", "x", 0, 0, 0.1, "slow", "slow: no answer in time"))
    events.tell(events.Warned("a warning that an observer of its own shows"))
    assert capfd.readouterr() == ("", "")


@no_handlers()
def test_the_variable_has_events_go_to_standard_error_until_the_program_listens(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line has its time, level and logger; where the program has a handler no line is said twice."""
    use_logging("info")
    use_logging("info")
    build(config)
    first, *others = capsys.readouterr().err.splitlines()
    assert first.endswith(" INFO opbuild.builder: build of net: 2 operators, 2 to compile")
    assert len(others) == 3
    heard: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = heard.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    build(config)
    assert capsys.readouterr().err == ""
    assert len(heard) == 2


def test_a_level_that_is_none_is_an_error() -> None:
    """The message names the variable, the value, and what is allowed; a blank one says nothing."""
    with pytest.raises(OptionError, match="OPBUILD_LOG is 'loud'") as raised:
        Config.from_environment(environ={"OPBUILD_LOG": "loud"})
    assert raised.value.hint == "it must be debug or info or warning"
    assert [Config.from_environment(environ={"OPBUILD_LOG": text}).log for text in (" ", "debug")] == ["", "debug"]


def test_a_failed_request_is_in_the_log_and_an_absent_object_is_none(
    caplog: pytest.LogCaptureFixture, logger: logging.Logger
) -> None:
    """The place is named, and what was asked for."""

    class Full(Memory):
        def put(self, files: object, linked_from: object = None) -> Reason | None:
            return Reason("refused", "it is full")

    use_logging("")
    logger.setLevel(logging.DEBUG)
    blobs = Retried(Full({"one": b"1"}), place="redis://host")
    blobs.get("one", 10)
    blobs.get("nothing", 10)
    blobs.put([("two", b"22")])
    shown = [(each.levelname, each.getMessage().split(", ")[0], each.getMessage().split(": ", 1)[1])
             for each in caplog.records]  # fmt: skip
    assert shown == [
        ("DEBUG", "get one at redis://host", "1 B read, 0 B written"),
        ("DEBUG", "get nothing at redis://host", "absent"),
        ("INFO", "put two at redis://host", "refused: it is full"),
    ]


class Input(NamedTuple):
    """An input of a bound network."""

    name: str
    type: Input | None = None
    shape: tuple[int, ...] = (8, 4)


SAMPLES: list[tuple[events.ProcessEvent, str]] = [
    (events.BuildStarted("net", 0, 0), ""),
    (
        events.CompileFinished("conv_1_0", 3.0, 1, 1, failure="step compile: bad"),
        "conv_1_0 could not be compiled: step compile: bad",
    ),
    (
        events.BuildFinished("net", 1, 2, 0.5, (events.Reused("a", "", "", 1), events.Reused("b", "", events.PACK, 1))),
        "build of net: 1 operator built, 2 reused, 1 from the pack, 0.500 s",
    ),
    (events.Waiting("conv_1_0", "rank 2", 3.0), "waiting 3 s for conv_1_0, by rank 2"),
    (events.Taken("conv_1_0", "built by rank 2", 1, 1), "conv_1_0 need not be compiled: built by rank 2"),
    (events.LowerServes("net", "x86-64-v2"), "net runs code of x86-64-v2"),
    (events.Working("linking"), "linking"),
    (events.Working("packing weights", 3, 9), ""),
    (events.NetworkLoaded("net", 3), "loaded the stored network net: 3 operators"),
    (events.NetworkFetched("net"), "the network net came from the remote store"),
    (events.Ended("compile", "net", 0.25), "compile of net: 0.250 s"),
    (events.Ended("bind", "", 0.25, "ModelError: odd"), "bind of a network failed after 0.250 s: ModelError: odd"),
    (events.Ended("bind", "net", 0.25), ""),
    (
        events.NetworkBound("net", [Input("x", Input(""))], events.BUILT, "there is none", {"NonZero": 2}, 3, 0.004),
        "net is ready for x:8,4: built, 4.0 ms; not started as stored: there is none; "
        "falls back to numpy: 2 x NonZero; 3 operators to be compiled behind the calls",
    ),
    (events.NetworkBound("net", [], events.STORED, "", {}, 0, 0.004), "net is ready for no inputs: stored, 4.0 ms"),
]  # fmt: skip


@pytest.mark.parametrize(("event", "line"), SAMPLES)
def test_an_event_gives_its_line(
    event: events.ProcessEvent, line: str, caplog: pytest.LogCaptureFixture, logger: logging.Logger
) -> None:
    """Or none: what says nothing new, or is counted on elsewhere."""
    use_logging("")
    logger.setLevel(logging.DEBUG)
    events.tell(event)
    assert [each.getMessage() for each in caplog.records][-1:] == ([line] if line else [])


def test_a_line_has_no_unprintable_letters_of_others(caplog: pytest.LogCaptureFixture, logger: logging.Logger) -> None:
    """A network's name may be anything, and a log goes to terminals."""
    use_logging("")
    logger.setLevel(logging.INFO)
    events.tell(events.NetworkFetched("net\x1b[2J"))
    assert "\x1b" not in caplog.text
    assert "\\x1b[2J" in caplog.text


def test_every_kind_of_events_has_lines_or_a_reason_to_have_none() -> None:
    """A new kind is not forgotten."""
    kinds = set(events.ProcessEvent.__args__)
    assert kinds - LINES.keys() == {
        events.Warned,  # as observers of builds log it, once
        events.Began,  # its end says it
    }
