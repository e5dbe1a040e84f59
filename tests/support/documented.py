"""The code blocks of a document, and a program that runs them in order, as a reader would who types them.

    sh        is run by one shell: variables and the folder stay from block to block
    python    is run by one interpreter: names stay
    (none)    is what the block before it prints; what is measured (times, bytes, fractions) is any number and what
              is counted is that number (on machines of other levels than LEVEL's, which may need other kernels: some
              number, and 0 where that is 0), a line ``...`` is any lines, ``...`` in a line any text, and /home/me
              the home
    text      is shown and not run
    others    name their file in a comment in their first line, ``/* run.c: ...`` or ``# op_cache.ini``, and are
              written to it

``python documented.py DOCUMENT.md TOOL...`` runs a document in the working folder, without the blocks that use one of
the tools, which are missing. Its exit code is 1 if a block failed or printed something else than the document says.

Where ``opbuild`` in a shell is the program ``TOOL``, commands run in the process that reads the document: without a
start and a compile server for each. Scripts and ranks are processes always.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOL = """#!{python} -IS
import json, os, socket, sys
if sys.argv[1] == "launch" or any(word.endswith(".py") for word in sys.argv):
    os.execl({python!r}, {python!r}, "-m", "opbuild", *sys.argv[1:])
with socket.socket(socket.AF_UNIX) as reader:
    reader.connect(os.environ["READER"])
    socket.send_fds(reader, [b"0"], [1, 2])
    reader.sendall(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode())
    reader.shutdown(socket.SHUT_WR)
    sys.exit(int(reader.recv(4) or 1))
"""
"""What ``opbuild`` may be in a shell: it lets the process that reads the document run a command."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^(?:#|//|/\*)\s*([\w./-]+\.\w+)\b")
_HEX = re.compile(r"\b(?=\w*\d)[0-9a-f]{8,}\b|(?<!\d)\d{9,}(?:_\d\b)?|<hash>")
_MEASURED = re.compile(
    r"[+-]?\d+(?:(?:\.\d+)+(?:e[+-]?\d+)?|e[+-]?\d+|-\d\d-\d\d|(?=\s?(?:[mnuµ]?s|[kKMG]i?B|B|bytes|%)(?!\w)))"
)
"""Fractions, versions, dates, and numbers of seconds, bytes and per cent."""

_COUNTED = re.compile(r"\b[1-9]\d*\b")
LEVEL = "x86-64-v3"
"""The level of the machine on which what documents show was printed."""

_LINES = "..."


@dataclass(frozen=True)
class Block:
    """A code block.

    Attributes:
        language: What stands behind its fence.
        text: Its content.
        line: Where its content begins in the document, from 1.
        output: What the document says that it prints; none: nothing is said.
    """

    language: str
    text: str
    line: int
    output: str | None = None


def blocks(text: str) -> list[Block]:
    """Return the blocks of a document; one without a language belongs to the block before it.

    Raises:
        ValueError: If it does not follow one that is run.
    """
    found: list[Block] = []
    end = 0
    for match in _FENCE.finditer(text):
        language, content = match[1], match[2]
        line = text.count("\n", 0, match.start(2)) + 1
        if language:
            found.append(Block(language, content, line))
        elif found and found[-1].language in ("sh", "python") and not text[end : match.start()].strip():
            last = found.pop()
            found.append(Block(last.language, last.text, last.line, content))
        else:
            raise ValueError(f"line {line}: a block without a language must follow the one that prints it")
        end = match.end()
    return found


def differences(expected: str, printed: str, errors: str, exact: bool = True) -> list[str]:
    """Compare a document's outputs with those that were printed.

    Args:
        expected: What it shows.
        printed: The standard output, all of which must be shown.
        errors: The standard error, of which any lines may be.
        exact: Whether what is counted must be the very number.

    Returns:
        What differs, a line each.
    """
    shown, left, said = (_lines(text, exact) for text in (expected, printed, errors))
    for position, line in enumerate(shown):
        if line == _LINES:
            after = (each for each in shown[position + 1 :] if each != _LINES)
            rest = next((each for each in after if not any(_same(each, other) for other in said)), "")
            while left and not _same(rest, left[0]):
                left.pop(0)
        elif left and _same(line, left[0]):
            left.pop(0)
        elif not any(_same(line, other) for other in said):
            return [f"shown:   {line}", f"printed: {left[0] if left else 'nothing'}"]
    return [f"printed and not shown: {line}" for line in left]


def _same(shown: str, printed: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, shown.split(_LINES))), printed) is not None


def _lines(text: str, exact: bool) -> list[str]:
    """Return lines without what differs from run to run: what is measured, digits of hashes, widths of columns."""
    found = []
    for line in text.replace(str(Path.home()), "/home/me").splitlines():
        plain = _MEASURED.sub("#", _HEX.sub("#", line))
        plain = plain if exact else _COUNTED.sub("#", plain)
        plain = " ".join(re.sub(r"[─━│┃-]{2,}", " ", plain).split())
        if plain:
            found.append(plain)
    return found


class Reader:
    """Who types the blocks, in the working folder."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self.state = Path(tempfile.mkdtemp()) / "shell"
        self.state.touch()
        self.commands = socket.socket(socket.AF_UNIX)
        os.environ["READER"] = str(self.state.with_name("commands"))
        self.commands.bind(os.environ["READER"])
        self.commands.listen()

    def run(self, block: Block) -> list[str]:
        """Run a block; return what is wrong, a line each."""
        if block.language == "text":
            return []
        if block.language not in ("sh", "python"):
            return self._write(block)
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            problem = (
                self._shell(block, output, errors) if block.language == "sh" else self._python(block, output, errors)
            )
            printed, said = (_content(file) for file in (output, errors))
        expects_failure = block.output is not None and re.search(r"^(opbuild: )?error\b", block.output, re.MULTILINE)
        if problem and not expects_failure:
            return [problem, *printed.splitlines()[-20:], *said.splitlines()[-20:]]
        if expects_failure and not problem:
            return ["it shows an error, and there was none"]
        return [] if block.output is None else differences(block.output, printed, said, _is_levels_machine())

    def _write(self, block: Block) -> list[str]:
        name = _FILE.match(block.text)
        if name is None:
            return [f"a block of {block.language} must name its file in a comment in its first line, or be text"]
        path = Path(name[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
        return []

    def _shell(self, block: Block, output: Any, errors: Any) -> str:
        state = self.state
        script = f"set -ea; . {state}\n{block.text}\n{{ export -p; echo cd \"'$PWD'\"; }} > {state}"
        shell = subprocess.Popen(["bash", "-c", script], stdin=subprocess.DEVNULL, stdout=output, stderr=errors)
        threading.Thread(target=self._say_when_done, args=(shell,)).start()
        while _run_command(self.commands):
            pass
        return f"exit code {shell.returncode}" if shell.returncode else ""

    def _say_when_done(self, shell: subprocess.Popen[bytes]) -> None:
        shell.wait()
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(os.environ["READER"])

    def _python(self, block: Block, output: Any, errors: Any) -> str:
        path = Path(tempfile.mkdtemp()) / f"line_{block.line}.py"
        path.write_text(block.text)
        kept = os.dup(1), os.dup(2)
        sys.stdout.flush()
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        try:
            exec(compile(block.text, path, "exec"), self.names)
        except BaseException as error:
            from opbuild.errors import OpbuildError

            if isinstance(error, OpbuildError):
                traceback.print_exception(error, limit=0)
            else:
                traceback.print_exc()
            return f"{type(error).__name__}"
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, saved in zip((1, 2), kept, strict=True):
                os.dup2(saved, number)
                os.close(saved)
        return ""


def _run_command(commands: socket.socket) -> bool:
    """Run the next command that a shell hands over; return False if it has ended instead."""
    with commands.accept()[0] as asked:
        start, descriptors, *_ = socket.recv_fds(asked, 1, 2)
        if not start:
            return False
        from support.commands import run

        words, folder, environment = json.loads(asked.makefile().read())
        with os.fdopen(descriptors[0], "ab") as output, os.fdopen(descriptors[1], "ab") as errors:
            asked.send(str(run(words, output, errors, folder, environment)).encode())
    return True


def _is_levels_machine() -> bool:
    from opbuild.target.host import host_level

    return host_level().name == LEVEL


def _content(file: Any) -> str:
    file.seek(0)
    text: bytes = file.read()
    return text.decode(errors="replace")


def run_document(document: Path, missing: list[str]) -> int:
    """Run the blocks of a document and print what is wrong with each; return the exit code."""
    reader = Reader()
    code = 0
    for block in blocks(document.read_text()):
        if any(tool in block.text for tool in missing):
            continue
        problems = reader.run(block)
        if problems:
            print(f"{document.name}, line {block.line}:", *problems, sep="\n  ")
            code = 1
    return code


def main() -> int:
    """Run the document that the arguments name."""
    return run_document(Path(sys.argv[1]), sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
