"""A build that takes a moment: a compile server without a process, which answers with objects compiled before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.builder import build
from opbuild.kernel.key import Key
from opbuild.platform.digest import blake3_of_file
from support.samples import delivered


@lru_cache(maxsize=8)
def compiled_there(folder: Path) -> dict[str, Path]:
    """Return by the symbol that each operator is compiled with what describes it in a cache's folders."""
    keys = {path: json.loads(path.read_bytes())["key"] for path in folder.glob("*_meta/*.info")}
    return {Key(key["components"], key["sha256"]).symbol: path for path, key in keys.items()}


class ReplayServer:
    """Stands in for ``CompileServer``; takes its objects from a cache's folders.

    Args:
        folder: ``rank_0`` of a cache in which everything that will be asked for was built.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[tuple[dict[str, Any], bytes]] = []
        self.worked = True
        self.alive = True
        self.kind: object = None

    def send(self, header: dict[str, Any]) -> None:
        """Take a request and keep its answer."""
        path = compiled_there(self._folder)[header["symbol"]]
        pipeline = json.loads(path.with_suffix(".json").read_bytes())["pipeline"]
        self._waiting.append(({"kind": "started", "id": header["id"]}, b""))
        self._waiting.append(delivered(header, path.with_suffix(".o").read_bytes(), pipeline))

    def receive(self, timeout: float | None = None) -> list[tuple[dict[str, Any], bytes]]:
        """Return the answers kept."""
        messages, self._waiting = self._waiting, []
        return messages

    def close(self) -> None:
        """End nothing."""
        self.alive = False


class ReplayServers:
    """Stands in for ``Resting``: where builders get their compile servers from, and give them back to.

    Args:
        folder: What each server answers from.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, *_: Any) -> ReplayServer:
        """Return a new server."""
        return ReplayServer(self._folder)

    def keep(self, server: ReplayServer) -> None:
        """Keep none."""
        server.close()


@contextmanager
def replayed_compiles(folder: Path) -> Iterator[None]:
    """Answer all compiles of this process from a cache's ``rank_0`` folder; digests of sources are taken once."""
    sources = lru_cache(HalideCompiler().sources_digest)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(build, "IDLE_SERVER", ReplayServers(folder)))
        stack.enter_context(mock.patch.object(HalideCompiler, "sources_digest", lambda _, desc: sources(desc)))
        stack.enter_context(mock.patch("opbuild.kernel.identity.blake3_of_file", lru_cache(blake3_of_file)))
        yield
