"""The digest of a part of memory is taken once for as long as the memory is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.models.memory import FORM, digest_model
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.onnx_read import ModelFile
from opbuild.graph.constants import array_digest
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files import held
from opbuild.platform.files.held import digest_of, digest_parts, know_parts
from opbuild.platform.files.mapping import Array, read_file
from opbuild.runtime.weights import Packer
from opbuild.store.weights import weights_in

PLACES = [(0, 10), (10, 90_000), (100_000, 70_000), (170_000, 70_000)]


def memory(seed: int = 0) -> Array:
    """Return some bytes."""
    return np.random.default_rng(seed).integers(0, 256, 300_000, np.uint8)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of which digests are taken one by one, from now on."""
    lengths: list[int] = []
    monkeypatch.setattr(held, "blake3_of", lambda data: (lengths.append(len(data)), blake3_of(data))[1])
    return lengths


def test_a_part_has_the_digest_of_its_bytes_and_is_not_read_again(taken: list[int]) -> None:
    """Large and small parts; another part, which only begins or ends there, is read."""
    contents = memory()
    expected = [blake3_of(contents[begin : begin + size].tobytes()) for begin, size in PLACES]
    assert digest_parts(contents, PLACES) == expected
    assert sorted(taken) == sorted(size for _, size in PLACES)
    taken.clear()
    assert [digest_of(contents[begin : begin + size]) for begin, size in PLACES] == expected
    assert not taken
    assert digest_of(contents[0:11]) == blake3_of(contents[0:11].tobytes())
    assert digest_of(contents[11:90_010]) == blake3_of(contents[11:90_010].tobytes())
    assert taken == [11, 89_999]


def test_a_models_digest_stays_that_of_its_form() -> None:
    """Caches remember it by ``FORM``: where this one changes, count that up."""
    tensor = numpy_helper.from_array(np.arange(90_000, dtype=np.float32), "w")
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [90_000]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "net", ports[:1], ports[1:], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = np.frombuffer(model.SerializeToString(deterministic=True), np.uint8)
    assert (FORM, digest_model(data).digest) == (3, "05eecd8db36e5bc39df2933bd169c2efd1e36b3e44752ab641863f4c3c890fa1")


def test_what_is_known_ends_with_the_memory() -> None:
    """Whatever takes its place is read, also where it was digested before the old memory was forgotten."""
    contents = memory()
    digest_parts(contents, PLACES)
    start = contents.ctypes.data
    assert len(held._known[start].parts) == len(PLACES)
    del contents
    assert start not in held._known


def test_memory_with_the_same_bytes_is_known_by_what_was_known_before(taken: list[int]) -> None:
    """As that of a file that is mapped again; what is digested later is known the next time."""
    contents, parts = memory(), dict[tuple[int, int], str]()
    expected = digest_parts(contents, PLACES)
    know_parts(contents, parts)
    digest_of(contents[5:95])
    again = contents.copy()
    del contents
    taken.clear()
    know_parts(again, parts)
    assert [digest_of(again[begin : begin + size]) for begin, size in PLACES] == expected
    assert digest_of(again[5:95]) == blake3_of(again[5:95].tobytes())
    assert not taken


def test_a_view_keeps_what_is_known(taken: list[int]) -> None:
    """As long as one tensor is used the memory is there."""
    contents = memory()
    digest_parts(contents, PLACES)
    view = np.frombuffer(contents.data[100_000:170_000], np.float32)
    del contents
    taken.clear()
    digest_of(view.view(np.uint8))
    assert not taken


def test_a_tensor_that_is_stored_as_the_model_has_it_is_not_digested_again(taken: list[int], tmp_path: Path) -> None:
    """It has the digest of its bytes, by which the store finds it."""
    contents = memory()
    expected = digest_parts(contents, PLACES)
    taken.clear()
    weights = weights_in(tmp_path)
    stored = Packer(weights).put(contents[100_000:170_000], None)
    assert stored.digest == expected[2]
    assert not taken
    found = weights.get(stored.digest, 70_000)
    assert not isinstance(found, Reason)
    np.testing.assert_array_equal(found.array, contents[100_000:170_000])


def model(*arrays: Array) -> onnx.ModelProto:
    """Return a model that adds its large initializers up."""
    tensors = [numpy_helper.from_array(array, f"w{number}") for number, array in enumerate(arrays)]
    nodes = [helper.make_node("Sum", [tensor.name for tensor in tensors], ["y"])]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [], [output], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_the_weights_of_a_model_are_digested_once(tmp_path: Path, taken: list[int]) -> None:
    """With the model; what they are packed to is found by the same digests."""
    path = tmp_path / "m.onnx"
    arrays = [np.full(40_000, number, np.float32) for number in range(3)]
    onnx.save(model(*arrays), path)
    contents = read_file(path)
    found = digest_model(contents)
    assert sorted(taken) == [160_000] * 3
    taken.clear()
    loaded = load_model(ModelFile(path, contents.data, "", found.message))
    bound = loaded.bind({}, evaluate)
    digests = {name: array_digest(value) for name, value in bound.constants.items() if value.nbytes == 160_000}
    assert digests
    assert all(digest == array_digest(np.array(bound.constants[name])) for name, digest in digests.items())


def test_every_byte_of_a_model_and_where_its_tensors_lie_is_in_its_digest() -> None:
    """Changed bytes of the message or of a tensor, exchanged tensors, and a tensor that is cut."""
    one, two = np.arange(2000, dtype=np.float32), np.arange(2000, 4000, dtype=np.float32)
    whole = model(one, two).SerializeToString()
    variants = [whole, model(two, one).SerializeToString(), model(one, one).SerializeToString(), whole[:-1], b""]
    for place in (0, 5, len(whole) // 2, len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        variants.append(bytes(changed))
    digests = [digest_model(np.frombuffer(each, np.uint8)).digest for each in variants]
    assert len(set(digests)) == len(variants)
    assert digest_model(np.frombuffer(bytes(whole), np.uint8)).digest == digests[0]
