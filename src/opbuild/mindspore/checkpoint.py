"""``save_checkpoint``, ``load_checkpoint``, ``load_param_into_net``: parameters in MindSpore's own files."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

import numpy as np

from opbuild.mindspore import checkpoint_file, safetensors_file
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.checkpoint_file import CheckpointError, Content, Record
from opbuild.mindspore.loading import load_param_into_net
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.paths import Path

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]

Choice = Callable[[str], bool]
_FORMATS = ("ckpt", "safetensors")
_NO_KEYS = "opbuild neither encrypts nor decrypts checkpoints: save it in MindSpore without enc_key"


def load_checkpoint(ckpt_file_name: str, net: Cell | None = None, strict_load: bool = False,
                    filter_prefix: str | Sequence[str] | None = None, dec_key: bytes | None = None,
                    dec_mode: str = "AES-GCM", specify_prefix: str | Sequence[str] | None = None,
                    choice_func: Choice | None = None, crc_check: bool = False, remove_redundancy: bool = False,
                    format: str = "ckpt") -> dict[str, Any]:  # fmt: skip
    """Return the parameters of a file by name; texts that were saved with them are texts.

    Args:
        ckpt_file_name: The file; its name ends with ``format``.
        net: A cell to load the parameters into as well.
        strict_load: Passed to ``load_param_into_net``.
        filter_prefix: Beginnings of names that are left out.
        dec_key: Not supported: a key for an encrypted file.
        dec_mode: Kept for programs that give it.
        specify_prefix: Beginnings of names; others are left out.
        choice_func: Says for each name whether it is loaded; not asked if one of the prefixes is given.
        crc_check: Whether to compare the checksum in the file.
        remove_redundancy: Must be False: it is for files of several ranks.
        format: ``ckpt`` or ``safetensors``.

    Raises:
        CheckpointError: If there is no such file, or it is no checkpoint or a damaged one (a ``ValueError`` too).
        ArgumentValueError: If an option is not supported, or nothing is left to load.
    """
    one_of(format, _FORMATS, "the format of load_checkpoint")
    if dec_key is not None:
        raise ArgumentValueError("load_checkpoint was given dec_key", _NO_KEYS)
    _no_crc_of(format, crc_check, "load_checkpoint")
    if remove_redundancy:
        raise ArgumentValueError("load_checkpoint was given remove_redundancy=True", "opbuild loads whole files")
    left_out, wanted = _prefixes(filter_prefix, "filter_prefix"), _prefixes(specify_prefix, "specify_prefix")
    asked = choice_func if filter_prefix is None and specify_prefix is None else None

    def chosen(name: str) -> bool:
        if (wanted and not name.startswith(wanted)) or (left_out and name.startswith(left_out)):
            return False
        return asked is None or bool(asked(name))

    loaded: dict[str, Any] = {}
    with _opened(ckpt_file_name, format) as file:
        for record in _records(file, format, crc_check):
            if chosen(record.tag):
                content = record.content()
                loaded[record.tag] = content if isinstance(content, str) else Parameter(content, name=record.tag)
    if not loaded:
        raise ArgumentValueError(
            f"nothing is loaded from {ckpt_file_name}", "see filter_prefix, specify_prefix and choice_func"
        )
    if net is not None:
        load_param_into_net(net, loaded, strict_load)
    return loaded


def save_checkpoint(save_obj: Any, ckpt_file_name: str, integrated_save: bool = True, async_save: bool | str = False,
                    append_dict: Mapping[str, Any] | None = None, enc_key: bytes | None = None,
                    enc_mode: str = "AES-GCM", choice_func: Choice | None = None, crc_check: bool = False,
                    format: str = "ckpt", **kwargs: Any) -> None:  # fmt: skip
    """Write parameters to a file that MindSpore loads; a file of that name is replaced once it is written.

    Args:
        save_obj: A cell, a list of parameters or of ``{"name": ..., "data": ...}``, or a dictionary by name.
        ckpt_file_name: The file; ``.ckpt`` or ``.safetensors`` is added if the name does not end with it.
        integrated_save: Kept for programs that give it: parameters are never split here.
        async_save: Kept for programs that give it: the file is written when the call returns.
        append_dict: Numbers, texts and tensors to save with the parameters.
        enc_key: Not supported: a key to encrypt the file with.
        enc_mode: Kept for programs that give it.
        choice_func: Says for each name whether it is saved.
        crc_check: Whether to write a checksum.
        format: ``ckpt`` or ``safetensors``.
        kwargs: MindSpore's further options; they change nothing here.

    Raises:
        ArgumentTypeError, ArgumentValueError: If there is something that cannot be saved.
        CheckpointError: If the file cannot be written.
    """
    one_of(format, _FORMATS, "the format of save_checkpoint")
    if enc_key is not None:
        raise ArgumentValueError("save_checkpoint was given enc_key", _NO_KEYS)
    _no_crc_of(format, crc_check, "save_checkpoint")
    contents: dict[str, Content] = {
        name: _content(name, value) for name, value in _named(save_obj) if choice_func is None or choice_func(name)
    }
    contents.update({name: _content(name, value) for name, value in (append_dict or {}).items()})
    path = _path(ckpt_file_name, "save_checkpoint")
    if not path.name.endswith(format):
        path = path.with_name(f"{path.name}.{format}")
    with _replacing(path) as file:
        if format == "ckpt":
            checkpoint_file.write_records(file, contents, crc_check)
        else:
            safetensors_file.write_records(file, _arrays(contents))


def _no_crc_of(format: str, crc_check: bool, function: str) -> None:
    if crc_check and format != "ckpt":
        raise ArgumentValueError(f"{function} was given crc_check=True", "opbuild has it for format='ckpt' only")


def _records(file: BinaryIO, format: str, crc_check: bool) -> Iterator[Record]:
    if format == "ckpt":
        return checkpoint_file.read_records(file, crc_check)
    return safetensors_file.read_records(file)


def _named(save_obj: Any) -> Iterator[tuple[str, Any]]:
    """Yield names and values of the object that ``save_checkpoint`` takes."""
    if isinstance(save_obj, Cell):
        yield from ((parameter.name, parameter) for parameter in save_obj.get_parameters())
    elif isinstance(save_obj, Mapping):
        yield from save_obj.items()
    elif isinstance(save_obj, list):
        for item in save_obj:
            if isinstance(item, Parameter):
                yield item.name, item
            elif isinstance(item, dict) and {"name", "data"} <= item.keys():
                yield item["name"], item["data"]
            else:
                raise ArgumentTypeError(
                    f"save_checkpoint was given a list with a {type(item).__name__}",
                    "give parameters, or dictionaries with 'name' and 'data'",
                )
    else:
        raise ArgumentTypeError(
            f"save_checkpoint was given a {type(save_obj).__name__}", "give a Cell, a list or a dictionary"
        )


def _content(name: Any, value: Any) -> Content:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"save_checkpoint was given the name {name!r}", "give a string")
    if isinstance(value, str):
        return value
    if isinstance(value, (Tensor, np.ndarray, bool, int, float)):
        return Tensor(value).asnumpy()
    raise ArgumentTypeError(
        f"save_checkpoint cannot save {name!r}, a {type(value).__name__}", "give parameters, tensors, numbers or texts"
    )


def _arrays(contents: Mapping[str, Content]) -> dict[str, Any]:
    for name, content in contents.items():
        if isinstance(content, str):
            raise ArgumentTypeError(f"{name!r} is a text, which a safetensors file cannot hold", "use format='ckpt'")
    return dict(contents)


def _prefixes(given: Any, what: str) -> tuple[str, ...]:
    if given is None:
        return ()
    prefixes = (given,) if isinstance(given, str) else given
    if not isinstance(prefixes, (list, tuple)) or not all(isinstance(item, str) for item in prefixes):
        raise ArgumentTypeError(f"{what} of load_checkpoint is {given!r}", "give a string or a list of strings")
    if not prefixes or "" in prefixes:
        raise ArgumentValueError(f"{what} of load_checkpoint is {given!r}", "give beginnings of names")
    return tuple(prefixes)


def _path(name: Any, function: str) -> Path:
    if not isinstance(name, (str, os.PathLike)) or "\0" in os.fspath(name):
        raise ArgumentTypeError(f"{function} was given the file name {name!r}", "give a string")
    return Path(name)


@contextmanager
def _opened(name: Any, format: str) -> Iterator[BinaryIO]:
    """Open a file to read; errors inside name it."""
    path = _path(name, "load_checkpoint")
    if not path.name.endswith(format):
        raise ArgumentValueError(
            f"load_checkpoint was given {str(path)!r} and format={format!r}", f"the name must end with .{format}"
        )
    try:
        if path.exists() and not path.is_file():
            raise CheckpointError("this is no file", "give the name of a checkpoint")
        with path.open("rb") as file:
            yield file
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}", f"the current folder is {Path.cwd()}") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}", "see its rights") from None
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error.message}", error.hint) from None


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside ``path`` that takes its place when it is complete."""
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder", "give the name of a file")
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
        temporary.replace(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be written: {error.strerror}", "see folder, rights and space") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
