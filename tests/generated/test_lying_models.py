"""Offline models that lie under digests that fit, for both readers: C's under the address and undefined-behaviour sanitizers.

Each field of each record of C's tables is changed, alone and with others, and Python's plan says the same lie. What one
reader refuses, the other refuses; what both run gives the same bits. The suite tries some; ``OPBUILD_FUZZ=20000`` so many.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzzing import CAMPAIGN, INPUTS, Change, changed_json, fuzz
from fuzzing import SEED as FIRST_SEED
from generated.lying_tables import Malformed, Tables, drawn, lies, plan_of
from opbuild import native
from opbuild.errors import OpbuildError, RunError
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.host import host_level
from opbuild.offline.file import PackedWeights, read_offline, write_offline
from opbuild.offline.format import ABOUT, GRAPH, LIBRARY, MACHINE, PLAN, PROGRAM, WEIGHTS
from opbuild.offline.format import Section, open_container, write_container
from opbuild.offline.load import load
from opbuild.platform.digest import blake3_of
from opbuild.program import Port, View
from opbuild.runtime import blocks
from opbuild.runtime.record import KernelStep, Places, Record, Steps, Storage, Storages
from opbuild.runtime.reused import ReusedMemory, Wanted
from seeds import try_seeds

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

NATIVE = Path(native.__file__).parent
HERE = Path(__file__).parent
FLAGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{NATIVE}"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
LARGEST = 2**28
"""Bytes that either reader gets of one piece."""
OPTIONS = f"allocator_may_return_null=1:max_allocation_size_mb={LARGEST >> 20}:abort_on_error=0"
COPY, ONLY_OPEN, OVERWRITE, REFUSED = 2, 256, 512, 3

KERNELS = {"add__kernel0": (3, 1), "both__kernel0": (3, 2), "pick__kernel0": (3, 1)}
KERNELS |= {"opbuild_indices": (2, 0), "opbuild_places": (2, 0)}
"""How many arguments each takes and writes. Who says otherwise says what code does, which no reader can look at."""

Sections = dict[tuple[int, int], bytes]


# -- the programs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reader:
    """The reader in C, under sanitizers, and the library of kernels."""

    process: subprocess.Popen[bytes]
    kernels: bytes

    def run(self, model: Path, flags: int) -> tuple[bool, str, bytes]:
        """Return whether a model was run, what was said, and its outputs; a process that did not end well is an error."""
        ask, answer = self.process.stdin, self.process.stdout
        assert ask is not None
        assert answer is not None
        os.write(ask.fileno(), f"{flags} {model}\n".encode())
        code, _, path = os.read(answer.fileno(), 4096).decode().rstrip().partition(" ")
        assert path == str(model), "the programs are at odds"
        said = Path(f"{model}.said").read_text(errors="replace")
        if int(code) not in (0, REFUSED):
            raise Crash(f"ended with {code}: {said[-3000:]}")
        return code == "0", said.strip(), Path(f"{model}.out").read_bytes() if code == "0" else b""


class Crash(Exception):  # noqa: N818 - it is what the test looks for
    """The reader in C did not end well."""


def _compiled(*arguments: str) -> None:
    done = subprocess.run(["cc", *FLAGS, *arguments], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The programs, compiled, and the first one started: workers may use too little memory for sanitizers."""
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("reader")
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    empty = ["cc", *SANITIZERS, str(folder / "empty.c"), "-o", str(folder / "empty")]
    if any(subprocess.run(each, check=False, capture_output=True).returncode for each in (empty, [str(folder / "empty")])):
        pytest.skip("the C compiler has no sanitizers that run here")
    sources = [str(HERE / "lying_calls.c"), *map(str, sorted(NATIVE.glob("*.c")))]
    _compiled(*SANITIZERS, *sources, "-o", str(folder / "calls"), "-ldl", "-lpthread", "-lm")
    kernels = [str(HERE / "lying_kernels.c"), str(NATIVE / "support" / "indices.c")]
    _compiled("-shared", "-fPIC", '-DSOURCE_DIGEST="test"', *kernels, "-o", str(folder / "kernels.so"))
    environment = {**os.environ, "ASAN_OPTIONS": OPTIONS, "UBSAN_OPTIONS": "print_stacktrace=1"}
    pipe = subprocess.PIPE
    with subprocess.Popen([str(folder / "calls")], stdin=pipe, stdout=pipe, env=environment) as process:
        yield Reader(process, (folder / "kernels.so").read_bytes())


# -- a model with everything that tables can say ----------------------------------------------------------------------


def record_of(rows: int, constants: Places) -> Record:
    """A record with every kind of buffer, strides of all signs, a kernel of two results, and indices that are looked at."""
    size, wide = 6 * rows, 8 * rows
    buffers = [
        Storage("input", "float32", size, 0), Storage("input", "int64", 3, 1), Storage("constant", "float32", 16, 0),
        Storage("temporary", "float32", wide, 0), Storage("temporary", "float32", size, 64 * rows),
        Storage("temporary", "float32", size, 128 * rows), Storage("output", "float32", size, 0),
        Storage("output", "float32", 3, 1),
    ]  # fmt: skip
    each, padded = ((6, 1), (rows, 6)), ((6, 1), (rows, 8))
    three, looked = View(1, 0, ((3, 1),)), View(3, 0, ((4, 1),))
    flat = View(4, 0, ((size, 1),))
    steps = [
        KernelStep("add__kernel0", (View(0, 0, each), View(2, 4, ((6, 1), (rows, 0))), View(3, 0, padded)), ("a",),
                   work=5000),
        KernelStep("both__kernel0", (View(3, 0, padded), View(4, 0, each), View(5, 0, each)), ("b", "c"), writes=2),
        KernelStep("opbuild_indices", (three, looked), ("d",), writes=0),
        KernelStep("pick__kernel0", (looked, three, View(7, 0, ((3, 1),))), ("d",), ("uint32", "int64", "uint32")),
        KernelStep("add__kernel0", (flat, View(5, size - 1, ((size, -1),)), View(6, 0, ((size, 1),))), ("e",)),
    ]  # fmt: skip
    x, places = (Port("x", TensorType("float32", (rows, 6)), 0), Port("places", TensorType("int64", (3,)), 1))
    y, z = (Port("y", TensorType("float32", (rows, 6)), 6), Port("z", TensorType("float32", (3,)), 7))
    arena, notes = 192 * rows, {"operators": [], "lowering": {}}
    return Record("lies", Storages.of(buffers), Steps.of(steps), (x, places), (y, z), arena, constants, notes,
                  zeroed=arena)  # fmt: skip


def sections_of(path: Path) -> Sections:
    """Return a file's sections, by kind and index."""
    container = open_container(path)
    return {place: container.section(*place).tobytes() for place in container.places}


@pytest.fixture(scope="module")
def sound(reader: Reader, tmp_path_factory: pytest.TempPathFactory) -> Sections:
    """A model of two signatures."""
    path, weights = tmp_path_factory.mktemp("sound") / "sound.om", PackedWeights()
    constants = weights.place([np.arange(16, dtype=np.float32).view(np.uint8)])
    records = [record_of(rows, constants) for rows in (1, 2)]
    write_offline(path, name="lies", level=host_level(), records=records, library=reader.kernels, weights=weights,
                  build={"model": "m", "operators": []})  # fmt: skip
    return sections_of(path)


@pytest.fixture(autouse=True)
def _like_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give Python's reader what C's has: outputs that are zero before, and no large memory."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(ReusedMemory, "take", _zeros)
    ample = blocks.new_memory

    def little(nbytes: int, what: str) -> Array:
        if nbytes > LARGEST:
            raise RunError("there is no memory", "")
        return ample(nbytes, what)

    monkeypatch.setattr(blocks, "new_memory", little)


def _zeros(_: ReusedMemory, arrays: Sequence[Wanted]) -> list[Array]:
    if any(int(np.prod(shape, dtype=object)) * dtype.itemsize > LARGEST for shape, dtype, _ in arrays):
        raise RunError("there is no memory", "")
    return [np.zeros(shape, dtype) for shape, dtype, _ in arrays]


# -- both readers -----------------------------------------------------------------------------------------------------


def write(path: Path, sections: Mapping[tuple[int, int], bytes]) -> None:
    """Write a file whose digests fit."""
    write_container(path, [Section(*place, [content]) for place, content in sections.items()])


def feeds(types: Sequence[TensorType], call: int) -> list[Array]:
    """Return what ``lying_calls.c`` gives: small numbers."""
    found = []
    for index, type_ in enumerate(types):
        if type_.nbytes > LARGEST:
            raise RunError("there is no memory", "")
        array = np.zeros(type_.nbytes, np.uint8)
        item = type_.nbytes // type_.size if type_.size else 1
        array[::item] = (np.arange(type_.size) * 5 + index + call) % 4
        from opbuild.dtypes import numpy_dtype

        found.append(array.view(numpy_dtype(type_.dtype)).reshape(type_.shape))
    return found


def run_in_python(path: Path, copies: bool, *, only_open: bool = False) -> list[bytes] | None:
    """Return each signature's outputs of two calls, or None if the model or a call is refused."""
    try:
        model = read_offline(path)
        records = [model.record(index) for index in range(len(model.signatures))]
        for record in records:
            model.constants(record)
        if only_open:
            return []
        network = load(path, num_threads=1, copy_weights=copies)
        outputs = []
        for record in records:
            types = [port.type for port in record.inputs]
            calls = [network(*feeds(types, call)) for call in range(2)]
            arrays = [each for result in calls for each in (result if isinstance(result, tuple) else (result,))]
            outputs.append(b"".join(array.tobytes() for array in arrays))
    except OpbuildError:
        return None
    return outputs


def compared(reader: Reader, path: Path, *, copies: bool, only_open: bool = False) -> tuple[str, str]:
    """Return what became of a model in both readers."""
    try:
        ran, said, found = reader.run(path, copies * COPY + only_open * ONLY_OPEN)
    except Crash as crash:
        return "crash", str(crash)
    expected = run_in_python(path, copies, only_open=only_open)
    if (expected is not None) != ran:
        return "wrong", f"C {'runs it' if ran else 'refuses it'}, Python does not: {said}"
    if expected is None:
        return "both refuse", ""
    if only_open:
        return "both open", ""
    return ("both run", "") if _same(path, expected, found) else ("wrong", "the numbers differ")


def _same(path: Path, expected: Sequence[bytes], found: bytes) -> bool:
    """Return whether both gave the same; of two signatures of the same shapes Python takes the first."""
    signatures = read_offline(path).signatures
    for shapes, each in zip(signatures, expected, strict=True):
        own, found = found[: len(each)], found[len(each) :]
        if own != each and signatures.index(shapes) == signatures.index(shapes, signatures.index(shapes)):
            return False
    return not found


def with_tables(sections: Sections, tables: Sequence[Tables]) -> Sections:
    """Return sections with other tables, and what Python reads with the same lies.

    Raises:
        Malformed: If no plan can say them.
    """
    plans = [plan_of(each) for each in tables]
    about = json.loads(sections[ABOUT, 0])
    about["inputs"] = [[name, dtype] for name, (dtype, _), _ in plans[0]["inputs"]]
    about["outputs"] = [name for name, *_ in plans[0]["outputs"]]
    about["signatures"] = [[shape for _, (_, shape), _ in plan["inputs"]] for plan in plans]
    told = {(PLAN, index): json.dumps(plan).encode() for index, plan in enumerate(plans)}
    return {**sections, **_programs(tables), **told, (ABOUT, 0): json.dumps(about).encode()}


def _programs(tables: Sequence[Tables]) -> Sections:
    return {(PROGRAM, index): each.write() for index, each in enumerate(tables)}


def may_run(tables: Sequence[Tables]) -> bool:
    """Return whether each kernel is called with as many arguments as it has."""
    steps = [(each, row) for each in tables for row in each.rows["steps"].tolist()]
    return all(KERNELS.get(each.string(row[0]), (row[2], row[5])) == (row[2], row[5]) for each, row in steps)


def test_tables_say_what_plans_say(reader: Reader, sound: Sections, tmp_path: Path) -> None:
    """The test's own way from tables to plans keeps the model: without lies both readers run it, and give the same."""
    tables = [Tables.read(sound[PROGRAM, index]) for index in range(2)]
    assert _programs(tables) == {(PROGRAM, index): sound[PROGRAM, index] for index in range(2)}
    write(tmp_path / "own.om", sound)
    write(tmp_path / "same.om", with_tables(sound, tables))
    for copies in (False, True):
        assert compared(reader, tmp_path / "own.om", copies=copies) == ("both run", "")
        assert compared(reader, tmp_path / "same.om", copies=copies) == ("both run", "")


def test_both_readers_refuse_the_same_tables(reader: Reader, sound: Sections, tmp_path: Path) -> None:
    """Every field of every record set to what it can not be, alone or with others; nothing is read or written beside."""
    base = [Tables.read(sound[PROGRAM, index]) for index in range(2)]
    singles = [(index, lie) for index, tables in enumerate(base) for lie in lies(tables)]
    singles = [singles[place] for place in np.random.default_rng(0).permutation(len(singles))]

    def one(seed: int) -> tuple[str, str]:
        path = tmp_path / f"{os.getpid()}.om"
        changed, told = drawn(seed, base, singles)
        try:
            written = [Tables.read(each.write()) for each in changed]
            sections = with_tables(sound, written)
        except Malformed as why:
            write(path, {**sound, **_programs(changed)})
            try:
                ran, _, _ = reader.run(path, ONLY_OPEN)
            except Crash as crash:
                return "crash", f"{told}: {crash}"
            return ("wrong", f"{told}: C opens tables with {why}") if ran else ("C refuses what no plan can say", "")
        write(path, sections)
        outcome, said = compared(reader, path, copies=bool(seed % 3), only_open=not may_run(written))
        return outcome, f"{told}: {said}" if said else ""

    tally = try_seeds("lying tables", one, range(FIRST_SEED, FIRST_SEED + INPUTS))
    assert not tally.faults, tally.faults[0]
    assert min(tally.outcomes["both refuse"], tally.outcomes["both run"]) > INPUTS // 50
