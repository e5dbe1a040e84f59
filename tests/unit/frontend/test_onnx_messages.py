"""ONNX's messages are loaded without the onnx package, and are the package's own classes whoever is first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

OURS = "from opbuild.frontend import onnx_messages as ours\n"
SAME = """
import onnx, onnx.onnx_ml_pb2, onnx.helper, pickle
for name in ours.__all__:
    assert getattr(ours, name) is getattr(onnx, name) is getattr(onnx.onnx_ml_pb2, name), name
model = onnx.helper.make_model(onnx.helper.make_graph([onnx.helper.make_node("Relu", "x", "y")], "g", [], []))
assert isinstance(model, ours.ModelProto)
assert isinstance(pickle.loads(pickle.dumps(ours.NodeProto(name="n"))), onnx.NodeProto)
assert ours.ModelProto.FromString(model.SerializeToString()) == model
onnx.checker.check_node(ours.NodeProto(op_type="Relu", input=["x"], output=["y"]))
print("same")
"""
AT_ONCE = """
import threading
def other():
    started.set()
    import onnx
started = threading.Event()
thread = threading.Thread(target=other)
thread.start()
started.wait()
from opbuild.frontend import onnx_messages as ours
thread.join()
"""


def said(program: str, **variables: str) -> str:
    """Return the output of a fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ | variables
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("program", [OURS, "import onnx\n" + OURS, AT_ONCE], ids=["before", "after", "at-once"])
def test_the_classes_are_those_of_onnx_whoever_loads_them_first(program: str, implementation: str) -> None:
    """The package is whole when it is imported before, after or while the messages are loaded, and takes them."""
    assert said(program + SAME, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation) == "same"


def test_the_messages_alone_load_neither_onnx_nor_what_it_imports() -> None:
    """A message is parsed, and nothing of the package stands among the loaded modules, for it is to load its own."""
    program = "import sys\n" + OURS + "assert ours.NodeProto.FromString(b'').name == ''\n"
    program += "print([name for name in sys.modules if name.partition('.')[0] in ('onnx', 'ml_dtypes')])\n"
    assert said(program) == "[]"


def test_where_the_package_is_laid_out_otherwise_it_is_imported_whole() -> None:
    """Without the module that declares the messages beside it, the package itself is asked for them."""
    program = "from opbuild.platform.paths import Path\nPath.is_file = lambda self: False\n" + OURS
    assert said(program + "import sys\nprint('onnx.helper' in sys.modules)\n") == "True"
