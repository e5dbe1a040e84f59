"""Sessions of ONNX Runtime's interface: what they say of a model, how they run it, and what they refuse."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild.onnxruntime as ort
from opbuild.onnxruntime.capi._pybind_state import (
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,  # noqa: A004  ONNX Runtime's name
)
from opbuild.onnxruntime.profile import SessionProfile

pytestmark = pytest.mark.usefixtures("kept_objects")

X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.array([[2, 3], [4, 5], [6, 7]], np.float32)


def _model(shape: Any = (3, 2), outputs: Any = (3, 2), kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """Return y = x * W, with these declared shapes."""
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "W"], ["Y"])],
        "mul",
        [helper.make_tensor_value_info("X", kind, shape)],
        [helper.make_tensor_value_info("Y", kind, outputs)],
        [numpy_helper.from_array(W, "W")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="test")
    helper.set_model_props(model, {"character": "a\nb"})
    return model


@pytest.fixture(scope="module")
def store(shared_store: Path) -> str:
    """Return the store that all tests here share."""
    return str(shared_store)


@pytest.fixture(autouse=True)
def _in_shared_store(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", store)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of the model."""
    file = tmp_path / "mul.onnx"
    onnx.save(_model(), file)
    return file


@pytest.fixture
def session(path: Path) -> ort.InferenceSession:
    """Return a session of the model."""
    return ort.InferenceSession(path)


def test_a_session_says_what_its_model_is(session: ort.InferenceSession, path: Path) -> None:
    """Inputs, outputs, notes, providers and where it came from."""
    (x,), (y,) = session.get_inputs(), session.get_outputs()
    assert (x.name, x.shape, x.type, str(x)) == (
        "X", [3, 2], "tensor(float)", "NodeArg(name='X', type='tensor(float)', shape=[3, 2])",
    )  # fmt: skip
    assert (y.name, y.shape, y.type) == ("Y", [3, 2], "tensor(float)")
    notes = session.get_modelmeta()
    assert (notes.custom_metadata_map, notes.graph_name, notes.producer_name) == ({"character": "a\nb"}, "mul", "test")
    assert notes.version == 2**63 - 1
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert session._model_path == str(path)
    assert session.get_overridable_initializers() == []
    assert session.get_session_options().intra_op_num_threads == 0


@pytest.mark.parametrize("names", [None, [], ["Y"], ("Y",)])
def test_outputs_come_in_a_list(session: ort.InferenceSession, names: Any) -> None:
    """All of them, or those that are named."""
    (found,) = session.run(names, {"X": X})
    np.testing.assert_array_equal(found, X * W)


@pytest.mark.parametrize("value", [X.tolist(), np.asfortranarray(X), ort.OrtValue(X)])
def test_inputs_may_be_lists_and_values(session: ort.InferenceSession, value: Any) -> None:
    """And arrays in any order of memory."""
    (found,) = session.run(None, {"X": value})
    np.testing.assert_array_equal(found, X * W)


def test_a_model_may_be_given_as_bytes_and_with_threads() -> None:
    """A count of 0 is automatic."""
    for count in (0, 1, 2):
        options = ort.SessionOptions()
        options.intra_op_num_threads = count
        session = ort.InferenceSession(_model().SerializeToString(), options, providers=["CPUExecutionProvider"])
        np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * W)
        assert session._model_path is None


WRONG: list[tuple[Any, Any, type[Exception], str]] = [
    (None, {}, ValueError, r"^Required inputs \(\['X'\]\) are missing from input feed \(\[\]\)\.$"),
    (None, {"Q": X}, ValueError, r"^Required inputs \(\['X'\]\) are missing from input feed \(\['Q'\]\)\.$"),
    (None, {"X": X, "Q": X}, InvalidArgument, r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : Invalid input name: Q$"),
    (["no"], {"X": X}, InvalidArgument, r"^\[ONNXRuntimeError\] : 2 : INVALID_ARGUMENT : Invalid output name:no$"),
    (
        None, {"X": X.astype(float)}, InvalidArgument,
        r"Unexpected input data type. Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\)$",
    ),
    (None, {"X": X[0]}, InvalidArgument, "Invalid rank for input: X Got: 1 Expected: 2 Please fix either"),
    (
        None, {"X": X[:2]}, InvalidArgument,
        "Got invalid dimensions for input: X for the following indices\n index: 0 Got: 2 Expected: 3\n Please fix",
    ),
    (None, {"X": 3.0}, RuntimeError, "Unable to handle object of type <class 'float'>"),
    (None, {"X": "text"}, RuntimeError, "Input must be a list of dictionaries or a single numpy array for input 'X'."),
]  # fmt: skip
"""What is asked for, what is given, and the error: ONNX Runtime's type and text."""


@pytest.mark.parametrize(("names", "feeds", "error", "text"), WRONG)
def test_what_does_not_fit_is_refused_in_onnx_runtimes_words(
    session: ort.InferenceSession, names: Any, feeds: Any, error: type[Exception], text: str
) -> None:
    """Programs and their tests look at the type and the text."""
    with pytest.raises(error, match=text):
        session.run(names, feeds)


def test_onnx_runtime_itself_refuses_it_in_the_same_words(path: Path) -> None:
    """The texts above are its own."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed").InferenceSession(path)
    for names, feeds, error, text in WRONG:
        with pytest.raises(Exception, match=text) as caught:
            theirs.run(names, feeds)
        assert caught.type.__name__ == error.__name__


@pytest.mark.parametrize(
    ("contents", "error", "text"),
    [
        (None, NoSuchFile, r"3 : NO_SUCHFILE : Load model from (.*) failed:Load model \1 failed. File doesn't exist"),
        (b"no model", InvalidProtobuf, "7 : INVALID_PROTOBUF : Load model from .* failed:Protobuf parsing failed."),
        (b"", InvalidArgument, "2 : INVALID_ARGUMENT : Load model from .* failed:No graph was found in the protobuf."),
        (b"1234ORTM", NotImplemented, "9 : NOT_IMPLEMENTED : .*ORT format models are not supported"),
    ],
)
def test_a_file_that_is_no_model_is_refused(
    tmp_path: Path, contents: bytes | None, error: type[Exception], text: str
) -> None:
    """With ONNX Runtime's code for what it is instead."""
    file = tmp_path / "model.onnx"
    if contents is not None:
        file.write_bytes(contents)
    with pytest.raises(error, match=text):
        ort.InferenceSession(file)


def test_what_cannot_be_built_is_refused_with_its_cause() -> None:
    """The type of the model's fault is ONNX Runtime's, the message opbuild's, which is the cause too."""
    model = _model()
    model.graph.node[0].op_type = "NoSuchOperator"
    with pytest.raises((NotImplemented, InvalidGraph), match="NoSuchOperator") as caught:
        ort.InferenceSession(model.SerializeToString())
    assert caught.value.__cause__ is not None
    with pytest.raises(TypeError, match="Unable to load from type"):
        ort.InferenceSession(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="SessionOptions"):
        ort.InferenceSession(b"", 5)  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="disabled_optimizers is ignored"), pytest.raises(InvalidProtobuf):
        ort.InferenceSession(b"no model", disabled_optimizers=["ConstantFolding"])


def test_open_extents_have_their_names_and_can_be_fixed() -> None:
    """A name, None without one; what an option fixes is a number, and another one is refused."""
    model = _model(["rows", None], ["rows", 2])
    model.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    data = model.SerializeToString()
    session = ort.InferenceSession(data)
    assert [each.shape for each in (*session.get_inputs(), *session.get_outputs())] == [["rows", None], ["rows", 2]]
    np.testing.assert_array_equal(session.run(None, {"X": X[:1]})[0], X[:1] * W)
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_name("rows", 3)
    options.add_free_dimension_override_by_denotation("DATA_CHANNEL", 2)
    fixed = ort.InferenceSession(data, options)
    assert [each.shape for each in (*fixed.get_inputs(), *fixed.get_outputs())] == [[3, 2], [3, 2]]
    with pytest.raises(InvalidArgument, match="index: 0 Got: 1 Expected: 3"):
        fixed.run(None, {"X": X[:1]})


def test_an_input_may_have_any_rank() -> None:
    """Each rank is bound when it comes; an output that is not declared is asked of the network."""
    session = ort.InferenceSession(_model(None, None).SerializeToString())
    assert session.get_inputs()[0].shape == []
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * W)
    np.testing.assert_array_equal(session.run(None, {"X": X[None]})[0], X[None] * W)
    (declared,) = ort.InferenceSession(_model(outputs=None).SerializeToString()).get_outputs()
    assert (declared.shape, declared.type) == ([3, 2], "tensor(float)")


@pytest.mark.parametrize("value", [np.array(["a", "ö"]), np.array(["a", "ö"], object), ["a", "ö"],
                                   np.array([b"a", "ö".encode()])])  # fmt: skip
def test_texts_are_taken_in_every_form(value: Any) -> None:
    """And come back as Python's."""
    graph = helper.make_graph(
        [helper.make_node("Identity", ["X"], ["Y"])], "texts",
        [helper.make_tensor_value_info("X", TensorProto.STRING, [2])],
        [helper.make_tensor_value_info("Y", TensorProto.STRING, [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    session = ort.InferenceSession(model.SerializeToString())
    assert session.get_inputs()[0].type == "tensor(string)"
    assert session.run(None, {"X": value})[0].tolist() == ["a", "ö"]


def test_bindings_read_and_write_where_they_are_told(session: ort.InferenceSession) -> None:
    """Arrays, values, and memory at an address; without memory the output is new."""
    binding = session.io_binding()
    with pytest.raises(RuntimeError, match="At least one output should be requested"):
        session.run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: Q in the def list"):
        binding.bind_cpu_input("Q", X)
    binding.bind_cpu_input("X", X)
    binding.bind_output("Y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X * W)
    source, target = X + 1, np.zeros_like(X)
    binding.bind_input("X", "cpu", 0, np.float32, [3, 2], source.ctypes.data)
    binding.bind_output("Y", "cpu", 0, np.float32, [3, 2], target.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, source * W)
    value = ort.OrtValue(np.zeros_like(X))
    binding.bind_ortvalue_input("X", ort.OrtValue(X))
    binding.bind_ortvalue_output("Y", value)
    session.run_with_iobinding(binding)
    assert binding.get_outputs()[0] is value
    np.testing.assert_array_equal(value.numpy(), X * W)
    binding.bind_ortvalue_output("Y", ort.OrtValue(np.zeros(3, np.float32)))
    with pytest.raises(RuntimeError, match=r"out has float32\[3\] for output 'Y', which is float32\[3, 2\]"):
        session.run_with_iobinding(binding)
    with pytest.raises(ValueError, match="session that created it"):
        ort.InferenceSession(_model().SerializeToString()).run_with_iobinding(binding)


def test_runs_with_values_in_threads_and_ended(session: ort.InferenceSession) -> None:
    """Values in and out; a callback gets outputs or the error's text; a run that is to end does not begin."""
    (value,) = session.run_with_ort_values(["Y"], {"X": ort.OrtValue(X)})
    np.testing.assert_array_equal(value.numpy(), X * W)
    told, done = list[Any](), threading.Event()

    def callback(*arguments: Any) -> None:
        told.append(arguments)
        done.set()

    session.run_async(None, {"X": X}, callback, "data")
    assert done.wait(60)
    assert (told[0][1], told[0][2]) == ("data", "")
    np.testing.assert_array_equal(told[0][0][0], X * W)
    done.clear()
    session.run_async(["no"], {"X": X}, callback, None)
    assert done.wait(60)
    assert "Invalid output name:no" in told[1][2]
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, {"X": X}, options)
    done.clear()
    session.run_async(None, {"X": X}, callback, None, options)
    assert done.wait(60)
    assert "terminate flag" in told[2][2]
    options.terminate = False
    np.testing.assert_array_equal(session.run(None, {"X": X}, options)[0], X * W)


def test_providers_that_there_are_not_are_passed_over(path: Path) -> None:
    """With a warning; a name that ONNX Runtime does not know either is an error where no fallback is wanted."""
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(path, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    with pytest.warns(UserWarning, match="Unknown Provider Type: Other"):
        ort.InferenceSession(path, providers=["Other"])
    with pytest.warns(UserWarning, match="'providers' should be a sequence"):
        ort.InferenceSession(path, providers=3)
    with (
        pytest.warns(UserWarning, match="available provider"),
        pytest.raises(RuntimeError, match="Unknown Provider Type: Other"),
    ):
        ort.InferenceSession(path, providers=["Other"], enable_fallback=0)
    with (
        pytest.warns(UserWarning, match="available provider"),
        pytest.raises(RuntimeError, match="Unknown Provider Type: Other"),
    ):
        session.set_providers(["Other"])
    with pytest.warns(UserWarning, match="the option a of CPUExecutionProvider is ignored: it has none"):
        session.set_providers(["CPUExecutionProvider"], [{"a": 1}])
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}


def test_sessions_of_the_same_bytes_share_one_network(path: Path) -> None:
    """Whatever the file is called; other bytes under the same name have another; the last session takes it along."""
    first, second = ort.InferenceSession(path), ort.InferenceSession(_model().SerializeToString())
    network = first._model.network
    assert second._model.network is network
    changed = _model()
    changed.graph.initializer[0].CopyFrom(numpy_helper.from_array(W + 1, "W"))
    onnx.save(changed, path)
    np.testing.assert_array_equal(ort.InferenceSession(path).run(None, {"X": X})[0], X * (W + 1))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    assert ort.InferenceSession(_model().SerializeToString(), options)._model.network is not network
    from opbuild.onnxruntime.model import _NETWORKS

    assert network in dict(_NETWORKS.items()).values()
    del first, second, network
    gc.collect()
    assert not [each for key, each in _NETWORKS.items() if not key[2]]


def test_weights_beside_the_model_are_never_those_of_another(tmp_path: Path) -> None:
    """The model's own bytes do not tell them, so nothing is shared by these."""
    file = tmp_path / "mul.onnx"
    for weights in (W, W + 1):
        model = _model()
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "W"))
        onnx.save(model, file, save_as_external_data=True, location="mul.data", size_threshold=0)
        session = ort.InferenceSession(file)
        np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * weights)
        (tmp_path / "mul.data").unlink()


def test_a_profile_is_a_file_of_trace_events(path: Path, tmp_path: Path) -> None:
    """How long the session took to make, each call, and each kernel, as ONNX Runtime writes it."""
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(path, options)
    assert session.get_profiling_start_time_ns() > 0
    session.run(None, {"X": X})
    file = Path(session.end_profiling())
    assert file.name.startswith("profile_")
    events = json.loads(file.read_text(encoding="utf-8"))
    assert [each["name"] for each in events] == ["session_initialization", "model_run", "Mul_0_kernel_time"]
    assert [each["cat"] for each in events] == ["Session", "Session", "Node"]
    assert all(each["dur"] >= 0 and each["ph"] == "X" for each in events)
    call, kernel = events[1:]
    assert call["ts"] <= kernel["ts"]
    assert kernel["ts"] + kernel["dur"] <= call["ts"] + call["dur"] + 2  # all are cut to whole microseconds
    found = kernel["args"]
    assert (found["op_name"], found["node_index"], found["nodes"]) == ("elementwise", "0", ["Mul_0"])
    assert (found["provider"], found["output_size"]) == ("CPUExecutionProvider", str(X.nbytes))
    assert [set(each) for each in found["input_type_shape"]] == [{"float"}, {"float"}]
    assert np.prod(found["output_type_shape"][0]["float"]) == X.size
    assert session.end_profiling() == ""


def test_a_profile_may_end_while_a_call_begins(path: Path, tmp_path: Path) -> None:
    """Another thread ends it: the call goes on, with or without it."""

    class Ended(ort.InferenceSession):
        _profiles: list[Any]

        @property
        def _profile(self) -> Any:
            return self._profiles.pop() if self._profiles else None

        @_profile.setter
        def _profile(self, profile: Any) -> None:
            self._profiles = [profile]

    session = Ended(path)
    for ask in (lambda: session.run(None, {"X": X}), session.get_profiling_start_time_ns):
        session._profile = SessionProfile(str(tmp_path / "profile"))
        assert ask()


def test_errors_can_be_sent_to_another_process() -> None:
    """With their text and hint."""
    error = pickle.loads(pickle.dumps(InvalidArgument("what was wrong", "do this")))
    assert (type(error), str(error), error.hint) == (InvalidArgument, "what was wrong", "do this")
    assert str(copy.copy(error)) == "what was wrong"
