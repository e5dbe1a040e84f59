"""What the documents tell a reader to type runs as it stands, and prints what they show."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from opbuild.cli.main import opbuild
from support import documented
from support.preloaded import Preloaded
from support.tiers import slow

ROOT = Path(__file__).resolve().parents[2]
READ = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md")), ROOT / "docs" / "concepts" / "shapes.md"]

PIP = """#!/bin/sh
# Checks what is to be installed, and leaves it: it is what runs these tests.
for word; do
  case "$word" in
    .) test -f pyproject.toml || { echo "no project here" >&2; exit 1; } ;;
    *opbuild\\[*\\]*) extra="${word#*[}"; grep -q "^${extra%%]*} = \\[" "$PROJECT_FILE" ||
      { echo "no extra in $word" >&2; exit 1; } ;;
  esac
done
"""

FOREIGN = ("aarch64-linux-gnu-gcc", "docker")
"""Tools for other machines: blocks that use one are left out where it is not installed."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of who reads one document after the other, and a pip that changes nothing outside it."""
    home = tmp_path_factory.mktemp("home")
    tools = home / "tools"
    tools.mkdir()
    (tools / "pip").write_text(PIP)
    (tools / "pip").chmod(0o755)
    (home / "commands").mkdir()
    (home / "commands" / "opbuild").write_text(documented.TOOL.format(python=sys.executable))
    (home / "commands" / "opbuild").chmod(0o755)
    return home


@pytest.mark.parametrize(
    "document", [path if path.stem == "first_steps" else slow(path) for path in READ], ids=lambda path: path.stem
)
def test_every_block_of_a_document_runs_as_it_stands(
    document: Path, process: Preloaded, home: Path, tmp_path: Path
) -> None:
    """In a new folder, which is a clone as far as the blocks look at one; what is shown below them is printed.

    Each reader begins with an empty store. In the README each command is the program itself; in the others it runs in
    the process that reads the document.
    """
    if "import torch\n" in document.read_text():
        pytest.importorskip("torch", reason="the guide is for who has torch")
    folder = tmp_path / "here"
    folder.mkdir()
    for name in ("examples", "Makefile", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPBUILD_", "MS_", "RANK_", "XDG_"))
    }
    tools = [home / "tools", *([] if document.stem == "README" else [home / "commands"]), Path(sys.executable).parent]
    environment = {
        **kept,
        "HOME": str(tmp_path),  # a store in which there is nothing yet
        "PATH": os.pathsep.join([*map(str, tools), os.environ["PATH"]]),
        "PROJECT_FILE": str(ROOT / "pyproject.toml"),
        "MAKEFLAGS": "n",
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "160",
        "OPBUILD_SHIPPED_BANK": "0",  # what was measured on one machine changes no document
    }
    missing = [tool for tool in FOREIGN if shutil.which(tool) is None]
    done = process.run("documented", [str(document), *missing], folder, environment)
    assert done.code == 0, done.output + done.errors


def test_documents_have_blocks_of_known_kinds() -> None:
    """Each block is run, belongs to one that is run, is written to the file that it names, or says that it is text."""
    for document in READ:
        for block in documented.blocks(document.read_text()):
            assert block.language in ("sh", "python", "text", "c", "ini", "dockerfile", "yaml"), (document, block.line)


def test_what_documents_give_to_other_programs_is_of_their_form() -> None:
    """CI's files are YAML whose jobs run opbuild's commands, as an image's instructions do: with options that exist."""
    blocks = [block for document in READ for block in documented.blocks(document.read_text())]
    lines = []
    for block in blocks:
        if block.language == "yaml":
            lines += [line for job in yaml.safe_load(block.text).values() for line in job["script"]]
        elif block.language == "dockerfile":
            instructions = [line.split(maxsplit=1) for line in block.text.splitlines() if line and line[0] != "#"]
            assert {name for name, _ in instructions} <= {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "CMD"}
            lines += [rest for name, rest in instructions if name == "RUN"]
    calls = [shlex.split(line)[1:] for line in lines if line.startswith("opbuild ")]
    assert len(calls) >= 2
    for name, *words in calls:
        command = opbuild.get_command(click.Context(opbuild), name)
        assert command is not None, name
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, (name, words)


@pytest.mark.parametrize(
    ("shown", "printed", "errors", "same"),
    [
        ("3 operators built in 1.5 s\n", "3 operators built in 20 s\n", "", True),
        ("7.5 MiB, 324 KiB, 0 %, 2026-11-22\n", "1.0 MiB, 1 KiB, 7 %, 2027-01-02\n", "", True),
        ("3 operators built\n", "4 operators built\n", "", False),
        ("0 operators built\n", "3 operators built\n", "", False),
        ("a  1.5 ms\n", "a 20 ms\n", "", True),
        ("conv_12345678901234_0\n", "conv_99345678901234_0\n", "", True),
        ("first\n...\nlast\n", "first\nx\ny\nlast\n", "", True),
        ("first\n...\n", "first\nx\ny\n", "", True),
        ("warning: w\nresult\n", "result\n", "warning: w\nmore\n", True),
        ("3 operators built\n", "3 operators reused\n", "", False),
        ("first\n", "first\nsecond\n", "", False),
        ("first\nsecond\n", "first\n", "", False),
        ("for x86-64-linux-...\n", "for x86-64-linux-avx-avx2\n", "", True),
        ("first\n...\nlast\n", "first\nx\n", "", False),
        ("for x86-64-linux-...\n", "for arm-64-linux-avx\n", "", False),
    ],
)
def test_what_a_document_shows_is_compared_word_by_word(shown: str, printed: str, errors: str, same: bool) -> None:
    """What is measured, hashes and widths of columns may differ; a count, a word, a line more or less may not."""
    assert (documented.differences(shown, printed, errors) == []) == same


def test_on_another_level_counts_may_differ_and_nothing_stays_nothing() -> None:
    """A machine with other vectors needs other kernels; "0 operators built" is said to all."""
    assert documented.differences("18 reused, 0 built\n", "20 reused, 0 built\n", "", exact=False) == []
    assert documented.differences("18 reused, 0 built\n", "18 reused, 2 built\n", "", exact=False) != []


def test_a_block_that_fails_or_prints_something_else_is_found(tmp_path: Path) -> None:
    """The command fails, a name is missing, the output is another, an output has no command before it."""
    for text in ("```sh\nfalse\n```\n", "```python\nnothing\n```\n", "```sh\necho a\n```\n\n```\nb\n```\n"):
        document = tmp_path / "document.md"
        document.write_text(text)
        command = [sys.executable, documented.__file__, str(document)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, "line 2" in done.stdout) == (1, True), done.stdout
    with pytest.raises(ValueError, match="must follow"):
        documented.blocks("```\nno command\n```\n")
