"""The forked child of the compile server: compiles one operator, writes the object into a pipe, ends."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

from opbuild.builder.wire import pack, write_all
from opbuild.errors import OpbuildError
from opbuild.kernel.interfaces import Compiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.target import parse_target

_PR_SET_PDEATHSIG = 1


def run_child(compiler: Compiler, request: dict[str, Any], pipe: int, server: int) -> NoReturn:
    """Compile what ``request`` asks for, in a process just forked, and end the process.

    Args:
        compiler: The compiler, prepared.
        request: What to compile.
        pipe: Where the object or the error goes; its end marks the process's end, so it is never closed before.
        server: Process id of the server; this process ends with it.
    """
    try:
        os.setpgid(0, 0)
        _end_with(server)
        write_all(pipe, _compile(compiler, request))
    except BaseException:  # nothing may reach the server's own loop, which this process is a copy of
        os._exit(1)
    os._exit(0)


def _compile(compiler: Compiler, request: dict[str, Any]) -> bytes:
    try:
        desc = OpDesc.from_components(request["desc"])
        symbol, target = request["symbol"], parse_target(request["target"])
        if request["debug"]:
            files = dict(compiler.inspect(desc, symbol, target, request["debug"]))
        else:
            files = {".o": compiler.compile(desc, symbol, target)}
    except OpbuildError as error:
        return pack({"kind": "error", "step": "compile", "text": str(error)})
    except Exception as error:
        last = traceback.extract_tb(sys.exc_info()[2])[-1]
        text = f"{type(error).__name__}: {error} (at {Path(last.filename).name}:{last.lineno})"
        return pack({"kind": "error", "step": "compile", "text": text})
    if not isinstance(files[".o"], bytes):
        return pack({"kind": "error", "step": "compile", "text": f"the compiler returned {type(files['.o']).__name__}"})
    sizes = [[suffix, len(content)] for suffix, content in files.items()]
    return pack({"kind": "object", "files": sizes}, *files.values())


def _end_with(server: int) -> None:
    """Ask the kernel to end this process when the server does: a hung compile must not outlive a killed server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != server:
        os._exit(1)
