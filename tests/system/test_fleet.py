"""A fleet: hosts that share only a remote store build each operator once, and a warmed fleet builds nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.builder import queue
from opbuild.builder.build import Builder
from opbuild.builder.job import BuildResult
from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.events import CompileFinished, Warned
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import Remote
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.blobs import Data, Memory
from opbuild.store.claims import FolderClaims
from opbuild.store.operators import Operators
from opbuild.store.remote.failures import SLOW
from opbuild.store.remote.leases import FleetClaims
from opbuild.store.remote.objects import NETWORKS
from opbuild.store.remote.shared_folder import SharedFolder
from opbuild.store.tiers import TieredStore
from support.crowded_compiler import CrowdedCompiler
from support.remote_servers import redis_server, service
from support.samples import LEVEL, Recorder, conv, needed
from support.small_network import SHAPE, SmallNetwork, make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

OPERATORS = 12


@contextmanager
def url_of(kind: str, folder: Path) -> Iterator[str]:
    """Give a remote store of a kind."""
    if kind == "file":
        yield (folder / "shared").as_uri()
    else:
        with redis_server() as (url, _):
            yield url


def host(number: int, url: str, folder: Path) -> tuple[Builder, Remote]:
    """Return a builder as of a host of its own: with nothing stored, and only the remote store in common."""
    remote = Remote(service(url), PRIVATE, lambda text: None, writes=True, rank=number)
    store = TieredStore(Operators(Memory()), [remote.operators], remote.offer_operator)
    claims = FleetClaims(FolderClaims(folder / f"claims{number}"), remote.claims, remote.after_uploads)
    return Builder(store, CrowdedCompiler(), LEVEL, Config(workers=2), Recorder(), claims=claims), remote


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "redis"])
def test_hosts_that_start_cold_together_build_each_operator_once(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the service writes only new objects exactly once; else a few are built twice. All have the same objects."""
    monkeypatch.setattr(queue, "A_LITTLE", 60.0)  # on a busy machine the others take their time
    (tmp_path / "ops").mkdir()
    wanted = needed(*(conv(tile, folder=str(tmp_path / "ops"), milliseconds=20) for tile in range(OPERATORS)))
    results: list[BuildResult] = []
    with url_of(kind, tmp_path) as url:
        hosts = [host(number, url, tmp_path) for number in range(3)]

        def build(builder: Builder, remote: Remote) -> None:
            with builder:
                results.append(builder.build(wanted, "net"))
            remote.wait_for_uploads()

        threads = [threading.Thread(target=build, args=each) for each in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = service(url).names("opbuild/") if kind == "file" else ()
    compiled = len((tmp_path / "ops" / "seen").read_text().split())
    assert compiled == sum(result.built for result in results)
    assert OPERATORS <= compiled <= OPERATORS + (0 if kind == "file" else OPERATORS // 2)
    assert sum(result.shared for result in results) == 3 * OPERATORS - compiled
    objects = [[entry.object for entry in result.entries.values()] for result in results]
    assert objects[0] == objects[1] == objects[2]
    assert not any("claims" in name for name in left)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network of two operators."""
    return make_small_network(tmp_path_factory.mktemp("small"))


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let each write to a remote store take so many seconds, none of which pass here."""
    write = SharedFolder.write

    def write_in(seconds: float) -> None:
        def slow(self: SharedFolder, path: str, data: Data, *, only_new: bool = False) -> Reason | None:
            late = Reason(SLOW, "no answer in time")
            return late if self._limit() < seconds else write(self, path, data, only_new=only_new)

        monkeypatch.setattr(SharedFolder, "write", slow)

    return write_in


@pytest.mark.slow
def test_a_store_that_takes_seconds_to_write_is_warmed(
    small: SmallNetwork, tmp_path: Path, slow_disk: Callable[[float], None]
) -> None:
    """A disk that others write to takes longer than who builds may wait; uploads have the time: all is there."""
    shared = (tmp_path / "shared").as_uri()
    seen = Recorder()
    slow_disk(3.0)
    for opset in range(13, 21):  # networks of their own
        (model := onnx.load(small.path)).opset_import[0].version = opset
        onnx.save(model, tmp_path / small.path.name)
        paths = [tmp_path / small.path.name]
        opbuild.warm(paths, shapes={"x": SHAPE}, cache_path=tmp_path / "ci", remote=shared, observer=seen)
    assert not any(warned.not_sent for warned in seen.of(Warned))
    own = {path.stem for path in (tmp_path / "ci").rglob("small_*.so")}
    assert len(own) >= 3
    assert set(service(shared).names(NETWORKS)) == own


def test_warming_tells_what_a_store_did_not_take(
    small: SmallNetwork, tmp_path: Path, slow_disk: Callable[[float], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """A fleet that counts on it would build again: the command says how much is missing, and strictly fails."""
    slow_disk(60.0)
    shared = (tmp_path / "shared").as_uri()
    command = ["warm", str(small.path), "--shape", "x:3,256", "--cache_path", str(tmp_path / "ci"), "--remote", shared]
    assert main([*command, "--strict"]) != 0
    output = capsys.readouterr()
    told = " ".join((output.out + output.err).split())
    assert re.search(r"compiled, \d+ not sent in", told), told
    assert re.search(rf"\d+ objects were not written to the remote store {shared}: slow", told), told
    assert "built and not sent" in told
    assert "opbuild push" in told


POD = """
import json, sys
import numpy as np, opbuild
net = opbuild.compile(sys.argv[1], input_shapes={"x": (64, 256)}, forbid_compile=True)
np.save(sys.argv[2], net(np.load(sys.argv[3])))
print(net.report.image)
"""


def test_a_pod_with_an_empty_disk_starts_what_was_warmed(small: SmallNetwork, tmp_path: Path) -> None:
    """In a process of its own, forbidden to compile: from the image that warming has sent; others' sizes too."""
    shared = (tmp_path / "shared").as_uri()
    seen = Recorder()
    opbuild.warm([small.path], shapes={"x": SHAPE}, cache_path=tmp_path / "ci", remote=shared, observer=seen)
    assert len(seen.of(CompileFinished)) >= 2
    np.save(tmp_path / "x.npy", small.x)
    environment = {**os.environ, "OPBUILD_REMOTE": shared, "MS_COMPILER_CACHE_PATH": str(tmp_path / "pod")}
    command = [sys.executable, "-c", POD, str(small.path), str(tmp_path / "y.npy"), str(tmp_path / "x.npy")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), small.y)
    other: Any = opbuild.compile(
        small.path, input_shapes={"x": (5, 256)}, cache_path=tmp_path / "pod2", remote=shared, forbid_compile=True
    )
    np.testing.assert_allclose(other(small.x[:5]), small.y[:5], rtol=1e-5)
