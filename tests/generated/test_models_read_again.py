"""Models that are read again and again while their files are replaced: what is read is one version, or refused."""

from __future__ import annotations

import os
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.errors import InvalidModelError
from opbuild.frontend.models.memory import ModelMemory
from opbuild.frontend.models.source import ModelSource, open_model
from opbuild.graph.constants import array_digest
from opbuild.platform.files import held, writers
from opbuild.platform.files.trust import PRIVATE
from opbuild.report import Clock
from support.fuzzing import CAMPAIGN, SEED

EXT4 = 0xEF53
WIDTH = 48


def write(path: Path, value: float, *, external: bool) -> None:
    """Write a model ``x @ w``, whose weights are of one value, and rename its files over what is there."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in "xy")
    weights = numpy_helper.from_array(np.full((WIDTH, WIDTH), value, np.float32), "w")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "product", [x], [y], [weights])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder = path.parent / "new"
    folder.mkdir(exist_ok=True)
    onnx.save(
        proto, folder / path.name, save_as_external_data=external, location="data" if external else None,
        size_threshold=0,
    )  # fmt: skip
    for file in folder.iterdir():
        file.replace(path.parent / file.name)


def read(source: ModelSource) -> float | None:
    """Return the value of the weights that are read, of which the digest is theirs; None if they are refused."""
    try:
        weights = source.graph(((2, WIDTH),), Clock()).constants["w"]
    except InvalidModelError as error:
        if "changed since it was compiled" not in error.message:
            raise
        return None
    assert array_digest(weights) == array_digest(weights.copy())
    (value,) = {*weights.reshape(-1).tolist()}
    return float(value)


@pytest.mark.parametrize("external", [False, True], ids=["one file", "external data"])
@pytest.mark.parametrize("seed", range(SEED, SEED + (CAMPAIGN or 12)))
def test_what_is_read_again_is_of_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, external: bool
) -> None:
    """Whoever reads meanwhile, and whether the state of a file was believed or its bytes; no file stays held."""
    monkeypatch.setattr(held, "LEAST", 1)
    monkeypatch.setattr(writers, "_file_system", lambda descriptor: EXT4)
    draw, path, version = np.random.default_rng(seed), tmp_path / "model.onnx", 1
    write(path, 1, external=external)
    memory = ModelMemory(tmp_path / "meta", PRIVATE, reads=bool(seed % 2), writes=True, keeps_times=False)
    source = open_model(path, memory, releases=True)
    source.fix()
    source.keeps = bool(draw.random() < 0.3)
    if source._known is not None:  # as if the file had been written long ago
        source._known = source._known._replace(lasts=bool(draw.random() < 0.7))
    with ExitStack() as readers:
        for _ in range(8):
            what = draw.choice(["read", "read", "replace", "begin", "release", "forget"])
            if what == "read":
                with source.reading():
                    assert read(source) in ([1] if version == 1 else [1, None])
            elif what == "replace":
                version = int(draw.integers(1, 3))
                write(path, version, external=external)
            elif what == "begin":
                readers.enter_context(source.reading())
            else:
                getattr(source, str(what))()
    source.release()
    for file in (path, *([tmp_path / "data"] if external else [])):
        os.close(os.open(file, os.O_WRONLY | os.O_NONBLOCK))


def test_a_file_is_not_let_go_of_while_another_thread_begins_to_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who finds that nobody reads lets go first; what is held then is the reader's."""
    path, done = tmp_path / "model.onnx", list[str]()
    write(path, 1, external=False)
    memory = ModelMemory(tmp_path / "meta", PRIVATE, reads=False, writes=False, keeps_times=False)
    source = open_model(path, memory, releases=True)
    release = held.HeldFile.release

    def released(file: held.HeldFile) -> None:
        release(file)
        done.append("released")

    def read_on() -> None:
        with source.reading():
            done.append("reads")
            assert read(source) == 1

    def uncertain(_: object) -> bool:
        if not done and not reader.is_alive():
            reader.start()
            time.sleep(0.05)
        return False

    reader = threading.Thread(target=read_on)
    monkeypatch.setattr(held.HeldFile, "release", released)
    monkeypatch.setattr(type(source), "_is_uncertain", property(uncertain))
    source.release()
    reader.join()
    assert done[:2] == ["released", "reads"]
