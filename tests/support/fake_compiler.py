"""A compiler that delivers small made-up objects at once, for tests of everything around compiling.

``variant["fake"]`` of a descriptor says how a compile ends: ``crash``, ``raise``, ``hang``, ``empty``, ``garbage``,
``print``, ``orphan`` (leaves a process behind), ``runtime`` (the object calls the runtime library); anything else
succeeds. ``variant["until"]`` names a file without which no compile ends.
"""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Collection, Mapping

from opbuild.kernel.artifact import Artifact
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.paths import Path
from opbuild.target.level import Level


class FakeCompiler:
    """Compiles to objects that hold the descriptor's digest where code would be; equal descriptors give equal bytes."""

    import_string = "support.fake_compiler:FakeCompiler"
    name = "fake"

    def version(self) -> str:
        """Return a fixed release."""
        return "1.0"

    def library(self) -> Path | None:
        """Return this file: its bytes are the compiler."""
        return Path(__file__)

    def files(self) -> tuple[Path, ...]:
        """Return the library."""
        library = self.library()
        return () if library is None else (library,)

    def sources_digest(self, desc: OpDesc) -> str:
        """Return a digest that depends on the family alone."""
        return sha256(desc.family.encode())

    def prepare(self) -> None:
        """Load nothing."""

    def inspect(self, desc: OpDesc, symbol: str, level: Level, options: Collection[str]) -> Mapping[str, bytes]:
        """Return the object and made-up files for the options that have some."""
        files = {".o": self.compile(desc, symbol, level)}
        if "dump_cce" in options:
            files |= {".stmt": b"produce y {\n}\n", ".ll": b"; code\n"}
        if "ccec_g" in options:
            files[".s"] = b"# code\n"
        if "dump_compute" in options:
            files["_compute.json"] = desc.canonical().encode()
        return files

    def define(self, desc: OpDesc, level: Level) -> FakePipeline:
        """Return the pipeline: the descriptor, whatever the digest of its sources."""
        return FakePipeline(self, desc, level)

    def compile(self, desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Return an object that defines ``symbol``, after ``variant["milliseconds"]`` if given."""
        time.sleep(float(desc.variant.get("milliseconds", 0)) / 1e3)
        while (awaited := desc.variant.get("until")) and not Path(str(awaited)).exists():
            time.sleep(0.01)
        mode = desc.variant.get("fake", "")
        if mode == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif mode == "raise":
            raise ArithmeticError("this operator cannot be compiled")
        elif mode == "hang":
            time.sleep(3600)
        elif mode == "orphan":
            if os.fork() == 0:
                time.sleep(3600)
        elif mode == "print":
            os.write(1, b"the compiler says something\n" * 1000)
        if mode in ("empty", "garbage"):
            return b"" if mode == "empty" else b"not an object"
        code = sha256(f"{desc.canonical()} {level}".encode()).encode()
        needed = ("halide_do_par_for",) if mode == "runtime" else ()
        return fake_object(code, (symbol,) if desc.operands else ("halide_do_par_for",), needed)


class FakePipeline:
    """The pipeline of an operator.

    Args:
        compiler: What compiles it.
        desc: The operator.
        level: The level that the code is for.
    """

    def __init__(self, compiler: FakeCompiler, desc: OpDesc, level: Level) -> None:
        self._compiler, self._desc, self._level = compiler, desc, level
        self.digest = sha256(f"{desc.canonical()} {level}".encode())[:32]

    def compile(self, symbol: str) -> Artifact:
        """Return the object."""
        return Artifact(self._compiler.compile(self._desc, symbol, self._level), symbol)


def fake_object(code: bytes, defined: tuple[str, ...], undefined: tuple[str, ...] = ()) -> bytes:
    """Return a 64-bit relocatable ELF object.

    Args:
        code: Contents of its code section.
        defined: Global symbols that it defines, all at the start of the code.
        undefined: Global symbols that it expects from others.
    """
    names = b"\0"
    symbols = bytes(24)
    for name, section in [(name, 1) for name in defined] + [(name, 0) for name in undefined]:
        symbols += struct.pack("<IBBHQQ", len(names), 0x12, 0, section, 0, 0)
        names += name.encode() + b"\0"
    code += bytes(-len(code) % 8)
    start = 64
    table = start + len(code)
    strings = table + len(symbols)
    sections = strings + len(names) + (-len(names) % 8)
    header = b"\x7fELF\2\1\1" + bytes(9)
    header += struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, sections, 0, 64, 0, 0, 64, 4, 0)
    body = code + symbols + names + bytes(-len(names) % 8)
    layout = (
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 1, 6, 0, start, len(code), 0, 0, 8, 0),
        (0, 2, 0, 0, table, len(symbols), 3, 1, 8, 24),
        (0, 3, 0, 0, strings, len(names), 0, 0, 1, 0),
    )
    return header + body + b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in layout)
