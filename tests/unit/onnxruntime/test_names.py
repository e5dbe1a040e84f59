"""ONNX Runtime's names, options, values and providers, without a network."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild.onnxruntime as ort
from opbuild.errors import OpbuildError
from opbuild.frontend.wire import read_declared
from opbuild.onnxruntime.capi import _pybind_state as state
from opbuild.onnxruntime.capi import onnxruntime_pybind11_state
from opbuild.onnxruntime.capi.onnxruntime_inference_collection import check_and_normalize_provider_args
from opbuild.onnxruntime.environment import AlreadyImportedError, MissingModuleError
from opbuild.onnxruntime.unserved import UNSERVED
from opbuild.onnxruntime.values import type_name
from opbuild.platform.aliases import AliasFinder


def test_names_are_those_of_onnx_runtime() -> None:
    """What this package offers is there in ONNX Runtime too, but for how it is installed."""
    theirs = pytest.importorskip("onnxruntime", reason="ONNX Runtime is compared with where it is installed")
    from onnxruntime.capi import _pybind_state

    assert {name for name in ort.__all__ if not hasattr(theirs, name)} == {"install"}
    own = {name for name in onnxruntime_pybind11_state.__all__ if not hasattr(_pybind_state, name)}
    assert own == {
        "IOBinding", "OrtDeviceVendorId", "__version__", "capi", "install", "preload_dlls", "print_debug_info",
    }  # fmt: skip


def test_every_name_of_onnx_runtime_is_served_or_refuses_with_a_reason() -> None:
    """A release that has more fails here; only what ONNX Runtime's own modules import by the way is left out."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed")
    names = {name for name, value in vars(theirs).items() if name[0] != "_" and not isinstance(value, ModuleType)}
    assert names - {"cuda_version", "import_capi_exception", "package_name", "version"} <= set(ort.__all__)
    assert all(hasattr(ort, name) for name in ort.__all__)


@pytest.mark.parametrize("name", ["InferenceSession", "OrtValue", "OrtDevice", "IOBinding", "NodeArg",
                                  "ModelMetadata", "ModelCompiler", "OrtMemoryInfo", "OrtEpDevice",
                                  "OrtHardwareDevice", "OrtExternalInitializerInfo"])  # fmt: skip
def test_classes_have_onnx_runtimes_methods(name: str) -> None:
    """Attributes that are made with an instance are told by annotations."""
    theirs = getattr(pytest.importorskip("onnxruntime", reason="compared where it is installed"), name)
    ours = getattr(ort, name)
    made = getattr(ours.__init__, "__code__", None)  # what a constructor sets is among the names of its code
    known = {*dir(ours), *getattr(ours, "__annotations__", ()), *(made.co_names if made else ())}
    assert {each for each in dir(theirs) if each[0] != "_"} <= known


@pytest.mark.parametrize("name", UNSERVED)
def test_a_name_that_is_not_served_can_be_imported_and_says_why_when_it_is_used(name: str) -> None:
    """So a program that only asks whether a value is one of its class runs."""
    found = getattr(ort, name)
    assert found is getattr(ort, name)
    assert not isinstance(np.zeros(1), found)
    for use in (found, lambda: found.sparse_coo_from_numpy):
        with pytest.raises(state.NotImplemented, match=f"onnxruntime.{name} is not served: ") as caught:
            use()
        assert UNSERVED[name] in str(caught.value)


@pytest.mark.parametrize("name", ["SessionOptions", "RunOptions"])
def test_options_have_onnx_runtimes_attributes_and_defaults(name: str) -> None:
    """Each attribute that is here has the value that it has there, and none of its attributes lacks."""
    theirs = getattr(pytest.importorskip("onnxruntime", reason="compared where it is installed"), name)()
    ours = getattr(ort, name)()
    attributes = [each for each in dir(theirs) if each[0] != "_" and not callable(getattr(theirs, each))]
    assert {each: _plain(getattr(ours, each)) for each in attributes} == {
        each: _plain(getattr(theirs, each)) for each in attributes
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else int(value)


def test_enumerations_have_onnx_runtimes_values() -> None:
    """Programs compare them, and write their numbers down."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed")
    for name in (
        "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder", "OrtAllocatorType", "OrtCompileApiFlags",
        "OrtDeviceMemoryType", "OrtDeviceVendorId", "OrtExecutionProviderDevicePolicy", "OrtHardwareDeviceType",
        "OrtMemType", "OrtMemoryInfoDeviceType", "OrtSparseFormat",
    ):  # fmt: skip
        members = {each: int(value) for each, value in getattr(theirs, name).__members__.items()}
        assert {each: int(value) for each, value in getattr(ort, name).__members__.items()} == members


@pytest.mark.parametrize("name", ["Fail", "InvalidArgument", "NoSuchFile", "InvalidProtobuf", "NotImplemented"])
def test_an_errors_text_is_what_programs_compare(name: str) -> None:
    """The hint stands below the traceback, and never in the text."""
    error = getattr(state, name)("[ONNXRuntimeError] : what was wrong", "do this")
    assert str(error) == "[ONNXRuntimeError] : what was wrong"
    assert isinstance(error, OpbuildError)
    assert error.__notes__ == ["hint: do this"]


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("intra_op_num_threads", "many", TypeError),
        ("graph_optimization_level", 3, TypeError),
        ("logid", 3, TypeError),
        ("no_such_option", 1, AttributeError),
    ],
)
def test_an_option_of_another_type_or_name_is_refused(name: str, value: Any, error: type[Exception]) -> None:
    """As ONNX Runtime refuses it, where it is set."""
    with pytest.raises(error, match=name):
        setattr(ort.SessionOptions(), name, value)


def test_configuration_entries_are_kept() -> None:
    """And one that there is not is an error that names its key."""
    for options, add, get in (
        (ort.SessionOptions(), "add_session_config_entry", "get_session_config_entry"),
        (ort.RunOptions(), "add_run_config_entry", "get_run_config_entry"),
    ):
        getattr(options, add)("a.key", "1")
        assert getattr(options, get)("a.key") == "1"
        with pytest.raises(RuntimeError, match="does not have configuration with key: other"):
            getattr(options, get)("other")
        with pytest.raises(TypeError):
            getattr(options, add)("a.key", 1)


def test_options_that_change_results_are_refused() -> None:
    """Silence would be a wrong answer."""
    options = ort.SessionOptions()
    with pytest.raises(state.Fail, match="Failed to load library"):
        options.register_custom_ops_library("/no/such.so")
    options.optimized_model_filepath = "written.onnx"
    with pytest.raises(state.Fail, match="Unable to serialize model as it contains compiled nodes"):
        options.check()
    with pytest.raises(state.NotImplemented, match="adapters are not read"):
        ort.RunOptions().add_active_adapter(None)


@pytest.mark.parametrize(
    ("providers", "options", "names", "values"),
    [
        (None, None, [], []),
        (["a"], None, ["a"], [{}]),
        ([("a", {1: 2}), "b"], None, ["a", "b"], [{"1": "2"}, {}]),
        (["a", "b"], [{1: 2}, {}], ["a", "b"], [{"1": "2"}, {}]),
    ],
)
def test_providers_are_given_in_two_ways(providers: Any, options: Any, names: list[str], values: list[Any]) -> None:
    """Names and options apart, or in pairs; options become texts."""
    assert check_and_normalize_provider_args(providers, options, ["a", "b"]) == (names, values)


@pytest.mark.parametrize(
    ("providers", "options"),
    [(3, None), ([3], None), (["a"], 3), (["a"], ["b"]), (["a", "b"], [{}]), ([("a", {})], [{}])],
)
def test_providers_given_otherwise_are_refused(providers: Any, options: Any) -> None:
    """As ONNX Runtime refuses them."""
    with pytest.raises(ValueError, match="provider"):
        check_and_normalize_provider_args(providers, options, ["a", "b"])


def test_a_value_shares_an_arrays_memory() -> None:
    """And an update goes into that memory."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(array)
    assert (value.shape(), value.data_type(), value.element_type()) == ([2, 3], "tensor(float)", 1)
    assert (value.device_name(), value.is_tensor(), value.has_value()) == ("cpu", True, True)
    assert (value.data_ptr(), value.tensor_size_in_bytes()) == (array.ctypes.data, 24)
    value.update_inplace(array + 1)
    assert array[0, 0] == 1
    assert np.asarray(value) is array
    assert np.from_dlpack(value).base is not None
    with pytest.raises(RuntimeError, match="cannot be updated"):
        value.update_inplace(array[0])


def test_values_of_other_types_and_devices() -> None:
    """ONNX's numbers of types are taken; there is one device."""
    value = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], TensorProto.BFLOAT16)
    assert (value.data_type(), value.element_type()) == ("tensor(bfloat16)", TensorProto.BFLOAT16)
    seen = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.uint16), TensorProto.FLOAT16)
    assert seen.data_type() == "tensor(float16)"
    with pytest.raises(ValueError, match="size"):
        ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros(3, np.uint8), TensorProto.FLOAT16)
    with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
        ort.OrtValue.ortvalue_from_numpy(np.zeros(3), "cuda", 0)
    with pytest.raises(RuntimeError, match="non-string"):
        ort.OrtValue.ortvalue_from_numpy(np.array(["text"]))
    sequence = ort.OrtValue([np.zeros(2, np.int64)])
    assert (sequence.is_tensor_sequence(), sequence.data_type()) == (True, "seq(tensor(int64))")


def test_a_model_says_what_it_is_without_onnx() -> None:
    """Names of extents, denotations, notes, defaults and types that are no tensors are read from the file's bytes."""
    tensor = helper.make_tensor_value_info
    inputs = [
        tensor("x", TensorProto.FLOAT, ["batch", None, -1, 3]),
        tensor("w", TensorProto.INT64, [2]),
        tensor("r", TensorProto.FLOAT16, None),
        helper.make_tensor_sequence_value_info("s", TensorProto.INT64, None),
        onnx.ValueInfoProto(
            name="o", type=helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.STRING, [])),
        ),
        onnx.ValueInfoProto(
            name="m", type=helper.make_map_type_proto(
                TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [1])),
        ),
    ]  # fmt: skip
    inputs[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    default = helper.make_tensor("w", TensorProto.INT64, [2], [1, 2])
    graph = helper.make_graph([], "g", inputs, [tensor("y", TensorProto.DOUBLE, [])], [default], doc_string="graph's")
    model = helper.make_model(graph, producer_name="maker", doc_string="model's", model_version=7, ir_version=8)
    helper.set_model_props(model, {"character": "a\nb"})
    found = read_declared(memoryview(model.SerializeToString()))
    assert {name: type_name(each) for name, each in found.inputs.items()} == {
        "x": "tensor(float)",
        "r": "tensor(float16)",
        "s": "seq(tensor(int64))",
        "o": "optional(tensor(string))",
        "m": "map(int64,tensor(float))",
    }
    extents = found.inputs["x"].shape or ()
    assert [(each.value, each.name, each.denotation) for each in extents] == [
        (None, "batch", ""),
        (None, "", "DATA_CHANNEL"),
        (None, "", ""),
        (3, "", ""),
    ]
    assert (found.inputs["r"].shape, found.outputs["y"].shape) == (None, ())
    assert list(found.defaults) == ["w"]
    assert (found.metadata, found.version) == ({"character": "a\nb"}, 7)
    assert found.texts == {
        "producer_name": "maker", "description": "model's", "graph_name": "g", "graph_description": "graph's",
    }  # fmt: skip
    model.ir_version = 3
    assert read_declared(memoryview(model.SerializeToString())).defaults == {}


def test_installed_once_it_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules below it too; one that opbuild has not is an error that says so; another copy already there is one."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    ort.install()
    ort.install()
    assert sum(isinstance(each, AliasFinder) for each in sys.meta_path) == 1
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail

    assert (onnxruntime, Fail) == (ort, state.Fail)
    with pytest.raises(MissingModuleError, match=r"No module named 'onnxruntime\.quantization': opbuild serves"):
        import onnxruntime.quantization
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnxruntime", np)
    with pytest.raises(AlreadyImportedError, match="is imported already"):
        ort.install()
