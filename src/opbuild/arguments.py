"""Arguments of the public functions: the kind of each is declared, and nothing begins before all were looked at.

Ranges of numbers and names of modes are checked where they belong (``config``, ``models``); here it is types, so
that ``num_threads="2"`` ends neither as a foreign ``TypeError`` from the middle of a build nor as something unintended.
"""

from __future__ import annotations

import contextlib
import inspect
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from reprlib import Repr
from types import FunctionType
from typing import Any, TypeVar, cast

import numpy as np

from opbuild.config import OPTIONS, Config
from opbuild.errors import FileError, InvalidModelError, ModelError, OpbuildError, OptionError
from opbuild.graph.types import Graph
from opbuild.kernel.free import FREE
from opbuild.platform.records import NamedTuple
from opbuild.target.level import Level

F = TypeVar("F", bound=Callable[..., Any])
Extent = int | tuple[int, int]

ShapesGiven = Mapping[str, Sequence[int | None]]
"""Shapes by input name, as users give them; None or -1 leaves a dimension open."""

RangesGiven = Mapping[str, Sequence[int | tuple[int, int | None] | None]]
"""The same, and an extent may be a least and a greatest one; None or -1 stands for no limit."""


class ArgumentKind(NamedTuple):
    """A kind of values that an argument takes.

    Attributes:
        read: Returns the value as the function takes it; raises ``OptionError``, ``TypeError`` or ``ValueError``.
        hint: What to give.
    """

    read: Callable[[Any], Any]
    hint: str


def checks_arguments(function: F) -> F:
    """Let a function look at all of its arguments before it does anything, each as the table says.

    None passes where it is the default.

    Raises:
        KeyError: If the table does not have an argument.
    """
    signature = inspect.signature(function)
    kinds = {name: _kind_of(function.__name__, name) for name in signature.parameters}

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        bound = None
        with contextlib.suppress(TypeError):
            bound = signature.bind(*args, **kwargs)
        if bound is None:
            return function(*args, **kwargs)  # Python's own words name the function
        try:
            for name, value in bound.arguments.items():
                if value is not None or signature.parameters[name].default is not None:
                    bound.arguments[name] = _read(name, value, kinds[name])
            return function(*bound.args, **bound.kwargs)
        except (OptionError, ModelError) as error:
            raise _without_inside(error)  # noqa: B904 - it is the same error
        except KeyboardInterrupt as interrupt:
            from opbuild.platform.calls import bare

            raise bare(interrupt) from None

    return cast("F", wrapped)


def read_option(name: str, value: Any) -> Any:
    """Return the value of an option as settings take it.

    Raises:
        OptionError: If it is not what the option may be.
        KeyError: If there is no such option.
    """
    return _read(name, value, _kind_of("", name))


def _kind_of(function: str, argument: str) -> ArgumentKind:
    if argument in OPTIONS:
        return ArgumentKind(_READERS[OPTIONS[argument].kind], OPTIONS[argument].hint)
    return _KINDS[function, argument] if (function, argument) in _KINDS else _KINDS["", argument]


def _without_inside(error: OpbuildError) -> OpbuildError:
    """Forget where in opbuild an error arose: the fault is the user's, and the message names it.

    The frames stay where one is not opbuild's: a function of the user's was called.
    """
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            return error
        trace = trace.tb_next
    return error.with_traceback(None)


_PACKAGE = __file__.removesuffix("arguments.py")


def _read(name: str, value: Any, kind: ArgumentKind) -> Any:
    try:
        return kind.read(value)
    except (TypeError, ValueError):
        raise _refused(name, value, kind.hint) from None


def _refused(name: str, value: Any, hint: str) -> OptionError:
    if value is None or (isinstance(value, str) and not value):
        return OptionError(f"{name} is {'None' if value is None else 'empty'}", hint)
    return OptionError(f"{name} is {_SHORT.repr(value)}, which is of type {type(value).__name__}", hint)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60


# -- shapes ------------------------------------------------------------------------------------------------------------

_SHAPES = "give a dictionary such as {'x': (1, 3, 224, 224)}"
_EXTENTS = "give whole numbers such as (1, 3, 224, 224); None or -1 leaves a dimension open"
_RANGES = "give dimensions such as (1, 3, (1, 640), (1, 640)); None or -1 is any"


def as_shapes(given: ShapesGiven | None, name: str = "input_shapes") -> dict[str, tuple[int, ...]]:
    """Return shapes by input name; an extent that is left open is -1.

    Args:
        given: What the user gave; None is none.
        name: The argument's name.

    Raises:
        OptionError: If it is no dictionary from names to whole numbers.
    """
    return _by_input(given, name, lambda extent: FREE if extent is None else _whole_number(extent), _EXTENTS)


def as_variants(given: Sequence[ShapesGiven] | None, name: str = "variants") -> list[dict[str, tuple[int, ...]]]:
    """Return several shapes by input name, as ``as_shapes`` does."""
    items = [] if given is None else _items(given, name, "give a list of dictionaries such as [{'x': (1, 8)}]")
    return [as_shapes(shapes, f"{name}[{number}]") for number, shapes in enumerate(items)]


def _shapes_or_variants(given: Any) -> list[dict[str, tuple[int, ...]]]:
    return as_variants([given] if isinstance(given, Mapping) else given, "shapes")


def as_ranges(given: RangesGiven | None, name: str = "ranges") -> dict[str, tuple[Extent, ...]]:
    """Return shapes with ranges by input name: an extent is a number, -1 for any, or the least and the greatest."""
    return _by_input(given, name, _range, _RANGES)


def _by_input(given: Any, name: str, extent: Callable[[Any], Any], hint: str) -> dict[str, tuple[Any, ...]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _refused(name, given, _SHAPES)
    shapes = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise _refused(f"a name in {name}", key, _SHAPES)
        place = f"{name}[{key!r}]"
        extents = _items(value, place, hint)
        try:
            shapes[key] = tuple(extent(each) for each in extents)
        except (TypeError, ValueError):
            raise _refused(place, value, hint) from None
    return shapes


def _range(given: Any) -> Extent:
    if given is None:
        return FREE
    if not isinstance(given, (tuple, list)):
        return _whole_number(given)
    least, greatest = given
    return _whole_number(least), FREE if greatest is None else _whole_number(greatest)


def _items(given: Any, name: str, hint: str) -> list[Any]:
    if isinstance(given, (str, bytes, Mapping, set, frozenset)) or not isinstance(given, Iterable):
        raise _refused(name, given, hint)
    return list(given)


# -- single values -----------------------------------------------------------------------------------------------------


def _whole_number(given: Any) -> int:
    if isinstance(given, (bool, np.bool_)):
        raise TypeError("a truth value is no number")
    return operator.index(given)


def _flag(given: Any) -> bool:
    if not isinstance(given, (bool, np.bool_)):
        raise TypeError("not a truth value")
    return bool(given)


def _path(given: Any) -> Any:
    if not isinstance(os.fspath(given), str):
        raise TypeError("not a path of characters")
    return given


def _file(given: Any) -> Any:
    if not os.fspath(given):  # pathlib takes it for the current folder
        raise ValueError("no path")
    return _path(given)


def _texts(given: Any) -> Any:
    if isinstance(given, str):
        return given
    if isinstance(given, (bytes, Mapping)):
        raise TypeError("no list of texts")
    return tuple(map(_reader_of(str), given))


def _list_of_texts(given: Any) -> Any:
    if isinstance(given, str):
        raise TypeError("no list of texts")
    return _texts(given)


def _reader_of(*kinds: Any) -> Callable[[Any], Any]:
    """Return a reader that takes values of some types as they are."""

    def read(given: Any) -> Any:
        if not isinstance(given, kinds):
            raise TypeError("of another type")
        return given

    return read


_FILES = (str, os.PathLike, bytes, bytearray, memoryview)
_MODEL = "give a path, the bytes of a file or an onnx.ModelProto"
_INSIDE = {
    "model_proto": "give the onnx.ModelProto that it holds: model.model_proto",
    "read": "give the path of the file, or what it holds: model.read()",
}
"""What to do with an object that has a model, by an attribute: what torch.onnx.export returns, and open files."""


def _model(given: Any) -> Any:
    """Return a model; its content is checked when it is read.

    Raises:
        InvalidModelError: If it is something else.
    """
    if isinstance(given, str) and not given:  # pathlib takes it for the current folder
        raise FileError("the path of the model is empty", "give the path of an ONNX model")
    kind = type(given)
    message = getattr(getattr(kind, "DESCRIPTOR", None), "full_name", "onnx.ModelProto")
    if message != "onnx.ModelProto":
        hint = "make a model of it: onnx.helper.make_model(graph)" if message == "onnx.GraphProto" else _MODEL
        raise InvalidModelError(f"model is an {message}, not an onnx.ModelProto", hint)
    if isinstance(given, _FILES) or hasattr(given, "SerializeToString"):
        return given
    for attribute, hint in _INSIDE.items():
        if hasattr(given, attribute):
            raise InvalidModelError(f"model is of type {kind.__name__}, not a model", hint)
    if any(each.__name__ == "Module" and each.__module__.startswith("torch.") for each in kind.__mro__):
        hint = "export it first: torch.onnx.export(module, (example_input,), 'model.onnx'), and give that path"
        raise InvalidModelError(f"model is a torch module ({kind.__name__}), not an ONNX model", hint)
    if kind.__module__.startswith("torch."):
        hint = "export it to ONNX: torch.onnx.export, and give the path of the file"
        raise InvalidModelError(f"model is of type {kind.__name__}, not an ONNX model", hint)
    if isinstance(given, Graph):
        raise InvalidModelError("model is a Graph, not an ONNX model", "use opbuild.compile_graph")
    shown = "None, which is" if given is None else f"{_SHORT.repr(given)}, which is of type {kind.__name__},"
    raise InvalidModelError(f"model is {shown} not a model", _MODEL)


def _executor(given: Any) -> Any:
    """Return an executor; anything with its method serves, since some libraries' have no base in common with it."""
    if not callable(getattr(given, "submit", None)) or not callable(getattr(given, "shutdown", None)):
        raise TypeError("no executor")
    return given


def _models(given: Any) -> Any:
    """Return several models."""
    if isinstance(given, (*_FILES, Mapping)) or not isinstance(given, Iterable):
        raise TypeError("no list of models")
    return tuple(map(_model, given))


def _model_or_graph(given: Any) -> Any:
    return given if isinstance(given, Graph) else _model(given)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "flag": _flag,
    "whole": _whole_number,
    "text": _reader_of(str),
    "texts": _texts,
    "path": _path,
}
"""What options may be, by the kinds that ``config`` declares."""

_FILE = ArgumentKind(_file, "give the path of a file, as text or a pathlib.Path")
_FLAG = ArgumentKind(_flag, "give True or False")

_KINDS: Mapping[tuple[str, str], ArgumentKind] = {
    ("", "model"): ArgumentKind(_model, _MODEL),
    ("warm", "models"): ArgumentKind(_models, "give a list of paths"),
    ("warm", "shapes"): ArgumentKind(_shapes_or_variants, "give a dictionary such as {'x': (1, 8)}, or a list of them"),
    ("warm", "targets"): ArgumentKind(_list_of_texts, "give a list of levels such as ['x86-64-v3']"),
    ("export", "model"): ArgumentKind(_model_or_graph, _MODEL),
    ("", "graph"): ArgumentKind(
        _reader_of(Graph), "give an opbuild.graph.types.Graph; opbuild.compile takes ONNX models"
    ),
    ("", "input_shapes"): ArgumentKind(as_shapes, _SHAPES),
    ("", "variants"): ArgumentKind(as_variants, _SHAPES),
    ("", "ranges"): ArgumentKind(as_ranges, _SHAPES),
    ("", "target"): ArgumentKind(_reader_of(str, Level), "give a level as `opbuild env` shows it, such as 'x86-64-v3'"),
    ("", "executor"): ArgumentKind(_executor, "give a concurrent.futures.Executor: of Dask, client.get_executor()"),
    ("", "observer"): ArgumentKind(_reader_of(Callable), "give a function that takes one event, or leave it out"),
    ("", "config"): ArgumentKind(_reader_of(Config), "give an opbuild.config.Config, or leave it out"),
    ("", "image"): _FLAG,
    ("compile", "wait"): _FLAG,
    ("", "output"): _FILE,
    ("export", "target"): ArgumentKind(_reader_of(str), "give 'host', or a level such as 'x86-64-v3'"),
    ("", "path"): _FILE,
    ("", "verify"): _FLAG,
    ("", "op_type"): ArgumentKind(_reader_of(str), "give the operator's type as text: @opbuild.operator('MyOp')"),
    ("", "domain"): ArgumentKind(_reader_of(str), "give text"),
    ("operators", "name"): ArgumentKind(_texts, "give an operator's type such as 'Conv', or a list of them"),
    ("", "shape"): ArgumentKind(
        _reader_of(Callable), "give a function from the inputs' TensorTypes to the output's shape"
    ),
    ("", "schedule"): ArgumentKind(_reader_of(FunctionType), "give a function that schedules an hl.Func"),
}
"""What each argument but options may be: by the function's name, where it differs, and the argument's."""
