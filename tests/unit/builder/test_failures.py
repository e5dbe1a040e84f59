"""Compiles that fail: named with operator, nodes and step, fatal to nothing else, never stored."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild import events
from opbuild.builder import build
from opbuild.builder.build import Builder
from opbuild.builder.client import CompileServer, IdleServer
from opbuild.config import Config
from opbuild.errors import BuildError, CompileError
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, Recorder, conv, disk_builder, needed
from support.until import children_of, is_gone, until


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "text"),
    [
        ("crash", "step compile: the compiler crashed: signal 11 (SIGSEGV)"),
        ("raise", "step compile: ArithmeticError: this operator cannot be compiled (at fake_compiler.py:"),
        ("hang", "step compile: it took more than 1 s and was ended"),
        ("empty", "step check: the compiler delivered no usable object: it is empty"),
        ("garbage", "step check: the compiler delivered no usable object: it does not begin as an ELF file"),
    ],
)
def test_a_failed_compile_is_named_and_stores_nothing(config: Config, mode: str, text: str) -> None:
    """The error names operator, node and step; siblings are stored, the failed operator is not (F05)."""
    seen = Recorder()
    wanted = needed(conv(1), conv(2, fake=mode), conv(3))
    with disk_builder(replace(config, compile_timeout=1.0), seen) as builder:
        with pytest.raises(CompileError) as caught:
            builder.build(wanted, "net")
        assert f"{builder.key(conv(2, fake=mode)).name(0)} (of node_1): {text}" in str(caught.value)
        assert "2 others are built" in str(caught.value)
        assert set(builder.store.names()) == {builder.key(conv(tile)).name(0) for tile in (1, 3)}
        assert [event.done for event in seen.of(events.CompileFinished)] == [1, 2, 3]
        again = builder.build(needed(conv(1), conv(3)), "net")
    assert again.built == 0


def test_what_a_network_can_do_without_fails_no_build(config: Config) -> None:
    """The build delivers all else and tells what failed; an operator that is needed as well still fails it."""
    seen, bad = Recorder(), conv(2, fake="raise")
    with disk_builder(config, seen) as builder:
        result = builder.start(needed(conv(1)), "net", needed(conv(3), bad)).result()
        assert list(result.entries) == [conv(1), conv(3)]
        assert result.built == 2
        (told,) = seen.of(events.Warned)
        assert "this operator cannot be compiled" in told.message
        with pytest.raises(CompileError):
            builder.start(needed(bad), "net", needed(bad)).result()


@pytest.mark.parametrize("mode", ["print", "orphan"])
def test_a_compiler_that_prints_or_leaves_processes_behind_disturbs_nobody(config: Config, mode: str) -> None:
    """The compiler's output never mixes with answers, and what it started ends with it."""
    with disk_builder(config) as builder:
        result = builder.build(needed(conv(1, fake=mode), conv(2)), "net")
    assert result.built == 2


def test_many_failures_are_counted_and_listed(config: Config) -> None:
    """Every failed operator is in one error."""
    wanted = needed(*(conv(tile, fake="raise") for tile in range(30)))
    with disk_builder(config) as builder, pytest.raises(CompileError, match="30 operators could not") as caught:
        builder.build(wanted, "net")
    assert "and 10 more" in str(caught.value)


def test_a_compiler_that_cannot_be_loaded_is_an_error_with_its_story(config: Config) -> None:
    """What went wrong while loading the compiler is in the error, not on the terminal."""

    class Broken(FakeCompiler):
        import_string = "support.fake_compiler:NoSuchCompiler"

    with (
        Builder(Operators(Memory()), Broken(), LEVEL, config) as builder,
        pytest.raises(BuildError, match="NoSuchCompiler"),
    ):
        builder.build(needed(conv()), "net")


def server_pid(builder: Builder) -> int:
    """Return the process id of the builder's warm server."""
    server = builder.take_server()
    builder.give_server(server)
    return server._process.pid


def test_a_server_that_dies_is_replaced_once(config: Config) -> None:
    """A server killed from outside costs only what was under way (F04)."""
    with disk_builder(config) as builder:
        builder.warm_up()
        victim = server_pid(builder)
        pending = builder.start(needed(*(conv(tile, milliseconds=200) for tile in range(4))), "net")
        assert until(lambda: children_of(victim))
        os.kill(victim, signal.SIGKILL)
        result = pending.result()
    assert result.built == 4


def test_servers_that_keep_dying_are_an_error(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """When its replacement dies too, the operators under way are reported with what the server said."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with disk_builder(config) as builder, pytest.raises(CompileError, match="server ended with code 1"):
        builder.build(needed(conv()), "net")


def test_an_interpreter_that_does_not_know_itself_is_an_error(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded interpreter gets an error, not a crash."""
    monkeypatch.setattr(sys, "executable", "")
    with disk_builder(config) as builder, pytest.raises(BuildError, match="executable"):
        builder.build(needed(conv()), "net")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with disk_builder(config) as builder, pytest.raises(BuildError, match="No such file"):
        builder.build(needed(conv()), "net")


def test_closing_ends_the_server_and_what_it_compiles(config: Config) -> None:
    """A build that is given up leaves no process behind."""
    builder = disk_builder(config)
    builder.warm_up()
    server = builder.take_server()
    asked = {"id": 0, "desc": conv(1, fake="hang").components(), "symbol": "k", "target": LEVEL.name}
    server.send({**asked, "timeout": 99, "debug": (), "sources": "", "known": [], "compiles": True})
    pid = server._process.pid
    (child,) = until(lambda: children_of(pid))
    server.close()
    server.close()
    assert until(lambda: is_gone(pid) and is_gone(child))


def test_a_server_nobody_needs_is_ended(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that was warmed up in vain ends when the build turns out to need no compile."""
    with disk_builder(config) as builder:
        builder.build(needed(conv()), "net")
    monkeypatch.setattr(build, "IDLE_SERVER", IdleServer())  # without what rests from the build before
    builder = disk_builder(config)
    builder.warm_up()
    pid = server_pid(builder)
    builder.build(needed(conv()), "net")
    assert until(lambda: is_gone(pid))


def test_the_server_ends_with_a_killed_parent(config: Config) -> None:
    """A kill -9 of the user's process leaves neither the server nor a hung compile (F18)."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.samples import *
from support.until import children_of, until
from opbuild.config import Config
from pathlib import Path
builder = disk_builder(Config(cache_path=Path({str(config.cache_path)!r}), workers=1))
builder.warm_up()
server = builder.take_server()
builder.give_server(server)
pending = builder.start(needed(conv(1, fake="hang")), "net")
pid = server._process.pid
print(pid, *until(lambda: children_of(pid)), flush=True)
pending.result()
"""
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert len(pids) == 2
    assert until(lambda: all(map(is_gone, pids)))


class EditedCompiler(FakeCompiler):
    """A compiler whose sources look different in the server than they did to the builder."""

    def sources_digest(self, desc: OpDesc) -> str:
        return "before the edit"


def test_sources_edited_while_building_are_used_once_and_not_stored(config: Config) -> None:
    """An object that may come from other sources than its key says is not stored (F34)."""
    store = Operators(Memory())
    with Builder(store, EditedCompiler(), LEVEL, config) as builder:
        result = builder.build(needed(conv()), "net")
    assert result.built == 1
    assert store.names() == ()
    assert "sources were edited" in result.warnings[0]


def test_the_server_gets_a_fixed_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's environment reaches the compiler but what the interpreter needs (F26, F43)."""
    monkeypatch.setenv("HL_TARGET", "host-cuda")
    monkeypatch.setenv("HL_DEBUG_CODEGEN", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "77")
    server = CompileServer(FakeCompiler.import_string, 1)
    server.receive()
    environment = dict(
        line.split("=", 1) for line in Path(f"/proc/{server._process.pid}/environ").read_text().split("\0") if line
    )
    folder = Path(f"/proc/{server._process.pid}/cwd").readlink()
    server.close()
    assert environment["PYTHONHASHSEED"] == "0"
    assert set(environment) <= {
        "LC_ALL", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PATH", "PYTHONHASHSEED", "PYTHONHOME",
        "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONSAFEPATH", "TMPDIR",
    }  # fmt: skip
    assert folder == Path("/")


def test_the_users_process_loads_no_compiler(config: Config) -> None:
    """Building loads neither halide nor onnx where the user's program runs."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.samples import *
from pathlib import Path
with disk_builder(Config(cache_path=Path({str(config.cache_path)!r}), workers=1)) as builder:
    assert builder.build(needed(conv()), "net").built == 1
assert not {{"halide", "onnx"}} & set(sys.modules), "loaded"
"""
    subprocess.run([sys.executable, "-c", script], check=True)
