"""The debugging of operators: the requests of the debug level and the file of ``--op_debug_config`` for each operator.

Options are named as ATC names them. Some decide the code (``FLAGS``; they are part of the key), others which files are
kept beside the object. Whatever an operator is asked for, it is compiled for that and never stored.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from opbuild.errors import OptionError
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass

FLAGS = ("ccec_O0", "ccec_g", "check_flag", "oom")
"""Options that decide the code of an operator, in the order in which its key names them."""

DUMPS = ("dump_bin", "dump_cce", "dump_loc")
"""Options that keep files: object and JSON; readable kernel source; map from kernel to model node."""

DUMP_COMPUTE = "dump_compute"
"""What level 4 keeps besides; the file of ``--op_debug_config`` has no name for it."""

OPTIONS = ("oom", "dump_bin", "dump_cce", "dump_loc", "ccec_O0", "ccec_g", "check_flag")
"""What ``op_debug_config=`` may name, in the order of ATC's documents."""

LEVELS: dict[int, tuple[str, ...]] = {
    0: (),
    1: DUMPS,
    2: (*DUMPS, "ccec_O0", "ccec_g"),
    3: ("dump_bin",),
    4: ("dump_bin", "dump_cce", DUMP_COMPUTE),
}
"""The options that each level stands for."""

TYPE_PREFIX = "OpType::"


@dataclass(frozen=True)
class DebugConfig:
    """The content of a file of ``--op_debug_config``.

    Attributes:
        options: The options, of ``OPTIONS``.
        nodes: Names of nodes to which they are limited.
        op_types: Operator types to which they are limited; without nodes and types they are for all operators.
    """

    options: frozenset[str] = frozenset()
    nodes: tuple[str, ...] = ()
    op_types: tuple[str, ...] = ()

    @property
    def has_list(self) -> bool:
        """Whether some operators are listed."""
        return bool(self.nodes or self.op_types)


@dataclass(frozen=True)
class Debug:
    """The debugging that is wanted of the operators of a build.

    Attributes:
        level: The debug level, 0 to 4, with ATC's meanings.
        config: What the file of ``--op_debug_config`` says; None if there is none.
        folder: Where files go.
    """

    level: int = 0
    config: DebugConfig | None = None
    folder: Path = Path("kernel_meta")

    @property
    def active(self) -> bool:
        """Whether any operator may be debugged."""
        return self.level > 0 or self.config is not None

    @property
    def caching(self) -> bool:
        """Whether operators that are not debugged may come from the cache and go there."""
        return self.level == 0 and (self.config is None or self.config.has_list)

    def options(self, op_types: Iterable[str], nodes: Iterable[str]) -> tuple[str, ...] | None:
        """Return the options wanted of one operator, sorted; None if it is not debugged, and () only to compile it.

        Args:
            op_types: The operator types that it computes.
            nodes: Names of the nodes that need it; naming one selects the operator for all of them.
        """
        listed = self._listed(op_types, nodes)
        if not listed and self.level == 0:
            return None
        wanted = set(LEVELS[self.level])
        if listed and self.config is not None:
            wanted |= self.config.options
        return tuple(sorted(wanted))

    def unmatched(self, op_types: Iterable[str], nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the names in the list that a network does not have, as the list gives them."""
        if self.config is None:
            return ()
        types, names = set(op_types), set(nodes)
        lacking = [name for name in self.config.nodes if name not in names]
        return (*lacking, *(TYPE_PREFIX + name for name in self.config.op_types if name not in types))

    def _listed(self, op_types: Iterable[str], nodes: Iterable[str]) -> bool:
        if self.config is None:
            return False
        chosen = self.config
        return (
            not chosen.has_list
            or not set(chosen.op_types).isdisjoint(op_types)
            or not set(chosen.nodes).isdisjoint(nodes)
        )


NO_DEBUG = Debug()
"""What a build does when nothing is said."""


def flags_of(options: Iterable[str]) -> tuple[str, ...]:
    """Return those of an operator's options that decide its code, in the order in which keys name them."""
    chosen = set(options)
    return tuple(flag for flag in FLAGS if flag in chosen)


def make_debug(
    level: int, config_file: str | os.PathLike[str] | None, debug_dir: str | os.PathLike[str] | None, default_dir: Path
) -> Debug:
    """Return the debugging that the settings ask for.

    Args:
        level: 0 to 4, with ATC's meanings.
        config_file: The file of ``--op_debug_config``; None for none.
        debug_dir: Where files go; None for ``default_dir``.
        default_dir: Where files go when nobody says where; created when the first is written.

    Raises:
        OptionError: If a value is not allowed, or two do not fit together.
    """
    if level not in LEVELS:
        raise OptionError(f"op_debug_level is {level}", "it must be an integer from 0 to 4")
    config = read_debug_config(config_file) if config_file is not None else None
    if config is not None and level == 2 and "oom" in config.options:
        raise OptionError(
            f"op_debug_level 2 and the option oom in {os.fspath(config_file or '')} cannot be used together",
            "level 2 includes ccec_O0; choose another level, or take oom out",
        )
    folder = default_dir if debug_dir is None else _checked_folder(Path(debug_dir), level)
    return Debug(level, config, _absolute(folder))


def _absolute(folder: Path) -> Path:
    """Return a folder that stays the same wherever the process goes."""
    try:
        return Path(os.path.abspath(folder))
    except OSError:  # the working folder was removed: writing will say so
        return folder


def _checked_folder(folder: Path, level: int) -> Path:
    if level == 0:
        raise OptionError(
            f"debug_dir is {str(folder)!r}, and op_debug_level is 0",
            "give an op_debug_level from 1 to 4",
            command="give --op_debug_level from 1 to 4",
        )
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise OptionError(f"debug_dir is {str(folder)!r}, which {what}", "create the folder first")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"debug_dir is {str(folder)!r}, which cannot be written", "choose a folder of your own")
    return folder


def read_debug_config(path: str | os.PathLike[str]) -> DebugConfig:
    """Read a file of ``--op_debug_config``.

    Raises:
        OptionError: If it cannot be read, or a line is wrong; the message names the file and the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise OptionError(
            f"op_debug_config is {os.fspath(path)!r}, which cannot be read: {why}", "check the path"
        ) from error
    return parse_debug_config(text, os.fspath(path))


def parse_debug_config(text: str, file: str) -> DebugConfig:
    """Return the configuration in the text of such a file.

    Blank lines, lines that begin with ``#``, and lines that name neither ``op_debug_config`` nor ``op_debug_list`` say
    nothing. Several lines of a kind add up.

    Args:
        text: The file's text.
        file: The file's name, for messages.

    Raises:
        OptionError: If a line is wrong, or nothing is said.
    """
    options: dict[str, int] = {}
    listed: list[str] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("#"):
            continue
        where = f"{file}, line {number}"
        if "op_debug_config" in line:
            for name in _values(line, "op_debug_config", where):
                if name not in OPTIONS:
                    raise OptionError(f"{where}: op_debug_config has {name!r}", f"it may have {', '.join(OPTIONS)}")
                options.setdefault(name, number)
        elif "op_debug_list" in line:
            listed += _values(line, "op_debug_list", where)
    if not options and not listed:
        raise OptionError(
            f"{file} has neither op_debug_config= nor op_debug_list=", f"options are {', '.join(OPTIONS)}"
        )
    if "oom" in options and "ccec_O0" in options:
        line_number = max(options["oom"], options["ccec_O0"])
        raise OptionError(
            f"{file}, line {line_number}: oom and ccec_O0 cannot be used together", "take one of them out"
        )
    types = tuple(name.partition("::")[2].strip() for name in listed if "::" in name)
    if not all(types):
        raise OptionError(f"{file}: op_debug_list has '::' without a type behind it", f"write {TYPE_PREFIX}ReduceSum")
    return DebugConfig(frozenset(options), tuple(name for name in listed if "::" not in name), types)


def _values(line: str, name: str, where: str) -> list[str]:
    _, equals, value = line.partition("=")
    if not equals:
        raise OptionError(f"{where}: {name} is not followed by '='", f"write {name}=VALUE,VALUE")
    values = [item.strip() for item in value.split(",")]
    if not all(values):
        raise OptionError(f"{where}: {name} has an empty value", f"write {name}=VALUE,VALUE")
    return values
