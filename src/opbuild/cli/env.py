"""``opbuild env``: what a build on this machine would use."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import metadata

import click

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.config import Config
from opbuild.errors import BuildError, OpbuildError
from opbuild.kernel.target import host_target
from opbuild.runtime.link import find_linker
from opbuild.version import __version__


@click.command()
def env() -> None:
    """Show the target, the compiler, the linker and the cache folders.

    Fails, after showing everything, where something is missing without which nothing new can be built.
    """
    config = Config.from_environment()
    missing: list[OpbuildError] = []
    for name, value in (
        ("opbuild", __version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("target", _or_problem(lambda: str(host_target()), missing)),
        ("compiler", _or_problem(_compiler, missing)),
        ("linker", _or_problem(lambda: _linker(config), missing)),
        ("onnx", metadata.version("onnx")),
        ("operators", str(config.kernel_meta)),
        ("networks", str(config.network_meta)),
        ("workers", f"{config.workers} compiles at once, {config.compile_timeout:.0f} s each at most"),
        ("threads", str(config.num_threads)),
        ("compiling", "forbidden" if config.forbid_compile else "allowed"),
    ):
        click.echo(f"{name:<10} {value}")
    if missing:
        raise missing[0]


def _or_problem(look: Callable[[], str], missing: list[OpbuildError]) -> str:
    try:
        return look()
    except OpbuildError as error:
        missing.append(error)
        return f"none: {error.message}"


def _compiler() -> str:
    version = HalideCompiler.version()
    if not version:
        raise BuildError("the halide package is not installed", "pip install halide")
    return f"halide {version} ({HalideCompiler.library()})"


def _linker(config: Config) -> str:
    linker = find_linker(config.linker)
    return f"{linker.name} ({linker.command[0]})"
