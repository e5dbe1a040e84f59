"""MindSpore's public names, and the error for one that opbuild does not have: whose it is, what to do, the nearest.

``public_names.json``, which ``tools/mindspore_names.py`` writes, has them with their kinds. Modules here take
``__getattr__ = names.getter(__name__)``; ``Tensor`` asks ``missing_method``.
"""

from __future__ import annotations

import difflib
import importlib
import json
import opcode
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any, TypeVar

from opbuild.errors import ModelError
from opbuild.platform.paths import Path

_FILE = Path(__file__).with_name("public_names.json")

_MODULES = {
    "amp": "training", "boost": "training", "dataset": "data", "experimental": "training", "mindrecord": "data",
    "parallel": "parallel", "profiler": "device", "runtime": "device", "hal": "device", "train": "training",
    "device_context": "device", "device_manager": "device",
}  # fmt: skip
"""Kinds of MindSpore's modules; the others are used inside it."""


@lru_cache(maxsize=1)
def content() -> dict[str, Any]:
    """Return the content of the file: ``version``, ``modules``, and ``names`` by module and kind."""
    read: dict[str, Any] = json.loads(_FILE.read_text())
    return read


@lru_cache(maxsize=32)
def kinds(owner: str) -> dict[str, list[str]]:
    """Return the public names of a module or class of MindSpore by kind; empty if it is not listed."""
    return {kind: names.split() for kind, names in content()["names"].get(owner, {}).items()}


def kind_of(owner: str, name: str) -> str:
    """Return the kind of a name or module of MindSpore, or an empty text if it has none of that name."""
    for kind, names in kinds(owner).items():
        if name in names:
            return kind
    top = f"{owner}.{name}".split(".")
    if top[0] == "mindspore" and len(top) > 1 and top[1] in _MODULES:
        return _MODULES[top[1]]
    return "internal" if owner == "mindspore" and name in content()["modules"].split() else ""


_MODULES_HERE = ("amp", "common", "communication", "context", "dataset", "mint", "nn", "numpy", "ops", "train")
_CALLS: dict[int, Callable[[str], None]] = {}
"""What names the functions and classes of rows, by identity, until they are called by the names of their variables."""

Made = TypeVar("Made", bound=Any)

_CLOSE = 0.75
"""How alike names are that are shown as nearest, from 0 to 1."""

_SENTENCES: dict[tuple[str, str], tuple[str, str]] = {}
_MOST_SENTENCES = 4096
_IMPORT_FROM = opcode.opmap["IMPORT_FROM"]

_ADVICE = {
    "inference": "MindSpore has it; opbuild has it not yet",
    "training": "it is for training, of which opbuild has a part (Model, value_and_grad, nn.Adam): train with "
    "MindSpore and load the parameters",
    "data": "it reads data sets from files: opbuild has dataset.GeneratorDataset and NumpySlicesDataset, of what a "
    "program has read",
    "parallel": "it splits work over many devices: opbuild has mindspore.communication, data parallel training and "
    "ops.AllReduce, AllGather, ReduceScatter and Broadcast",
    "device": "it manages Ascend or GPU devices: opbuild runs on CPUs, leave it out",
    "sparse": "it is about sparse tensors, which opbuild does not have: use dense ones",
    "internal": "MindSpore uses it inside and does not document it",
    "": "MindSpore 2.10 does not list it either",
}
"""What to say about a name, by its kind in ``public_names``; the empty kind is no name of MindSpore."""


class MissingNameError(ModelError, AttributeError):
    """A name of MindSpore that opbuild does not have was looked up."""


class MissingImportError(ModelError, ImportError):
    """A name of MindSpore that opbuild does not have was imported."""


class MissingModuleError(ModelError, ModuleNotFoundError):
    """A module of MindSpore that opbuild does not have was imported."""


def getter(module: str, public: str = "", lazy: Iterable[str] = ()) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module.

    ``public`` is what MindSpore calls it, where that is not the name below ``opbuild``; ``lazy`` are modules below it
    that are imported when they are first used.
    """
    modules = frozenset(lazy)
    owner = public or module.removeprefix("opbuild.")

    def __getattr__(name: str) -> Any:  # noqa: N807 - becomes the module's
        if name in modules:
            return importlib.import_module(f"{module}.{name}")
        if name.startswith("_"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        here = sys.modules[module]
        text, hint = sentence(owner, name, lambda: [each for each, value in vars(here).items() if value is not here])
        # Python replaces what an AttributeError says by its own words when a name is imported.
        raise (MissingImportError if _imports(sys._getframe(1)) else MissingNameError)(text, hint)

    return __getattr__


def public(space: Mapping[str, Any], base: type | None = None) -> list[str]:
    """Return the names for a module's ``__all__``: all but modules, or if ``base`` is given the classes below it."""

    def given_out(value: Any) -> bool:
        if base is None:
            return not isinstance(value, ModuleType)
        return isinstance(value, type) and issubclass(value, base) and value is not base

    return [name for name, value in space.items() if not name.startswith("_") and given_out(value)]


def row(made: Made, call: Callable[[str], None]) -> Made:
    """Return the function or class that a row of a module defines; ``call`` gives it the name that it will have."""
    call(made.__name__)
    _CALLS[id(made)] = call
    return made


def call_rows(rows: Mapping[str, Any], module: str) -> None:
    """Give what rows define the names that it has in a module or table: of several names the first."""
    for name, value in rows.items():
        call = _CALLS.pop(id(value), None)
        if call is not None:
            value.__module__ = module
            call(name)


def export(space: dict[str, Any], but: str = "") -> None:
    """Name a module's rows, and give it its ``__all__``: all that it defines ``but`` what other modules use inside.

    Type checkers see no ``__all__``, and so the functions with their types.
    """
    call_rows(space, space["__name__"])
    own, inside = space["__name__"], but.split()
    space["__all__"] = sorted(name for name, value in space.items() if not name.startswith("_")
                              and name not in inside and callable(value) and value.__module__ == own)  # fmt: skip


class Named(type):
    """The type of ``Tensor``: a name that the class does not have gets the sentence too."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise missing_method(name, lambda: dir(cls))


def missing_method(name: str, methods: Callable[[], Iterable[str]]) -> AttributeError:
    """Return the error of a name that ``Tensor`` does not have."""
    if name.startswith("_"):
        return AttributeError(f"'Tensor' object has no attribute {name!r}")
    return MissingNameError(*sentence("mindspore.Tensor", name, methods))


def missing_module(name: str) -> MissingModuleError:
    """Return the error of a module that opbuild does not have, by the name that MindSpore gives it."""
    parent, _, leaf = name.rpartition(".")
    error = MissingModuleError(*sentence(parent, leaf, lambda: _MODULES_HERE if parent == "mindspore" else ()))
    error.name = name
    return error


def sentence(owner: str, name: str, there: Callable[[], Iterable[str]]) -> tuple[str, str]:
    """Return the message about a name that ``owner`` (as MindSpore calls it) lacks, and the hint: a name ``there``."""
    known = _SENTENCES.get((owner, name))
    if known is None:  # programs that only ask with hasattr ask often
        near = _elsewhere(owner, name) or _nearest(owner, name, there())
        known = f"opbuild has no {owner}.{name}: {_ADVICE[_kind(owner, name)]}", near
        if len(_SENTENCES) < _MOST_SENTENCES:
            _SENTENCES[owner, name] = known
    return known


def _kind(owner: str, name: str) -> str:
    """Return the kind of a name; ``mindspore`` has some of ``ops`` that it does not list: ``value_and_grad``."""
    return kind_of(owner, name) or (kind_of("mindspore.ops", name) if owner == "mindspore" else "")


def _nearest(owner: str, name: str, there: Iterable[str]) -> str:
    public = [each for each in there if not each.startswith("_")]
    folded = {each.lower(): each for each in public}
    found = difflib.get_close_matches(name, public, n=1, cutoff=_CLOSE) or [
        folded[each] for each in difflib.get_close_matches(name.lower(), folded, n=1, cutoff=_CLOSE)
    ]
    return f"the nearest name here is {owner.removeprefix('mindspore.')}.{found[0]}" if found else ""


def _elsewhere(owner: str, name: str) -> str:
    """Return the place where opbuild has the very name, among the modules that are confused with each other."""
    for module in ("mindspore", "mindspore.nn", "mindspore.ops"):
        there = sys.modules.get(f"opbuild.{module}")
        if there is not None and module != owner and not name.startswith("_") and name in vars(there):
            return f"there is {module}.{name}"
    return ""


def _imports(frame: FrameType) -> bool:
    """Return whether the frame is at a ``from ... import``."""
    code = frame.f_code.co_code
    return 0 <= frame.f_lasti < len(code) and code[frame.f_lasti] == _IMPORT_FROM
