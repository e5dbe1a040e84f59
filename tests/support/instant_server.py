"""A compile server that answers at once, so that hundreds of builds take seconds."""

from __future__ import annotations

from typing import cast

from opbuild.builder.client import CompileServer, IdleServer
from opbuild.kernel.identity import FilesState
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from support.fake_compiler import fake_object
from support.samples import delivered


class InstantServer:
    """See the module. It notices who uses it once it is closed."""

    kind: object = None
    worked = True
    compiler: FilesState = ()
    compiled: list[str] = []  # noqa: RUF012  shared on purpose: the builder makes the instances

    def __init__(self, import_string: str, workers: int) -> None:
        self.alive = True
        self.answers: list[tuple[dict[str, object], bytes]] = []

    def send(self, request: dict[str, object]) -> None:
        """Compile like the fake compiler does."""
        assert self.alive
        desc = OpDesc.from_components(request["desc"])  # type: ignore[arg-type]
        self.compiled.append(str(request["symbol"]))
        code = sha256(desc.canonical().encode()).encode()
        self.answers.append(delivered(request, fake_object(code, (str(request["symbol"]),))))

    def receive(self, timeout: float | None = None) -> list[tuple[dict[str, object], bytes]]:
        """Return all answers."""
        answers, self.answers = self.answers, []
        return answers

    def close(self) -> None:
        """End it."""
        self.alive = False

    def set_idle(self, *, idle: bool) -> None:
        """Rest, or do not."""
        assert self.alive


class NoneRests(IdleServer):
    """Starts a server in this process for each build."""

    def start(self, import_string: str, workers: int, _compiler: FilesState) -> CompileServer:
        """Return a new one."""
        return cast("CompileServer", InstantServer(import_string, workers))

    def keep(self, server: CompileServer) -> None:
        """End it."""
        server.close()
