"""Help: nothing is cut, every command is in a group, and the defaults that it shows are those that hold."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from opbuild.cli.export import make_config
from opbuild.cli.export_options import ExportRequest
from opbuild.cli.main import COMMANDS, GROUPS, main, opbuild
from opbuild.config import Config


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with what is typed for it, those of groups too."""
    context = click.Context(opbuild)
    for name in COMMANDS:
        command = opbuild.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {each}", sub) for each, sub in command.commands.items())


def helped(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the output of ``--help``, as one line of words."""
    assert main([*arguments, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("columns", ["60", "80", "200"])
def test_no_summary_is_cut(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """``opbuild cache --help`` ended summaries with dots: each first sentence is there whole at any width."""
    monkeypatch.setenv("COLUMNS", columns)
    groups = [(), *((name,) for name, command in commands() if isinstance(command, click.Group))]
    for group in groups:
        shown = helped(capsys, *group)
        assert "... " not in shown.replace("[ARGS]... ", "")
    shown = helped(capsys, "cache")
    for name, command in commands():
        if name.startswith("cache "):
            sentence = " ".join((command.help or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")
            assert sentence in shown
    shown = helped(capsys)
    for title, rows in GROUPS.items():
        assert title in shown
        assert all(f"{name} {summary}" in shown for name, summary in rows)


def test_every_command_is_in_a_group_and_every_group_has_commands() -> None:
    """A command that is added appears in the help."""
    assert {name for rows in GROUPS.values() for name, _ in rows} == set(COMMANDS)


def shown_defaults(command: click.Command) -> dict[str, str]:
    """Return the default that the help of each option of a command names."""
    found = {}
    for option in command.params:
        match = re.search(r"\[default: (.*?)\]$", getattr(option, "help", None) or "")
        if match and option.name:
            found[option.name] = match[1]
        elif isinstance(option, click.Option) and option.show_default and option.name:
            found[option.name] = str(option.default)
    return found


def held(text: str, environ: dict[str, str]) -> str:
    """Return the value of a default such as ``$NAME/folder, else ~/folder`` in an environment."""
    for part in text.split(", else "):
        variable = re.match(r"\$([A-Z_]+)", part)
        if variable is None:
            return part.replace("~", environ["HOME"])
        if environ.get(variable[1]):
            return part.replace(variable[0], environ[variable[1]])
    return ""


VALUES = {
    "OPBUILD_CACHE": "/own", "MS_COMPILER_CACHE_PATH": "/named", "XDG_CACHE_HOME": "/caches",
    "ASCEND_CACHE_PATH": "/ascend", "ASCEND_WORK_PATH": "/work", "MS_BUILD_PROCESS_NUM": "3",
    "OPBUILD_NUM_THREADS": "5", "OPBUILD_FORBID_COMPILE": "1",
}  # fmt: skip
ENVIRONMENTS = [
    {"HOME": "/home/me", **{name: VALUES[name] for name in names}}
    for number in range(4)
    for names in itertools.combinations(VALUES, number)
]
SETTINGS = ("cache_path", "op_compiler_cache_dir", "debug_dir", "workers", "num_threads", "forbid_compile")
PLAIN = {
    "the cores": str(Config.from_environment(environ={"HOME": "/h"}).num_threads),
    "the cores, 24 at most": str(Config.from_environment(environ={"HOME": "/h"}).workers),
    "./kernel_meta": "kernel_meta",
    "": "False",
    "1": "True",
}
"""What a text means where it is not the value itself."""


@pytest.mark.parametrize(("name", "command"), list(commands()))
def test_defaults_from_the_environment_are_those_that_hold(name: str, command: click.Command) -> None:
    """What the help says of variables and folders is compared with the settings in 93 environments."""
    shown = {option: text for option, text in shown_defaults(command).items() if option in SETTINGS}
    for environ in ENVIRONMENTS:
        config = Config.from_environment(environ=environ, atc=name == "atc")
        facts = {
            "cache_path": config.cache_path, "op_compiler_cache_dir": config.op_compiler_cache_dir,
            "debug_dir": config.debug_folder, "workers": config.workers, "num_threads": config.num_threads,
            "forbid_compile": config.forbid_compile,
        }  # fmt: skip
        for option, text in shown.items():
            value = held(text, environ)
            said = PLAIN.get(value, value) if not (option != "forbid_compile" and value == "1") else value
            assert said == str(facts[option]), (option, environ)


@pytest.mark.parametrize("name", ["export", "atc"])
def test_plain_defaults_are_those_that_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the help of ``export`` and ``atc`` calls a default is what a command line without the option gives."""
    monkeypatch.chdir(tmp_path)
    Path("m.onnx").write_bytes(b"\x08\x08")
    found: list[ExportRequest] = []
    monkeypatch.setattr("opbuild.cli.export.carry_out", found.append)
    given = ["--framework=5", "--output=m", "--soc_version=host"] if name == "atc" else []
    assert main([name, "m.onnx", *given]) == 0
    (request,) = found
    config = make_config(request)
    facts: dict[str, Any] = {
        "mode": request.mode, "framework": 5, "target": request.target, "log": request.log,
        "check_report": request.check_report, "op_select_implmode": config.op_select_implmode,
        "precision_mode": config.precision_mode, "op_compiler_cache_mode": config.op_compiler_cache_mode,
        "op_debug_level": config.op_debug_level,
    }  # fmt: skip
    shown = shown_defaults(dict(commands())[name])
    words = {"output": "the model's name, here", "shape": "the model's", "optypelist_for_implmode": "all",
             "remote": "$OPBUILD_REMOTE, else op_cache.ini"}  # fmt: skip
    for option, text in shown.items():
        if option not in SETTINGS:
            assert text == str(facts[option]) if option in facts else text == words[option]
    required = {
        option.name for option in dict(commands())[name].params if "[required]" in (getattr(option, "help", None) or "")
    }
    assert required == ({"framework", "output", "target"} if name == "atc" else set())
