"""Offline models as files: what was written is read, and nothing that is cut, changed or foreign is used."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from opbuild.errors import InvalidModelError, OptionError, ShapeError, TargetError
from opbuild.offline import format as offline_format
from opbuild.offline.file import read_offline
from opbuild.offline.format import ABOUT, LIBRARY, MACHINE, PLAN, PROGRAM, WEIGHTS, Section, open_container
from opbuild.offline.load import load
from opbuild.target.host import host_level, host_problem, needed_of_machine, parse_level, resolve_level
from opbuild.target.level import BY_NAME, LEVELS
from support.forked import in_fork
from support.handmade import expected_chain, write_chain
from support.old_records import to_old_json

SIZES = (64, 4096)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An offline model with two signatures."""
    return write_chain(tmp_path_factory.mktemp("om") / "chain.om", SIZES)


def test_a_model_computes_what_it_did_before_it_was_written(file: Path) -> None:
    """Each signature is picked by the input's shape, and gives the right values."""
    net = load(file, num_threads=1)
    assert net.inputs[0].type.shape == (-1,)
    for size in SIZES:
        x = np.linspace(-1, 1, size, dtype=np.float32)
        np.testing.assert_allclose(net(x), expected_chain(x), rtol=1e-6)
        assert (net.inputs[0].shape, net.bound_inputs[0].shape) == ((-1,), (size,))


def test_another_shape_is_an_error_that_lists_what_is_served(file: Path) -> None:
    """Other extents and other ranks alike."""
    for shape in ((65,), (64, 1), ()):
        with pytest.raises(ShapeError) as caught:
            load(file)(np.zeros(shape, np.float32))
        assert "x:64 or x:4096" in caught.value.hint


def test_equal_weights_lie_once(tmp_path: Path) -> None:
    """A signature with the same weights adds its plan and none of the weights."""
    one = read_offline(write_chain(tmp_path / "one.om", (4096,)))
    two = read_offline(write_chain(tmp_path / "two.om", (4096, 4096)))
    assert one.container.section(WEIGHTS).size == two.container.section(WEIGHTS).size == 4 * 4096


def test_equal_models_give_equal_files(tmp_path: Path) -> None:
    """Nothing of the time, the process or the folder is in a file."""
    assert write_chain(tmp_path / "a.om", SIZES).read_bytes() == write_chain(tmp_path / "b.om", SIZES).read_bytes()


def test_weights_are_mapped_on_lines_of_the_cache(file: Path) -> None:
    """Sections of code and weights begin on pages, constants on multiples of 64 bytes, without a copy."""
    model = read_offline(file)
    for kind in (LIBRARY, WEIGHTS):
        assert model.container.places[kind, 0][0] % 4096 == 0
    for index in range(2):
        for array in model.constants(model.record(index)):
            assert array.ctypes.data % 64 == 0
            assert not array.flags.owndata
            assert not array.flags.writeable


def test_every_cut_is_noticed(file: Path, tmp_path: Path) -> None:
    """A file that ends early, or has more at its end, is damaged; an empty one is no model."""
    data, path = file.read_bytes(), tmp_path / "cut.om"
    for length in (0, 1, 7, 8, 40, 63, 64, 100, 200, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(InvalidModelError, match=r"damaged|not an offline model|is empty"):
            load(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(InvalidModelError, match="damaged"):
        load(path)


def test_every_changed_byte_is_noticed(file: Path, tmp_path: Path) -> None:
    """Each byte of the header and of the table, and bytes of every section, with any value, also in C's tables."""
    data, path = bytearray(file.read_bytes()), tmp_path / "changed.om"
    places = open_container(file).places
    end = 64 + 64 * len(places)
    inside = [offset + step for offset, size in places.values() for step in (0, size // 2, size - 1)]
    for position in (*range(end), *inside):
        data[position] ^= 0x41
        path.write_bytes(data)
        with pytest.raises(InvalidModelError):
            load(path)
        data[position] ^= 0x41


def test_unverified_weights_are_not_read(file: Path, tmp_path: Path) -> None:
    """``verify=False`` leaves out the weights only: changed ones are taken, a changed library is not."""
    path, places = tmp_path / "changed.om", open_container(file).places
    for kind, error in ((WEIGHTS, None), (LIBRARY, InvalidModelError)):
        data = bytearray(file.read_bytes())
        data[places[kind, 0][0] + 8] ^= 1
        path.write_bytes(data)
        if error is None:
            load(path, verify=False)
        else:
            with pytest.raises(error):
                load(path, verify=False)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    """Nothing there, a folder, another format, text: one kind of error."""
    (tmp_path / "text.om").write_text("this is an ONNX model, really" * 100)
    for name in ("absent.om", ".", "text.om"):
        with pytest.raises(InvalidModelError):
            load(tmp_path / name)


def test_a_file_of_a_later_format_says_so(file: Path, tmp_path: Path) -> None:
    """The version is looked at before anything that it may have changed."""
    data = bytearray(file.read_bytes())
    data[8:12] = struct.pack("<I", offline_format.VERSION + 1)
    path = tmp_path / "later.om"
    path.write_bytes(data)
    with pytest.raises(InvalidModelError, match=f"version {offline_format.VERSION + 1}"):
        load(path)


@pytest.mark.parametrize("version", range(offline_format.OLDEST, offline_format.VERSION))
def test_a_file_of_an_earlier_format_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """A model that was written once goes on running; buffers and steps were rows then."""
    with monkeypatch.context() as patch:
        patch.setattr(offline_format, "VERSION", version)
        patch.setattr("opbuild.offline.file.to_json", lambda record: to_old_json(record, version))
        path = write_chain(tmp_path / "earlier.om", SIZES)
    assert path.read_bytes()[8] == version
    x = np.arange(SIZES[0], dtype=np.float32)
    np.testing.assert_array_equal(load(path)(x), expected_chain(x))


def test_sections_that_are_sealed_but_wrong_are_refused(tmp_path: Path) -> None:
    """Sound digests do not make a model: what it says is checked as well."""
    path = tmp_path / "wrong.om"
    about = {
        "name": "n", "target": host_level().name, "inputs": [["x", "float32"]], "outputs": ["y"],
        "signatures": [[[4]]], "build": {},
    }  # fmt: skip
    wrong = [
        [],
        b"no JSON",
        {**about, "inputs": [["x", "object"]]},
        {**about, "signatures": []},
        {**about, "signatures": [[[4]], [[4, 4]]]},
        {**about, "signatures": [[]]},
        {**about, "target": "x"},
    ]
    for content in wrong:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        offline_format.write_container(path, [Section(ABOUT, 0, [data])])
        with pytest.raises(InvalidModelError):
            load(path)
    for plan in (b"[]", b"{}", b""):
        parts = {ABOUT: json.dumps(about).encode(), MACHINE: b"", PLAN: plan, PROGRAM: b""}
        sections = [Section(kind, 0, [content]) for kind, content in parts.items()]
        offline_format.write_container(path, sections)
        with pytest.raises(InvalidModelError, match="cannot be used"):
            load(path)


def test_a_model_for_another_machine_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another architecture, and a feature that this processor lacks."""
    host = host_level()
    foreign = next(level for level in LEVELS if level.triple != host.triple)
    higher = replace(host, arch="next", flags=host.flags | {"avx1024"})
    monkeypatch.setitem(BY_NAME, "next", higher)
    for level, text in (
        (foreign, "this machine is"),
        (higher, f"is for next, this machine is {host}: it lacks avx1024"),
    ):
        path = write_chain(tmp_path / "other.om", SIZES, level)
        assert host_problem(level)
        with pytest.raises(TargetError, match=text):
            load(path)


def test_a_failed_write_leaves_the_older_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk ends in an error; the file that was there stays, and nothing else is left."""
    path = tmp_path / "kept.om"
    path.write_bytes(file.read_bytes())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="space"):
        write_chain(path, (64,))
    assert [each.name for each in tmp_path.iterdir()] == ["kept.om"]
    assert path.read_bytes() == file.read_bytes()


def test_the_digests_in_a_file_are_those_of_its_sections(file: Path) -> None:
    """As another reader would check them: from the bytes alone."""
    data = file.read_bytes()
    magic, version, count, size = struct.unpack_from("<8sIIQ", data)
    assert (magic, version, size) == (offline_format.MAGIC, offline_format.VERSION, len(data))
    assert blake3(data[:32] + data[64 : 64 + 64 * count]).digest() == data[32:64]
    kinds = set()
    for each in range(count):
        kind, _, offset, nbytes, _, digest = struct.unpack_from("<IIQQQ32s", data, 64 + 64 * each)
        assert blake3(data[offset : offset + nbytes]).digest() == digest
        kinds.add(kind)
    assert {ABOUT, MACHINE, PLAN, LIBRARY, WEIGHTS} <= kinds


@pytest.mark.parametrize(
    "text", ["Ascend310P3", "Ascend910B1", "x86-64-linux-mmx", "riscv-64-linux", "rv64gc", "x86", "", "arm-64-windows"]
)
def test_a_target_that_cannot_be_built_lists_what_can(text: str) -> None:
    """An NPU's name, a feature that does not exist, another system: the value, and what is allowed."""
    with pytest.raises(OptionError) as caught:
        resolve_level(text)
    assert repr(text) in caught.value.message
    assert "x86-64-v3" in caught.value.hint
    assert "armv8-a" in caught.value.hint


def test_what_a_level_needs_is_in_the_words_of_the_system() -> None:
    """``uname -m`` and flags of ``/proc/cpuinfo``: what a reader without opbuild's tables compares."""
    assert needed_of_machine(parse_level("armv8.2-a-dotprod")) == ("aarch64", "asimddp", "asimdhp", "fphp")
    assert needed_of_machine(parse_level("x86-64")) == ("x86_64",)
    assert {"avx2", "fma"} <= set(needed_of_machine(parse_level("x86-64-v3")))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("verify", [True, False])
def test_a_network_with_copied_weights_outlives_its_file(tmp_path: Path, verify: bool) -> None:
    """Overwritten and then cut in place beneath it; a mapping would give wrong numbers, and end it with SIGBUS."""
    path = write_chain(tmp_path / "chain.om", (4096,))
    x = np.linspace(-1, 1, 4096, dtype=np.float32)

    def work() -> list[bool]:
        net = load(path, num_threads=1, verify=verify, copy_weights=True)
        outcomes = []
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size))
        outcomes.append(np.array_equal(net(x), expected_chain(x)))
        os.truncate(path, 0)
        outcomes.append(np.array_equal(net(x), expected_chain(x)))
        return outcomes

    assert in_fork(work) == [True, True]
