"""Letting ``import onnxruntime`` find this package."""

from __future__ import annotations

import sys

from opbuild.errors import OpbuildError
from opbuild.platform.aliases import AliasFinder

NAME = "onnxruntime"
_FACE = "opbuild.onnxruntime"


class AlreadyImportedError(OpbuildError, ImportError):
    """ONNX Runtime itself is imported, and parts of the program have its names."""


class MissingModuleError(OpbuildError, ModuleNotFoundError):
    """A module of ONNX Runtime that opbuild does not have."""


def missing_module(fullname: str) -> ImportError:
    """Return the error for a module of ONNX Runtime that opbuild does not have."""
    return MissingModuleError(
        f"No module named {fullname!r}: opbuild serves ONNX Runtime's sessions, and not this part of it",
        "run what needs it with ONNX Runtime",
    )


def install() -> None:
    """Let every later ``import onnxruntime`` of this process find ``opbuild.onnxruntime``.

    Raises:
        AlreadyImportedError: If ONNX Runtime itself was imported before.
    """
    found = sys.modules.get(NAME)
    if found is not None and found.__name__ != _FACE:
        raise AlreadyImportedError(
            f"onnxruntime {getattr(found, '__version__', '')} is imported already, from {found.__file__}",
            "call opbuild.onnxruntime.install() before anything imports onnxruntime",
        )
    if not any(isinstance(each, AliasFinder) and each.name == NAME for each in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder(NAME, _FACE, missing_module))
