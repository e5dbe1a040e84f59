"""The promises of all blobs, wherever they lie and whatever lies round them; records are written over them alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store.blobs import Blobs, Folder, LocalMemos, Memory, Memos
from opbuild.store.remote.objects import Objects, SealedMemos
from opbuild.store.remote.retry import Retried
from opbuild.store.tuning_database import SharedTuningDatabase, TuningDatabase
from support.remote_servers import KINDS, Servers
from support.shaky_blobs import Shaky
from support.simulated import Time
from support.tuned_records import product, record

SIGNED = Trust(key=b"k" * 16)
LOCAL: dict[str, Callable[[Path], Folder | Memory]] = {
    "folder": lambda folder: Folder(folder / "blobs"),
    "copies": lambda folder: Folder(folder / "blobs", copies=True),
    "times": lambda folder: Folder(folder / "blobs", keep_times=True),
    "quiet": lambda folder: Folder(folder / "blobs", is_quiet=True),
    "signed": lambda folder: Folder(folder / "blobs", SIGNED),
    "memory": lambda folder: Memory(),
}
LAYERS = ("plain", "sealed", "sealed and signed", "sealed and checked")
"""What lies round a remote service."""

FAR = [f"{kind}, {layer}" for kind in KINDS for layer in LAYERS]
RETRIED: dict[str, Callable[[Path], Blobs]] = {
    "memory, retried": lambda folder: Retried(Memory()),
    "folder, retried": lambda folder: Retried(Folder(folder / "blobs")),
    "memory that fails, retried": lambda folder: Retried(Shaky(Memory()), sleep=Time().sleep),
    "folder that fails, retried": lambda folder: Retried(Shaky(Folder(folder / "blobs")), sleep=Time().sleep),
}
"""Blobs of this machine with the layer round them that lies round remote services."""

NEAR = LOCAL | RETRIED
MOST = 2**20


def _far(name: str, servers: Servers) -> Blobs:
    kind, _, layer = name.partition(", ")
    service = servers(kind)
    if layer == "plain":
        return service
    return Objects(service, SIGNED if "signed" in layer else PRIVATE, checks="checked" in layer)


@pytest.fixture(params=[*NEAR, *FAR])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Blobs:
    """No blobs, in each place and with each layer round it."""
    return NEAR[request.param](tmp_path) if request.param in NEAR else _far(request.param, servers)


@pytest.fixture(params=LOCAL)
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Folder | Memory:
    """No blobs, in each place of this machine."""
    return LOCAL[request.param](tmp_path)


def code(answer: object) -> str:
    """Return why there is no blob."""
    assert isinstance(answer, Reason), answer
    assert answer.text
    return answer.code


def data(answer: object) -> bytes:
    """Return the bytes of a blob that must be there."""
    assert isinstance(answer, bytes | memoryview), answer
    return bytes(answer)


def test_what_is_nowhere_is_absent(blobs: Blobs) -> None:
    """For exactly that reason; nothing is listed, and removing nothing is harmless."""
    assert code(blobs.get("nothing", MOST)) == "absent"
    assert blobs.names() == ()
    assert blobs.delete("nothing") is None


def test_what_was_put_is_had_byte_for_byte(blobs: Blobs) -> None:
    """Several at once too, empty ones, and one that replaces another."""
    assert blobs.put([("one", b"1" * 1000), ("none", b""), ("two", memoryview(b"second"))]) is None
    assert [data(blobs.get(name, MOST)) for name in ("one", "none", "two")] == [b"1" * 1000, b"", b"second"]
    assert blobs.put([("one", b"again")]) is None
    assert data(blobs.get("one", MOST)) == b"again"
    assert blobs.names() == ("none", "one", "two")
    assert blobs.names(at_most=2) != blobs.names()


def test_what_was_removed_is_absent(blobs: Blobs) -> None:
    """Some of several, twice."""
    blobs.put([("one", b"1"), ("two", b"2"), ("three", b"3")])
    for _ in range(2):
        assert blobs.delete("one", "two") is None
        assert code(blobs.get("one", MOST)) == "absent"
        assert blobs.names() == ("three",)


def test_more_than_was_asked_for_is_damage(blobs: Blobs) -> None:
    """It is not read to its end: who asks knows how much there can be."""
    blobs.put([("large", bytes(1000))])
    assert code(blobs.get("large", 500)) == "damaged"


def test_mapped_bytes_are_compared_unless_nobody_touched_them(local: Folder | Memory) -> None:
    """By their digest, and their size if that is known."""
    digest = blake3_of(b"weights")
    assert code(local.mapped("w", 7, digest)) == "absent"
    local.put([("w", b"weights")])
    for asked in ((7, digest, None), (None, digest, None), (7, "", None)):
        found = local.mapped("w", *asked)
        assert not isinstance(found, Reason)
        assert found[0].tobytes() == b"weights"
    assert not isinstance(local.mapped("w", 7, digest, found[1]), Reason)
    assert code(local.mapped("w", 8, digest)) == "damaged"
    assert code(local.mapped("w", 7, "0" * 64)) == "damaged"


@pytest.fixture(params=[*LOCAL, *(name for name in FAR if "sealed" in name)])
def memos(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> Memos:
    """No memos, of each kind, over each of the blobs that carry a digest of themselves."""
    if request.param in LOCAL:
        return LocalMemos(LOCAL[request.param](tmp_path), ".memo")
    far = _far(request.param, servers)
    assert isinstance(far, Objects)
    return SealedMemos(far, "memos/")


def test_what_was_remembered_is_read(memos: Memos) -> None:
    """The last word counts; under another name there is nothing."""
    assert memos.read("one") == {}
    for content in ({"a": [1, 2]}, {"b": "text"}):
        assert memos.write("one", content) is None
        assert memos.read("one") == content
    assert memos.read("other") == {}


def test_a_memo_of_another_name_or_that_was_changed_is_none(local: Folder | Memory) -> None:
    """What is sound in itself is not what was remembered of another thing."""
    memos = LocalMemos(local, ".memo")
    memos.write("one", {"a": 1})
    content = data(local.get("one.memo", MOST))
    local.put([("two.memo", content), ("three.memo", content.replace(b"1", b"2")), ("four.memo", b"[]")])
    assert [memos.read(name) for name in ("one", "two", "three", "four")] == [{"a": 1}, {}, {}, {}]


def test_a_database_is_shared_wherever_there_are_blobs(blobs: Blobs) -> None:
    """Records of what tuning found are lines of one blob; who has more adds them."""
    first, second = (record(product("nn", size, 64, 64), {"tile": 1}, {"tile": 2}) for size in (64, 128))
    database = SharedTuningDatabase(blobs, "bank", PRIVATE)
    assert database.read() == TuningDatabase()
    assert database.publish(TuningDatabase((first,))) == 1
    assert database.publish(TuningDatabase((first, second))) == 1
    found = database.read()
    assert isinstance(found, TuningDatabase)
    assert list(found.records) == [first, second]
    assert database.publish(found) == 0
