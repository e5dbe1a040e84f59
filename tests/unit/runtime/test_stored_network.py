"""Network images: what was stored starts again; what is damaged, missing or lying is a miss with a reason."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbuild.errors import BuildError
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.networks import NetworkKey
from opbuild.kernel.reason import Reason
from opbuild.platform.files import mapping as files
from opbuild.platform.files import private as private_files
from opbuild.platform.files.trust import seal, unseal
from opbuild.program import Buffer, HostCall, KernelCall, Port, Program, View
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Executor
from opbuild.runtime.record_json import from_json, to_json
from opbuild.runtime.stored_network import LoadedNetwork, StoredNetworks
from opbuild.store.blobs import Memory
from opbuild.store.networks import Networks
from opbuild.store.weights import StoredWeights
from opbuild.target.level import CPU
from support.forked import in_fork
from support.handmade import Built, build, chain, counting, expected_chain, image_store

SIZE = 64 * 1024  # elements: the weights have a file of their own
KEY = NetworkKey("Chain of 3", {"model": "m", "inputs": [["x", "float32", [SIZE]]]}, lambda: "halide-1")


def store_chain(folder: Path) -> tuple[StoredNetworks, Built]:
    """Build ``chain`` and store it."""
    store = image_store(folder)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights, "halide-1")
    return store, built


def loaded(store: StoredNetworks, key: NetworkKey = KEY) -> LoadedNetwork:
    """Return a stored network that must be there."""
    image = store.load(key)
    assert isinstance(image, LoadedNetwork), image
    return image


def code_of(image: LoadedNetwork | Reason) -> str:
    """Return why there is no image."""
    assert isinstance(image, Reason)
    return image.code


def start(image: LoadedNetwork) -> Executor:
    """Make a stored network ready to run."""
    return Executor(image.record, {CPU: Library(image.library, 1)}, image.constants, None)


def test_a_stored_network_computes_the_same(tmp_path: Path) -> None:
    """What was saved is loaded with equal record, library and constants, and runs."""
    store, built = store_chain(tmp_path)
    image = loaded(store)
    assert to_json(image.record) == to_json(built.record)
    assert image.library == built.library
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    np.testing.assert_array_equal(start(image).run([x])[0], built.executor.run([x])[0])
    np.testing.assert_allclose(start(image).run([x])[0], expected_chain(x), rtol=1e-6)


def test_any_store_that_keeps_networks_and_weights_starts_them() -> None:
    """The runtime asks two protocols and knows no folder: stores in memory serve as well as a far one could."""
    store = StoredNetworks(Networks(Memory()), StoredWeights(Memory()))
    assert code_of(store.load(KEY)) == "absent"
    packer = store.packer()
    built = build(chain(SIZE), packer)
    store.save(KEY, built.record, built.library, built.constants, packer)
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)
    np.testing.assert_array_equal(start(loaded(store)).run([x])[0], built.executor.run([x])[0])
    again = store.packer()
    build(chain(SIZE), again)
    assert (packer.packed, again.packed) == (1, 0)


def test_nothing_stored_is_a_miss(tmp_path: Path) -> None:
    """An empty or absent folder says so."""
    assert image_store(tmp_path / "absent").load(KEY) == Reason("absent", "there is none yet")


def test_the_file_names_have_the_network_and_the_key(tmp_path: Path) -> None:
    """Files can be told apart by people; weights lie in their own folder by digest."""
    store_chain(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert [name.rsplit(".", 1)[1] for name in names] == ["bin", "json", "seen", "so"]
    assert all(name.startswith("chain_of_3_") for name in names)
    assert sorted(path.suffix for path in (tmp_path / "weights").iterdir()) == [".bin", ".json"]


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".so", ".bin", ".json", "weights"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "empty", "grow"])
def test_a_damaged_file_is_a_miss_and_is_replaced(tmp_path: Path, suffix: str, damage: str) -> None:
    """F07, F08: whatever happens to a file, the image is a miss with a reason; saving again repairs it."""
    store, _ = store_chain(tmp_path)
    path = next((tmp_path / "weights").glob("*.bin")) if suffix == "weights" else next(tmp_path.glob(f"*{suffix}"))
    data = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        middle = len(data) // 2
        changed = {
            "flip": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :] if data else b"x",
            "cut": data[:-1] if data else b"x",
            "empty": b"" if data else b"x",
            "grow": data + b"\0",
        }
        path.write_bytes(changed[damage])
    assert isinstance(store.load(KEY), Reason)
    store_chain(tmp_path)
    loaded(store)


def test_another_compiler_is_a_miss_and_none_is_not(tmp_path: Path) -> None:
    """An image made by another compiler is not used; where none is installed any image is accepted."""
    store, _ = store_chain(tmp_path)
    assert code_of(store.load(KEY._replace(installed=lambda: "halide-2"))) == "other-compiler"
    loaded(store, KEY._replace(installed=str))


@pytest.mark.parametrize("part", ["model", "inputs", "target"])
def test_any_component_of_the_key_names_another_image(part: str) -> None:
    """F27: each component of the key reaches the file's name."""
    assert NetworkKey("n", {**KEY.components, part: "other"}).stem != NetworkKey("n", KEY.components).stem


def test_an_image_of_another_key_under_the_right_name_is_a_miss(tmp_path: Path) -> None:
    """F29: the whole key is compared, not only the name."""
    store, _ = store_chain(tmp_path)
    path = next(tmp_path.glob("*.json"))
    content = unseal(path.read_bytes(), path.name)
    path.write_bytes(seal({**content, "key": {**content["key"], "model": "other"}}, path.name))
    assert code_of(store.load(KEY)) == "other-key"


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda record: record["steps"]["offset"].__setitem__(2, 1),
        lambda record: record["steps"]["offset"].__setitem__(2, -1),
        lambda record: record["dims"][record["steps"]["shape"][2]].__setitem__(0, [SIZE, 2]),
        lambda record: record["dims"][record["steps"]["shape"][2]].__setitem__(0, [2, -1]),
        lambda record: record["steps"]["shape"].__setitem__(2, -1),
        lambda record: record["steps"]["shape"].__setitem__(2, len(record["dims"])),
        lambda record: record["dims"].pop(),
        lambda record: record["steps"]["buffer"].__setitem__(0, 99),
        lambda record: record["steps"]["buffer"].__setitem__(0, -1),
        lambda record: record["steps"]["buffer"].pop(),
        lambda record: [record["steps"][name].pop() for name in ("buffer", "offset", "shape")],
        lambda record: record["steps"].__setitem__("shape", [[each] for each in record["steps"]["shape"]]),
        lambda record: record["steps"]["kind"].__setitem__(0, len(record["steps"]["kinds"])),
        lambda record: record["steps"]["kind"].__setitem__(0, -1),
        lambda record: record["steps"]["kind"].__setitem__(0, -2),
        lambda record: record["steps"]["kind"].pop(),
        lambda record: record["steps"]["kinds"][0].__setitem__(1, 2**62),
        lambda record: record["steps"]["nodes"].pop(),
        lambda record: record["steps"]["nodes"].__setitem__(0, "first"),
        lambda record: record.__setitem__("arena_size", 64),
        lambda record: record["buffers"]["place"].__setitem__(2, 3),
        lambda record: record["buffers"]["place"].__setitem__(2, -64),
        lambda record: record["buffers"]["place"].__setitem__(1, 5),
        lambda record: record["buffers"]["size"].__setitem__(1, 2 * SIZE),
        lambda record: record["buffers"]["size"].__setitem__(1, 2**62 + SIZE),
        lambda record: record["buffers"]["size"].__setitem__(0, 2 * SIZE),
        lambda record: record["buffers"]["sort"].__setitem__(0, -1),
        lambda record: record["buffers"]["sorts"][0].__setitem__(1, "object"),
        lambda record: record["inputs"][0].__setitem__(2, 77),
        lambda record: record["constants"]["digests"].__setitem__(0, "../../etc/passwd"),
        lambda record: record.pop("steps"),
    ],
)
def test_a_lying_record_is_a_miss(tmp_path: Path, change: Any) -> None:
    """F58: a record with a valid digest whose views or buffers reach outside their memory is refused before it runs."""
    store, _ = store_chain(tmp_path)
    path = next(tmp_path.glob("*.json"))
    content = unseal(path.read_bytes(), path.name)
    change(content["record"])
    path.write_bytes(seal(content, path.name))
    assert isinstance(store.load(KEY), Reason)


def test_a_folder_that_was_moved_still_serves(tmp_path: Path) -> None:
    """F37: nothing in an image is a path."""
    store_chain(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    loaded(image_store(tmp_path / "b"))


def test_weights_are_digested_once_and_not_at_every_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that nobody touched since they were verified are not read again; touched ones are."""
    store, _ = store_chain(tmp_path)
    counted, digested = counting(files.blake3_of)
    monkeypatch.setattr(files, "blake3_of", counted)

    def weights_digested() -> int:
        return sum(len(data) == 4 * SIZE for data in digested)

    loaded(store)
    assert weights_digested() == 0
    path = next((tmp_path / "weights").glob("*.bin"))
    data = path.read_bytes()
    stat = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    loaded(store)
    assert weights_digested() == 1
    loaded(store)
    assert weights_digested() == 1


def test_a_start_after_a_reboot_reads_the_weights_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash of the machine may lose what was written: nothing that was remembered before the boot is believed."""
    store, _ = store_chain(tmp_path)
    counted, digested = counting(files.blake3_of)
    monkeypatch.setattr(files, "blake3_of", counted)
    monkeypatch.setattr(files, "boot", lambda: "another boot")
    loaded(store)
    assert [len(data) for data in digested if len(data)] == [4 * SIZE]


def test_weights_that_were_packed_before_are_not_packed_again(tmp_path: Path) -> None:
    """A source that names its values by digest is looked up: pack is not called, the file is mapped."""
    store = image_store(tmp_path)
    first = store.packer()
    built = build(chain(SIZE), first)
    first.remember()
    program = chain(SIZE)

    def never() -> Any:
        raise AssertionError("packed again")

    buffers = tuple(dataclasses.replace(b, pack=never) if b.pack else b for b in program.buffers)
    second = store.packer()
    again = build(dataclasses.replace(program, buffers=buffers), second)
    assert (first.packed, second.packed) == (1, 0)
    assert again.constants.places == built.constants.places


def test_what_a_source_packs_to_is_believed_only_after_the_build_is_certain(tmp_path: Path) -> None:
    """F34: a source that changed between its digest and its packing would give every later network wrong weights."""
    store = image_store(tmp_path)
    build(chain(SIZE), store.packer())  # packed, and nobody said that its source had not changed meanwhile
    assert not list((tmp_path / "weights").glob("*.json"))
    again = store.packer()
    build(chain(SIZE), again)
    assert again.packed == 1


def test_other_packing_code_packs_again(tmp_path: Path) -> None:
    """F30: the digest of opbuild's sources salts the look-up, so changed packing code is never served old bytes."""
    old = image_store(tmp_path, "old").packer()
    build(chain(SIZE), old)
    old.remember()
    weights = image_store(tmp_path, "new").packer()
    build(chain(SIZE), weights)
    assert weights.packed == 1


def test_packed_bytes_that_were_damaged_are_packed_again(tmp_path: Path) -> None:
    """A damaged weight file is found by its digest and replaced."""
    store, built = store_chain(tmp_path)
    path = next((tmp_path / "weights").glob("*.bin"))
    path.write_bytes(bytes(path.stat().st_size))
    weights = store.packer()
    again = build(chain(SIZE), weights)
    assert weights.packed == 1
    assert again.constants.places == built.constants.places
    x = np.ones(SIZE, np.float32)
    np.testing.assert_array_equal(again.executor.run([x])[0], expected_chain(x))


def test_equal_constants_are_stored_once(tmp_path: Path) -> None:
    """Two networks with the same weights share one file, mapped from disk."""
    store = image_store(tmp_path)
    build(chain(SIZE), store.packer())
    program = chain(SIZE)
    buffers = tuple(dataclasses.replace(b, source=None) if b.pack else b for b in program.buffers)
    built = build(dataclasses.replace(program, buffers=buffers), store.packer())
    assert len(list((tmp_path / "weights").glob("*.bin"))) == 1
    assert not built.constants.arrays[0].flags.writeable


def test_a_folder_that_cannot_be_written_keeps_the_weights_in_memory(tmp_path: Path) -> None:
    """F54, F61: the network runs, and saving it says why it is not stored."""
    (tmp_path / "weights").write_text("a file where the folder should be")
    store = image_store(tmp_path)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    x = np.ones(SIZE, np.float32)
    np.testing.assert_array_equal(built.executor.run([x])[0], expected_chain(x))
    with pytest.raises(ValueError, match="packed weights cannot be stored"):
        store.save(KEY, built.record, built.library, built.constants, weights)


def test_nothing_is_left_of_a_write_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F06: a failed publication leaves neither part of a file nor its temporary."""

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        private_files.publish(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def host_program(attrs: dict[str, Any], proto: bytes | None = None) -> Program:
    """A program of one host call."""
    type_ = TensorType("float32", (2, 3))
    view = View(0, 0, ((3, 1), (2, 3)))
    node = Node("Some", ("x",), ("out",), attrs, "some node", "", proto)
    call = HostCall(node, (view, None), (View(1, 0, view.dims),), (type_, None), (type_,), 21)
    buffers = (Buffer("input", "float32", 6), Buffer("output", "float32", 6))
    return Program("host", buffers, (call,), (Port("x", type_, 0),), (Port("out", type_, 1),))


ATTRIBUTES = st.recursive(
    st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5) | st.binary(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)


@given(st.dictionaries(st.text(max_size=5), ATTRIBUTES, max_size=4))
def test_attributes_of_host_calls_survive_json(attrs: dict[str, Any]) -> None:
    """Ints, floats (infinity too), strings, bytes and tuples come back equal and of the same type."""
    record = build(host_program(attrs)).record
    before, step = record.steps[0], from_json(json.loads(json.dumps(to_json(record)))).steps[0]
    assert isinstance(before, HostCall)
    assert isinstance(step, HostCall)
    assert step.node.attrs == attrs
    assert (step.inputs, step.outputs, step.opset) == (before.inputs, before.outputs, before.opset)
    assert (step.input_types, step.output_types) == (before.input_types, before.output_types)


def test_arrays_and_protos_of_host_calls_survive_json() -> None:
    """Tensor attributes come back with type and shape; a node with its proto needs no attributes."""
    array = np.arange(6, dtype=np.int64).reshape(2, 3)
    step = from_json(to_json(build(host_program({"value": array})).record)).steps[0]
    assert isinstance(step, HostCall)
    np.testing.assert_array_equal(step.node.attrs["value"], array)
    step = from_json(to_json(build(host_program({"then": object()}, b"\x01\xff")).record)).steps[0]
    assert isinstance(step, HostCall)
    assert step.node.proto == b"\x01\xff"


def test_an_attribute_that_json_cannot_hold_means_no_image() -> None:
    """Saving says so; the network itself runs."""
    with pytest.raises(ValueError, match="cannot be stored"):
        to_json(build(host_program({"then": object()})).record)


def test_a_kernel_that_may_not_run_on_its_views_is_refused_when_bound() -> None:
    """An extent below a kernel's least would be written outside its buffer: binding is where that is refused."""
    from support.handmade import PARALLEL, dense

    buffers = (Buffer("input", "float32", 4), Buffer("output", "float32", 4))
    ports = (Port("x", TensorType("float32", (4,)), 0), Port("out", TensorType("float32", (4,)), 1))
    call = KernelCall(PARALLEL, (dense(0, 4), dense(1, 4)), ("the node",))
    with pytest.raises(BuildError, match=r"the node.*extent 4 is below 8"):
        build(Program("small", buffers, (call,), ports[:1], ports[1:]))


def test_a_view_outside_its_buffer_is_refused_when_bound() -> None:
    """Bounds are checked for a new network as for a stored one."""
    program = chain(8)
    call = dataclasses.replace(program.calls[1], views=(View(2, 1, ((8, 1),)), View(3, 0, ((8, 1),))))
    with pytest.raises(BuildError, match="second: a view covers elements 1 to 8 of a buffer of 8"):
        build(dataclasses.replace(program, calls=(program.calls[0], call, program.calls[2])))


def test_a_constant_packed_to_another_size_is_refused() -> None:
    """The result of a packing function must be as large as the buffer promised."""
    with pytest.raises(BuildError, match="packed to 7"):
        build(chain(8, np.zeros(7, np.float32)))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("started", [True, False], ids=["started", "built"])
def test_a_network_with_copied_constants_outlives_its_files(tmp_path: Path, started: bool) -> None:
    """Overwritten and then cut in place beneath it; a mapping would give wrong numbers, and end it with SIGBUS."""
    store_chain(tmp_path)
    x = np.random.default_rng(0).standard_normal(SIZE).astype(np.float32)

    def work() -> list[bool]:
        store = image_store(tmp_path, copies=True)
        executor = start(loaded(store)) if started else build(chain(SIZE), store.packer()).executor
        outcomes = []
        for change in (lambda file: file.write(bytes(4 * SIZE)), lambda file: file.truncate(0)):
            for path in tmp_path.rglob("*.bin"):
                with path.open("r+b") as file:
                    change(file)
            outcomes.append(np.array_equal(executor.run([x])[0], expected_chain(x)))
        return outcomes

    assert in_fork(work) == [True, True]


def test_a_copy_is_compared_with_its_digest_whatever_is_remembered(tmp_path: Path) -> None:
    """What was read is what is compared: an edit between a memo and the copy is no network."""
    store_chain(tmp_path)
    (weights,) = (tmp_path / "weights").glob("*.bin")
    before = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"other")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    store = image_store(tmp_path, copies=True)
    store.networks.note(KEY, {weights.stem: files.map_file(weights, before.st_size)[1]})
    assert code_of(store.load(KEY)) == "damaged"
