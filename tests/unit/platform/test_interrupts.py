"""``KeyboardInterrupt`` out of a public function: without the frames inside, but with those of the user's functions."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

import opbuild
from opbuild.config import Config
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.onnxruntime import InferenceSession
from opbuild.platform.calls import bare

TYPES = {name: TensorType("float32", (2,)) for name in "xy"}
GRAPH = Graph("net", (Node("Relu", ("x",), ("y",), name="relu"),), ("x",), ("y",), TYPES, {})
X = np.ones(2, np.float32)


def files_of(error: BaseException) -> list[str]:
    """Return the files of an error's frames."""
    return [Path(frame.filename).name for frame in traceback.extract_tb(error.__traceback__)]


def pressed(*_: object) -> None:
    """Stand in for what Ctrl-C was pressed in."""
    raise KeyboardInterrupt


def inside() -> Callable[..., None]:
    """Return a function that is interrupted in a module of opbuild, while another error is handled."""
    text = "def work(*_, **__):\n try:\n  1 / 0\n except ArithmeticError:\n  raise KeyboardInterrupt"
    names: dict[str, Any] = {}
    exec(compile(text, f"{opbuild.__path__[0]}/inside.py", "exec"), names)
    return cast("Callable[..., None]", names["work"])


def test_what_is_done_inside_is_not_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One frame is left, of the function that was called."""
    network = opbuild.compile_graph(GRAPH, config=Config(cache_path=tmp_path))
    monkeypatch.setattr("opbuild.session.Session.open", inside())
    monkeypatch.setattr(network, "_collect", inside())
    monkeypatch.setattr("opbuild.onnxruntime.session.read_model", inside())
    calls = {
        "arguments.py": [lambda: opbuild.compile(b"", cache_path=tmp_path)],
        "network.py": [lambda: network(X), lambda: network.run(x=X), lambda: network.profile({"x": X})],
        "calls.py": [lambda: InferenceSession(b"")],
    }
    for file, each in ((file, each) for file, some in calls.items() for each in some):
        with pytest.raises(KeyboardInterrupt) as caught:
            each()
        assert files_of(caught.value) == [Path(__file__).name] * 2 + [file]
        assert caught.value.__suppress_context__


def test_a_function_of_the_users_is_shown(tmp_path: Path) -> None:
    """The work of an observer is his: it may be what does not end."""
    with pytest.raises(KeyboardInterrupt) as caught:
        opbuild.compile_graph(GRAPH, observer=pressed, config=Config(cache_path=tmp_path))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "pressed"


def test_an_interrupt_of_the_users_own_is_left_alone() -> None:
    """With all of its frames."""
    with pytest.raises(KeyboardInterrupt) as caught:
        pressed()
    assert bare(caught.value) is caught.value
    assert files_of(caught.value) == [Path(__file__).name] * 2
