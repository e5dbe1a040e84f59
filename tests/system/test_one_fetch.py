"""All processes and ranks of a host ask the remote store once for what several of them lack."""

from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from support.remote_servers import PATIENTLY, answering
from support.small_network import SHAPE, small_model

pytestmark = pytest.mark.usefixtures("kept_objects")

RANKS = 4

TOGETHER = (
    PATIENTLY
    + """
import json, os, pathlib, sys, time
import numpy as np, opbuild

def meet():  # all ranks have come this far before any of them asks
    pathlib.Path("here" + os.environ["RANK_ID"]).touch()
    while len(list(pathlib.Path().glob("here*"))) < int(os.environ["RANK_SIZE"]):
        time.sleep(0.01)

meet()
net = opbuild.compile(sys.argv[1], forbid_compile=True)
y = net(np.load("x.npy"))
np.save("y" + os.environ["RANK_ID"], y)
print(net.report.image, sorted({each.reason for each in net.report.operators}))
"""
)


@contextmanager
def counting(folder: Path) -> Iterator[tuple[str, Counter[str]]]:
    """Serve a folder's files; give the URL, and how often each path was asked for."""
    asked: Counter[str] = Counter()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object, **named: object) -> None:
            super().__init__(*args, directory=str(folder), **named)  # type: ignore[arg-type]

        def log_request(self, code: object = "-", size: object = "-") -> None:
            asked[f"{self.command} {self.path}"] += 1

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with answering(Handler) as port:
        yield f"http://127.0.0.1:{port}", asked


@pytest.fixture(scope="module")
def warmed(patient: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, another with the same operators, and what warming the first one wrote."""
    folder = tmp_path_factory.mktemp("warmed")
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    onnx.save(model, folder / "model.onnx")
    model.graph.name = model.producer_name = "edited"
    onnx.save(model, folder / "edited.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPBUILD_PACK", "0")
        opbuild.warm([folder / "model.onnx"], cache_path=folder / "ci", remote=(folder / "shared").as_uri())
    return folder


def started(model: Path, remote: Path, folder: Path, ranks: int) -> tuple[Counter[str], set[str]]:
    """Start a network on empty disks; return what was asked for, and what the ranks said."""
    folder.mkdir()
    (folder / "script.py").write_text(TOGETHER)
    np.save(folder / "x.npy", np.linspace(-1, 1, SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE))
    own = {"OPBUILD_PACK": "0", "MS_COMPILER_CACHE_PATH": str(folder)}
    with counting(remote) as (url, asked):
        done = subprocess.run(
            [sys.executable, "-m", "opbuild", "launch", "-n", str(ranks), "script.py", str(model)],
            cwd=folder, env={**os.environ, **own, "OPBUILD_REMOTE": url},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = [line.split("] ", 1)[1] for line in done.stdout.splitlines()]
    assert len(said) == ranks
    results = [np.load(folder / f"y{rank}.npy") for rank in range(ranks)]
    assert all(np.array_equal(each, results[0]) for each in results)
    return asked, set(said)


@pytest.mark.slow
def test_ranks_fetch_a_network_once(warmed: Path, tmp_path: Path) -> None:
    """Four ranks cost the requests of one, and all of them start from the image."""
    model, shared = warmed / "model.onnx", warmed / "shared"
    alone, _ = started(model, shared, tmp_path / "alone", 1)
    asked, said = started(model, shared, tmp_path / "all", RANKS)
    assert all(line.startswith("True") for line in said), said
    assert alone
    assert asked == alone


@pytest.mark.slow
def test_ranks_fetch_operators_once(warmed: Path, tmp_path: Path) -> None:
    """A network that is not there, whose operators are; who comes later asks himself whether it is there by now."""
    model, shared = warmed / "edited.onnx", warmed / "shared"
    alone, _ = started(model, shared, tmp_path / "alone", 1)
    asked, said = started(model, shared, tmp_path / "all", RANKS)
    source = r"'taken from (the remote store|rank \d)'"
    assert all(re.fullmatch(rf"False \[{source}(, {source})*\]", line) for line in said), said
    operators = {path: times for path, times in alone.items() if "/operators/" in path}
    assert len(operators) >= 2
    assert {path: times for path, times in asked.items() if "/operators/" in path} == operators
    assert set(asked) == set(alone)
