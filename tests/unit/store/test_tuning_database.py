"""The tuning database: lines that cost only themselves, writers side by side, and what counts for a build."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

import opbuild
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.families.catalogue import find, names
from opbuild.families.family import TuningQuery
from opbuild.families.matmul.family import candidates
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.key import make_key
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import FixedAnswers, Tuned
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.tuned import (
    ApplicableRecords,
    applicable_records,
    applying,
    bucket,
    family_sources,
    is_current,
    is_still_defined,
    released_sources,
)
from opbuild.pipeline.tuned_lowering import lower_with_records, pipelines
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store.machine_class import MeasuredMachine, read_measured, shipped_database, system_class, write_measured
from opbuild.store.pack import FamilySources, Object, Pack, pack_bytes
from opbuild.store.tuning_database import (
    TuningDatabase,
    TuningRecord,
    append_records,
    line_of,
    merged,
    parse_database,
    read_database,
)
from opbuild.target.host import host_level, host_machine
from opbuild.target.level import LEVELS
from opbuild.target.machine import Machine
from support.edited_compiler import SOURCES, EditedCompiler
from support.fake_compiler import fake_object
from support.samples import IDENTITY, LEVEL, conv
from support.tuned_records import product, record, remember

SMALL = product("panels", 64, 256, 256)
DEFAULT, OTHER = {"rows": 6, "columns": 64, "stage": False}, {"rows": 8, "columns": 32, "stage": False}
KEY = Trust(key=b"0123456789abcdef")


def some_records(count: int) -> list[TuningRecord]:
    """Return records of different queries."""
    return [record(product("panels", 8 + number, 256, 256), DEFAULT, OTHER) for number in range(count)]


def file_of(records: list[TuningRecord], trust: Trust = PRIVATE) -> bytes:
    """Return the bytes of a bank."""
    return b"".join(b"\n" + line_of(each, trust) for each in records)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The folder is made; records come back in order; nothing is there before."""
    path, records = tmp_path / "new" / "bank.jsonl", some_records(3)
    assert read_database(path, PRIVATE) == TuningDatabase()
    append_records(path, records[:1], PRIVATE)
    append_records(path, records[1:], PRIVATE)
    assert read_database(path, PRIVATE) == TuningDatabase(tuple(records))


RECORDS = some_records(6)
WHOLE = file_of(RECORDS)


@given(
    cuts=st.lists(st.tuples(st.integers(0, len(WHOLE)), st.integers(0, 40)), max_size=4),
    flips=st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(1, 255)), max_size=4),
    rubbish=st.lists(st.tuples(st.integers(0, len(WHOLE)), st.binary(max_size=60)), max_size=3),
)
def test_damage_never_raises_and_costs_only_the_lines_that_it_hits(
    cuts: list[tuple[int, int]], flips: list[tuple[int, int]], rubbish: list[tuple[int, bytes]]
) -> None:
    """Pieces cut out, bytes changed, rubbish put in: what is read was written, and lines that were not hit are read."""
    data = bytearray(WHOLE)
    for place, value in flips:
        data[place] ^= value
    for place, content in rubbish:
        data[place:place] = content
    for place, length in cuts:
        del data[place : place + length]
    found = parse_database(bytes(data), PRIVATE).records
    assert all(each in RECORDS for each in found)
    lines = bytes(data).split(b"\n")
    unhurt = [each for each in RECORDS if line_of(each, PRIVATE) in lines]
    assert [each for each in RECORDS if each in found] == unhurt


@given(st.binary(max_size=400))
def test_any_bytes_are_read_without_an_error(data: bytes) -> None:
    """A file of something else holds no record."""
    assert parse_database(data, PRIVATE).records == ()


@given(content=st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
))  # fmt: skip
def test_a_line_with_a_sound_checksum_that_is_no_record_costs_itself(content: object) -> None:
    """Whoever writes such a line can take its checksum, too; one that was no object ended a build."""
    (sound,), text = some_records(1), json.dumps(content).encode()
    forged = blake3(text).hexdigest()[:16].encode() + b" " + text + b"\n"
    database = parse_database(forged + file_of([sound]), PRIVATE)
    assert (list(database.records), database.damaged) == ([sound], 1)


def test_a_torn_last_line_costs_itself_and_not_the_next(tmp_path: Path) -> None:
    """The rest of a killed writer's line is followed by a line of its own."""
    path, (first, torn, last) = tmp_path / "bank.jsonl", some_records(3)
    path.write_bytes(file_of([first]) + b"\n" + line_of(torn, PRIVATE)[:-20])
    append_records(path, [last], PRIVATE)
    assert read_database(path, PRIVATE) == TuningDatabase((first, last), damaged=1)


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from dataclasses import replace
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.tuning_database import append_records
from test_tuning_database import some_records
print(flush=True)
sys.stdin.readline()
for each in some_records(40):
    append_records(Path(sys.argv[2]), [replace(each, network=sys.argv[3])], PRIVATE)
"""


@pytest.mark.slow
def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Both begin together, and all lines of both are sound."""
    path = tmp_path / "bank.jsonl"
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(path)]
    paths = f"{Path(__file__).parents[2]}:{Path(opbuild.__file__).parents[1]}"
    writers = [
        subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                         env={"PYTHONPATH": paths})
        for name in ("one", "two")
    ]  # fmt: skip
    for each in writers:
        assert each.stdout is not None
        each.stdout.readline()
    for each in writers:
        each.communicate("go\n")
        assert each.returncode == 0
    database = read_database(path, PRIVATE)
    assert (len(database.records), database.damaged) == (80, 0)
    assert [each.network for each in database.records].count("one") == 40


def test_with_a_key_only_what_is_signed_with_it_counts() -> None:
    """Unsigned lines and those of another key are counted and left out; without a key signatures do not matter."""
    (one,) = some_records(1)
    other = Trust(key=b"fedcba9876543210")
    data = file_of([one], KEY) + file_of([one]) + file_of([one], other)
    assert parse_database(data, KEY) == TuningDatabase((one,), unsigned=2)
    assert len(parse_database(data, PRIVATE).records) == 3


def test_merging_adds_what_is_lacking_or_later() -> None:
    """Of two records for one place the later date counts, whichever database it is in."""
    one, two = some_records(2)
    early, late = replace(one, date="2026-01-01T00:00:00Z"), replace(one, date="2026-12-01T00:00:00Z")
    assert merged(TuningDatabase((one,)), [TuningDatabase((early, two))]) == [two]
    assert merged(TuningDatabase((one,)), [TuningDatabase((late,)), TuningDatabase((early,))]) == [late]


def test_a_database_that_cannot_be_read_is_an_error_that_says_so(tmp_path: Path) -> None:
    """For who asks for it; a build warns and does without."""
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(OptionError, match=r"the tuning database .* cannot be read"):
        read_database(tmp_path, PRIVATE)
    with pytest.raises(OptionError, match="cannot be written"):
        append_records(file / "bank", some_records(1), PRIVATE)


# -- what counts for a build -------------------------------------------------------------------------------------------


def known(*records: TuningRecord) -> ApplicableRecords:
    """Return the source of records all of which are of this machine."""
    return ApplicableRecords(
        {TuningQuery(each.family, each.arguments): each for each in records},
        lambda each: each.sources == family_sources(each.family),
    )


def test_an_exact_record_answers_first_then_the_nearest_of_its_bucket_then_nobody() -> None:
    """38 and 60 rows are of one bucket with 40; 64 is of the next."""
    found = known(
        record(product("panels", 38, 256, 256), DEFAULT, {"rows": 1}),
        record(product("panels", 60, 256, 256), DEFAULT, OTHER),
    )
    exact = next(found.answers(product("panels", 60, 256, 256), DEFAULT))
    near = list(found.answers(product("panels", 40, 256, 256), DEFAULT))
    assert exact == (OTHER, f"tuned on {system_class()} 2026-11-23", False)
    assert [each.variant for each in near] == [{"rows": 1}, OTHER]
    assert near[0].origin.startswith("bucket: ")
    assert not list(found.answers(product("panels", 64, 256, 256), DEFAULT))
    assert not list(found.answers(product("rows", 40, 256, 256), DEFAULT))


@pytest.mark.parametrize("change", ["", "pipeline", "operator", "sources", "unknown"])
def test_a_record_of_other_sources_counts_while_they_define_the_same(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack tells: it has the pipelines of the kernels that were measured, and is of the sources of now."""
    key = make_key(conv(1), LEVEL, IDENTITY, "code")
    pipeline = ("1" if change == "pipeline" else "0") * 32
    code = "edited" if change == "sources" else released_sources("conv")
    path = tmp_path / LEVEL.name / "conv.pack"
    path.parent.mkdir()
    objects = [Object(conv(1).components(), key.operator, pipeline, fake_object(b"code", (key.symbol,)))]
    path.write_bytes(pack_bytes(LEVEL.name, "conv", IDENTITY, FamilySources(code, "text"), objects))
    monkeypatch.setattr("opbuild.pipeline.tuned.Pack", partial(Pack, folder=tmp_path))
    stem = key.operator_stem + "1" * (change == "operator")
    old = record(
        TuningQuery("conv", "[1]"), DEFAULT, OTHER, level=LEVEL.name, sources="old",
        kernels={} if change == "unknown" else {stem: "0" * 32},
    )  # fmt: skip
    setup = set_up(Config.from_environment(), None, None)
    assert is_still_defined(old) == (not change)
    assert is_current(old, setup) is (True if not change else False if change == "unknown" else None)
    assert is_current(replace(old, sources=family_sources("conv")), setup)


def test_a_record_counts_only_against_the_default_that_it_beat() -> None:
    """Where the family's own answer is another one, nothing is known of it."""
    found = known(record(product("panels", 60, 256, 256), DEFAULT, OTHER))
    assert not list(found.answers(product("panels", 40, 256, 256), OTHER))
    assert not list(found.answers(product("panels", 60, 256, 256), OTHER))


def test_a_record_of_other_sources_is_stale() -> None:
    """It is remembered as such, and the bucket or the table answers."""
    found = known(record(SMALL, DEFAULT, OTHER, sources="other"))
    assert not list(found.answers(SMALL, DEFAULT))
    assert list(found.stale) == [SMALL]


def test_a_default_that_nothing_beat_is_an_answer_that_says_nothing() -> None:
    """So that no record of the bucket replaces what was found best for this very call."""
    own, near = product("panels", 60, 256, 256), product("panels", 38, 256, 256)
    found = known(record(own, DEFAULT, DEFAULT), record(near, DEFAULT, OTHER))
    assert next(found.answers(own, DEFAULT)) == (DEFAULT, "", False)


def test_buckets_are_binary_digits_of_numbers_alone() -> None:
    """Texts and flags stay, and every query is in the bucket of itself."""
    assert bucket(SMALL) == bucket(product("panels", 127, 511, 256))
    assert bucket(SMALL) != bucket(product("rows", 64, 256, 256))
    assert bucket(product("panels", 1, 1, 1)) != bucket(product("panels", 2, 1, 1))


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"threads": 1}, False),
        ({"level": "x86-64-v2"}, False),
        ({"system": "other"}, False),
        ({"machine": "measured elsewhere"}, True),
    ],
)
def test_a_record_counts_for_its_level_threads_and_machine(changed: dict[str, object], counts: bool) -> None:
    """Where nothing was measured the system's own description decides."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    assert bool(applying(TuningDatabase((record(SMALL, DEFAULT, OTHER, **changed),)), setup)) == counts


def test_a_measured_machine_takes_records_of_its_class_wherever_they_are_from() -> None:
    """The measured class counts, not what the system says: a twin with fewer cores has the same."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    measured = MeasuredMachine(system_class(), {host_level().name: 180.0})
    assert write_measured(setup.config, setup.trust, measured)
    assert read_measured(setup.config, setup.trust) == measured
    mine = record(SMALL, DEFAULT, OTHER, machine=measured.name(host_level().name), system="a twin")
    assert applying(TuningDatabase((mine,)), setup)
    assert not applying(TuningDatabase((replace(mine, machine="another"),)), setup)


def test_what_was_measured_of_another_machine_is_not_believed() -> None:
    """A cache that was copied to other hardware brings nothing of it."""
    setup = set_up(Config.from_environment(), None, None)
    write_measured(setup.config, setup.trust, MeasuredMachine("another", {host_level().name: 1.0}))
    assert read_measured(setup.config, setup.trust) is None


def test_measurements_that_differ_by_a_tenth_have_one_name_and_twice_the_rate_another() -> None:
    """Names are for classes of machines, not for measurements."""
    level = host_level().name
    first, second, faster = (MeasuredMachine("", {level: rate}).name(level) for rate in (180.0, 195.0, 360.0))
    assert first == second
    assert first != faster
    assert not MeasuredMachine("", {}).name(level)


def test_a_database_that_others_can_write_to_is_told_and_left_alone(user_store: Path) -> None:
    """The build goes on by the tables."""
    remember(record(SMALL, DEFAULT, OTHER), num_threads=2)
    warned: list[str] = []
    setup = set_up(
        Config.from_environment(num_threads=2), None, lambda event: warned.append(getattr(event, "message", ""))
    )
    assert applicable_records(setup) is not None
    setup.config.tune_bank.chmod(0o666)
    setup.config.tune_bank.write_bytes(setup.config.tune_bank.read_bytes() + b"\n")
    assert applicable_records(setup) is None
    type_ = TensorType("float32", (4,))
    graph = Graph("made", (Node("Relu", ("x",), ("y",), name="relu"),), ("x",), ("y",), {"x": type_, "y": type_}, {})
    assert not lower_with_records(graph, setup, Options()).tuned
    assert any("cannot be read" in message and "tables" in message for message in warned)


def test_tune_bank_path_names_the_folder(tmp_path: Path) -> None:
    """``TUNE_BANK_PATH`` wins; else the database is beside the cache, one for all ranks and levels."""
    named = Config.from_environment(environ={"TUNE_BANK_PATH": str(tmp_path)})
    assert named.tune_bank.parent == tmp_path
    beside = Config.from_environment(environ={"MS_COMPILER_CACHE_PATH": str(tmp_path), "RANK_ID": "3"})
    assert beside.tune_bank.parent == tmp_path / "tune_bank"


EXTENTS = st.integers(1, 300)
ARGUMENTS: dict[str, st.SearchStrategy[tuple[object, ...]]] = {
    "attention": st.tuples(EXTENTS, EXTENTS, EXTENTS, EXTENTS),
    "conv": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, EXTENTS, st.integers(1, 49), st.booleans()),
    "conv_depthwise": st.tuples(EXTENTS),
    "conv_first": st.tuples(EXTENTS, EXTENTS),
    "conv_grouped": st.tuples(EXTENTS),
    "conv_integer": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, EXTENTS),
    "conv_integer_depthwise": st.tuples(EXTENTS),
    "conv_weight_gradient": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, EXTENTS, EXTENTS),
    "conv_weight_gradient_depthwise": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, st.tuples(EXTENTS, EXTENTS)),
    "elementwise": st.tuples(EXTENTS, st.sampled_from([1, 2, 4, 8]), st.booleans()),
    "global_pool": st.tuples(),
    "matmul": st.tuples(
        st.just("panels"), st.just(1), EXTENTS, EXTENTS, EXTENTS, st.sampled_from(["float32", "float16"])
    ),
    "matmul_integer": st.tuples(EXTENTS, EXTENTS),
    "matmul_nbits": st.tuples(EXTENTS, EXTENTS),
    "matmul_nbits_integer": st.tuples(EXTENTS, EXTENTS),
    "recurrent": st.tuples(
        st.sampled_from(["RNN", "GRU", "LSTM"]), st.booleans(), st.booleans(), EXTENTS, st.integers(0, 99), EXTENTS
    ),
    "reduce": st.tuples(st.sampled_from(["inner", "outer"]), EXTENTS),
    "softmax": st.tuples(st.booleans(), st.booleans(), EXTENTS, st.integers(1, 10000)),
    "winograd": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, EXTENTS, st.booleans()),
    "winograd_integer": st.tuples(st.tuples(EXTENTS, EXTENTS), EXTENTS, EXTENTS),
}


def test_every_family_that_can_be_tuned_is_tried() -> None:
    """The generator below knows what each is asked."""
    assert {name for name in names() if find(name).candidates is not None} == set(ARGUMENTS)


BY_ROOM = {
    "arg_reduce", "copy", "from_blocked", "gather", "grid_sample", "resize", "scan", "scatter", "top_k",
    "tree_ensemble", "window",
}  # fmt: skip
"""Families whose variant is all that fits: one element at a time where rows are too short for a vector."""


def test_every_family_that_has_a_choice_declares_it() -> None:
    """A family with parts of a variant names candidates, or is listed as one that has nothing to choose."""
    choosing = {name for name in names() if find(name).variant}
    assert choosing - BY_ROOM == {name for name in choosing if find(name).candidates is not None}
    assert choosing >= BY_ROOM


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(ARGUMENTS))
@given(data=st.data(), level=st.sampled_from([level for level in LEVELS if level.triple.startswith(("x86", "arm"))]))
def test_candidates_have_the_familys_own_answer_and_each_once(name: str, data: st.DataObject, level: object) -> None:
    """Whatever the extents and the machine; so a search always has what it compares with."""
    family, arguments = find(name), data.draw(ARGUMENTS[name])
    machine = Machine.of(level)  # type: ignore[arg-type]  # drawn from the levels
    assert family.candidates is not None
    found = list(family.candidates(*arguments, machine))
    assert family.choose(*arguments, machine) in found
    assert all(each not in found[:place] for place, each in enumerate(found))


def test_a_convolution_of_one_block_may_be_chunked_too() -> None:
    """``choose`` chunks it where it has many taps, so candidates must."""
    family = find("conv")
    assert family.candidates is not None
    arguments = ((1, 1), 1, 1, 33, False, Machine.of(LEVELS[0]))
    assert family.choose(*arguments) in family.candidates(*arguments)


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that a release with a database for this machine would have."""
    monkeypatch.setattr("opbuild.store.machine_class.SHIPPED", tmp_path / "banks")
    monkeypatch.setenv("OPBUILD_SHIPPED_BANK", "1")
    path = shipped_database(host_level().name)
    path.parent.mkdir()
    return path


def test_the_shipped_database_counts_below_the_users_own_and_can_be_switched_off(
    shipped: Path, user_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers what the user's knows nothing of, and is named."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    assert not setup.has_tuning_database
    another = product("panels", 2000, 256, 256)
    shipped.write_bytes(file_of([record(SMALL, DEFAULT, OTHER), record(another, DEFAULT, OTHER)]))
    assert setup.has_tuning_database
    first = applicable_records(setup)
    assert first is not None
    (answer,) = first.answers(SMALL, DEFAULT)
    assert answer.variant == OTHER
    assert answer.origin.startswith("shipped tuning database: tuned on")
    remember(record(SMALL, DEFAULT, DEFAULT), num_threads=2)
    both = applicable_records(setup)
    assert both is not None
    assert [each.variant for each in both.answers(SMALL, DEFAULT)] == [DEFAULT]
    assert [each.variant for each in both.answers(another, DEFAULT)] == [OTHER]
    setup.config.tune_bank.unlink()
    monkeypatch.setenv("OPBUILD_SHIPPED_BANK", "0")
    off = set_up(Config.from_environment(num_threads=2), None, None)
    assert not off.has_tuning_database
    assert applicable_records(off) is None


def test_a_stale_record_of_the_user_leaves_the_shipped_one(shipped: Path, user_store: Path) -> None:
    """What was tuned with other sources says nothing any more."""
    shipped.write_bytes(file_of([record(SMALL, DEFAULT, OTHER)]))
    remember(record(SMALL, DEFAULT, DEFAULT, sources="edited since"), num_threads=2)
    found = applicable_records(set_up(Config.from_environment(num_threads=2), None, None))
    assert found is not None
    assert [each.variant for each in found.answers(SMALL, DEFAULT)] == [OTHER]


def test_what_is_shipped_for_other_threads_or_damaged_decides_nothing(shipped: Path, user_store: Path) -> None:
    """A database of the release is read like any other: nobody's build ends because of it."""
    shipped.write_bytes(file_of([record(SMALL, DEFAULT, OTHER, threads=7)]) + b"\nrubbish\n")
    assert applicable_records(set_up(Config.from_environment(num_threads=2), None, None)) is None


# -- records of other sources whose kernels the pack lacks ------------------------------------------------------------


def product_graph() -> Graph:
    """A product, of which the database may choose the variant."""
    types = {"x": TensorType("float32", (64, 256)), "w": TensorType("float32", (256, 256))}
    types["y"] = TensorType("float32", (64, 256))
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    weights = np.ones((256, 256), np.float32)
    return Graph("made", (node,), ("x",), ("y",), types, {"w": weights})


@pytest.mark.parametrize(("defined", "serves"), [("a", True), ("b", False)])
def test_a_record_of_other_sources_is_looked_into_once_where_it_is_of_use(
    user_store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, defined: str, serves: bool
) -> None:
    """A compile worker says what its variants define now: nothing is compiled, and the next build remembers it."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OPBUILD_FORBID_COMPILE", "1")
    asked: list[int] = []
    define = Builder._define
    monkeypatch.setattr(Builder, "_define", lambda self, jobs: (asked.append(len(jobs)), define(self, jobs))[1])

    def chosen(sources: str) -> object:
        (tmp_path / SOURCES).write_text(sources)
        setup = set_up(Config.from_environment(num_threads=2), None, None, compiler=EditedCompiler())
        program = lower_with_records(product_graph(), setup, Options())
        (desc,) = (each for each in program.descriptors() if each.family == "matmul")
        return desc.variant

    (tmp_path / SOURCES).write_text("one,a")
    setup = set_up(Config.from_environment(num_threads=2), None, None, compiler=EditedCompiler())
    default = lower(product_graph(), setup.level, Options())
    (plain,) = (each for each in default.descriptors() if each.family == "matmul")
    variants = candidates("panels", 1, 64, 256, 256, "float32", host_machine())
    tuned = Tuned(FixedAnswers({SMALL: next(each for each in variants if each != plain.variant)}))
    (other,) = (
        e for e in lower(product_graph(), setup.level, Options(chooser=tuned)).descriptors() if e.family == "matmul"
    )
    kernels = dict(pipelines(setup, [plain, other]).values())
    assert len(kernels) == 2
    remember(record(SMALL, plain.variant, other.variant, sources="older", kernels=kernels), num_threads=2)
    asked.clear()
    expected = other.variant if serves else plain.variant
    for sources, worked in ((f"two,{defined}", [2]), (f"two,{defined}", []), (f"three,{defined}", [2])):
        assert chosen(sources) == expected
        assert asked == worked
        asked.clear()
        setup = set_up(Config.from_environment(num_threads=2), None, None, compiler=EditedCompiler())
        assert is_current(kept(setup), setup) is serves


def kept(setup: Setup) -> TuningRecord:
    """Return the last record of the bank."""
    return read_database(setup.config.tune_bank, setup.trust).records[-1]
