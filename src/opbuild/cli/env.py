"""``opbuild env``: the parts of this installation, also where some of them are not installed."""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from opbuild.backend.compilers import make_compiler
from opbuild.cli.streams import echo
from opbuild.config import Config
from opbuild.errors import OpbuildError, OptionError, TargetError
from opbuild.platform.files.private import private_path
from opbuild.platform.files.trust import make_trust, trusted
from opbuild.platform.files.writing import write_new
from opbuild.platform.packages import DEPENDENCIES, lacking
from opbuild.platform.paths import Path
from opbuild.platform.sources import release_of
from opbuild.store.machine_class import machine_file, read_measured, system_class, write_measured
from opbuild.target.devices import device_class, known_classes
from opbuild.target.host import host_flags, host_level, host_machine
from opbuild.text.plural import counted, size
from opbuild.version import __version__

if TYPE_CHECKING:
    from opbuild.store.pack import Pack
    from opbuild.target.level import Level


@click.command()
@click.option("--measure", is_flag=True,
              help="Measure this machine first: its class decides which records of 'opbuild tune' count.")  # fmt: skip
def env(*, measure: bool) -> None:
    """Show the level, the compiler and the store, and whether it can be used.

    Fails, after showing everything, where something is missing that opbuild needs.
    """
    config = Config.from_environment()
    if measure:
        _measure(config)
    missing: list[OpbuildError] = []
    for name, value in (
        ("opbuild", __version__),
        ("python", f"{platform.python_version()} ({sys.executable})"),
        ("level", _or_problem(level_text, missing)),
        ("machine", machine_text()),
        *([("devices", devices_text())] if known_classes() else []),
        ("class", _or_problem(lambda: class_text(config), missing)),
        ("packages", _packages(missing)),
        ("compiler", _or_problem(_compiler, missing)),
        ("store", _store(config)),
        ("pack", pack_text(config)),
        ("operators", str(config.kernel_meta)),
        ("networks", str(config.network_meta)),
        ("workers", f"{config.workers} compiles at once, {config.compile_timeout:.0f} s each at most"),
        ("threads", str(config.num_threads)),
        ("compiling", "forbidden" if config.forbid_compile else "allowed"),
    ):
        echo(f"{name:<10} {value}")
    for warning in config.warnings:
        echo(f"warning: {warning}", err=True)
    if missing:
        raise missing[0]


def level_text() -> str:
    """Return this machine's level, and the features that it lacks of the next higher one."""
    level = host_level()
    above = level.higher()
    if above is None:
        return f"{level}, the highest of its architecture"
    return f"{level} (not {above}: this machine lacks {', '.join(sorted(above.flags - host_flags()))})"


def machine_text() -> str:
    """Return a description of this machine, as far as building for it and running on it depend on it."""
    try:
        machine = host_machine()
    except TargetError:
        return "unknown"
    return (
        f"{counted(machine.cores, 'core')}, {machine.registers} vector registers of {machine.lanes} float32, "
        f"L1 {size(machine.l1)}, L2 {size(machine.l2)}; threads are woken for {machine.waking / 1e3:.1f} us of work"
    )


def devices_text() -> str:
    """Return the classes of devices that a target may name, and whether networks can run on each here."""
    return f"\n{'':<10} ".join(f"{name}: {_described(name)}" for name in known_classes())


def _described(name: str) -> str:
    try:
        return device_class(name).describe()
    except TargetError as error:
        return error.message


def class_text(config: Config) -> str:
    """Return the class of this machine, by which tuning's records count, and its measurements."""
    measured = read_measured(config, make_trust(config))
    if measured is None:
        return f"{system_class()} (not measured: opbuild env --measure)"
    rates = ", ".join(f"{rate:.0f} at {level}" for level, rate in measured.peak.items())
    return f"{measured.name(host_level().name)} (measured {measured.date[:10]}: GFLOP/s of a core {rates})"


def _measure(config: Config) -> None:
    """Measure this machine and keep the results beside the cache."""
    from opbuild.pipeline.setup import set_up
    from opbuild.tuning.tuner import measure_machine

    setup = set_up(config, None, None, stores_networks=False)
    if not write_measured(config, setup.trust, measure_machine(setup)):
        raise OptionError(f"{machine_file(config)} cannot be written", "set OPBUILD_CACHE to another folder")


def _or_problem(look: Callable[[], str], missing: list[OpbuildError]) -> str:
    try:
        return look()
    except OpbuildError as error:
        missing.append(error)
        return f"none: {error.message}"


def _packages(missing: list[OpbuildError]) -> str:
    releases = {name: release_of(name) for name in DEPENDENCIES}
    gone = [name for name, release in releases.items() if not release]
    if gone:
        missing.append(lacking(*gone))
    return ", ".join(f"{name} {release or 'NOT INSTALLED'}" for name, release in releases.items())


def _compiler() -> str:
    compiler = make_compiler()
    version = compiler.version()
    if not version:
        raise lacking(compiler.name)
    return f"{compiler.name} {version} ({compiler.library()})"


def _store(config: Config) -> str:
    """Return the store's place, and the reason that it cannot be used if it cannot."""
    used, _ = trusted(config)
    problem = used.folder_problem or next(filter(None, map(write_problem, (used.kernel_meta, used.network_meta))), "")
    mark = f" (CAN NOT BE USED, so nothing that is built is kept)\n{'':<10} {problem}" if problem else ""
    return f"{config.cache_folder}{mark}"


def pack_text(config: Config) -> str:
    """Return a description of the packs for this machine's level, a line each."""
    from opbuild.store.model_packs import Packs
    from opbuild.store.pack import Pack

    try:
        level = host_level()
    except TargetError:
        return "none: there is no level"
    release = Pack(level.name) if config.uses_pack else None
    lines = ["not used (OPBUILD_PACK)" if release is None else _pack_line([release], level)]
    for each in Packs(level.name, release, config.model_packs, make_trust(config), lambda problem: None).archives():
        problem = "" if each.problem is None else f"not used: {each.problem.message}"
        lines.append(f"{each.name}: {problem or _pack_line(each.packs(level.name), level)}")
    return f"\n{'':<10} ".join(lines)


def _pack_line(packs: Sequence[Pack], level: Level) -> str:
    compilers = [each for each in (pack.compiler() for pack in packs) if each is not None]
    if not compilers:
        return f"none for {level}"
    made = " and ".join(f"{each.name} {each.version}" for each in compilers)
    return f"{counted(sum(pack.count() for pack in packs), 'kernel')} for {level}, by {made}"


def write_problem(folder: Path) -> str:
    """Return the reason that a folder, which need not be there yet, cannot be written to; empty if it can.

    A file is written and removed: what a system says of rights is not what it does for root, in containers and on
    storage of other machines.
    """
    place = folder
    while not os.path.lexists(place) and place != place.parent:
        place = place.parent
    try:
        if place.is_symlink() and not place.exists():
            raise OSError(errno.ENOENT, "this symbolic link leads nowhere")
        with private_path(place) as temporary:
            write_new(temporary, b"\0")
            temporary.unlink()
    except OSError as error:
        return f"{place} cannot be written: {error.strerror or error}"
    return ""
