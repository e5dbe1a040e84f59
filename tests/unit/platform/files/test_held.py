"""A model's file is mapped while it is worked on: who writes to it waits, and what is kept of it is memory."""

from __future__ import annotations

import gc
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import InvalidModelError, ModelError
from opbuild.frontend.models.memory import ModelMemory
from opbuild.frontend.models.source import ModelSource, open_model
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.constants import array_digest
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.platform.files import held, writers
from opbuild.platform.files.held import LEAST, HeldFile, digest_parts, hold_file
from opbuild.platform.files.trust import PRIVATE
from opbuild.report import Clock
from opbuild.target.host import parse_level
from support.forked import in_fork
from support.small_network import SHAPE, SmallNetwork, small_model

EXT4, TMPFS, OVERLAY = 0xEF53, 0x01021994, 0x794C7630
SIZE = LEAST + 4097


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on what passes for a disk, if the system grants leases at all."""
    monkeypatch.setattr(writers, "_file_system", lambda descriptor: EXT4)
    path = tmp_path / "probe"
    path.touch()
    descriptor = os.open(path, os.O_RDONLY)
    granted = writers.take_lease(descriptor)
    os.close(descriptor)
    if not granted:
        pytest.skip("there are no leases here")
    return tmp_path


def write(folder: Path, nbytes: int = SIZE) -> tuple[Path, bytes]:
    """Write a file of random bytes."""
    contents = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8).tobytes()
    path = folder / "model.onnx"
    path.write_bytes(contents)
    return path, contents


def may_write(path: Path) -> bool:
    """Return whether the file can be opened for writing without waiting; who cannot is waiting from now on."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except BlockingIOError:
        return False
    return True


def is_mapped(file: HeldFile) -> bool:
    """Return whether a file is still in memory as a map."""
    return file._mapped is not None and file._mapped() is not None


@pytest.mark.parametrize("nbytes", [0, 1, LEAST - 1, LEAST, LEAST + 1, SIZE, 3 * LEAST])
def test_the_bytes_are_those_of_the_file(disk: Path, nbytes: int) -> None:
    """Whether it is large enough to be mapped or not, and wherever it ends within a page."""
    path, contents = write(disk, nbytes)
    file = hold_file(path)
    assert file.contents.tobytes() == contents
    array = file.take()
    assert array is not None
    assert array.tobytes() == contents
    assert is_mapped(file) == (nbytes >= LEAST)
    assert file.take() is None
    file.release()


def test_who_writes_waits_until_the_file_is_released(disk: Path) -> None:
    """And it is known that somebody waits, after which nothing may be stored."""
    path, _ = write(disk)
    file = hold_file(path)
    assert file.is_certain()
    assert not may_write(path)
    assert not file.is_certain()
    file.release()
    assert may_write(path)


def test_what_nobody_uses_is_not_copied(disk: Path) -> None:
    """Once it was taken it lives as long as whoever has it."""
    path, _ = write(disk)
    file = hold_file(path)
    array = file.take()
    assert is_mapped(file)
    del array
    assert not is_mapped(file)
    assert not may_write(path)
    file.release()
    assert may_write(path)


@pytest.mark.parametrize("change", [lambda f: f.truncate(0), lambda f: f.write(b"\0" * SIZE)], ids=["cut", "written"])
def test_what_is_used_after_the_release_stays(disk: Path, change: Callable[..., object]) -> None:
    """Whatever is done to the file: not even a cut one ends the process."""
    path, contents = write(disk)

    def work() -> bool:
        file = hold_file(path)
        array = file.take()
        assert array is not None
        part = np.frombuffer(array.data[5000:-3], np.uint8)
        del array
        file.release()
        with path.open("r+b") as changed:
            change(changed)
        return part.tobytes() == contents[5000:-3]

    assert in_fork(work)


@pytest.mark.parametrize("wanted", [False, True])
def test_digests_of_a_file_that_somebody_waited_for_are_forgotten(disk: Path, wanted: bool) -> None:
    """What was mapped may have been changed by then; else they are known for as long as a part of it is used."""
    path, _ = write(disk)
    file = hold_file(path)
    whole = file.contents
    digest_parts(whole, [(0, 100)])
    parts = held._known[whole.ctypes.data].parts
    if wanted:
        assert not may_write(path)
    file.release()
    assert bool(parts) is not wanted


def test_a_forgotten_file_is_released(disk: Path) -> None:
    """An error may end a build anywhere; a fork gives back nothing of its parent's."""
    path, _ = write(disk)
    files = [hold_file(path)]

    def forget() -> bool:
        files.clear()
        return may_write(path)

    assert not in_fork(forget)
    files.clear()
    assert may_write(path)


@pytest.mark.parametrize("kind", [TMPFS, OVERLAY, 0])
def test_a_file_where_leases_hold_nobody_back_is_read(disk: Path, monkeypatch: pytest.MonkeyPatch, kind: int) -> None:
    """On other file systems, and where somebody has it open for writing already."""
    path, contents = write(disk)
    with path.open("r+b"):
        assert not is_mapped(hold_file(path))
    monkeypatch.setattr(writers, "_file_system", lambda descriptor: kind)
    file = hold_file(path)
    assert not is_mapped(file)
    assert file.is_certain()
    assert may_write(path)
    array = file.take()
    assert array is not None
    assert array.tobytes() == contents


def test_what_cannot_be_mapped_is_read(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory may be limited; and a file that is not there is said not to be."""
    path, contents = write(disk)

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(held, "_mapped", refuse)
    assert hold_file(path).contents.tobytes() == contents
    assert may_write(path)
    with pytest.raises(FileNotFoundError):
        hold_file(disk / "none")


def test_a_model_that_somebody_waits_to_write_is_edited(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no network is stored under a digest that its weights may not have."""
    monkeypatch.setattr(held, "LEAST", 1)
    path = disk / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    memory = ModelMemory(disk / "meta", PRIVATE, reads=True, writes=True, keeps_times=False)
    source = open_model(path, memory, releases=True)
    assert source.declaration.name == "small"
    assert not source.edited
    assert not may_write(path)
    assert source.edited
    source.release()
    assert may_write(path)
    assert not source.edited


def test_a_model_is_read_again_without_a_look_at_its_bytes(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file's state says that they are the same, and what was known of them is known; another file is refused."""
    monkeypatch.setattr(held, "LEAST", 1)
    path, digested = disk / "small.onnx", list[int]()
    path.write_bytes(small_model().SerializeToString())
    memory = ModelMemory(disk / "meta", PRIVATE, reads=True, writes=True, keeps_times=False)
    source = open_model(path, memory, releases=True)
    assert source._known is not None
    source._known = source._known._replace(lasts=True)  # it was written long ago
    digests = []
    for _ in range(3):
        with source.reading():
            graph = source.graph((SHAPE,), Clock())
            digests.append(array_digest(graph.constants["w"]))
            if digests == digests[:1]:
                monkeypatch.setattr(held, "blake3_of", lambda data: digested.append(len(data)))
            with source.reading():  # somebody else, behind the calls
                pass
            assert source._held is not None
            del graph
        assert may_write(path)
    assert len({*digests}) == 1
    assert not digested
    monkeypatch.undo()
    path.write_bytes(small_model().SerializeToString() + b" ")
    with pytest.raises(InvalidModelError, match="changed since it was compiled"):
        source.graph((SHAPE,), Clock())


@pytest.mark.parametrize("any_size", [False, True], ids=["one size", "any size"])
def test_a_compiled_network_keeps_no_file(
    disk: Path, small_network: SmallNetwork, monkeypatch: pytest.MonkeyPatch, any_size: bool
) -> None:
    """When ``compile`` is done with a model its file is its owner's again; the network needs it no more."""
    monkeypatch.setattr(held, "LEAST", 1)
    files: list[HeldFile] = []
    opened = held._mapped

    def mapped(descriptor: int) -> HeldFile:
        files.append(opened(descriptor))
        return files[-1]

    monkeypatch.setattr(held, "_mapped", mapped)
    path = disk / "small.onnx"
    shutil.copyfile(small_network.path, path)
    shapes = None if any_size else {"x": SHAPE}
    with small_network.replayed():
        network = opbuild.compile(path, cache_path=disk / "cache", input_shapes=shapes)
        assert len(files) == 1
        assert may_write(path)
        path.write_bytes(b"")
        np.testing.assert_array_equal(network(small_network.x), small_network.y)


def test_a_lowered_graph_goes_with_its_last_user() -> None:
    """No cycle keeps weights until Python looks for cycles: they are most of what a build has in memory."""
    proto = small_model()
    graph = optimize(load_model(proto).bind({"x": SHAPE}, evaluate), evaluate)
    weights = weakref.ref(graph.constants["w"])
    gc.disable()
    try:
        program = lower(graph, parse_level("x86-64-linux-avx-avx2-f16c-fma-sse41"))
        packed = [buffer.pack() for buffer in program.buffers if buffer.pack is not None]
        assert packed
        del graph, program
        assert weights() is None
    finally:
        gc.enable()


def test_a_model_that_cannot_be_built_is_released(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the error, and with it all that was being done, is still there."""
    monkeypatch.setattr(held, "LEAST", 1)
    path, _ = write(disk)
    with pytest.raises(InvalidModelError) as caught:
        opbuild.compile(path, cache_path=disk / "cache")
    assert may_write(path)
    assert "is not an ONNX model" in str(caught.value)


def test_a_model_that_nobody_releases_is_read(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks only what it is, or builds it for a file, keeps no writer waiting."""
    monkeypatch.setattr(held, "LEAST", 1)
    path = disk / "small.onnx"
    path.write_bytes(small_model().SerializeToString())
    memory = ModelMemory(disk / "meta", PRIVATE, reads=True, writes=True, keeps_times=False)
    source = open_model(path, memory)
    assert may_write(path)
    assert source.declaration.name == "small"
    assert not source.edited


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_or_damaged_file_is_what_its_bytes_are(disk: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """From a map come the same error, or the same graph with the same weights, as from bytes in memory."""
    monkeypatch.setattr(held, "LEAST", 1)
    draw = np.random.default_rng(seed)
    whole = small_model().SerializeToString()
    memory = ModelMemory(disk / "meta", PRIVATE, reads=False, writes=False, keeps_times=False)
    for number in range(10):
        damaged = bytearray(whole[: int(draw.integers(1, len(whole) + 1))])
        if number % 2:
            damaged[int(draw.integers(min(len(damaged), 200)))] ^= 1 << int(draw.integers(8))
        path = disk / f"{number}.onnx"
        path.write_bytes(damaged)
        assert of_source(open_model(path, memory, releases=True)) == of_source(open_model(bytes(damaged), memory))


def of_source(source: ModelSource) -> object:
    """Return the facts of a model: its digest, ports and weights, or the kind of error that it gives."""
    try:
        names = [name for name, *_ in source.declaration.inputs]
        graph = source.graph((SHAPE,) * len(names), Clock())
        weights = {name: array.tobytes() for name, array in graph.constants.items()}
        return source.digest, names, [node.op_type for node in graph.nodes], weights
    except ModelError as error:
        return type(error)
    finally:
        source.release()
