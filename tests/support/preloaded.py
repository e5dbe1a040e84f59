"""A process that has loaded opbuild, and runs programs in forks of itself: each begins clean, and starts at once.

``python preloaded.py`` is told by a line of JSON what to run, and says with which exit code it ended.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, NoReturn


class Ended(NamedTuple):
    """What became of a program."""

    code: int
    output: str
    errors: str


class Preloaded:
    """The process, as the tests see it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, program: str, words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> Ended:
        """Run the function ``main`` of a module in a fork, as if the module were a program, or a program's text.

        Args:
            program: The module's name; ``-c``: the first of the words is the text.
            words: The program's arguments.
            folder: Where it runs.
            environment: All variables that it has, but for ``PYTHONPATH``.
        """
        from support.unnoticed import check_said  # the process itself may not find it

        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as place:
            streams = [os.devnull, f"{place}/output", f"{place}/errors"]
            asked = [program, *words], str(folder), dict(environment), streams
            print(json.dumps(asked), file=self._process.stdin, flush=True)
            try:
                code = int(self._process.stdout.readline())
            except BaseException:
                self._process.kill()  # else its answer would be taken for that of the next test
                raise
            ended = Ended(code, *(Path(stream).read_text(encoding="utf-8") for stream in streams[1:]))
            check_said(ended.output, ended.errors)
            return ended


@contextmanager
def preloaded(search_path: str) -> Iterator[Preloaded]:
    """Start such a process, whose ``PYTHONPATH`` its forks have; it ends with the block."""
    command = [sys.executable, str(Path(__file__).resolve())]
    place = {**os.environ, "PYTHONPATH": search_path}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=place) as process:
        yield Preloaded(process)
        process.kill()  # what forked the test's process meanwhile holds the other end of the pipe, too


def _serve() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(*asked)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _become(words: list[str], folder: str, environment: dict[str, str], streams: list[str]) -> NoReturn:
    search_path = os.environ["PYTHONPATH"]
    os.environ.clear()
    os.environ.update(environment, PYTHONPATH=search_path)
    os.chdir(folder)
    for number, path in enumerate(streams):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    if words[0] != "-c":
        sys.argv = words
        sys.exit(import_module(words[0]).main())
    sys.argv = ["-c", *words[2:]]
    exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    sys.exit()


if __name__ == "__main__":
    for name in ("numpy", "onnx", "opbuild.api", "opbuild.__main__", "opbuild.cli.main"):
        import_module(name)
    _serve()
