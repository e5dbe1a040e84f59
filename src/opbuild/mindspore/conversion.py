"""``ckpt_to_safetensors``, ``safetensors_to_ckpt``, ``load_checkpoint_async``: around ``checkpoint``'s functions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.checkpoint import Choice, load_checkpoint, save_checkpoint
from opbuild.mindspore.checkpoint_file import CheckpointError
from opbuild.platform.background import Background
from opbuild.platform.paths import Path


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
