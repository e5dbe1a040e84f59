"""Arguments of wrong types: each public function refuses each of them by name, before it does anything."""

from __future__ import annotations

import inspect
import io
import os
import subprocess
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from opentelemetry.trace import TracerProvider

import opbuild
from opbuild import events
from opbuild.config import Config
from opbuild.errors import InvalidModelError, ModelError, OptionError
from opbuild.graph.types import Graph

FUNCTIONS = [name for name in opbuild.__all__ if inspect.isfunction(getattr(opbuild, name))]

VALUES: list[Any] = [
    *(None, True, 3, 3.5, "2", "1,3,224", b"x", "", [], [3], ["a"], ["x", 3], (1, 2), object(), np.float32(1)),
    *({}, {"x": 3}, {"x": "1,3,224"}, {"x": [1.5]}, {"x": [True]}, {3: (1,)}, {"x": [(1, 2, 3)]}, {"x": None}),
    *(
        {"x": {1, 2}},
        {"x": b"12"},
        {"x": [None, "a"]},
        [{"x": "1"}],
        np.array([1, 2]),
        Config,
        Path,
        len,
        Path("p"),
        onnx,
    ),
]
"""What users give by mistake, and by no mistake elsewhere."""

RIGHT: Mapping[str, Any] = {"model": "no such file.onnx", "output": "no/such/folder.om", "path": "no such file.om",
                            "models": ["no such file.onnx"]}  # fmt: skip
"""Required arguments of the right type; each would end as another error if anything were done with it."""


def matches(value: Any, annotation: Any) -> bool:
    """Whether a value is of an annotated type; truth values are no numbers, text is no sequence of text."""
    origin, parameters = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(matches(value, each) for each in parameters)
    if annotation in (Any, None, type(None)):
        return annotation is Any or value is None
    if annotation is int:
        return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if origin is None:
        return isinstance(value, annotation)
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        if not isinstance(value, (tuple, list)) or len(value) != len(parameters):
            return False
        return all(map(matches, value, parameters))
    if issubclass(origin, Mapping):
        pairs = value.items() if isinstance(value, Mapping) else [(None, None)]
        return all(matches(k, parameters[0]) and matches(v, parameters[1]) for k, v in pairs)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike)
    is_sequence = isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, (str, bytes))
    return is_sequence and all(matches(each, parameters[0]) for each in value)


NAMES = {"Observer": events.Observer, "Executor": Executor, "TracerProvider": TracerProvider}
"""Types that annotations name and modules import for type checkers alone."""


def wrong_values() -> Iterator[tuple[str, str, Any]]:
    """Every public function, each of its arguments, each value that its annotation does not allow."""
    for name in FUNCTIONS:
        function = getattr(opbuild, name)
        hints = get_type_hints(inspect.unwrap(function), localns=NAMES)
        for argument in inspect.signature(function).parameters:
            annotation = str | os.PathLike | bytes | (Graph if name == "export" else str)
            annotation = annotation if argument == "model" else hints[argument]
            for value in VALUES:
                if not matches(value, annotation):
                    yield name, argument, value


def call(name: str, argument: str, value: Any) -> None:
    """Call a public function with one argument of a given value and all others right."""
    function = getattr(opbuild, name)
    required = [p.name for p in inspect.signature(function).parameters.values() if p.default is inspect.Parameter.empty]
    others = {"graph": Graph("g", (), (), (), {}, {}), "op_type": "Mine", **RIGHT}
    function(**{**{each: others[each] for each in required}, argument: value})


def test_every_wrong_type_is_refused_by_name_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``num_threads="2"`` was a TypeError, ``observer=3`` failed in a thread, ``copy_weights="no"`` meant yes."""
    monkeypatch.chdir(tmp_path)
    tried = 0
    for name, argument, value in wrong_values():
        kind = InvalidModelError if argument == "model" else OptionError
        with pytest.raises(kind) as caught:
            call(name, argument, value)
        assert argument in caught.value.message, (name, argument, value, caught.value)
        assert caught.value.hint, (name, argument, value)
        assert len(str(caught.value)) < 300
        tried += 1
    assert tried > 500
    assert list(tmp_path.iterdir()) == []


def test_there_is_a_wrong_value_for_every_argument() -> None:
    """The generator leaves out no argument of any public function."""
    tried = {(name, argument) for name, argument, _ in wrong_values()}
    assert tried == {
        (name, each) for name in FUNCTIONS for each in inspect.signature(getattr(opbuild, name)).parameters
    }


def relu_graph() -> onnx.GraphProto:
    """What people take out of a model."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", "m")) for name in ("x", "y")]
    return helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])


class Module:
    """Stands for ``torch.nn.Module``."""


Module.__module__ = "torch.nn.modules.module"


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "compile",
            {"num_threads": "2"},
            r"^num_threads is '2', which is of type str\n  hint: give a whole number",
        ),
        ("compile", {"num_threads": True}, "^num_threads is True, which is of type bool"),
        ("compile", {"workers": "a"}, "^workers is 'a', which is of type str"),
        (
            "compile",
            {"input_shapes": {"x": "1,3"}},
            r"input_shapes\['x'\] is '1,3', .*\n  hint: give whole numbers such as",
        ),
        (
            "compile",
            {"input_shapes": [1, 3]},
            r"input_shapes is \[1, 3\], .*\n  hint: give a dictionary such as \{'x'",
        ),
        ("compile", {"observer": 3}, "^observer is 3(?s:.*) a function that takes one event"),
        ("compile", {"executor": "processes"}, "^executor is 'processes'(?s:.*) a concurrent.futures.Executor"),
        ("compile", {"cache_path": 3}, "^cache_path is 3(?s:.*) the path of a folder"),
        ("compile", {"copy_weights": "no"}, "^copy_weights is 'no'(?s:.*) True or False"),
        ("load", {"verify": "yes"}, "^verify is 'yes'"),
        ("export", {"variants": {"x": (1,)}}, "^variants is (?s:.*) a list of dictionaries"),
        ("export", {"variants": [{"x": "1"}]}, r"^variants\[0\]\['x'\] is '1'"),
        ("export", {"ranges": {"x": [(1, 2, 3)]}}, r"^ranges\['x'\] is "),
        ("compile", {"model": 3}, "^model is 3, which is of type int, not a model(?s:.*)onnx.ModelProto"),
        ("compile", {"model": None}, "^model is None, which is not a model"),
        ("compile", {"model": type("Net", (Module,), {})()}, r"torch module \(Net\), (?s:.*)torch.onnx.export\("),
        ("compile", {"model": ""}, "^the path of the model is empty"),
        ("load", {"path": ""}, "^path is empty\n  hint: give the path of a file"),
        ("compile", {"model": relu_graph()}, r"is an onnx.GraphProto, not (?s:.*)onnx.helper.make_model\(graph\)"),
        ("compile", {"model": relu_graph().node[0]}, "is an onnx.NodeProto, not"),
        ("compile", {"model": io.BytesIO(b"x")}, r"of type BytesIO, not (?s:.*)model.read\(\)"),
        ("compile", {"model": SimpleNamespace(model_proto=None)}, "hint: give the onnx.ModelProto that it holds"),
        ("export", {"output": "."}, "^output is '.', a folder\n  hint: name a file: 'model.om'"),
        ("export", {"output": "a/.."}, "^output is 'a/..', a folder"),
        (
            "compile",
            {"model": type("ExportedProgram", (), {"__module__": "torch.export.exported_program"})()},
            "of type ExportedProgram, not an ONNX model\n  hint: export it to ONNX: torch.onnx.export",
        ),
        ("compile", {"model": Graph("g", (), (), (), {}, {})}, "use opbuild.compile_graph"),
        ("operator", {"op_type": len}, "^op_type is <built-in function len>"),
    ],
)
def test_the_words_say_what_was_given_and_what_to_give(name: str, arguments: Mapping[str, Any], words: str) -> None:
    """Name, value, type, and the right form."""
    ((argument, value),) = arguments.items()
    with pytest.raises((OptionError, ModelError), match=words):
        call(name, argument, value)


def test_what_is_no_function_cannot_be_an_operator() -> None:
    """``opbuild.operator("MyOp")(3)`` was an AttributeError from the reading of sources."""
    with pytest.raises(OptionError, match=r"operator MyOp is given 3, which is no function"):
        opbuild.operator("MyOp")(3)  # type: ignore[arg-type]


def test_a_range_the_wrong_way_round_is_shown_as_python_writes_it() -> None:
    """The hint was that of the command line."""
    with pytest.raises(ModelError, match=r"hint: give the least dimension first: \(1, 8\)"):
        opbuild.export(relu(), "net", ranges={"x": [(8, 1), 3]})


def frames(error: BaseException) -> list[str]:
    """The files of a traceback."""
    return [Path(each.filename).name for each in traceback.extract_tb(error.__traceback__)]


def test_an_error_of_the_users_shows_no_inside_of_opbuild(tmp_path: Path) -> None:
    """Six frames of opbuild stood between the user's line and ``there is no file``."""
    with pytest.raises(ModelError) as caught:
        opbuild.compile(tmp_path / "no.onnx", cache_path=tmp_path)
    assert frames(caught.value) == ["test_arguments.py", "arguments.py"]
    with pytest.raises(OptionError) as refused:
        opbuild.compile("no.onnx", num_threads="2")  # type: ignore[arg-type]
    assert frames(refused.value) == ["test_arguments.py", "arguments.py"]


def test_an_error_of_a_function_of_the_users_shows_where_it_arose() -> None:
    """An observer's own frames are what the user looks for."""

    def fails(event: object) -> None:
        raise ModelError("mine")

    with pytest.raises(ModelError, match="mine") as caught:
        opbuild.compile(relu(), input_shapes={"x": (2, 3)}, op_compiler_cache_mode="disable", observer=fails)
    assert frames(caught.value)[-1] == "test_arguments.py"
    assert len(frames(caught.value)) > 2


def test_a_name_that_does_not_exist_is_pythons_own_error() -> None:
    """It names the function and the argument."""
    with pytest.raises(TypeError, match=r"compile\(\) got an unexpected keyword argument 'threads'"):
        opbuild.compile("m.onnx", threads=2)  # type: ignore[call-arg]


def relu() -> onnx.ModelProto:
    """A network of one node."""
    return helper.make_model(relu_graph(), opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.slow
def test_numpys_numbers_and_truth_values_serve(tmp_path: Path) -> None:
    """They are turned into Python's, so that they can be written into records and keys."""
    sizes = {"num_threads": np.int64(1), "workers": np.int32(2), "copy_weights": np.True_}
    for shape in ((np.int64(2), 3), np.array([2, 3]), [2, None], (None, None)):
        net = opbuild.compile(relu(), cache_path=tmp_path, input_shapes={"x": shape}, **sizes)  # type: ignore[arg-type]
        assert net(np.ones((2, 3), np.float32)).sum() == 6
    ranges = {"x": [(np.int64(1), None), np.int32(3)]}
    path = opbuild.export(relu(), tmp_path / "net.om", ranges=ranges, config=Config(cache_path=tmp_path))
    assert opbuild.load(path, verify=np.False_).inputs[0].shape == (-1, 3)  # type: ignore[arg-type]


def test_errors_are_there_after_import_opbuild() -> None:
    """``except opbuild.errors.OpbuildError`` needs no second import, and nothing else is loaded for it."""
    code = "import sys, opbuild; opbuild.errors.OpbuildError; print(*sorted(n for n in sys.modules if 'opbuild' in n))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["opbuild", "opbuild.errors", "opbuild.version"]
