"""Runs a script unmodified: while it runs ``import mindspore`` and ``import onnxruntime`` find opbuild's own."""

from __future__ import annotations

import io
import os
import runpy
import sys
import traceback
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from types import ModuleType, TracebackType

from opbuild.cli.interrupt import INTERRUPTS, is_interrupt
from opbuild.config import Config
from opbuild.errors import OpbuildError, OptionError
from opbuild.platform.aliases import AliasFinder
from opbuild.platform.files.kinds import SCRIPT, require_kind
from opbuild.platform.packages import missing_package
from opbuild.platform.paths import Path

_FACE = "opbuild.mindspore"
_SKIPPED = (str(Path(__file__).resolve().parents[1]), "<frozen ", runpy.__file__)
"""Beginnings of file names whose frames are not the user's."""

_PLACES = {
    "mindspore.common": _FACE,
    "mindspore.parallel._utils": f"{_FACE}.parallel",
    "mindspore.communication.management": f"{_FACE}.communication",
    "mindspore.common.api": f"{_FACE}.functions",
    "mindspore.common.seed": f"{_FACE}.initializer",
    **{f"mindspore.common.{name}": f"{_FACE}.{name}" for name in ("dtype", "initializer", "parameter", "tensor")},
}
"""Modules of MindSpore that have another name here; the others have the same below ``opbuild.mindspore``."""

_INNER = {
    "nn": ("dynamic_lr", "layer", "learning_rate_schedule", "loss", "optim", "wrap"),
    "ops": ("communication", "composite", "function", "functional", "operations", "primitive"),
    "train": ("callback", "loss_scale_manager", "metrics", "model"),
}
"""Modules of MindSpore whose names, and those of the modules below them, the module above has as well: it stands in."""


def _place(fullname: str) -> str:
    """Return the name here of a module of MindSpore."""
    parts = fullname.split(".")
    if len(parts) > 2 and parts[2] in _INNER.get(parts[1], ()):
        return f"{_FACE}.{parts[1]}"
    return _PLACES.get(fullname, _FACE + fullname.removeprefix("mindspore"))


SERVED = ("mindspore", "onnxruntime")
"""Packages that a script can import from opbuild."""


def _finder(package: str) -> AliasFinder:
    def missing(fullname: str) -> ImportError:
        if package == "onnxruntime":
            from opbuild.onnxruntime.environment import missing_module
        else:
            from opbuild.mindspore.names import missing_module
        return missing_module(fullname)

    return AliasFinder(package, f"opbuild.{package}", missing, _place if package == "mindspore" else None)


@contextmanager
def found_here(*names: str) -> Iterator[None]:
    """Let imports of these packages find opbuild's own inside the block."""
    finders = [_finder(name) for name in names]
    hidden = _forget(names)
    sys.meta_path[:0] = finders
    try:
        yield
    finally:
        for finder in finders:
            sys.meta_path.remove(finder)
        _forget(names)
        sys.modules.update(hidden)


def _forget(packages: Collection[str]) -> dict[str, ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] in packages]
    return {name: sys.modules.pop(name) for name in names}


def _served_packages(asked: Collection[str]) -> set[str]:
    """Return the packages that a script finds here: those asked for, MindSpore, and those that are not installed."""
    return {name for name in SERVED if name in asked or name == "mindspore" or find_spec(name) is None}


def run_script(path: str | os.PathLike[str], args: list[str], serve: Collection[str] = ()) -> int:
    """Run a script as Python would, with ``import mindspore`` finding ``opbuild.mindspore``; see ``_served_packages``.

    The script is ``__main__``, its arguments are ``sys.argv[1:]`` and its folder is the first place of ``sys.path``. An
    exception of the script is shown with the traceback that Python would show.

    Returns:
        The exit code: 0, what the script gave to ``sys.exit``, or 1 after an exception of the script.
    """
    _flush_lines()
    script = Path(path)
    require_kind(script, SCRIPT)
    INTERRUPTS.leave()
    argv, search_path = sys.argv, list(sys.path)
    sys.argv = [os.fspath(path), *args]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        with found_here(*_served_packages(serve)):
            runpy.run_path(os.fspath(path), run_name="__main__")
    except SystemExit as exit_:
        return _ending_with(_exit_code(exit_.code))
    except OpbuildError as error:
        _ending_with(error.exit_code)
        _add_place(error)
        error.in_python = True
        raise
    except Exception as error:
        if is_interrupt(error):
            raise KeyboardInterrupt from error
        missing = missing_package(error)
        if missing is not None:
            _ending_with(missing.exit_code)
            raise missing from error
        traceback.print_exception(type(error), error, _from_script(error.__traceback__))
        return _ending_with(1)
    finally:
        sys.argv = argv
        sys.path[:] = search_path
        if sys.stdout is not None:
            sys.stdout.flush()
    return 0


def _flush_lines() -> None:
    """Let the output of one of several ranks appear line by line, as it is not a terminal."""
    with suppress(OptionError):  # the script's first build says what is wrong with a variable
        if Config.from_environment().rank_size > 1 and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True, write_through=False)


def _ending_with(code: int) -> int:
    """Return an exit code, with which all ranks are going to end if this one has joined others and fails."""
    world = sys.modules.get("opbuild.ranks.world")
    if world is not None and code:
        world.fail(code)
    return code


def _exit_code(code: object) -> int:
    if code is None or isinstance(code, int):
        return code or 0
    sys.stderr.write(f"{code}\n")
    return 1


def _add_place(error: OpbuildError) -> None:
    """Name the line of the user's code in the message of the failure that it led to."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith(_SKIPPED):
            place = f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}"
    if place and place not in error.message:
        error.message += f" ({place})"


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames that ran the script: none, if it could not be compiled."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_SKIPPED):
        first = first.tb_next
    return first
