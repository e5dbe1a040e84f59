"""Files that users name: one wording for each that is missing, is a folder, cannot be read, or is of another kind."""

from __future__ import annotations

import errno
import os
import stat

from opbuild.errors import FileError
from opbuild.platform.paths import Path

ONNX, OFFLINE, SCRIPT = "an ONNX model", "an offline model (.om)", "a Python script"
BUNDLE, MODEL_PACK, ARRAY = "a bundle of operators", "a model pack", "a numpy array (.npy)"
"""Kinds of files that opbuild reads, as messages call them."""

OFFLINE_MAGIC = b"\x8fOPBOM\r\n"
BUNDLE_MAGIC = b"opbuild bundle "

_TORCH = "a PyTorch file or another zip archive"
_STARTS: tuple[tuple[bytes, str], ...] = (
    (OFFLINE_MAGIC, OFFLINE),
    (BUNDLE_MAGIC, BUNDLE),
    (b"opbuild model-pack ", MODEL_PACK),
    (b"PK\x03\x04", _TORCH),
    (b"\x80\x02", "a pickle"),
    (b"\x80\x04", "a pickle"),
    (b"\x80\x05", "a pickle"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    (b"\x93NUMPY", ARRAY),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"\x7fELF", "a program or library"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"%PDF-", "a PDF document"),
    (b"<?xml", "an XML document"),
    (b"version https://git-lfs", "a Git LFS pointer, and not what it points to"),
)
"""How files begin that are surely something else than what follows in the table's columns; no ONNX model does."""

_ENDINGS = {".py": SCRIPT, ".onnx": ONNX}
"""Kinds of text and of files that begin with anything, by the ending of their names."""

_EXPORT = {
    _TORCH: "export it to ONNX: torch.onnx.export",
    "a pickle": "export it to ONNX: torch.onnx.export",
    "an HDF5 file": "export it to ONNX: python -m tf2onnx.convert",
    "a Git LFS pointer, and not what it points to": "fetch it: git lfs pull",
}


def kind_of(path: Path) -> str:
    """Return the kind of a file, as far as its beginning and its name say; empty if they do not.

    Raises:
        OSError: If it cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(24)
    found = next((kind for magic, kind in _STARTS if start.startswith(magic)), "")
    return found or _ENDINGS.get(path.suffix, "")


def require_kind(path: Path, wanted: str, *also: str) -> None:
    """Refuse a file that cannot be of the kind that is wanted.

    A file that is not regular, a pipe for example, is left to who reads it.

    Raises:
        FileError: If it is missing, a folder, empty, cannot be read, or is of another kind.
    """
    name = repr(str(path))
    try:
        state = path.stat()
        if stat.S_ISDIR(state.st_mode):
            raise FileError(f"{name} is a folder", f"give the path of {wanted}")
        if not stat.S_ISREG(state.st_mode):
            return
        kind = kind_of(path)
    except FileNotFoundError:
        raise FileError(f"there is no file {name}", f"give the path of {wanted}") from None
    except (OSError, ValueError) as error:
        why = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        hint = f"give the path of {wanted}"
        if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
            hint = "ask for leave to read it (chmod), or copy it"
        raise FileError(f"{name} cannot be read: {why}", hint) from None
    if state.st_size == 0 and wanted != SCRIPT:
        raise FileError(f"{name} is empty", "export or copy it again")
    if kind and kind not in (wanted, *also):
        python, command = _advice(str(path), kind, wanted)
        raise FileError(f"{name} is {kind}, not {wanted}", python, command=command)


def _advice(path: str, kind: str, wanted: str) -> tuple[str, str]:
    """Return the advice for a file of another kind than the one that is wanted: in Python, and as a command."""
    if kind == OFFLINE:
        return f"it is built already: opbuild.load({path!r})", f"it is built already: opbuild run {path}"
    if kind == ONNX and wanted == OFFLINE:
        python = f"build it: opbuild.compile({path!r}), or into a file: opbuild.export({path!r}, OUTPUT)"
        return python, f"build it: opbuild run {path}, or into a file: opbuild export {path}"
    if kind == ONNX:
        return f"build it: opbuild.compile({path!r})", f"build it: opbuild run {path}"
    if kind == SCRIPT:
        return "import it, or run it: python, or opbuild run", f"run it: opbuild run {path}"
    if kind == BUNDLE:
        return f"import it: opbuild cache import {path}", f"import it: opbuild cache import {path}"
    hint = _EXPORT.get(kind, f"give the path of {wanted}")
    return hint, hint
