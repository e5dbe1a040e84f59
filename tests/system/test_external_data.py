"""External data: what is written through a map, as training loops do, one version for a network's life, where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.errors import ModelError
from opbuild.onnxruntime import InferenceSession
from opbuild.onnxruntime import model as session_model
from opbuild.onnxruntime.status import InvalidGraph
from opbuild.platform.files import held
from opbuild.platform.files import mapping as files
from opbuild.platform.files.held import HeldFile
from opbuild.session import Session
from support.processes import build_and_run

SIZE = 32 * 1024


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A network ``x + w`` whose weights lie beside it."""
    path = tmp_path / "model.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE]) for name in "xy")
    weights = numpy_helper.from_array(np.zeros(SIZE, np.float32), "w")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "sum", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(proto, path, save_as_external_data=True, location="weights.data", size_threshold=0)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("flushed", [False, True], ids=["dirty", "flushed"])
def test_weights_written_again_through_a_map_are_used(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flushed: bool
) -> None:
    """F82: a second store to a page that is dirty moves no time; the network of the first weights was started."""
    monkeypatch.setattr(files, "_SETTLED", -1)  # as if one had waited
    path, x = model.parent / "weights.data", np.arange(SIZE, dtype=np.float32)
    mapped = np.memmap(path, np.float32, "r+", shape=(SIZE,))
    for value in (1, 2, 3, 2):
        mapped[:] = value
        if flushed:
            mapped.flush()
            mapped[:] = value  # so that the page is dirty again
        network = opbuild.compile(model, cache_path=tmp_path / "cache")
        np.testing.assert_array_equal(network(x), x + value)
    mapped[:] = 5
    outcome = build_and_run(model, tmp_path / "cache", {"x": x})
    np.testing.assert_array_equal(outcome.outputs[0], x + 5)
    del mapped
    for _ in range(2):
        network = opbuild.compile(model, cache_path=tmp_path / "cache")
        np.testing.assert_array_equal(network(x), x + 5)
    assert network.report.image
    np.memmap(path, np.float32, "r+", shape=(SIZE,))[:] = 6  # through a map made since: the times move
    np.testing.assert_array_equal(opbuild.compile(model, cache_path=tmp_path / "cache")(x), x + 6)


def test_a_model_written_again_through_a_map_is_another(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F82: the same holds for weights in the model's own file."""
    monkeypatch.setattr(files, "_SETTLED", -1)
    whole, x = tmp_path / "whole.onnx", np.arange(SIZE, dtype=np.float32)
    proto = onnx.load(model)
    onnx.save(proto, whole)
    zeros = whole.read_bytes().index(bytes(4 * SIZE))
    mapped = np.memmap(whole, np.float32, "r+", offset=zeros, shape=(SIZE,))
    for value in (1, 2, 1):
        mapped[:] = value
        np.testing.assert_array_equal(opbuild.compile(whole, cache_path=tmp_path / "cache")(x), x + value)


# -- one version for the life of a network -----------------------------------------------------------------------------

WIDTH = 64


def save(folder: Path, value: float, name: str = "model.onnx") -> Path:
    """Write a model ``x @ w`` of any number of rows, whose weights are all of one value and lie beside it."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    weights = numpy_helper.from_array(np.full((WIDTH, WIDTH), value, np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, folder / name, save_as_external_data=True, location=f"{name}_data", size_threshold=0)
    return folder / name


def answers(network: opbuild.Network, rows: int) -> float | str:
    """Return the value of which the weights are that a network has, or what it says."""
    try:
        return float(network(np.ones((rows, WIDTH), np.float32))[0, 0]) / WIDTH
    except ModelError as error:
        return error.message


def replace_data(folder: Path, value: float) -> None:
    """Rename other weights over a model's."""
    save(folder, value, "other.onnx")
    (folder / "other.onnx_data").replace(folder / "model.onnx_data")


def is_of_one_version(said: float | str, value: float) -> bool:
    """Return whether a network answered with weights, or said that there are others."""
    return said == value or (isinstance(said, str) and "changed since it was compiled" in said)


@pytest.mark.slow
@pytest.mark.usefixtures("kept_objects")
@pytest.mark.parametrize("is_called", [True, False], ids=["called", "not called"])
@pytest.mark.parametrize("is_removed", [False, True], ids=["replaced", "removed"])
def test_a_network_has_the_weights_of_the_version_that_was_compiled(
    tmp_path: Path, is_called: bool, is_removed: bool
) -> None:
    """At each size, whether it was called before other weights were renamed over its own or not."""
    network = opbuild.compile(save(tmp_path, 1), cache_path=tmp_path / "cache")
    if is_called:
        assert answers(network, 2) == 1
    replace_data(tmp_path, 2)
    if is_removed:
        (tmp_path / "model.onnx_data").unlink()
    said = [answers(network, rows) for rows in (2, 3, 5, 1)]
    assert all(is_of_one_version(each, 1) for each in said), said
    if not is_removed:
        assert answers(opbuild.compile(tmp_path / "model.onnx", cache_path=tmp_path / "cache"), 1) == 2


@pytest.mark.usefixtures("kept_objects")
def test_a_further_size_neither_copies_nor_digests_weights_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is lowered for it: their file is mapped meanwhile, and their digest is known."""
    monkeypatch.setattr(held, "LEAST", 1)
    copied, digested, replace, digest = list[int](), list[int](), held._replace, held.blake3_of
    monkeypatch.setattr(held, "_replace", lambda mapped: (copied.append(len(mapped)), replace(mapped)))
    monkeypatch.setattr(held, "blake3_of", lambda data: (digested.append(len(data)), digest(data))[1])
    network = opbuild.compile(save(tmp_path, 1), cache_path=tmp_path / "cache", wait=True)
    assert [answers(network, rows) for rows in (2, 3, 200, 1)] == [1] * 4
    assert not copied
    assert digested.count(WIDTH * WIDTH * 4) == 1


@pytest.mark.usefixtures("kept_objects")
def test_a_network_that_has_no_weights_any_more_says_that_they_changed(tmp_path: Path) -> None:
    """Nothing is stored from which it could start, and the data is another version's."""
    network = opbuild.compile(save(tmp_path, 1), op_compiler_cache_mode="disable")
    replace_data(tmp_path, 2)
    said = answers(network, 2)
    assert said == f"the external data 'model.onnx_data' of '{tmp_path / 'model.onnx'}' changed since it was compiled"


@pytest.mark.usefixtures("kept_objects")
def test_weights_that_come_back_are_those_that_were_compiled(tmp_path: Path) -> None:
    """What counts is what the files hold, not when they were written."""
    network = opbuild.compile(save(tmp_path, 1), op_compiler_cache_mode="disable")
    replace_data(tmp_path, 2)
    assert isinstance(answers(network, 2), str)
    replace_data(tmp_path, 1)
    assert answers(network, 2) == 1


@pytest.mark.usefixtures("kept_objects")
@pytest.mark.parametrize("kind", ["ModelProto", "bytearray"])
def test_an_object_that_is_changed_is_another_model(kind: str) -> None:
    """What the user writes into a model after it was compiled is in no size of the network."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    weights = numpy_helper.from_array(np.ones((WIDTH, WIDTH), np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model = proto if kind == "ModelProto" else bytearray(proto.SerializeToString())
    network = opbuild.compile(model, op_compiler_cache_mode="disable")
    twos = np.full((WIDTH, WIDTH), 2, np.float32).tobytes()
    if isinstance(model, bytearray):
        place = model.index(weights.raw_data)
        model[place : place + len(twos)] = twos
    else:
        model.graph.initializer[0].raw_data = twos
    said = [answers(network, rows) for rows in (2, 3, 1)]
    assert all(is_of_one_version(each, 1) for each in said), said


@pytest.mark.usefixtures("kept_objects")
def test_a_session_has_one_version_of_its_weights_for_all_ranks(tmp_path: Path) -> None:
    """Also where each rank that comes is bound by itself; what is stored of that version serves both."""
    path = save(tmp_path, 1)
    proto = onnx.load(path, load_external_data=False)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    path.write_bytes(proto.SerializeToString())
    sessions = [InferenceSession(str(path)) for _ in range(2)]
    x = np.ones((2, WIDTH), np.float32)
    assert sessions[0].run(None, {"x": x})[0][0, 0] == WIDTH
    replace_data(tmp_path, 2)
    for session in sessions:
        assert session.run(None, {"x": x})[0][0, 0] == WIDTH
        with pytest.raises(InvalidGraph, match="changed since it was compiled"):
            session.run(None, {"x": x[None]})


@pytest.mark.usefixtures("kept_objects")
def test_a_session_is_of_the_file_that_it_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is replaced between what is read of it first and its network is refused."""
    path = save(tmp_path, 1)
    other = onnx.load(path)
    other.graph.node[0].name = "another"
    read = session_model.read_declared

    def read_and_replace(contents: memoryview) -> object:
        declared = read(contents)
        onnx.save(other, path)
        return declared

    monkeypatch.setattr(session_model, "read_declared", read_and_replace)
    with pytest.raises(InvalidGraph, match="changed since it was compiled"):
        InferenceSession(str(path))


def test_what_somebody_wrote_while_it_was_used_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease that kept him waiting is over before the network is there: no number of two versions is given."""
    monkeypatch.setattr(held, "LEAST", 1)
    path, packed = save(tmp_path, 1), Session.build

    def write(*args: Any, **kwargs: Any) -> Any:
        networks = packed(*args, **kwargs)
        monkeypatch.setattr(HeldFile, "is_certain", lambda _: False)
        monkeypatch.setattr(HeldFile, "mapped", lambda _: np.zeros(4 * WIDTH * WIDTH, np.uint8))
        return networks

    monkeypatch.setattr(Session, "build", write)
    with pytest.raises(ModelError, match="changed since it was compiled"):
        opbuild.compile(path, cache_path=tmp_path / "cache", input_shapes={"x": (2, WIDTH)})


# -- where the data is -------------------------------------------------------------------------------------------------


def hub(folder: Path) -> Path:
    """Lay a model out as Hugging Face's cache does: links from a snapshot to files named by their digests."""
    blobs, snapshot = folder / "blobs", folder / "snapshots" / "0123" / "onnx"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    save(blobs, 1)
    for name, digest in (("model.onnx", "a" * 40), ("model.onnx_data", "b" * 64)):
        (blobs / name).rename(blobs / digest)
        (snapshot / name).symlink_to(Path("../../../blobs") / digest)
    return snapshot / "model.onnx"


@pytest.mark.usefixtures("kept_objects")
def test_a_model_in_hugging_faces_cache_is_read(tmp_path: Path) -> None:
    """The model is a link, and its data one into the folder where it really lies."""
    path = hub(tmp_path)
    network = opbuild.compile(path, cache_path=tmp_path / "cache")
    assert answers(network, 2) == 1
    assert InferenceSession(str(path)).run(None, {"x": np.ones((1, WIDTH), np.float32)})[0][0, 0] == WIDTH


@pytest.mark.parametrize("where", ["outside", "beside the blobs", "the model is no link"])
def test_data_that_a_link_leads_to_from_elsewhere_is_refused(tmp_path: Path, where: str) -> None:
    """A link that leads neither below the model's folder nor below the one where it really lies."""
    path = hub(tmp_path)
    data = path.parent / "model.onnx_data"
    if where == "the model is no link":
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)
    else:
        secret = tmp_path / ("secret" if where == "outside" else "blobs2/secret")
        secret.parent.mkdir(exist_ok=True)
        secret.write_bytes(data.read_bytes())
        data.unlink()
        data.symlink_to(secret)
    with pytest.raises(ModelError, match="a symbolic link leads outside the folder"):
        opbuild.compile(path, cache_path=tmp_path / "cache")


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("length", str(4 * WIDTH), f"has {4 * WIDTH} bytes of external data, and its shape"),
        ("length", str(8 * WIDTH * WIDTH), f"needs {4 * WIDTH * WIDTH}"),
        ("length", "-1", "the length '-1', which is no number of bytes"),
        ("length", "many", "the length 'many', which is no number of bytes"),
        ("offset", str(2**62), "it is shorter"),
        ("offset", str(4 * WIDTH * WIDTH), "it is shorter"),
        ("offset", "4", "it is shorter"),
        ("offset", "-4", "the offset '-4', which is no number of bytes"),
        ("offset", "0x10", "the offset '0x10', which is no number of bytes"),
    ],
)
def test_external_data_that_contradicts_its_tensor_is_refused(tmp_path: Path, key: str, value: str, said: str) -> None:
    """A length that is not the tensor's, and an offset from which the file has too little."""
    path = save(tmp_path, 1)
    proto = onnx.load(path, load_external_data=False)
    entries = {entry.key: entry for entry in proto.graph.initializer[0].external_data}
    entries[key].value = value
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError) as caught:
        opbuild.compile(path, cache_path=tmp_path / "cache", input_shapes={"x": (2, WIDTH)})
    assert said in caught.value.message
    assert "'w'" in caught.value.message


def test_a_length_of_zero_says_nothing(tmp_path: Path) -> None:
    """As ONNX Runtime has it."""
    path = save(tmp_path, 1)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        entry.value = "0" if entry.key == "length" else entry.value
    path.write_bytes(proto.SerializeToString())
    assert answers(opbuild.compile(path, cache_path=tmp_path / "cache"), 1) == 1
