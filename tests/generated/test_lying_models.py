"""Offline models that lie under digests that fit, read by both readers, C's under sanitizers.

Each field of each record of C's tables is changed, alone and with others, and Python's plan says the same lie. What one
reader refuses, the other refuses; what both run gives the same bits. The suite tries some; ``OPBUILD_FUZZ=20000`` so
many.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from generated.lying_tables import Lie, Malformed, Tables, drawn, in_turn, number_of, plan_of, with_lie
from generated.sanitized import NATIVE, build, compiled
from opbuild.config import Config
from opbuild.dtypes import numpy_dtype
from opbuild.errors import OpbuildError, RunError
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import desc_from_text
from opbuild.offline.build import export
from opbuild.offline.file import PackedWeights, read_offline, write_offline
from opbuild.offline.format import _ENTRY as LINE
from opbuild.offline.format import _HEADER as HEADER
from opbuild.offline.format import (
    ABOUT,
    GRAPH,
    LIBRARY,
    MACHINE,
    PLAN,
    PROGRAM,
    VERSION,
    WEIGHTS,
    Section,
    open_container,
    write_container,
)
from opbuild.offline.load import load
from opbuild.platform.digest import blake3_of
from opbuild.program import Port, View
from opbuild.runtime import blocks
from opbuild.runtime.record import KernelStep, Places, Record, Steps, Storage, Storages
from opbuild.runtime.reused import MemoryRequest, ReusedMemory
from opbuild.target.host import host_level
from support.fuzzing import CAMPAIGN, INPUTS, Change, changed_json, check_seeds, fuzz, to_bytes
from support.tiers import spans

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

HERE = Path(__file__).parent
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
    """The reader in C, under sanitizers, and the library of kernels.

    Attributes:
        process: The reader, which serves all processes of a campaign.
        turn: A file that who asks has locked until it is answered.
        kernels: The library's bytes.
    """

    process: subprocess.Popen[bytes]
    turn: int
    kernels: bytes

    def run(self, model: Path, flags: int) -> tuple[bool, str, bytes]:
        """Return whether a model was run, what was said, and its outputs.

        Raises:
            Crash: If the process did not end well.
        """
        ask, answer = self.process.stdin, self.process.stdout
        assert ask is not None
        assert answer is not None
        fcntl.lockf(self.turn, fcntl.LOCK_EX)
        try:
            os.write(ask.fileno(), f"{flags} {model}\n".encode())
            code, _, path = os.read(answer.fileno(), 4096).decode().rstrip().partition(" ")
        finally:
            fcntl.lockf(self.turn, fcntl.LOCK_UN)
        assert path == str(model), "the programs are at odds"
        said = Path(f"{model}.said").read_text(errors="replace")
        if int(code) not in (0, REFUSED):
            raise Crash(f"ended with {code}: {said[-3000:]}")
        return code == "0", said.strip(), Path(f"{model}.out").read_bytes() if code == "0" else b""


class Crash(Exception):
    """The reader in C did not end well."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """The programs, compiled, and the first one started: workers may use too little memory for sanitizers."""
    folder = tmp_path_factory.mktemp("reader")
    program = compiled(folder / "calls", [HERE / "lying_calls.c", *sorted(NATIVE.glob("*.c"))])
    sources = [HERE / "lying_kernels.c", NATIVE / "support" / "indices.c"]
    build(folder / "kernels.so", sources, "-shared", "-fPIC", '-DSOURCE_DIGEST="test"')
    environment = {**os.environ, "ASAN_OPTIONS": OPTIONS, "UBSAN_OPTIONS": "print_stacktrace=1"}
    pipe = subprocess.PIPE
    with (
        (folder / "turn").open("wb") as turn,
        subprocess.Popen([str(program)], stdin=pipe, stdout=pipe, env=environment) as process,
    ):
        yield Reader(process, turn.fileno(), (folder / "kernels.so").read_bytes())


# -- a model with everything that tables can say ----------------------------------------------------------------------


def record_of(rows: int, constants: Places) -> Record:
    """A record with every kind of buffer, strides of all signs, a kernel of two results, and a check of indices."""
    size, wide = 6 * rows, 8 * rows
    buffers = [
        Storage("input", "float32", size, 0), Storage("input", "int64", 3, 1), Storage("constant", "float32", 16, 0),
        Storage("temporary", "float32", wide, 0), Storage("temporary", "float32", size, 64 * rows),
        Storage("temporary", "float32", size, 128 * rows), Storage("output", "float32", size, 0),
        Storage("output", "float32", 3, 1), Storage("input", "float32", size, 2),
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
        KernelStep("add__kernel0", (flat, View(8, size - 1, ((size, -1),)), View(6, 0, ((size, 1),))), ("e",)),
    ]  # fmt: skip
    x, v = (Port(name, TensorType("float32", (rows, 6)), buffer) for name, buffer in (("x", 0), ("v", 8)))
    places = Port("places", TensorType("int64", (3,)), 1)
    y, z = (Port("y", TensorType("float32", (rows, 6)), 6), Port("z", TensorType("float32", (3,)), 7))
    arena, notes = 192 * rows, {"operators": [], "lowering": {}}
    return Record("lies", Storages.of(buffers), Steps.of(steps), (x, places, v), (y, z), arena, constants, notes,
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


def _zeros(_: ReusedMemory, arrays: Sequence[MemoryRequest]) -> list[Array]:
    if any(int(np.prod(shape, dtype=object)) * dtype.itemsize > LARGEST for shape, dtype, _ in arrays):
        raise RunError("there is no memory", "")
    return [np.zeros(shape, dtype) for shape, dtype, _ in arrays]


# -- both readers -----------------------------------------------------------------------------------------------------


def write(path: Path, sections: Mapping[tuple[int, int], bytes]) -> None:
    """Write a file whose digests fit."""
    write_container(path, [Section(*place, [content]) for place, content in sections.items()])


def feeds(types: Sequence[TensorType], call: int) -> list[Array]:
    """Return the feeds of ``lying_calls.c``: small numbers."""
    found = []
    for index, type_ in enumerate(types):
        if type_.nbytes > LARGEST:
            raise RunError("there is no memory", "")
        array = np.zeros(type_.nbytes, np.uint8)
        item = type_.nbytes // type_.size if type_.size else 1
        array[::item] = (np.arange(type_.size) * 5 + index + call) % 4
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
    """Return the outcomes of a model in both readers."""
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


def may_run(tables: Sequence[Tables], kernels: Mapping[str, tuple[int, int]] = KERNELS) -> bool:
    """Return whether each kernel is called with as many arguments as it has."""
    steps = [(each, row) for each in tables for row in each.rows["steps"].tolist()]
    return all(kernels.get(each.string(row[0]), (row[2], row[5])) == (row[2], row[5]) for each, row in steps)


def test_tables_say_what_plans_say(reader: Reader, sound: Sections, tmp_path: Path) -> None:
    """The test's own way from tables to plans keeps the model: without lies both readers run it, and give the same."""
    tables = [Tables.read(sound[PROGRAM, index]) for index in range(2)]
    assert _programs(tables) == {(PROGRAM, index): sound[PROGRAM, index] for index in range(2)}
    write(tmp_path / "own.om", sound)
    write(tmp_path / "same.om", with_tables(sound, tables))
    for copies in (False, True):
        assert compared(reader, tmp_path / "own.om", copies=copies) == ("both run", "")
        assert compared(reader, tmp_path / "same.om", copies=copies) == ("both run", "")


@pytest.mark.parametrize("seeds", spans(INPUTS, 40))
def test_both_readers_refuse_the_same_tables(seeds: range, reader: Reader, sound: Sections, tmp_path: Path) -> None:
    """Every field of every record set to what it cannot be, alone or with others: no access is out of bounds."""
    base = [Tables.read(sound[PROGRAM, index]) for index in range(2)]
    singles = in_turn(base)

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

    tally = check_seeds("lying tables", one, seeds)
    assert min(tally.outcomes["both refuse"], tally.outcomes["both run"]) > len(seeds) // 50


RULES: dict[str, list[tuple[int, Lie]]] = {
    "the shape of an input or output is not there": [(0, ("set", "ports", 0, "rank", 2**31))],
    "an input or output has too many elements": [(0, ("set", "extents", 0, "extent", 2**31 - 1))],
    "an input or output names what is not there": [(0, ("set", "ports", 0, "buffer", 2**31))],
    "an input or output has the buffer of another": [(0, ("set", "buffers", 1, "place", 0))],
    "an input or output is not as large as its buffer": [(0, ("set", "buffers", 0, "nbytes", 64))],
    "a buffer is of no input": [(0, ("set", "buffers", 3, "kind", 0))],
    "a buffer is of no output": [(0, ("set", "buffers", 3, "kind", 1))],
    "a constant is outside the weights": [(0, ("set", "buffers", 2, "place", 2**63))],
    "a buffer is outside the memory for values": [(0, ("set", "buffers", 4, "place", 2**64 - 64))],
    "a buffer is of no kind": [(0, ("set", "buffers", 3, "kind", 2**31))],
    "a view names what is not there": [(0, ("set", "arguments", 0, "buffer", 2**31))],
    "a view has no such extent or stride": [(0, ("set", "dims", 0, "extent", -1))],
    "a view has elements of another size than its buffer": [(0, ("set", "arguments", 0, "type", number_of("uint8")))],
    "a view leaves its buffer": [(0, ("set", "arguments", 0, "offset", 2**63 - 4))],
    "a kernel writes none of its arguments": [(0, ("set", "steps", 0, "writes", 0))],
    "indices are not looked at as they lie": [(0, ("set", "arguments", 6, "type", number_of("uint64")))],
    "it reads what nothing wrote before": [(0, ("set", "arguments", 0, "buffer", 5))],
    "it would write to an input or a constant": [(0, ("set", "arguments", 2, "buffer", 2))],
    "a step names what is not there": [(0, ("set", "steps", 0, "symbol", 2**31))],
    "a kernel has no or too many arguments": [(0, ("set", "steps", 0, "count", 2**31))],
    "the arguments of steps do not follow each other": [(0, ("swap", "steps", 0))],
    "there are arguments of no step": [(0, ("drop", "steps", 4))],
    "it needs more memory for values than there can be": [(0, ("head", "arena", 2**64 - 1))],
    "an output is not written": [(0, ("set", "dims", 19, "extent", 1))],
    "two inputs have one name": [(0, ("copy", "ports", 1, "name", 0)), (1, ("copy", "ports", 1, "name", 0))],
    "it has other inputs or outputs": [
        (1, ("drop", "ports", 4)), (1, ("set", "buffers", 7, "kind", 3)), (1, ("set", "buffers", 7, "place", 0)),
    ],
    "its inputs or outputs have other names": [(1, ("copy", "ports", 3, "name", 0))],
    "its inputs have other types": [(1, ("set", "ports", 1, "type", number_of("uint64")))],
}  # fmt: skip
"""What C says of tables that are not sound, and the lies of which it says that."""


def test_each_rule_of_the_reader_in_c_has_a_case() -> None:
    """Whatever it says of tables is in the list above."""
    source = (NATIVE / "opbuild_tables.c").read_text(encoding="utf-8")
    said = {each for each in re.findall(r'"([a-z][a-z ]+)"', source) if " " in each}
    assert said - {"there is no memory"} == {*RULES}


@pytest.mark.each
@pytest.mark.parametrize("rule", RULES)
def test_both_readers_hold_each_rule(reader: Reader, sound: Sections, tmp_path: Path, rule: str) -> None:
    """C says which rule it is, and Python refuses the plan with the same lie, if a plan can say it."""
    tables = [Tables.read(sound[PROGRAM, index]) for index in range(2)]
    for signature, lie in RULES[rule]:
        tables[signature] = with_lie(tables[signature], lie)
    path = tmp_path / "lying.om"
    write(path, {**sound, **_programs(tables)})
    ran, said, _ = reader.run(path, ONLY_OPEN)
    assert not ran
    assert said.endswith(rule)
    with contextlib.suppress(Malformed):
        write(path, with_tables(sound, tables))
        assert run_in_python(path, copies=False, only_open=True) is None


# -- the container ----------------------------------------------------------------------------------------------------

OF_PYTHON, OF_C = frozenset((ABOUT, PLAN, GRAPH)), frozenset((MACHINE, PROGRAM))
"""Sections whose contents one of the readers does not look at."""


Table = tuple[list[Any], list[list[Any]]]
"""The fields of a file's header, and of each line of its table."""


def table_of(data: bytes) -> Table:
    """Return a file's header and table."""
    lines = range(64, 64 + LINE.size * HEADER.unpack_from(data)[2], LINE.size)
    return list(HEADER.unpack_from(data)), [list(LINE.unpack_from(data, at)) for at in lines]


def sealed(data: bytes, table: Table) -> bytes:
    """Return a file with another header and table, and digests that fit them."""
    head, lines = table
    for line in lines:
        line[5] = bytes.fromhex(blake3_of(_bytes(data, line)))
    packed, known = b"".join(LINE.pack(*line) for line in lines), HEADER.pack(*head)
    signed = (packed + data[64 + len(packed) :])[: head[2] * LINE.size]
    made = known + bytes.fromhex(blake3_of(known + signed)) + packed
    return made + data[len(made) :]


def with_table(data: bytes, changes: Sequence[Change]) -> tuple[bytes, frozenset[int]]:
    """Return a file whose table lies under digests that fit, and the kinds of sections whose bytes are others."""
    head, lines = table_of(data)
    before = {line[0]: _bytes(data, line) for line in lines}
    for what, where, value in changes:
        place, other, field = where % len(lines), value % len(lines), where // 7 % 5
        line, lie = lines[place], _LIES[value % len(_LIES)]
        if what == 0:
            lines[other] = list(line)
        elif what == 1 and len(lines) > 1:
            lines.remove(line)
            head[2] = len(lines)
        elif what == 2:
            lines[place], lines[other] = lines[other], line
        elif what == 3:
            line[field] = lines[other][field]
        elif what == 4:
            head[1 + where % 4] = lie % 2 ** (32 if where % 4 < 2 else 64)
        else:
            line[field] = (line[field] + lie if what > 6 else lie) % 2 ** (32 if field < 2 else 64)
    others = frozenset(kind for kind, *rest in lines if _bytes(data, [kind, *rest]) != before.get(kind))
    return sealed(data, (head, lines)), others


_LIES = (0, 1, 2, 63, 64, 4096, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 64, 2**64 - 1)


def _bytes(data: bytes, line: Sequence[int]) -> bytes:
    return data[line[2] : line[2] + line[3]]


@pytest.mark.slow
def test_both_readers_refuse_the_same_containers(reader: Reader, sound: Sections, tmp_path: Path) -> None:
    """Places, sizes, kinds and numbers of sections under digests that fit; but for what only one of them reads."""
    one = [Tables.read(sound[PROGRAM, 0])]
    kept = {place: content for place, content in sound.items() if place[1] == 0}
    write(tmp_path / "sound.om", with_tables(kept, one))
    data = (tmp_path / "sound.om").read_bytes()

    def read(changes: list[Change], pick: int) -> str:
        path = tmp_path / f"{os.getpid()}.om"
        content, others = with_table(data, changes)
        path.write_bytes(content)
        outcome, said = compared(reader, path, copies=bool(pick % 2))
        if content[8] < VERSION and not any(content[9:12]):
            assert outcome != "both run"
            return "an older version, which C does not read"
        if outcome == "wrong":
            alone = OF_PYTHON if said.startswith("C runs it") else OF_C
            assert others & alone, f"{said} {others}"
            return "one refuses what only it reads"
        assert outcome != "crash", said
        return outcome

    outcomes = fuzz("lying containers", read)
    assert min(outcomes["both refuse"], outcomes["both run"]) > INPUTS // 100


def _changed_line(kind: int, field: int, value: Callable[[Table, int], int]) -> Callable[[Table], None]:
    """Return a change of a field of the first line of a kind; the value may depend on the table and the old one."""

    def change(table: Table) -> None:
        line = next(line for line in table[1] if line[0] == kind)
        line[field] = value(table, line[field])

    return change


CONTAINERS = {
    "its library is cut": _changed_line(LIBRARY, 3, lambda table, size: size // 8),
    "behind the one before": _changed_line(PLAN, 2, lambda table, offset: table[1][0][2]),
    "is there twice": _changed_line(PLAN, 0, lambda table, kind: ABOUT),
    "does not say what it needs": _changed_line(MACHINE, 0, lambda table, kind: 99),
    "sections of others": _changed_line(PLAN, 0, lambda table, kind: 99),
    "its tables are not there": _changed_line(PROGRAM, 1, lambda table, index: 2**32 - 1),
    "is not inside": _changed_line(WEIGHTS, 3, lambda table, size: 2**64 - 64),
}
"""What C says of sections that are not sound, and how they are made so."""


@pytest.mark.each
@pytest.mark.parametrize("rule", CONTAINERS)
def test_both_readers_hold_each_rule_of_sections(reader: Reader, sound: Sections, tmp_path: Path, rule: str) -> None:
    """C says which rule it is, and Python refuses the file too."""
    path = tmp_path / "lying.om"
    kept = {place: content for place, content in sound.items() if place[1] == 0}
    write(path, with_tables(kept, [Tables.read(sound[PROGRAM, 0])]))
    data = path.read_bytes()
    table = table_of(data)
    CONTAINERS[rule](table)
    path.write_bytes(sealed(data, table))
    ran, said, _ = reader.run(path, 0)
    assert not ran
    assert rule in said
    assert run_in_python(path, copies=False) is None


# -- ranges of sizes, and files that change ---------------------------------------------------------------------------

SIZES = (2, 5, 8)


@pytest.fixture(scope="module")
def ranged(reader: Reader, shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Sections:
    """A model for ranges of sizes, with the test's kernels in the place of its own."""
    folder = tmp_path_factory.mktemp("ranged")
    rows = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 24]) for name in "xy"]
    bias = numpy_helper.from_array(np.arange(24, dtype=np.float32), "b")
    nodes = [helper.make_node("Add", ["x", "b"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    graph = helper.make_graph(nodes, "rows", rows[:1], rows[1:], [bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    config = Config(cache_path=shared_store, workers=2)
    path = export(model, folder / "ranged", config=config, ranges={"x": [(2, 8), 24]})
    sections = sections_of(path)
    own = {symbol: desc_from_text(desc) for desc, symbol in json.loads(sections[GRAPH, 0])["kernels"]}
    (folder / "own.c").write_text("".join(_standing_in(symbol, len(desc.operands)) for symbol, desc in own.items()))
    build(folder / "kernels.so", [HERE / "lying_kernels.c", folder / "own.c"], "-shared", "-fPIC")
    return {**sections, (LIBRARY, 0): (folder / "kernels.so").read_bytes()}


def _standing_in(symbol: str, arguments: int) -> str:
    """Return a kernel in C that adds the first and the last of what it reads."""
    taken = ", ".join(f"argument *a{place}" for place in range(arguments))
    added = f"add__kernel0(tasks, a0, a{max(arguments - 2, 0)}, a{arguments - 1})"
    declared = "int add__kernel0(int32_t, argument *, argument *, argument *);"
    made = f"int {symbol}(int32_t tasks, {taken});\nint {symbol}(int32_t tasks, {taken}) {{ return {added}; }}"
    return f'#include "opbuild_argument.h"\n{declared}\n{made}\n'


def at_sizes(path: Path) -> dict[int, bytes | None]:
    """Return the results of Python's reader at some sizes; None where it refuses."""
    found: dict[int, bytes | None] = {}
    for size in SIZES:
        try:
            (x,) = feeds([TensorType("float32", (size, 24))], 0)
            found[size] = load(path, num_threads=1)(x).tobytes()
        except OpbuildError:
            found[size] = None
    return found


@pytest.mark.parametrize("seeds", spans(INPUTS // 3, 15, campaign=CAMPAIGN // 3))
def test_tables_of_a_model_of_ranges_may_lie(seeds: range, reader: Reader, ranged: Sections, tmp_path: Path) -> None:
    """Other sizes than the one that tables are for are what they were, or refused."""
    write(tmp_path / "sound.om", ranged)
    expected = at_sizes(tmp_path / "sound.om")
    assert None not in expected.values()
    base = [Tables.read(ranged[PROGRAM, 0])]
    (step,) = base[0].rows["steps"].tolist()
    symbol, own = base[0].string(step[0]), (step[2], step[5])
    singles = in_turn(base)

    def one(seed: int) -> tuple[str, str]:
        path = tmp_path / f"{os.getpid()}.om"
        changed, told = drawn(seed, base, singles)
        try:
            written = [Tables.read(changed[0].write())]
            sections = with_tables(ranged, written)
        except Malformed:
            return "no plan says it", ""
        if not may_run(written, {symbol: own}):
            return "other code", ""
        write(path, sections)
        outcome, said = compared(reader, path, copies=bool(seed % 2))
        if outcome == "wrong" and said.startswith("C runs it") and _face(sections) != _face(ranged):
            outcome, said = "one refuses what only it reads", ""
        at = at_sizes(path)
        other = [size for size in SIZES if at[size] not in (None, expected[size]) and size not in _stored(sections)]
        return ("wrong", f"{told}: sizes {other}") if other else (outcome, f"{told}: {said}" if said else "")

    tally = check_seeds("lying tables of ranges", one, seeds)
    assert min(tally.outcomes["both refuse"], tally.outcomes["both run"]) > len(seeds) // 100


def _face(sections: Sections) -> list[Any]:
    """Return the face that Python's reader compares with the network that is stored for other sizes."""
    about = json.loads(sections[ABOUT, 0])
    return [about[name] for name in ("inputs", "outputs", "signatures")]


def _stored(sections: Sections) -> list[int]:
    """Return the sizes that are stored whole."""
    return [shape[0] for ((shape),) in json.loads(sections[ABOUT, 0])["signatures"] if shape]


def test_what_is_stored_for_ranges_may_lie(ranged: Sections, tmp_path: Path) -> None:
    """The network, its kernels, tensors and ranges: Python refuses it, or runs it within its memory."""
    graph = json.loads(ranged[GRAPH, 0])

    def read(changes: list[Change], pick: int) -> str:
        path = tmp_path / f"{os.getpid()}.om"
        write(path, {**ranged, (GRAPH, 0): to_bytes(changed_json(graph, changes))})
        return "refused" if None in at_sizes(path).values() else "run"

    assert fuzz("lying ranges", read, inputs=INPUTS // 3)["refused"] > 0


@pytest.mark.parametrize("flags", [0, COPY])
def test_a_file_that_is_written_over_changes_numbers_and_nothing_else(
    reader: Reader, sound: Sections, tmp_path: Path, flags: int
) -> None:
    """What is written in the place of an open file reaches no table and no code, and copied weights neither."""
    path = tmp_path / "model.om"
    write(path, sound)
    expected = run_in_python(path, copies=True)
    assert expected is not None
    ran, said, found = reader.run(path, flags | OVERWRITE)
    assert (ran, said) == (True, "")
    assert (found == b"".join(expected)) == bool(flags)
