"""Packages that opbuild needs: one that is not installed is an error that names it and how to install it.

Installed without its dependencies, or in an image from which some were removed, opbuild does what needs none of those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.errors import MissingPackageError, OpbuildError

if TYPE_CHECKING:
    from types import TracebackType

DEPENDENCIES = ("blake3", "click", "halide", "jinja2", "ml_dtypes", "numpy", "onnx", "rich")
"""The packages that come with opbuild, by the names under which they are imported and installed."""


EXTRAS = {"triton": "'opbuild[gpu]'"}
"""What installs a package in the release that opbuild is for, where it does not come with opbuild."""


def install_command(*packages: str) -> str:
    """Return the command that installs some packages."""
    return f"pip install {' '.join(EXTRAS.get(each, each) for each in packages)}"


def lacking(*packages: str) -> MissingPackageError:
    """Return the error for packages that are not installed."""
    named = f"package {packages[0]} is" if len(packages) == 1 else f"packages {', '.join(packages)} are"
    return MissingPackageError(f"the {named} not installed", install_command(*packages))


def missing_package(error: BaseException) -> MissingPackageError | None:
    """Return the error for an import of opbuild, or of a package that it needs, of what is not installed; else None.

    An import of the user's own that fails is none.
    """
    if not isinstance(error, ModuleNotFoundError) or isinstance(error, OpbuildError):
        return None
    name, importer = (error.name or "").partition(".")[0], _importer(error.__traceback__)
    if name in DEPENDENCIES and importer in ("opbuild", *DEPENDENCIES):
        return lacking(name)
    if importer in DEPENDENCIES:
        return MissingPackageError(
            f"the module {name} is not installed, which the package {importer} needs",
            f"{install_command(importer)} installs what it needs; 'pip check' says what else is missing",
        )
    return None


def _importer(trace: TracebackType | None) -> str:
    """Return the package whose import failed: that of the innermost frame outside of the import system."""
    importer = ""
    while trace is not None:
        name = str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        importer = importer if name == "importlib" else name
        trace = trace.tb_next
    return importer
