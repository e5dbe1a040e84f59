"""The errors of ONNX Runtime, by its names, codes and texts, and which of them an error of opbuild becomes."""

from __future__ import annotations

from typing import ClassVar

from opbuild.errors import (
    BuildError,
    DTypeError,
    FileError,
    InputError,
    InvalidModelError,
    OpbuildError,
    OptionError,
    OutOfRangeError,
    ShapeError,
    StoppedError,
    UnsupportedOperatorError,
)


class StatusError(OpbuildError):
    """Base of ONNX Runtime's errors. Its text is ONNX Runtime's alone; a traceback shows the hint below it."""

    number: ClassVar[int]
    status: ClassVar[str]

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.__notes__ = [f"hint: {hint}"] if hint else []

    def __str__(self) -> str:
        return self.message


class Fail(StatusError):
    """A failure without another name."""

    number, status = 1, "FAIL"


class InvalidArgument(StatusError):
    """An argument, an input or a model is at fault."""

    number, status = 2, "INVALID_ARGUMENT"


class NoSuchFile(StatusError):
    """There is no such file."""

    number, status = 3, "NO_SUCHFILE"


class NoModel(StatusError):
    """There is no model."""

    number, status = 4, "NO_MODEL"


class EngineError(StatusError):
    """The engine failed."""

    number, status = 5, "ENGINE_ERROR"


class RuntimeException(StatusError):
    """A network could not be built, or failed while it ran."""

    number, status = 6, "RUNTIME_EXCEPTION"


class InvalidProtobuf(StatusError):
    """A file is no ONNX model."""

    number, status = 7, "INVALID_PROTOBUF"


class ModelLoaded(StatusError):
    """A model is loaded already."""

    number, status = 8, "MODEL_LOADED"


class NotImplemented(StatusError):  # noqa: A001  ONNX Runtime's name
    """ONNX Runtime has it and opbuild has not."""

    number, status = 9, "NOT_IMPLEMENTED"


class InvalidGraph(StatusError):
    """A model breaks ONNX's rules."""

    number, status = 10, "INVALID_GRAPH"


class EPFail(StatusError):
    """An execution provider failed."""

    number, status = 11, "EP_FAIL"


class ModelLoadCanceled(StatusError):
    """Making a session was cancelled."""

    number, status = 12, "MODEL_LOAD_CANCELED"


class ModelRequiresCompilation(StatusError):
    """A model must be compiled first."""

    number, status = 13, "MODEL_REQUIRES_COMPILATION"


class NotFound(StatusError):
    """Something named is not there."""

    number, status = 14, "NOT_FOUND"


class DeviceReset(StatusError):
    """A device was reset."""

    number, status = 15, "DEVICE_RESET"


def failure(kind: type[StatusError], text: str, hint: str = "") -> StatusError:
    """Return an error as ONNX Runtime words it: its code, the code's name and the problem."""
    return kind(f"[ONNXRuntimeError] : {kind.number} : {kind.status} : {text}", hint)


STOPPED = "Exiting due to terminate flag being set to true."
"""The text of the error of a call that ``RunOptions.terminate`` ended."""

_KINDS: dict[type[OpbuildError], type[StatusError]] = {
    FileError: InvalidArgument,
    InvalidModelError: InvalidGraph,
    UnsupportedOperatorError: NotImplemented,
    DTypeError: NotImplemented,
    ShapeError: InvalidArgument,
    InputError: InvalidArgument,
    OutOfRangeError: InvalidArgument,
    OptionError: InvalidArgument,
    BuildError: RuntimeException,
    StoppedError: Fail,
}
"""What each error becomes; all others failed at run time."""


class as_status:  # noqa: N801  used as a function
    """Lets an error of opbuild leave a block as one of ONNX Runtime's behind some text, with its hint and its cause."""

    def __init__(self, before: str = "") -> None:
        self._before = before

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """End the block."""
        if isinstance(error, OpbuildError) and not isinstance(error, StatusError):
            kinds = (_KINDS[kind] for kind in type(error).__mro__ if kind in _KINDS)
            text = STOPPED if isinstance(error, StoppedError) else error.message
            raise failure(next(kinds, RuntimeException), self._before + text, error.hint) from error
