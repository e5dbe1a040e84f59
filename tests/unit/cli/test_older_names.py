"""Older names: each goes on working and says the name, and nothing but their section and the history uses one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import opbuild
from opbuild.cli.export_options import ExportRequest
from opbuild.cli.main import COMMANDS, OLDER, main
from opbuild.cli.main import opbuild as program
from opbuild.cli.options import RenamedOption
from support.small_network import SHAPE, SmallNetwork

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(path for folder in ("docs", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.md")),
]
VALUES = {"SHAPES": "x:1,2", "LEVEL": "x86-64-v3", "TARGET,TARGET": "x86-64-v3", "N": "3", "FILE.json": "f.json"}
"""A value that an option takes, by what ``--help`` calls it."""


def context() -> click.Context:
    """Return the context of the program."""
    return click.Context(program, **program.context_settings)


def renamed() -> Iterator[tuple[str, click.Command, RenamedOption, str]]:
    """Yield each older name of an option, with its command as it is typed."""
    for name in COMMANDS:
        found = program.get_command(context(), name)
        assert found is not None
        group = found.commands if isinstance(found, click.Group) else {"": found}
        for each, command in group.items():
            for option in command.params:
                if isinstance(option, RenamedOption):
                    yield from ((f"{name} {each}".strip(), command, option, older) for older in option.older)


RENAMED = list(renamed())
_NAMES = [f"{name} {older}" for name, _, _, older in RENAMED]


def parsed(command: click.Command, option: str, value: str) -> dict[str, object]:
    """Return the arguments that a command gets from a command line with an option."""
    needed = ["given" for each in command.params if isinstance(each, click.Argument) and each.required]
    return command.make_context("command", [*needed, option, value], context()).params


@pytest.mark.parametrize(("name", "command", "option", "older"), RENAMED, ids=_NAMES)
def test_an_option_by_its_older_name_is_the_option_and_says_so(
    name: str, command: click.Command, option: RenamedOption, older: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command gets the same, with underscores or hyphens; one line on the standard error names the option."""
    value, own = VALUES[str(option.metavar)], max(option.opts, key=len)
    wanted = parsed(command, own, value)
    assert capsys.readouterr().err == ""
    for spelling in (older, "--" + older[2:].replace("_", "-")):
        assert parsed(command, spelling, value) == wanted
        assert capsys.readouterr() == ("", f"note: {older} is an older name of {own}\n")


def test_both_names_of_an_option_are_one_too_many(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is lost: the command ends, or takes both where an option may be repeated."""
    assert main(["explain", "m.onnx", "--target", "host", "--soc_version=x86-64"]) == 2
    assert "error (option): --target is given twice, once as --soc_version\n" in capsys.readouterr().err
    warm = dict(zip(_NAMES, RENAMED, strict=True))["warm --shapes"][1]
    words = ["m.onnx", "--shape=x:1", "--shapes=x:2"]
    assert warm.make_context("warm", words, context()).params["shapes"] == [{"x": (1,)}, {"x": (2,)}]


@pytest.mark.parametrize("name", sorted({name for name, *_ in RENAMED}))
def test_help_shows_no_older_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an option, nor of a command."""
    assert main([*name.split(), "--help"]) == 0
    words = set(re.findall(r"--\w+", capsys.readouterr().out))
    assert words.isdisjoint(older for each, _, _, older in RENAMED if each == name)
    assert OLDER.keys().isdisjoint(COMMANDS)


@pytest.mark.parametrize("older", OLDER)
def test_a_command_by_its_older_name_is_the_command_and_says_so(older: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with its options is said of the command."""
    assert main([older]) == 2
    note, error, hint = capsys.readouterr().err.splitlines()
    assert note == f"note: 'opbuild {older}' is an older name of 'opbuild {OLDER[older]}'"
    assert (error, hint) == (
        "error (option): the model is missing",
        f"  hint: give its path: opbuild {OLDER[older]} MODEL.onnx",
    )


@pytest.mark.parametrize("words", ["m.onnx -oout", "--model=m.onnx --output=out", "m.onnx -o out --soc_version=host"])
def test_compile_with_what_only_export_has_is_export(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts in which ``compile`` writes a file go on writing it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.onnx").write_bytes(b"\x08\x08")
    found: list[ExportRequest] = []
    monkeypatch.setattr("opbuild.cli.export.carry_out", found.append)
    assert main(["compile", *words.split()]) == 0
    assert [(each.model, each.output) for each in found] == [(Path("m.onnx"), Path("out"))]
    first = capsys.readouterr().err.splitlines()[0]
    assert re.fullmatch(r"note: 'opbuild compile' with (-o|--output) is an older name of 'opbuild export'", first)


def test_an_option_that_neither_command_has_is_refused_as_of_compile(capsys: pytest.CaptureFixture[str]) -> None:
    """A slip of the pen makes no file."""
    assert main(["compile", "m.onnx", "--outputs=out"]) == 2
    assert capsys.readouterr().err.startswith("error (option): there is no option '--outputs'\n")


def test_build_offline_is_export_and_says_so(small_network: SmallNetwork, tmp_path: Path) -> None:
    """With its own name of the level."""
    with small_network.replayed(), pytest.warns(DeprecationWarning, match=r"build_offline is .* of opbuild\.export"):
        path = opbuild.build_offline(
            small_network.path, tmp_path / "old", soc_version="host", input_shapes={"x": SHAPE}
        )
    assert path == tmp_path / "old.om"
    assert path.is_file()
    assert "build_offline" not in dir(opbuild)


def section() -> list[tuple[str, str, str]]:
    """Return the rows of the reference about older names: the older one, whose it is, and the name."""
    text = (ROOT / "docs/reference/cli.md").read_text().partition("## Older names\n")[2].partition("\n## ")[0]
    return [tuple(each.strip() for each in row.split("|")[1:4]) for row in text.splitlines() if row.startswith("| `")]  # type: ignore[misc]


def test_the_reference_lists_each_older_name_of_a_command() -> None:
    """With the command that has it, or but for those that have not, and its name."""
    rows = section()
    listed = {(older, name) for older, _, name in rows}
    assert {(f"`opbuild {older}`", f"`opbuild {name}`") for older, name in OLDER.items()} <= listed
    for command, _, option, older in RENAMED:
        own = max(option.opts, key=len)
        fits = [
            whose.startswith("all commands") != (f"`{command.split()[0]}`" in whose)
            for text, whose, name in rows
            if re.match(rf"`{older}\b", text) and re.match(rf"`{own}\b", name)
        ]
        assert any(fits), (command, older)


def old_words(text: str) -> set[str]:
    """Return the older names in a document's text; options of ATC and of other programs in their lines are none."""
    options = {older for *_, older in RENAMED}
    own = {name for *_, option, _ in RENAMED for name in option.opts}
    every = {name for command in COMMANDS for name in spelled(command)}
    alone = re.compile("|".join(sorted(rf"{each}\b" for each in options - own - every)))
    found = set(re.findall(rf"\bopbuild (?:{'|'.join(OLDER)})\b|\bbuild_offline\b", text))
    for line in text.splitlines():
        if not re.search(r"\batc\b|ATC|\.py\b|\bgunicorn\b", line):
            found.update(alone.findall(line))
        for command, words in re.findall(r"\bopbuild (\w+(?: \w+)?)([^`\n]*)", line):
            names = {older for name, _, _, older in RENAMED if name in (command, command.split()[0])}
            found.update(word for word in re.findall(r"--\w+", words) if word in names)
            if command.startswith("compile ") or command == "compile":
                found.update(re.findall(r"(?<!\S)-o\b|--output\b", words))
    return found


def spelled(command: str) -> set[str]:
    """Return the options of a command but of ``atc``, as they are spelled."""
    found = program.get_command(context(), command)
    assert found is not None
    return {name for each in found.params for name in each.opts} if command != "atc" else set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_document_uses_an_older_name(document: Path) -> None:
    """But for their own section."""
    text = document.read_text()
    if document.name != "atc.md":
        text = re.sub(r"## Older names\n.*?(?=\n## |\Z)", "", text, flags=re.DOTALL)
        assert old_words(text) == set()
    else:
        assert old_words(re.sub(r"--(soc_version|input_shape)\b", "", text)) == set()


def test_an_older_name_in_a_document_is_found() -> None:
    """In a command line, or alone; the same word of another command is sound."""
    wrong = (
        "`opbuild build x.onnx`", "opbuild.build_offline(x)", "`--soc_version`", "opbuild run x.onnx --repeat 3",
        "opbuild warm x --targets host", "opbuild compile x.onnx -o x.om", "opbuild bench x.onnx --json f.json",
    )  # fmt: skip
    assert [len(old_words(text)) for text in wrong] == [1, 1, 1, 1, 1, 1, 1]
    sound = "`opbuild atc --soc_version=host`\nopbuild explain x --json\nbench.py --threads 2\nopbuild export x -o y\n"
    assert old_words(sound) == set()
