"""Options of ONNX Runtime's sessions and calls that act: the same call on ONNX Runtime and on opbuild.

Each call gives the same result, or an error of the same class.
"""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild.onnxruntime as ort
from opbuild.onnxruntime import environment, logs
from opbuild.onnxruntime.capi._pybind_state import Fail, InvalidGraph

pytestmark = pytest.mark.usefixtures("kept_objects")

X = np.arange(6, dtype=np.float32).reshape(3, 2)
W = np.array([[2, 3], [4, 5], [6, 7]], np.float32)


@pytest.fixture(autouse=True)
def _in_shared_store(shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(shared_store))


def _model(*, overridable: bool = False) -> onnx.ModelProto:
    """Return y = x * W."""
    names = ["X", "W"] if overridable else ["X"]
    graph = helper.make_graph(
        [helper.make_node("Mul", ["X", "W"], ["Y"], name="mul")],
        "mul",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, (3, 2)) for name in names],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, (3, 2))],
        [numpy_helper.from_array(W, "W")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _padded() -> onnx.ModelProto:
    """Return a model whose padding is in a file."""
    graph = helper.make_graph(
        [helper.make_node("Pad", ["X", "P"], ["Y"])],
        "pad",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, (3, 2))],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("a", "b"))],
        [numpy_helper.from_array(np.array([0, 0, 1, 1]), "P")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models: whole, with data beside them, and with data elsewhere."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(_model(), folder / "whole.onnx")
    onnx.save(_model(overridable=True), folder / "default.onnx")
    data = {"save_as_external_data": True, "size_threshold": 0}
    onnx.save(_model(), folder / "beside.onnx", location="beside.data", **data)
    onnx.save(_model(), folder / "missing.onnx", location="missing.data", **data)
    onnx.save(_padded(), folder / "pad.onnx", location="pad.data", **data)
    (folder / "elsewhere").mkdir()
    (folder / "missing.data").rename(folder / "elsewhere" / "missing.data")
    (folder / "pad.data").unlink()
    return folder


Call = Callable[[Any, Path], Any]
"""Does something with ONNX Runtime, given it and a folder of models; returns arrays."""


def _outcome(module: Any, call: Call, files: Path) -> Any:
    """Return the result of a call, or the name of its error's class."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.asarray(call(module, files)).tolist()
    except Exception as error:
        return type(error).__name__


def _run(o: Any, model: Any, options: Any = None, **feeds: Any) -> Any:
    model = str(model) if isinstance(model, Path) else model
    session = o.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X, **feeds})[0]


def _replaced(file: str, *pairs: tuple[str, Any], times: int = 1) -> Call:
    def call(o: Any, files: Path) -> Any:
        options = o.SessionOptions()
        values = [(name, o.OrtValue.ortvalue_from_numpy(array)) for name, array in pairs]
        for name, value in values * times:
            options.add_initializer(name, value)
        return _run(o, files / file, options)

    return call


def _external(file: str, names: list[str], *arrays: Any, as_bytes: bool = False) -> Call:
    def call(o: Any, files: Path) -> Any:
        options, values = o.SessionOptions(), [o.OrtValue.ortvalue_from_numpy(each) for each in arrays]
        options.add_external_initializers(names, values)
        return _run(o, (files / file).read_bytes() if as_bytes else files / file, options)

    return call


def _in_memory(file: str, name: str, contents: Any, length: int, *, as_bytes: bool = False) -> Call:
    def call(o: Any, files: Path) -> Any:
        options = o.SessionOptions()
        options.add_external_initializers_from_files_in_memory([name], [contents], [length])
        return _run(o, (files / file).read_bytes() if as_bytes else files / file, options)

    return call


def _in_folder(file: str, folder: str, *, as_bytes: bool = True) -> Call:
    def call(o: Any, files: Path) -> Any:
        options = o.SessionOptions()
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(files / folder))
        return _run(o, (files / file).read_bytes() if as_bytes else files / file, options)

    return call


def _fed(file: str, **feeds: Any) -> Call:
    return lambda o, files: _run(o, files / file, **feeds)


RAW = W.tobytes()

CALLS: dict[str, Call] = {
    "a weight is replaced": _replaced("whole.onnx", ("W", W + 1)),
    "a weight that is a default": _replaced("default.onnx", ("W", W + 1)),
    "a weight that is not there": _replaced("whole.onnx", ("Q", W)),
    "a weight twice": _replaced("whole.onnx", ("W", W), times=2),
    "a weight with a file": _replaced("beside.onnx", ("W", W + 1)),
    "a weight whose file is missing": _replaced("missing.onnx", ("W", W + 1)),
    "no value": lambda o, files: o.SessionOptions().add_initializer("W", W),
    "given": _external("missing.onnx", ["W"], W + 1),
    "given to bytes": _external("missing.onnx", ["W"], W + 1, as_bytes=True),
    "given beside a file": _external("beside.onnx", ["W"], W + 1),
    "given under another name": _external("beside.onnx", ["Q"], W),
    "given to a weight in the model": _external("whole.onnx", ["W"], W),
    "given another shape": _external("missing.onnx", ["W"], W[:2]),
    "given another type": _external("missing.onnx", ["W"], W.astype(np.float64)),
    "given fewer": _external("missing.onnx", ["W", "V"], W),
    "given no value": lambda o, files: o.SessionOptions().add_external_initializers(["W"], [W]),
    "a file in memory": _in_memory("missing.onnx", "missing.data", RAW, len(RAW)),
    "a file in memory, of bytes": _in_memory("missing.onnx", "missing.data", RAW, len(RAW), as_bytes=True),
    "a file in an array": _in_memory("missing.onnx", "missing.data", np.frombuffer(RAW, np.uint8), len(RAW)),
    "another file in memory": _in_memory("missing.onnx", "other.data", RAW, len(RAW)),
    "half of a file in memory": _in_memory("missing.onnx", "missing.data", RAW, len(RAW) // 2),
    "a folder": _in_folder("missing.onnx", "elsewhere"),
    "a folder of a path": _in_folder("missing.onnx", "elsewhere", as_bytes=False),
    "another folder": _in_folder("missing.onnx", "nowhere"),
    "another folder of a path": _in_folder("beside.onnx", "nowhere", as_bytes=False),
    "a default is fed": _fed("default.onnx", W=W + 1),
    "a default is not fed": _fed("default.onnx"),
    "a default of another type": _fed("default.onnx", W=W.astype(np.float64)),
    "a default of another shape": _fed("default.onnx", W=W[:, :1]),
    "no default": _fed("whole.onnx", W=W),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_of_weights_are_taken_as_onnx_runtime_takes_them(name: str, files: Path) -> None:
    """Replaced, given, in memory, in another folder, and fed."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed")
    assert _outcome(ort, CALLS[name], files) == _outcome(theirs, CALLS[name], files)


def test_a_weight_is_the_value_that_it_was_when_the_session_was_made(files: Path) -> None:
    """A value of another shape or type is refused; one without a place is named."""
    options, value = ort.SessionOptions(), ort.OrtValue.ortvalue_from_numpy(W + 1)
    options.add_initializer("W", value)
    session = ort.InferenceSession(files / "whole.onnx", options)
    value.update_inplace(np.zeros_like(W))
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * (W + 1))
    for array, text in ((W[:2], "dimensions do not match"), (W.astype(np.int32), "data type does not match")):
        wrong = ort.SessionOptions()
        wrong.add_initializer("W", ort.OrtValue.ortvalue_from_numpy(array))
        with pytest.raises(Exception, match=text) as caught:
            ort.InferenceSession(files / "whole.onnx", wrong)
        assert caught.type.__name__ == "InvalidArgument"
    other = ort.SessionOptions()
    other.add_initializer("Q", value)
    with pytest.warns(UserWarning, match="the model has no such initializer"):
        ort.InferenceSession(files / "whole.onnx", other)


def test_values_that_decide_shapes_can_be_given(files: Path) -> None:
    """Padding, that the model has in a file which is not there."""
    given = _external("pad.onnx", ["P"], np.array([0, 0, 1, 1]))(ort, files)
    np.testing.assert_array_equal(given, np.pad(X, ((0, 1), (0, 1))))


def test_sessions_with_the_same_values_share_a_network_and_others_do_not(files: Path) -> None:
    """The values are part of what a network is known by."""

    def network(array: Any) -> Any:
        options = ort.SessionOptions()
        options.add_external_initializers(["W"], [ort.OrtValue.ortvalue_from_numpy(array)])
        return ort.InferenceSession(files / "missing.onnx", options)._model.network

    first, again, other = network(W), network(W.copy()), network(W + 1)
    assert first is again
    assert first is not other


def test_a_model_that_changed_is_not_read_again_for_a_default(tmp_path: Path) -> None:
    """The session is of one version."""
    file = tmp_path / "model.onnx"
    onnx.save(_model(overridable=True), file)
    session = ort.InferenceSession(file)
    (default,) = session.get_overridable_initializers()
    assert (default.name, default.shape) == ("W", [3, 2])
    onnx.save(_model(), file)
    with pytest.raises(InvalidGraph, match="it changed since the session was made"):
        session.run(None, {"X": X, "W": W})
    np.testing.assert_array_equal(session.run(None, {"X": X})[0], X * W)
    with pytest.raises(RuntimeError, match="Failed to find NodeArg with name: W in the def list"):
        session.io_binding().bind_cpu_input("W", W)


def _endless() -> bytes:
    """Return a model that turns as often as it is told."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, ()),
         helper.make_tensor_value_info("go", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, (3, 2))],
        [helper.make_tensor_value_info("goes", TensorProto.BOOL, ()),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, (3, 2))],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Loop", ["N", "", "X"], ["Y"], body=body)],
        "endless",
        [helper.make_tensor_value_info("N", TensorProto.INT64, ()),
         helper.make_tensor_value_info("X", TensorProto.FLOAT, (3, 2))],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, (3, 2))],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


def test_a_call_without_an_end_is_ended_by_another_thread() -> None:
    """With ONNX Runtime's error there as here; the session and the options can be used again."""
    for module in (pytest.importorskip("onnxruntime", reason="compared where it is installed"), ort):
        session = module.InferenceSession(_endless(), providers=["CPUExecutionProvider"])
        once = {"N": np.array(1), "X": X}
        np.testing.assert_array_equal(session.run(None, once)[0], X + X)
        options = module.RunOptions()
        timer = threading.Timer(0.2, setattr, (options, "terminate", True))
        timer.start()
        with pytest.raises(Exception, match=r"1 : FAIL : .*Exiting due to terminate flag being set to true") as caught:
            session.run(None, {"N": np.array(2**62), "X": X}, options)
        assert caught.type.__name__ == "Fail"
        options.terminate = False
        np.testing.assert_array_equal(session.run(None, once, options)[0], X + X)


def test_a_call_ends_behind_the_kernel_in_which_it_is_ended(files: Path) -> None:
    """Later ones do not run; the memory that it ran in serves the next call."""
    session = ort.InferenceSession(files / "whole.onnx")
    session.run(None, {"X": X})
    (executor,) = session._model.network.runners
    block = executor.blocks.take_free()
    assert block is not None
    steps, options, seen = block.prepared.steps, ort.RunOptions(), list[str]()
    kept = list(steps)
    steps[:] = [(setattr, (options, "terminate", True)), *kept, (seen.append, ("behind",))]
    executor.blocks.give(block)
    with pytest.raises(Fail, match="terminate flag"):
        session.run(None, {"X": X}, options)
    assert seen == []
    assert executor.blocks.take_free() is block
    steps[:] = kept
    executor.blocks.give(block)
    options.terminate = False
    np.testing.assert_array_equal(session.run(None, {"X": X}, options)[0], X * W)


def test_a_profile_is_what_onnx_runtimes_own_tools_read(files: Path, tmp_path: Path) -> None:
    """They find the time of each node and of each kind."""
    processor = pytest.importorskip(
        "onnxruntime.transformers.profile_result_processor", reason="compared where it is installed"
    )
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(files / "whole.onnx", options)
    session.run(None, {"X": X})
    events = processor.load_profile_json(session.end_profiling())
    assert any("mul" in line for line in processor.parse_node_results(events))
    assert any("elementwise" in line for line in processor.group_node_results(events))
    assert json.dumps(events)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the process's level, callback and threads as they were."""
    monkeypatch.setattr(logs._Default, "level", logs.WARNING)
    monkeypatch.setattr(logs._Default, "callback", None)
    monkeypatch.setattr(environment, "_GLOBAL_THREADS", list[int]())


@pytest.mark.usefixtures("process")
def test_levels_decide_what_is_shown_and_to_whom(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Warnings by Python's warnings, others by ``logging``; both to the callback, if there is one."""
    options = ort.SessionOptions()
    options.enable_mem_reuse = False
    options.log_severity_level, options.logid = logs.ERROR, "mine"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ort.InferenceSession(files / "whole.onnx", options)
    told = list[tuple[Any, ...]]()
    ort.set_default_logger_callback(lambda *arguments: told.append(arguments), logs.INFO)
    options.log_severity_level = -1
    ort.InferenceSession(files / "whole.onnx", options)
    assert [(each[0], each[1], each[2]) for each in told] == [(2, "onnxruntime", "mine"), (1, "onnxruntime", "mine")]
    assert "enable_mem_reuse = False is ignored" in told[0][4]
    assert "operators compiled" in told[1][4]
    ort.set_default_logger_callback(None)
    with caplog.at_level("INFO", "opbuild"):
        ort.InferenceSession(files / "whole.onnx")
    assert len([each for each in caplog.messages if "operators compiled" in each]) == 1


@pytest.mark.usefixtures("process")
def test_a_callback_that_fails_ends_nothing(files: Path) -> None:
    """What it was told of is shown instead."""
    ort.set_default_logger_callback(lambda *_: 1 // 0)
    options = ort.SessionOptions()
    options.enable_mem_reuse = False
    with pytest.warns(UserWarning, match="callback of the logger failed: ZeroDivisionError"):
        ort.InferenceSession(files / "whole.onnx", options)


@pytest.mark.usefixtures("process")
def test_threads_of_the_process_are_told_once_and_then_all_sessions_have_them(files: Path) -> None:
    """As ONNX Runtime has it: a session that wants its own is refused from then on."""
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    with pytest.raises(RuntimeError, match="set_global_thread_pool_sizes must be called first"):
        ort.InferenceSession(files / "whole.onnx", options)
    ort.set_global_thread_pool_sizes(1)
    assert options.num_threads == 1
    np.testing.assert_array_equal(_run(ort, files / "whole.onnx", options), X * W)
    with pytest.raises(RuntimeError, match="use_per_session_threads must be false"):
        ort.InferenceSession(files / "whole.onnx")
    with pytest.raises(Fail, match="already been created"):
        ort.set_global_thread_pool_sizes(2)


def _with(change: Callable[[Any, Any], Any]) -> Call:
    def call(o: Any, files: Path) -> Any:
        options = o.SessionOptions()
        change(o, options)
        return [options.has_providers(), str(o.InferenceSession(str(files / "whole.onnx"), options).get_providers())]

    return call


def _policy(o: Any, options: Any) -> None:
    options.set_provider_selection_policy(o.OrtExecutionProviderDevicePolicy.PREFER_NPU)


def _memory(session: Any) -> list[str]:
    (info,) = session.get_input_memory_infos()
    return [info.name, *map(str, map(int, (info.allocator_type, info.device_id, info.mem_type)))]


CHOICES: dict[str, Call] = {
    "the processor's provider": _with(lambda _, options: options.add_provider("CPUExecutionProvider", {})),
    "another provider": _with(lambda _, options: options.add_provider("CUDAExecutionProvider", {})),
    "no provider": _with(lambda _, options: options.add_provider("Other", {})),
    "devices": _with(lambda o, options: options.add_provider_for_devices(o.get_ep_devices(), {})),
    "no devices": _with(lambda _, options: options.add_provider_for_devices([], {})),
    "wrong devices": _with(lambda _, options: options.add_provider_for_devices([3], {})),
    "a policy": _with(_policy),
    "a function": _with(lambda _, options: options.set_provider_selection_policy_delegate(lambda devices, *_: devices)),
    "a function that takes none": _with(
        lambda _, options: options.set_provider_selection_policy_delegate(lambda *_: [])
    ),
    "a function that fails": _with(lambda _, options: options.set_provider_selection_policy_delegate(list)),
    "without the processor": _with(
        lambda _, options: options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    ),
    "cancelled": _with(lambda _, options: options.set_load_cancellation_flag(True)),
    "a level": _with(lambda _, options: setattr(options, "log_severity_level", 3)),
    "no level": _with(lambda _, options: setattr(options, "log_severity_level", 7)),
    "an empty key": _with(lambda _, options: options.add_session_config_entry("", "1")),
    "a long value": _with(lambda _, options: options.add_session_config_entry("a", "1" * 9000)),
    "memory": lambda o, files: _memory(o.InferenceSession(str(files / "whole.onnx"))),
    "no memory": lambda o, _: o.OrtMemoryInfo("Odd", o.OrtAllocatorType.INVALID, 0, o.OrtMemType.DEFAULT),
    "an allocator": lambda o, _: o.OrtArenaCfg(8, 1, 2, 3).max_dead_bytes_per_chunk,
    "an allocator by names": lambda o, _: o.OrtArenaCfg({"max_mem": 8}).arena_extend_strategy,
    "no allocator": lambda o, _: o.OrtArenaCfg({"other": 8}),
    "a library": lambda o, _: o.register_execution_provider_library("name", "/no/such.so"),
    "no library": lambda o, _: o.unregister_execution_provider_library("name"),
    "a stream": lambda o, _: o.get_ep_devices()[0].create_sync_stream(),
    "a device": lambda o, _: [o.get_ep_devices()[0].ep_name, str(o.get_ep_devices()[0].device.vendor_id)],
    "memory of a device": lambda o, _: o.get_ep_devices()[0].memory_info(o.OrtDeviceMemoryType.DEFAULT) is None,
    "compiled": lambda o, files: len(
        onnx.load_from_string(o.ModelCompiler(o.SessionOptions(), files / "whole.onnx").compile_to_bytes()).graph.node
    ),
    "compiled, or an error": lambda o, files: o.ModelCompiler(
        o.SessionOptions(), files / "whole.onnx", flags=1
    ).compile_to_bytes(),
    "compiled, no file": lambda o, files: o.ModelCompiler(o.SessionOptions(), files / "no.onnx").compile_to_bytes(),
    "compiled, no model": lambda o, _: o.ModelCompiler(o.SessionOptions(), b"no model").compile_to_bytes(),
    "compiled, empty": lambda o, _: o.ModelCompiler(o.SessionOptions(), b""),
}


@pytest.mark.parametrize("name", CHOICES)
def test_devices_providers_and_compilers_are_as_onnx_runtimes_for_the_processor(name: str, files: Path) -> None:
    """The same result or the same class of error."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed")
    assert _outcome(ort, CHOICES[name], files) == _outcome(theirs, CHOICES[name], files)


def test_a_compiled_model_starts_from_the_store(files: Path, tmp_path: Path) -> None:
    """The file is the model; an existing one is kept if that is asked for."""
    options, target = ort.SessionOptions(), tmp_path / "out.onnx"
    ort.ModelCompiler(options, files / "whole.onnx").compile_to_file(target)
    assert target.read_bytes() == (files / "whole.onnx").read_bytes()
    flags = ort.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    with pytest.raises(Fail, match="already exists"):
        ort.ModelCompiler(options, files / "whole.onnx", flags=flags).compile_to_file(target)
    pieces = list[bytes]()
    ort.ModelCompiler(options, target.read_bytes()).compile_to_stream(pieces.append)
    assert pieces == [target.read_bytes()]


def test_values_pass_between_calls_in_vectors(files: Path) -> None:
    """Results are put into the vector that is given."""
    session = ort.InferenceSession(files / "whole.onnx")
    fetched = ort.capi._pybind_state.OrtValueVector()
    session.run_with_ortvaluevector(None, ["X"], [ort.OrtValue(X)], ["Y"], fetched, [ort.OrtDevice()])
    np.testing.assert_array_equal(fetched[0].numpy(), X * W)
    target = session.create_ortvalue_from_shape_and_type([3, 2], np.float32, "cpu")
    ort.copy_tensors([fetched[0]], [target])
    np.testing.assert_array_equal(ort.OrtValue.from_dlpack(target).numpy(), X * W)
    with pytest.raises(RuntimeError, match="1 tensors cannot be copied to 2"):
        ort.copy_tensors([target], [target, target])
