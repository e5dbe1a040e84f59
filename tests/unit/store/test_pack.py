"""The pack: what a release ships is found whatever compiler is installed, and is never wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.store import pack
from opbuild.store.blobs import Memory
from opbuild.store.model_packs import Packs
from opbuild.store.operators import Operators, operators_in
from opbuild.store.pack import FamilySources, Object, Pack, PackFile, pack_bytes, read_pack
from opbuild.store.tiers import TieredStore
from opbuild.target.host import parse_level
from support.fake_compiler import FakeCompiler, fake_object
from support.packed import object_in
from support.samples import LEVEL, conv, key_of, needed

MAKER = CompilerIdentity("fake", "0.9", "1" * 64)
OTHERS = CompilerIdentity("fake", "2.0", "2" * 64)
SOURCES = FamilySources("code", "text")


def packed_key(desc: OpDesc) -> Key:
    """Return the key that an object has in the pack."""
    return key_of(desc, LEVEL, MAKER, SOURCES.code)


def pack_data(descs: Sequence[OpDesc], sources: FamilySources = SOURCES) -> bytes:
    """Return a pack file of made-up objects."""
    objects = []
    for number, desc in enumerate(descs):
        key = key_of(desc, LEVEL, MAKER, sources.code)
        object_ = fake_object(b"code %d" % number, (key.symbol,))
        objects.append(Object(desc.components(), key.operator, f"{number:032x}", object_))
    return pack_bytes(LEVEL.name, "conv", MAKER, sources, objects)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of packs with three operators of one family."""
    path = tmp_path / "packs" / LEVEL.name
    path.mkdir(parents=True)
    (path / "conv.pack").write_bytes(pack_data([conv(1), conv(2), conv(3)]))
    return tmp_path / "packs"


@pytest.mark.parametrize("sources", SOURCES)
@pytest.mark.parametrize("identity", [MAKER, OTHERS])
def test_an_operator_is_found_whatever_compiler_is_asked_for(
    folder: Path, identity: CompilerIdentity, sources: str
) -> None:
    """The key that is asked for has another compiler's identity, and a checkout's digest or a release's."""
    answer = Pack(LEVEL.name, folder).lookup(key_of(conv(2), LEVEL, identity, sources))
    assert isinstance(answer, Found)
    assert (answer.source, answer.stays, answer.is_lent) == ("the pack", True, False)
    assert answer.entry.symbol == packed_key(conv(2)).symbol
    assert answer.entry.object == fake_object(b"code 1", (answer.entry.symbol,))
    assert answer.entry.info["key"]["sha256"] == packed_key(conv(2)).sha256


def test_a_stale_pack_is_a_miss(folder: Path) -> None:
    """F30: once a family was edited, nothing of its pack is used, and the operator is compiled."""
    answer = Pack(LEVEL.name, folder).lookup(key_of(conv(2), LEVEL, MAKER, "edited since"))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "stale"


@pytest.mark.parametrize(
    "key",
    [key_of(conv(4)), key_of(conv(2), parse_level("x86-64-v4")), key_of(conv(2, ("Conv",)), LEVEL, MAKER, "code")],
    ids=["variant", "level", "types"],
)
def test_what_is_another_operator_is_absent(folder: Path, key: Key) -> None:
    """Everything else that is in a key counts as it does in the user's store."""
    components = {**key.components, "sources": "code"}
    pack = Pack(str(key.components["target"]), folder)
    answer = pack.lookup(Key(components, key.sha256))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "absent"


def test_a_damaged_pack_never_gives_another_object(folder: Path) -> None:
    """F36: whatever bytes of a pack are changed, cut or added, a look-up gives the very object or none."""
    rng = random.Random(5)
    data = pack_data([conv(tile) for tile in range(40)])
    keys = [packed_key(conv(tile)) for tile in (0, 20, 39)]
    right = [object_in(PackFile(data), key) for key in keys]
    damaged = 0
    for number in range(150):
        place = rng.randrange(len(data))
        wrong = [
            data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :],
            data[:place],
            data[:place] + rng.randbytes(3) + data[place:],
        ][number % 3]
        path = folder / LEVEL.name / f"damaged_{number}.pack"
        path.write_bytes(wrong)
        for key, expected in zip(keys, right, strict=True):
            try:
                assert object_in(read_pack(path), key) == expected
            except ValueError:
                damaged += 1
    assert damaged > 150


def test_a_damaged_pack_is_a_miss_that_names_the_file(tmp_path: Path) -> None:
    """What cannot be read is lacking, and never an exception."""
    path = tmp_path / LEVEL.name / "conv.pack"
    path.parent.mkdir()
    path.write_bytes(b"opbuild pack 2 nothing")
    answer = Pack(LEVEL.name, tmp_path).lookup(packed_key(conv()))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "damaged"
    assert str(path) in answer.reason.text


def test_equal_contents_are_equal_bytes_and_all_is_there() -> None:
    """A pack is made again byte for byte, and says which operators it holds."""
    descs = [conv(tile) for tile in range(300)]
    data = pack_data(descs)
    assert data == pack_data(descs)
    file = PackFile(data)
    assert [OpDesc.from_components(each) for each in file.descriptors()] == descs
    assert len(file) == len(descs)
    assert [object_in(file, packed_key(desc)) for desc in descs] == [
        fake_object(b"code %d" % number, (packed_key(desc).symbol,)) for number, desc in enumerate(descs)
    ]


class Interrupted:
    """A decompressor whose first call is interrupted when it has done its work, and whose result is lost.

    Args:
        really: The decompressor.
    """

    def __init__(self, really: Any) -> None:
        self._really, self._is_first = really, True

    def decompress(self, data: bytes, most: int) -> Any:
        """Return the bytes that are unpacked."""
        found = self._really.decompress(data, most)
        if self._is_first:
            self._is_first = False
            raise KeyboardInterrupt
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._really, name)


def test_an_interrupted_look_up_leaves_nothing_half_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one begins the block anew: what was unpacked and lost would have shifted all that comes behind it."""
    descs = [conv(tile) for tile in range(9)]
    file = PackFile(pack_data(descs))
    really = pack._decompressor
    with monkeypatch.context() as patched:
        patched.setattr(pack, "_decompressor", lambda: Interrupted(really()))
        with pytest.raises(KeyboardInterrupt):
            object_in(file, packed_key(descs[3]))
    for number in (4, 8, 0):
        key = packed_key(descs[number])
        assert object_in(file, key) == fake_object(b"code %d" % number, (key.symbol,))


def test_threads_share_a_pack() -> None:
    """Each has its objects, in whatever order they ask for those of one block."""
    descs = [conv(tile) for tile in range(200)]
    file = PackFile(pack_data(descs))
    right = {
        packed_key(desc): fake_object(b"code %d" % number, (packed_key(desc).symbol,))
        for number, desc in enumerate(descs)
    }

    def ask(seed: int) -> bool:
        order = random.Random(seed).sample(list(right), len(right))
        return all(object_in(file, key) == right[key] for key in order)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(ask, range(16)))


def test_a_build_takes_from_the_pack_and_copies_nothing(folder: Path, config: Config) -> None:
    """What is in the pack is not compiled, its reason says so, and the user's store stays as it was."""
    near = Operators(Memory())
    with Builder(TieredStore(near, [Pack(LEVEL.name, folder)]), Edited("text"), LEVEL, config) as builder:
        result = builder.build(needed(conv(1), conv(3)), "net")
    assert result.built == 0
    assert {job.reason.text for job in result.decisions} == {"from the pack"}
    assert near.names() == ()


def test_a_build_compiles_what_is_stale(folder: Path, config: Config) -> None:
    """F30: the same build after an edit compiles both operators."""
    with Builder(TieredStore(Operators(Memory()), [Pack(LEVEL.name, folder)]), Edited("x"), LEVEL, config) as builder:
        jobs = builder.plan(needed(conv(1), conv(3)))
    assert all(job.must_compile for job in jobs)


def test_without_a_compiler_the_packs_identity_counts(folder: Path, config: Config) -> None:
    """Where none is installed nor remembered, what the pack has builds; the rest is named with what to install."""
    pack = Pack(LEVEL.name, folder)
    store = TieredStore(operators_in(config.kernel_meta), [pack])
    with Builder(store, Absent("code"), LEVEL, config, release=pack) as builder:
        assert builder.build(needed(conv(1)), "net").built == 0
        with pytest.raises(
            BuildError, match=r"fake is not installed, and 1 operator would have to be compiled"
        ) as error:
            builder.build(needed(conv(1), conv(9)), "net")
    assert "pip install" in str(error.value.hint)


def test_what_the_pack_brings_is_built_without_identifying_the_compiler(folder: Path, config: Config) -> None:
    """No byte of it is read for an empty store; what is compiled, or one's own, needs to know which one it is."""
    pack, store = Pack(LEVEL.name, folder), operators_in(config.kernel_meta)
    with Builder(TieredStore(store, [pack]), Unread("code"), LEVEL, config, release=pack) as builder:
        result = builder.build(needed(conv(1), conv(3)), "net")
        assert (result.built, result.compiler) == (0, "")
        assert [job.key for job in result.decisions] == [packed_key(conv(1)), packed_key(conv(3))]
        with pytest.raises(ReadError):
            builder.plan(needed(conv(1), conv(9)))
    for options in ({"op_compiler_cache_mode": "disable"}, {"op_compiler_cache_mode": "force"}):
        given = replace(config, **options)
        builder = Builder(store, Unread("code"), LEVEL, given, release=pack, force=given.forces)
        with builder, pytest.raises(ReadError):
            builder.plan(needed(conv(1)))


def test_what_the_pack_lacks_is_known_without_identifying_the_compiler(folder: Path, config: Config) -> None:
    """A network's first tier asks for many kernels, and compiles none; one's own store is asked if it has any."""
    pack, store = Pack(LEVEL.name, folder), operators_in(config.kernel_meta)
    with Builder(TieredStore(store, [pack]), Unread("code"), LEVEL, config, release=pack) as builder:
        assert builder.lacking([conv(9), conv(1), conv(8)]) == [conv(9), conv(8)]
        assert builder.build(needed(conv(1)), "net").built == 0
    with Builder(TieredStore(store, [pack]), Edited("code"), LEVEL, config, release=pack) as builder:
        own = builder.key(conv(9))
        store.publish(make_entry(conv(9), own, 0, Artifact(fake_object(b"own", (own.symbol,))), 1.0))
        assert builder.lacking([conv(9), conv(1), conv(8)]) == [conv(8)]


def test_ones_own_operator_goes_before_the_packs(folder: Path, config: Config) -> None:
    """Whoever compiled it himself finds it again, and the build is known to be that compiler's."""
    pack, store = Pack(LEVEL.name, folder), operators_in(config.kernel_meta)
    with Builder(TieredStore(store, [pack]), Edited("code"), LEVEL, config, release=pack) as builder:
        own = builder.key(conv(1))
        store.publish(make_entry(conv(1), own, 0, Artifact(fake_object(b"own", (own.symbol,))), 1.0))
        result = builder.build(needed(conv(1), conv(3)), "net")
        assert [job.reason.text for job in result.decisions] == ["in the store", "from the pack"]
        assert result.compiler == builder.identity().digest


@pytest.mark.parametrize(
    ("options", "serves"),
    [
        ({}, False),
        ({"uses_pack": True}, True),
        ({"uses_pack": True, "fills_cache": True}, False),
        ({"uses_pack": True, "fills_cache": True, "forbid_compile": True}, True),
    ],
)
def test_where_the_pack_serves(options: dict[str, bool], serves: bool, tmp_path: Path) -> None:
    """MindSpore-style programs and ATC keep all that they use, unless nothing can be compiled."""
    stores = Stores(set_up(Config(cache_path=tmp_path, **options), None, None))
    below = getattr(stores.operators_and_runtimes[0], "tiers", ())
    assert any(isinstance(tier, Packs) for tier in below) == serves


@pytest.mark.parametrize(("text", "used"), [("", True), ("1", True), ("0", False)])
def test_the_environment_switches_the_pack_off(text: str, used: bool) -> None:
    """``OPBUILD_PACK=0`` does; a build that says nothing uses it."""
    assert Config.from_environment(environ={"OPBUILD_PACK": text, "HOME": "/home/somebody"}).uses_pack == used


class Edited(FakeCompiler):
    """A compiler for a family whose sources have a digest.

    Args:
        sources: The digest.
    """

    def __init__(self, sources: str = "") -> None:
        super().__init__()
        self._sources = sources

    def sources_digest(self, desc: OpDesc) -> str:
        """Return the digest."""
        return self._sources


class ReadError(Exception):
    """The compiler was looked at."""


class Unread(Edited):
    """One that nobody may look at."""

    def library(self) -> Any:
        """Say that somebody did."""
        raise ReadError


class Absent(Edited):
    """One that is not installed."""

    def version(self) -> str:
        """Return nothing."""
        return ""

    def library(self) -> Any:
        """Return that there is none."""
        return None

    def files(self) -> tuple[Path, ...]:
        """Return that there are none."""
        return ()
