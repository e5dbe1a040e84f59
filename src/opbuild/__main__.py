"""The program: ``opbuild``, and ``python -m opbuild`` where that is not on the path.

Ctrl-C is no traceback from the first line on: loading the command line takes a tenth of a second.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from opbuild.cli.interrupt import Interrupts

_INTERRUPTED = 130


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Show the end of the program: an interrupt in a line."""
    if issubclass(kind, KeyboardInterrupt):
        _end()
    from traceback import format_exception

    from opbuild.text.visible import visible

    if sys.stderr is not None:
        sys.stderr.write(visible("".join(format_exception(kind, error, trace)).expandtabs()))


def _show_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Show an error that was raised where nothing can be, in a destructor for example.

    An interrupt ends a command there and then, and is raised once more for a script, which may have a use for it.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        interrupts = _interrupts()
        if interrupts is None or not interrupts.left:
            _end()
        else:
            interrupts.repeat()
            return
    sys.__unraisablehook__(unraisable)


def _interrupts() -> Interrupts | None:
    """Return the handler of Ctrl-C, if it is loaded."""
    return getattr(sys.modules.get("opbuild.cli.interrupt"), "INTERRUPTS", None)


def _end() -> None:
    interrupts = _interrupts()
    if interrupts is not None:
        interrupts.say_last()
    else:
        os.write(2, b"\r\x1b[2Kinterrupted\n" if os.isatty(2) else b"interrupted\n")  # over the ^C
    os._exit(_INTERRUPTED)


sys.excepthook = _show
sys.unraisablehook = _show_unraisable


def _lacking(error: ModuleNotFoundError) -> int:
    """Show the package that the command line lacks itself, and return the exit code."""
    from opbuild.platform.packages import missing_package

    missing = missing_package(error)
    if missing is None:
        raise error
    if sys.stderr is not None:
        sys.stderr.write(f"error (missing package): {missing.message}\n  hint: {missing.hint}\n")
    return missing.exit_code


def main() -> int:
    """Run the command line and return its exit code."""
    from opbuild.cli.interrupt import INTERRUPTED, INTERRUPTS

    INTERRUPTS.watch()
    try:
        from opbuild.cli.main import main as run

        code = run()
    except ModuleNotFoundError as error:
        code = _lacking(error)
    except BaseException:
        if not INTERRUPTS.happened:
            raise
        code = INTERRUPTED
    return INTERRUPTS.settle() if INTERRUPTS.happened else INTERRUPTS.ignore(code)


if __name__ == "__main__":
    sys.exit(main())
