"""Tasks: operators to compile as plain data, for a process on this host or another that is given them by an executor.

    batch    {"compiler": "module:Class", "digest", "requests": [...]}: the digest of the compiler's bytes, and requests
                 as the compile server takes them
    answer   {"where", "refused"}, or {"where", "answers": [[header, files, sha256], ...]}: headers and files as the
                 compile server answers, and the digest of the files

Whoever gets a batch compiles it with what is installed there, in a fork an operator as everywhere, and refuses it if
that is another compiler or other sources than the keys say: so its objects are byte for byte what the asking host would
have made. Executors pickle the function by its name and lists, texts, numbers and bytes, nothing else of opbuild.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from opbuild.builder.client import CompileServer, ServerEndedError
from opbuild.builder.idle_server import IDLE_SERVER
from opbuild.builder.server import load_compiler
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.kernel.identity import FilesState, files_digest, files_state
from opbuild.kernel.interfaces import Compiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.paths import Path


class RefusedError(Exception):
    """This process cannot compile what the keys say; the text is why."""


def compile_batch(batch: Mapping[str, Any]) -> dict[str, Any]:
    """Compile a batch and return the answer; see above for both. It raises nothing."""
    where = f"process {os.getpid()} on {os.uname().nodename}"
    try:
        answers = _compiled(batch)
    except (RefusedError, ServerEndedError) as error:
        return {"where": where, "refused": str(error)}
    except (OpbuildError, OSError, ImportError, AttributeError, ValueError, LookupError, TypeError) as error:
        return {"where": where, "refused": f"{type(error).__name__}: {error}"}
    return {"where": where, "answers": [[header, files, sha256(files)] for header, files in answers]}


def _compiled(batch: Mapping[str, Any]) -> list[tuple[dict[str, Any], bytes]]:
    """Return the compile server's last word on each request.

    Raises:
        RefusedError: If another compiler or other sources are installed here.
        ServerEndedError: If the compile server ended.
    """
    compiler, requests = load_compiler(batch["compiler"]), batch["requests"]
    state = files_state(compiler.files())
    if not state:
        raise RefusedError(f"{compiler.name} is not installed")
    if _digest(state) != batch["digest"]:
        raise RefusedError(f"it has another {compiler.name}, of release {compiler.version()}")
    _check_sources(compiler, requests)
    server = IDLE_SERVER.start(compiler.import_string, Config.from_environment().workers, state)
    try:
        for request in requests:
            server.send(request)
        answers = _answers(server, len(requests))
    except BaseException:
        server.close()
        raise
    IDLE_SERVER.keep(server)
    return answers


@lru_cache(maxsize=4)
def _digest(state: FilesState) -> str:
    """Return the digest of a compiler's bytes, read once for each state of its files."""
    return files_digest([Path(str(path)) for path, *_ in state], None)


def _check_sources(compiler: Compiler, requests: Sequence[Mapping[str, Any]]) -> None:
    for request in requests:
        if compiler.sources_digest(OpDesc.from_components(request["desc"])) != request["sources"]:
            raise RefusedError("it has other sources of opbuild, or another release")


def _answers(server: CompileServer, count: int) -> list[tuple[dict[str, Any], bytes]]:
    answers: list[tuple[dict[str, Any], bytes]] = []
    while len(answers) < count:
        for header, files in server.receive():
            if header["kind"] == "fatal":
                raise RefusedError(f"the compiler cannot be loaded: {header['text']}")
            if header["kind"] in ("done", "failed"):
                if header.get("changed"):
                    raise RefusedError(f"its {header['changed']} changed while it compiled")
                answers.append((header, files))
    return answers
