"""Every error that opbuild raises, in one tree.

    OpbuildError
    ├── ModelError                 the network given is at fault
    │   ├── InvalidModelError      not a readable or valid model
    │   │   └── FileError          no such file, a folder, or a file of another kind
    │   ├── UnsupportedOperatorError
    │   ├── ShapeError             a shape is missing or does not fit
    │   └── DTypeError             a type is not supported or does not fit
    ├── OptionError                an argument, a flag or an environment variable is at fault
    ├── InputError                 the data given to a call is at fault
    ├── BuildError                 an operator or a network could not be built
    │   ├── CompileError           the compiler refused, crashed or hung on one operator
    │   ├── CompileForbiddenError  something had to be compiled, and compiling is forbidden
    │   ├── LinkError              objects could not be linked
    │   ├── MissingPackageError    a package that is needed for it is not installed; an ImportError too
    │   └── TargetError            the level is unknown or cannot run here
    ├── RunError                   a built network failed while it ran
    │   ├── OutOfRangeError        an index in its data is out of range; an IndexError too
    │   └── StoppedError           another thread stopped the call
    └── RankError                  the ranks of a job do not come together: one failed, hangs, or does something else

Each carries what was wrong and where in its message, and in ``hint`` what to do about it.
"""

from __future__ import annotations

from typing import TypeVar

_LONGEST = 10_000
"""Letters of a message at most: what it repeats of a file may have any length."""


class OpbuildError(Exception):
    """Base of all errors of opbuild.

    Attributes:
        hint: What the reader can do about it; empty if there is nothing to add.
        command_hint: The same for who typed a command, whose options are spelled in another way than arguments.
        in_python: Whether a program of the user's asked for what failed, also if a command ran that.
        exit_code: The exit code of a command that ends with this error.
    """

    exit_code = 1
    in_python = False

    def __init__(self, message: str, hint: str = "", *, command: str = "") -> None:
        from opbuild.text.visible import visible  # a start has no errors

        message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]} ... and {len(message)} letters in all"
        message = visible(message)
        super().__init__(message)
        self.message = message
        self.hint = visible(hint)
        self.command_hint = visible(command or hint)

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def __reduce__(self) -> tuple[type[OpbuildError], tuple[str, str], dict[str, object]]:
        return type(self), (self.message, self.hint), {**vars(self), "args": self.args}  # which no line is added to


M = TypeVar("M", bound="ModelError")


class ModelError(OpbuildError):
    """The network given is at fault.

    Attributes:
        node: The name of the node that is at fault; empty where it is no single one, or not known.
    """

    exit_code = 3
    node = ""

    def at(self: M, node: str) -> M:
        """Name the node that is at fault, and return the error to be raised: a local name for it would be a cycle."""
        self.node = node
        return self


class InvalidModelError(ModelError):
    """The model cannot be read or is not valid."""


class FileError(InvalidModelError):
    """There is no such file, or it is a folder, empty, not readable, or of another kind: the path is at fault."""

    exit_code = 2


class UnsupportedOperatorError(ModelError):
    """An operator is unknown to every backend."""


class ShapeError(ModelError):
    """A shape is missing or does not fit."""


class DTypeError(ModelError):
    """An element type is not supported or does not fit."""


class OptionError(OpbuildError):
    """An argument, a flag or an environment variable has a value that is not allowed."""

    exit_code = 2


class InputError(OpbuildError):
    """The data given to a call does not fit the network's inputs."""

    exit_code = 4


class OutputError(InputError):
    """An array given to a call for an output does not fit it."""


class BuildError(OpbuildError):
    """An operator or a network could not be built."""

    exit_code = 5


class CompileError(BuildError):
    """The compiler refused, crashed or hung on one operator."""


class CompileForbiddenError(BuildError):
    """An operator had to be compiled while compiling is forbidden."""


class LinkError(BuildError):
    """Objects could not be linked."""


class MissingPackageError(BuildError, ImportError):
    """A package that is needed is not installed."""


class TargetError(BuildError):
    """A level is unknown, or code for it cannot run here."""


class RunError(OpbuildError):
    """A built network failed while it ran."""

    exit_code = 6


class OutOfRangeError(RunError, IndexError):
    """An index in the data that a network was given is out of range."""


class StoppedError(RunError):
    """Another thread stopped the call; the network can be called again."""


class ChangesError(RunError):
    """A run failed while it replaced its inputs: some of them may be new, some old."""


class RankError(OpbuildError):
    """The ranks of a job do not come together: one failed, hangs, or does something else than the others."""

    exit_code = 7
