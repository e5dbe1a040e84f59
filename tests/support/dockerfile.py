"""The instructions of a Dockerfile, done in a folder: what a builder of images would do, as far as that needs no root.

Each stage is a virtual environment of this Python in which only what was installed can be imported, and in which no
compiler or linker is found that was not. Paths of the image are paths in the stage's folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_PYTHON = re.compile(r"python:3\.(\d+)-slim(?: AS (\w+))?")
_ABSOLUTE = re.compile(r"(?<![\w./:])/(?=[a-z])(?!dev/)")
_PROGRAMS = ("sh", "ls", "env")
"""What images have that opbuild's commands may start; nothing that compiles or links."""

_SCRIPT = """#!{python}
import sys
from {module} import {attr}
sys.exit({attr}())
"""


class FailedError(Exception):
    """An instruction that would fail."""


class Image:
    """An image under construction.

    Args:
        root: A folder for its stages.
        context: The folder from which files are copied.
        wheel: Of opbuild.
    """

    def __init__(self, root: Path, context: Path, wheel: Path) -> None:
        self._root, self._context, self._wheel = root, context, wheel
        self._stages: dict[str, Stage] = {}

    @property
    def last(self) -> Stage:
        """The stage that is the image."""
        return list(self._stages.values())[-1]

    def build(self, text: str) -> None:
        """Do the instruction of each line.

        Raises:
            FailedError: If that fails; names the line.
        """
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, rest = line.split(maxsplit=1)
                try:
                    self._from(rest) if name == "FROM" else self.last.do(name, rest)
                except (KeyError, OSError, ValueError, FailedError) as error:
                    raise FailedError(f"{line}: {error!r}") from error

    def _from(self, words: str) -> None:
        base = _PYTHON.fullmatch(words)
        if base is None or int(base[1]) < 10:
            raise FailedError("no image of a Python that opbuild is for")
        name = base[2] or str(len(self._stages))
        self._stages[name] = Stage(self._root / name, self._context, self._wheel, self._stages)


class Stage:
    """A stage of an image.

    Args:
        root: Its folder, which is made.
        context: The folder from which files are copied.
        wheel: Of opbuild.
        stages: All of the image, by name.

    Attributes:
        command: What the image starts.
        folder: Where it starts that.
        user: As whom it starts that.
        environment: With which variables.
    """

    def __init__(self, root: Path, context: Path, wheel: Path, stages: Mapping[str, Stage]) -> None:
        self.root, self._context, self._wheel, self._stages = root, context, wheel, stages
        self._prefix = root / "usr" / "local"
        self._programs = root / "bin"
        self.command: list[str] = []
        self.folder, self.user = root, "0"
        self.environment = {"PATH": f"{self._prefix / 'bin'}:{self._programs}", "HOME": str(root / "root")}
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self._prefix)], check=True)
        self._programs.mkdir()
        (root / "root").mkdir()
        for program in _PROGRAMS:
            (self._programs / program).symlink_to(str(shutil.which(program)))

    def do(self, name: str, rest: str) -> None:
        """Do an instruction.

        Raises:
            KeyError, OSError, ValueError, FailedError: If it fails.
        """
        instructions: dict[str, Callable[[str], None]] = {
            "RUN": self._run, "COPY": self._copy, "ENV": self._env, "CMD": self._cmd, "USER": self._user,
            "WORKDIR": self._workdir,
        }  # fmt: skip
        instructions[name](rest)

    def shell(self, line: str, folder: Path | None = None, **variables: str) -> str:
        """Return the output of a line of a shell in the image.

        Raises:
            FailedError: If it fails.
        """
        done = subprocess.run(
            [str(self._programs / "sh"), "-c", self.inside(line)], cwd=folder or self.folder,
            env=self.environment | variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise FailedError(f"{done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def inside(self, text: str) -> str:
        """Return a text whose absolute paths are those of the image."""
        return _ABSOLUTE.sub(f"{self.root}/", text)

    @property
    def site(self) -> Path:
        """Where packages are installed."""
        return next((self._prefix / "lib").glob("python3*")) / "site-packages"

    def _run(self, line: str) -> None:
        words = shlex.split(line)
        if words[:2] == ["pip", "install"]:
            self._install([word for word in words[2:] if word != "--no-deps"], alone="--no-deps" in words)
        else:
            self.shell(line)

    def _copy(self, line: str) -> None:
        *sources, target = line.split()
        stage = self._stages[sources.pop(0).removeprefix("--from=")] if sources[0].startswith("--from=") else None
        for name in sources:
            source = self._context / name if stage is None else Path(stage.inside(name))
            place = self.folder / self.inside(target)
            if source.is_dir():
                shutil.copytree(source, place)
            else:
                file = place / source.name if target.endswith("/") else place
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, file)

    def _env(self, line: str) -> None:
        name, value = line.split("=", 1)
        self.environment[name] = self.inside(value)

    def _cmd(self, line: str) -> None:
        self.command = [self.inside(word) for word in json.loads(line)]

    def _user(self, line: str) -> None:
        self.user = str(int(line))

    def _workdir(self, line: str) -> None:
        self.folder = Path(self.inside(line))
        self.folder.mkdir(parents=True, exist_ok=True)

    def _install(self, wanted: list[str], *, alone: bool) -> None:
        """Install opbuild from its wheel, and what else is wanted from this environment, each package by a link."""
        for requirement in map(Requirement, wanted):
            if requirement.name == "opbuild":
                python = str(self._prefix / "bin" / "python")
                command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index"]
                subprocess.run([*command, "--quiet", str(self._wheel)], check=True)
                found = next(Distribution.discover(name="opbuild", path=[str(self.site)]))
            else:
                found = distribution(requirement.name)
                self._link(requirement.name)
            for package in () if alone else _needed(found, requirement.extras):
                self._link(package)

    def _link(self, name: str) -> None:
        found, site = distribution(name), self.site
        for part in sorted({file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}):
            if not (site / part).exists():
                (site / part).symlink_to(Path(str(found.locate_file(part))))
        for entry in found.entry_points.select(group="console_scripts"):
            script = self._prefix / "bin" / entry.name
            script.write_text(
                _SCRIPT.format(python=self._prefix / "bin" / "python", module=entry.module, attr=entry.attr)
            )
            script.chmod(0o755)


def _needed(own: Distribution, extras: set[str]) -> Iterator[str]:
    """Yield the names of all packages that one needs here, with extras.

    Raises:
        FailedError: If it has no such extra.
    """
    if unknown := extras - set(own.metadata.get_all("Provides-Extra") or ()):
        raise FailedError(f"{own.name} has no extra {min(unknown)}")
    seen: set[str] = set()
    left = [(own, frozenset(extras))]
    while left:
        one, wanted = left.pop()
        for requirement in map(Requirement, one.requires or ()):
            marker = requirement.marker
            applies = marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *wanted))
            if applies and requirement.name not in seen:
                seen.add(requirement.name)
                yield requirement.name
                left.append((distribution(requirement.name), frozenset(requirement.extras)))


def wheel_of(project: Path, folder: Path) -> Path:
    """Build a project's wheel from a copy of what it is made of, without the network."""
    copy = folder / "project"
    copy.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(project / name, copy)
    shutil.copytree(project / "src", copy / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    subprocess.run([*command, "-w", str(folder), str(copy)], check=True, env=environment)
    return next(folder.glob("opbuild-*.whl"))
