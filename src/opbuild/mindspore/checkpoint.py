"""Checkpoints: parameters saved, loaded, given to a cell by name, and files converted, in MindSpore's formats."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from opbuild.errors import ModelError
from opbuild.mindspore import checkpoint_file
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.checkpoint_file import CheckpointError, Content
from opbuild.mindspore.context import warn
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.background import Background
from opbuild.platform.paths import Path

__all__ = ["load_checkpoint", "load_param_into_net", "save_checkpoint"]

_FAMILIES = (("bfloat16", "float16", "float32", "float64"), ("int8", "int16", "int32", "int64"))
Choice = Callable[[str], bool]
_FORMATS = ("ckpt", "safetensors")
_NO_KEYS = "opbuild neither encrypts nor decrypts checkpoints: save it in MindSpore without enc_key"


class LoadError(ModelError, RuntimeError):
    """A parameter of a file does not fit the network's."""


def load_param_into_net(
    net: Cell, parameter_dict: Mapping[str, Any], strict_load: bool = False, remove_redundancy: bool = False
) -> tuple[list[str], list[str]]:
    """Give the parameters of a cell the data of those of the same names.

    Args:
        net: The cell.
        parameter_dict: What ``load_checkpoint`` returned.
        strict_load: Whether element types must be equal and names whole. Otherwise floats become the network's floats
            and integers its integers, and names in the dictionary may have one more prefix than in the network.
        remove_redundancy: Kept for programs that give it.

    Returns:
        The network's names that were not loaded, and the dictionary's that were not used.

    Raises:
        LoadError: If a shape or an element type does not fit (a ``RuntimeError`` too).
        ArgumentTypeError: If there is no cell or no dictionary of parameters.
    """
    _check(net, parameter_dict)
    missing: list[str] = []
    unused = list(parameter_dict)
    for parameter in net.get_parameters():
        if parameter.name not in parameter_dict:
            missing.append(parameter.name)
        elif isinstance(parameter_dict[parameter.name], Parameter):
            _update(parameter, parameter_dict[parameter.name], strict_load)
            unused.remove(parameter.name)
    if missing and not strict_load:
        _load_with_prefix(net, parameter_dict, missing)
    if missing:
        names = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        warn(f"{len(missing)} of the network's parameters are not loaded, as the dictionary has none: {names}")
    return missing, unused


def _check(net: Any, parameter_dict: Any) -> None:
    if not isinstance(net, Cell):
        raise ArgumentTypeError(f"load_param_into_net was given a {type(net).__name__}", "give a Cell first")
    if not isinstance(parameter_dict, Mapping):
        raise ArgumentTypeError(
            f"load_param_into_net was given a {type(parameter_dict).__name__}", "give what load_checkpoint returned"
        )
    for name, value in parameter_dict.items():
        if not isinstance(name, str) or not isinstance(value, (Parameter, str, list)):
            raise ArgumentTypeError(
                f"load_param_into_net was given {name!r} with a {type(value).__name__}", "give parameters by name"
            )


def _update(parameter: Parameter, new: Parameter, strict: bool) -> None:
    if _extents(parameter) != _extents(new):
        raise LoadError(
            f"{parameter.name} has the shape {parameter.shape} in the network and {new.shape} in the checkpoint",
            "is the checkpoint of this network?",
        )
    first, second = parameter.type.dtype, new.type.dtype
    if first != second:
        if strict or not any(first in family and second in family for family in _FAMILIES):
            raise LoadError(
                f"{parameter.name} is {first} in the network and {second} in the checkpoint",
                "is the checkpoint of this network?" if not strict else "strict_load=False converts",
            )
        warn(f"{parameter.name} is converted from {second} to {first}")
    parameter.set_data(new.asnumpy().reshape(parameter.shape))


def _extents(tensor: Parameter) -> list[int]:
    """Return the shape without extents of 1 at its end: MindSpore loads (8, 3, 1, 1) into (8, 3)."""
    extents = list(tensor.shape)
    while extents and extents[-1] == 1:
        extents.pop()
    return extents


def _load_with_prefix(net: Cell, parameter_dict: Mapping[str, Any], missing: list[str]) -> None:
    """Load parameters that are in the dictionary under one more prefix, such as ``network.`` of a training cell."""
    by_name = {parameter.name: parameter for parameter in net.get_parameters()}
    prefix = _prefix(parameter_dict, missing)
    while prefix:
        warn(f"the checkpoint's names without their prefix {prefix!r} are the network's")
        for name in list(missing):
            new = parameter_dict.get(prefix + name)
            if isinstance(new, Parameter):
                _update(by_name[name], new, False)
                missing.remove(name)
        before, prefix = prefix, _prefix(parameter_dict, missing)
        prefix = "" if prefix == before else prefix


def _prefix(parameter_dict: Mapping[str, Any], missing: list[str]) -> str:
    longer = (known.removesuffix(name) for name in missing for known in parameter_dict if known.endswith(name))
    return next(filter(None, longer), "")


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
        is_ckpt = format == "ckpt"
        records = checkpoint_file.read_records(file, crc_check) if is_ckpt else checkpoint_file.read_safetensors(file)
        for record in records:
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
            checkpoint_file.write_safetensors(file, _arrays(contents))


def _no_crc_of(format: str, crc_check: bool, function: str) -> None:
    if crc_check and format != "ckpt":
        raise ArgumentValueError(f"{function} was given crc_check=True", "opbuild has it for format='ckpt' only")


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


class ParamDictFuture:
    """Parameters that a thread is loading."""

    def __init__(self, future: Background[dict[str, Any]]) -> None:
        self._future = future

    def result(self) -> dict[str, Any]:
        """Return the parameters; an error while they were loaded is raised here."""
        return self._future.result()


def load_checkpoint_async(ckpt_file_name: str, net: Any = None, strict_load: bool = False, filter_prefix: Any = None,
                          dec_key: bytes | None = None, dec_mode: str = "AES-GCM", specify_prefix: Any = None,
                          choice_func: Choice | None = None) -> ParamDictFuture:  # fmt: skip
    """Begin ``load_checkpoint`` in a thread; ``result()`` of the returned future waits for it."""
    format = "safetensors" if str(ckpt_file_name).endswith(".safetensors") else "ckpt"
    work = partial(load_checkpoint, ckpt_file_name, net, strict_load, filter_prefix, dec_key, dec_mode,
                   specify_prefix, choice_func, format=format)  # fmt: skip
    future = Background(work, "load_checkpoint")
    future.start()
    return ParamDictFuture(future)


def ckpt_to_safetensors(file_path: str, save_path: str | None = None, name_map: Mapping[str, str] | None = None,
                        file_name_regex: str | None = None, processes_num: int = 1) -> None:  # fmt: skip
    """Write the parameters of ``.ckpt`` files as ``.safetensors``.

    Args:
        file_path: A file, or a folder: then of each folder in it whose name begins with ``rank``.
        save_path: The folder to write to; by default beside each file.
        name_map: New names of parameters, by their old ones.
        file_name_regex: Found in the names of the files that are converted; by default all are.
        processes_num: Kept for programs that give it.

    Raises:
        ArgumentValueError: If there is no such file or folder, or it is none to convert.
        CheckpointError: If a file cannot be read or written.
    """
    _convert("ckpt_to_safetensors", "ckpt", "safetensors", file_path, save_path, name_map, file_name_regex)


def safetensors_to_ckpt(file_path: str, save_path: str | None = None, name_map: Mapping[str, str] | None = None,
                        file_name_regex: str | None = None, processes_num: int = 1) -> None:  # fmt: skip
    """Write the parameters of ``.safetensors`` files as ``.ckpt``; arguments are ``ckpt_to_safetensors``'s."""
    _convert("safetensors_to_ckpt", "safetensors", "ckpt", file_path, save_path, name_map, file_name_regex)


def _convert(function: str, source: str, target: str, file_path: Any, save_path: Any, name_map: Any,
             regex: Any) -> None:  # fmt: skip
    for name, given in (("file_path", file_path), ("save_path", save_path)):
        if not isinstance(given, (str, os.PathLike)) and (given is not None or name == "file_path"):
            raise ArgumentTypeError(f"{name} of {function} is {given!r}", "give a string")
    if save_path and Path(save_path).suffix:
        raise ArgumentValueError(f"save_path of {function} is {str(save_path)!r}", "give the name of a folder")
    if name_map is not None and not isinstance(name_map, Mapping):
        raise ArgumentValueError(f"name_map of {function} is {name_map!r}", "give a dictionary of names")
    given = Path(file_path)
    for file in _files(function, source, given, _pattern(function, regex)):
        folder = file.parent if save_path is None else Path(save_path) / file.parent.relative_to(
            given if given.is_dir() else given.parent)  # fmt: skip
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CheckpointError(f"{folder} cannot be made: {error.strerror}", "see its rights") from None
        loaded = load_checkpoint(str(file), format=source)
        renamed = {(name_map or {}).get(name, name): value for name, value in loaded.items()}
        save_checkpoint(renamed, str(folder / f"{file.name[: -len(source)]}{target}"), format=target)


def _pattern(function: str, regex: Any) -> re.Pattern[str]:
    try:
        return re.compile("" if regex is None else regex)
    except (re.error, TypeError) as error:
        raise ArgumentValueError(f"file_name_regex of {function} is {regex!r}: {error}") from None


def _files(function: str, source: str, given: Path, pattern: re.Pattern[str]) -> Iterator[Path]:
    """Yield the files to convert."""
    if given.is_file():
        if given.suffix != f".{source}":
            raise ArgumentValueError(f"{function} was given {str(given)!r}", f"the name must end with .{source}")
        if not pattern.search(str(given)):
            raise ArgumentValueError(f"file_name_regex of {function} is not found in {str(given)!r}")
        yield given
        return
    if not given.is_dir():
        raise ArgumentValueError(f"{function}: there is no {str(given)!r}", f"the current folder is {Path.cwd()}")
    folders = sorted(each for each in given.iterdir() if each.is_dir() and each.name.startswith("rank"))
    if not folders:
        raise ArgumentValueError(
            f"{function}: {str(given)!r} has no folder whose name begins with 'rank'", "give one file, or their folder"
        )
    for folder in folders:
        yield from sorted(each for each in folder.glob(f"*.{source}") if pattern.search(each.name))
