"""A compiler that writes what nobody expects where the processes that compile talk to each other."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
from pathlib import Path

from opbuild.builder.wire import pack
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Level
from support.fake_compiler import FakeCompiler
from support.fuzzing import HOSTILE, changed, changed_json


class HostileCompiler(FakeCompiler):
    """The fake compiler; with ``variant["seed"]`` it writes something, and ends or goes on as if nothing were.

    ``variant["where"]`` says into which pipes: ``own``, that of its object, or ``all``, the server's too.
    """

    import_string = "support.hostile_compiler:HostileCompiler"

    def compile(self, desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Write something, if that is asked for."""
        if "seed" in desc.variant:
            draw = random.Random(desc.variant["seed"])
            pipes = _pipes()
            for pipe in pipes[-1:] if desc.variant["where"] == "own" else pipes:
                for _ in range(draw.randint(1, 3)):
                    with contextlib.suppress(OSError):
                        os.write(pipe, _said(draw))
            if draw.random() < 0.5:
                os._exit(draw.randrange(2))
        return super().compile(desc, symbol, level)


def _pipes() -> list[int]:
    """Return the pipes that can be written to, the newest last."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  numbers
        with contextlib.suppress(OSError):
            number = int(name)
            is_pipe = str(Path(f"/proc/self/fd/{number}").readlink()).startswith("pipe:")
            if is_pipe and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY:
                found.append(number)
    return sorted(found)


def _said(draw: random.Random) -> bytes:
    messages = [
        ({"kind": "done", "id": 0, "milliseconds": 1.0, "changed": "", "files": [[".o", 3]]}, b"abc"),
        ({"kind": "object", "files": [[".o", 3]]}, b"abc"),
        ({"kind": "failed", "id": 0, "step": "compile", "text": "x"}, b""),
        ({"kind": "error", "step": "compile", "text": "x"}, b""),
        ({"kind": "started", "id": 1}, b""),
    ]
    header, payload = draw.choice(messages)
    changes = [(draw.randint(0, 7), draw.randint(0, 2**16), draw.randint(0, 255)) for _ in range(draw.randint(0, 3))]
    kind = draw.randrange(4)
    if kind == 0:
        return pack({**header, "id": draw.choice(HOSTILE)}, payload)
    if kind == 1:
        header = changed_json(header, changes)
        return pack(header, payload)
    if kind == 2:
        return b'\x88\x13\x00\x00\x00\x00\x00\x00{"id": ' + b"9" * 4992 + b"}"
    return changed(pack(header, payload), changes)
