"""The instructions of a Dockerfile, done in a folder: what a builder of images would do, as far as that needs no root.

The image is a virtual environment of this Python in which only what was installed can be imported, and in which no
compiler or linker is found that was not. Paths of the image are paths in its folder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

_PYTHON = re.compile(r"python:3\.(\d+)-slim")
_ABSOLUTE = re.compile(r"(?<![\w./:])/(?=[a-z])")
_PROGRAMS = ("sh", "ls", "env")
"""What images have that opbuild's commands may start; nothing that compiles or links."""


class FailedError(Exception):
    """An instruction that would fail."""


class Image:
    """An image under construction.

    Args:
        root: Its folder.
        context: The folder from which files are copied.
        wheel: Of opbuild.
    """

    def __init__(self, root: Path, context: Path, wheel: Path) -> None:
        self._root, self._context, self._wheel = root, context, wheel
        self._prefix = root / "usr" / "local"
        self._programs = root / "bin"
        self._command: list[str] = []
        self.environment = {"PATH": f"{self._prefix / 'bin'}:{self._programs}", "HOME": str(root / "root")}

    def build(self, text: str) -> None:
        """Do the instruction of each line.

        Raises:
            FailedError: If that fails; names the line.
        """
        instructions: dict[str, Callable[[str], None]] = {
            "FROM": self._from, "RUN": self._run, "COPY": self._copy, "ENV": self._env, "CMD": self._cmd,
        }  # fmt: skip
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, rest = line.split(maxsplit=1)
                try:
                    instructions[name](rest)
                except (KeyError, OSError, ValueError, FailedError) as error:
                    raise FailedError(f"{line}: {error!r}") from error

    def start(self) -> str:
        """Return the output of the image's command.

        Raises:
            FailedError: If it fails.
        """
        return self.shell(shlex.join(self._command))

    def shell(self, line: str, folder: Path | None = None, **variables: str) -> str:
        """Return the output of a line of a shell in the image.

        Raises:
            FailedError: If it fails.
        """
        done = subprocess.run(
            [str(self._programs / "sh"), "-c", self._inside(line)], cwd=folder or self._root,
            env=self.environment | variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise FailedError(f"{done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    @property
    def _site(self) -> Path:
        return next((self._prefix / "lib").glob("python3*")) / "site-packages"

    def _from(self, name: str) -> None:
        base = _PYTHON.fullmatch(name)
        if base is None or int(base[1]) < 10:
            raise FailedError("no image of a Python that opbuild is for")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self._prefix)], check=True)
        self._programs.mkdir()
        (self._root / "root").mkdir()
        for program in _PROGRAMS:
            (self._programs / program).symlink_to(str(shutil.which(program)))

    def _run(self, line: str) -> None:
        words = shlex.split(line)
        if words[:2] == ["pip", "install"]:
            self._install(words[2:])
        else:
            self.shell(line)

    def _copy(self, line: str) -> None:
        source, target = line.split()
        shutil.copytree(self._context / source, self._inside(target))

    def _env(self, line: str) -> None:
        name, value = line.split("=", 1)
        self.environment[name] = self._inside(value)

    def _cmd(self, line: str) -> None:
        self._command = json.loads(line)

    def _inside(self, text: str) -> str:
        return _ABSOLUTE.sub(f"{self._root}/", text)

    def _install(self, wanted: Sequence[str]) -> None:
        """Install opbuild from its wheel, and what it needs from this environment, each package by a link."""
        site = self._site
        for requirement in map(Requirement, wanted):
            if requirement.name != "opbuild":
                raise FailedError(f"{requirement.name} is not known here")
            python = str(self._prefix / "bin" / "python")
            command = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet"]
            subprocess.run([*command, str(self._wheel)], check=True)
            own = next(Distribution.discover(name="opbuild", path=[str(site)]))
            for package in _needed(own, requirement.extras):
                self._link(package, site)

    def _link(self, name: str, site: Path) -> None:
        found = distribution(name)
        for part in sorted({file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}):
            if not (site / part).exists():
                (site / part).symlink_to(Path(str(found.locate_file(part))))


def _needed(own: Distribution, extras: set[str]) -> Iterator[str]:
    """Yield the names of all packages that one needs here, with extras.

    Raises:
        FailedError: If it has no such extra.
    """
    if unknown := extras - set(own.metadata.get_all("Provides-Extra") or ()):
        raise FailedError(f"opbuild has no extra {min(unknown)}")
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
