"""``opbuild env`` and ``operators``: the parts of this installation, and the operators that have kernels."""

from __future__ import annotations

import errno
import os
import platform
import sys
from collections.abc import Callable, Sequence
from importlib import metadata
from typing import TYPE_CHECKING

import click

from opbuild.backend.compilers import make_compiler
from opbuild.cli.options import WordValue, json_option, print_json
from opbuild.cli.streams import echo
from opbuild.config import Config
from opbuild.errors import BuildError, OpbuildError, OptionError, TargetError
from opbuild.graph.types import DTYPES
from opbuild.offline.operator_support import NO_TENSORS, OperatorSupport, filtered
from opbuild.offline.operator_support import operators as supported
from opbuild.platform.files.private import private_path
from opbuild.platform.files.trust import make_trust, trusted
from opbuild.platform.files.writing import write_new
from opbuild.platform.paths import Path
from opbuild.store.machine_class import machine_file, read_measured, system_class, write_measured
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

    Fails, after showing everything, where something is missing without which nothing new can be built.
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
        ("class", _or_problem(lambda: class_text(config), missing)),
        ("compiler", _or_problem(_compiler, missing)),
        ("onnx", metadata.version("onnx")),
        ("store", _store(config)),
        ("pack", pack_text(config)),
        ("operators", str(config.kernel_meta)),
        ("networks", str(config.network_meta)),
        ("workers", f"{config.workers} compiles at once, {config.compile_timeout:.0f} s each at most"),
        ("threads", str(config.num_threads)),
        ("compiling", "forbidden" if config.forbid_compile else "allowed"),
    ):
        echo(f"{name:<10} {value}")
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
        raise OptionError(f"{machine_file(config)} cannot be written", "set MS_COMPILER_CACHE_PATH to another folder")


def _or_problem(look: Callable[[], str], missing: list[OpbuildError]) -> str:
    try:
        return look()
    except OpbuildError as error:
        missing.append(error)
        return f"none: {error.message}"


def _compiler() -> str:
    compiler = make_compiler()
    version = compiler.version()
    if not version:
        raise BuildError("the halide package is not installed", "pip install halide")
    return f"{compiler.name} {version} ({compiler.library()})"


def _store(config: Config) -> str:
    """Return the store's place, and the reason that it cannot be used if it cannot."""
    used, _ = trusted(config)
    problem = " ".join(used.warnings) or next(
        filter(None, map(write_problem, (used.kernel_meta, used.network_meta))), ""
    )
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


_GROUPS = {
    "uint*": ("uint8", "uint16", "uint32", "uint64"),
    "int*": ("int8", "int16", "int32", "int64"),
    "float*": ("float16", "float32", "float64", "bfloat16"),
    "float8*": ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
}


@click.command()
@click.argument("names", metavar="[OPERATOR]...", nargs=-1)
@click.option("--kernel", is_flag=True, help="Only those that have kernels.")
@click.option("--host", is_flag=True, help="Only those that fall back to numpy.")
@click.option("--type", "dtype", metavar="TYPE", type=WordValue(DTYPES), default=None,
              help="Only what is so for this element type, such as float16.")  # fmt: skip
@json_option
def operators(names: tuple[str, ...], kernel: bool, host: bool, dtype: str | None, as_json: bool) -> None:
    """Show which operators have kernels, for which element types, and which run on the host.

    Without names, all of them. Each is asked about by a small network in its usual form; 'opbuild explain' tells it of
    a model.
    """
    records = list(filtered(supported(names or None), kernel=kernel, host=host, dtype=dtype or ""))
    if as_json:
        print_json([record._asdict() for record in records])
        return
    _show(records)


def _show(records: Sequence[OperatorSupport]) -> None:
    from opbuild.cli.tables import say, show_table, text_table

    names = ("operator", "kernels for", "falls back to numpy", "remarks")
    show_table(text_table(names, map(row, records), folds=False))
    groups = "; ".join(f"{group} is {', '.join(dtypes)}" for group, dtypes in _GROUPS.items())
    say(f"{summary(records)}\n{groups}")


def row(record: OperatorSupport) -> tuple[str, str, str, str]:
    """Return a row of the table: name and form, types with kernels, types on the host, remarks."""
    remarks = [record.why] if record.why not in ("", f"no kernel for {record.name}") else []
    if record.folded:
        remarks = ["computed when the network is built"]
    elif not record.kernel and not record.host and record.why != NO_TENSORS:
        remarks.insert(0, "not supported")
    elif record.host and not record.offline:
        remarks.append("not in .om files")
    name = f"{record.name} ({record.form})" if record.form else record.name
    return name, short(record.kernel), short(record.host), ": ".join(remarks)


def summary(records: Sequence[OperatorSupport]) -> str:
    """Return the numbers of operators with kernels, and of those that fall back to numpy for every type."""
    names = {record.name for record in records}
    kernels = {record.name for record in records if record.kernel}
    host = {record.name for record in records if record.host} - kernels
    return f"operators: {len(names)}; with kernels: {len(kernels)}; numpy only: {len(host)}"


def short(dtypes: Sequence[str]) -> str:
    """Return element types in few words: all that begin alike as one."""
    words = []
    for dtype in dtypes:
        group = next((name for name, all_ in _GROUPS.items() if dtype in all_ and {*all_} <= {*dtypes}), dtype)
        if group not in words:
            words.append(group)
    return " ".join(words)
