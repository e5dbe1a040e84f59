"""What every store of packed weights promises; a new tier is done when this suite is green over it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from opbuild.kernel.interfaces import WeightStore
from opbuild.kernel.networks import Bytes, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import Trust
from opbuild.store import items
from opbuild.store.blobs import Memory
from opbuild.store.weights import StoredWeights, weights_in
from support.together import run_together

KINDS: dict[str, Callable[[Path], WeightStore]] = {
    "disk": lambda folder: weights_in(folder / "weights"),
    "copies": lambda folder: weights_in(folder / "weights", copies=True),
    "signed": lambda folder: weights_in(folder / "weights", trust=Trust(key=b"k" * 16)),
    "memory": lambda folder: StoredWeights(Memory()),
}
SOURCE = "5" * 64
SIZE = 5000


def array(number: int = 0) -> Bytes:
    """Return weights."""
    return np.full(SIZE, number, np.uint8)


def put(store: WeightStore, number: int = 0) -> Weight:
    """Put weights that must be stored."""
    weight = store.put(blake3_of(array(number).data), array(number))
    assert isinstance(weight, Weight), weight
    return weight


def code(answer: Weight | Reason) -> str:
    """Return why there are no weights."""
    assert isinstance(answer, Reason)
    assert answer.text
    return answer.code


def holds(answer: Weight | Reason, number: int) -> bool:
    """Return whether weights are those of a number."""
    return isinstance(answer, Weight) and bool(np.array_equal(answer.array, array(number)))


@pytest.fixture(params=sorted(KINDS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WeightStore]:
    """An empty store of each kind."""
    return KINDS[request.param](tmp_path)


@pytest.fixture(params=[kind for kind in KINDS if kind != "memory"])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WeightStore]:
    """An empty store of each kind that has files."""
    return KINDS[request.param](tmp_path)


def file_of(folder: Path) -> Path:
    """Return the one file of weights."""
    (path,) = (folder / "weights").glob("*.bin")
    return path


def test_an_empty_store_answers_absent(store: WeightStore) -> None:
    """By digest and by source."""
    assert code(store.get("0" * 64, SIZE)) == "absent"
    assert code(store.find(SOURCE, SIZE)) == "absent"


def test_what_was_put_is_found_by_its_digest(store: WeightStore) -> None:
    """With the state that the store gave and without it; twice put is once stored."""
    weight = put(store, 1)
    assert holds(weight, 1)
    assert holds(store.get(weight.digest, SIZE, weight.state), 1)
    assert holds(store.get(weight.digest, SIZE), 1)
    assert holds(put(store, 1), 1)
    assert code(store.get(weight.digest, SIZE + 1)) == "damaged"


def test_what_a_source_packs_to_is_found_once_it_is_remembered(store: WeightStore) -> None:
    """Putting alone says nothing of a source; the last word counts."""
    first, second = put(store, 1), put(store, 2)
    assert code(store.find(SOURCE, SIZE)) == "absent"
    for weight in (first, second):
        assert store.remember(SOURCE, weight) is None
    assert holds(store.find(SOURCE, SIZE), 2)
    assert code(store.find("6" * 64, SIZE)) == "absent"


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "0" * 63, "0" * 65])
def test_what_is_no_digest_is_never_looked_for(store: WeightStore, digest: str) -> None:
    """F58: a lying record must not name other files."""
    assert code(store.get(digest, SIZE)) in ("absent", "damaged")


def test_writers_at_once_give_whole_weights(store: WeightStore) -> None:
    """Any number may put the same and other weights at once (F17, F23)."""
    problems: list[object] = []

    def work(start: int) -> None:
        for round_ in range(15):
            number = (start + round_) % 3
            weight = put(store, number)
            store.remember(SOURCE, weight)
            if not holds(store.get(weight.digest, SIZE), number):
                problems.append(number)

    assert run_together(work, 4) == []
    assert problems == []


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grow", "remove", "folder"])
def test_a_damaged_file_is_a_reason_and_putting_mends_it(on_disk: WeightStore, tmp_path: Path, damage: str) -> None:
    """F07, F08: also where a source is asked for, and where the state was the one before."""
    weight = put(on_disk, 1)
    on_disk.remember(SOURCE, weight)
    path = file_of(tmp_path)
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "remove":
        data = array(1).tobytes()
        path.write_bytes({"flip": b"\0" + data[1:], "cut": data[:-1], "empty": b"", "grow": data + b"\0"}[damage])
    for answer in (on_disk.get(weight.digest, SIZE, weight.state), on_disk.find(SOURCE, SIZE)):
        assert code(answer) in ("damaged", "absent", "unreadable")
    assert holds(put(on_disk, 1), 1)
    assert holds(on_disk.get(weight.digest, SIZE), 1)


def test_what_was_looked_at_is_not_read_again_until_it_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start maps weights without reading them; a changed byte under an old time is noticed nevertheless."""
    store = weights_in(tmp_path / "weights")
    weight = put(store, 1)
    read: list[int] = []
    monkeypatch.setattr(
        "opbuild.platform.files.mapping.blake3_of", lambda data: (read.append(len(data)), blake3_of(data))[1]
    )
    assert holds(store.get(weight.digest, SIZE, weight.state), 1)
    assert read == []
    path = file_of(tmp_path)
    before = path.stat()
    with path.open("r+b") as file:
        file.write(b"\xff")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert code(store.get(weight.digest, SIZE, weight.state)) == "damaged"
    assert read == [SIZE]


@pytest.mark.parametrize("what", ["*.bin", "*.json"])
def test_what_others_can_write_to_is_not_believed(on_disk: WeightStore, tmp_path: Path, what: str) -> None:
    """F58: neither weights nor what says that a source packs to them."""
    weight = put(on_disk, 1)
    on_disk.remember(SOURCE, weight)
    (path,) = (tmp_path / "weights").glob(what)
    path.chmod(0o666)
    assert code(on_disk.find(SOURCE, SIZE)) == "untrusted"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_not_believed(on_disk: WeightStore, tmp_path: Path) -> None:
    """F58: its owner could change it at any time."""
    weight = put(on_disk, 1)
    os.chown(file_of(tmp_path), 12345, -1)
    assert code(on_disk.get(weight.digest, SIZE)) == "untrusted"


@pytest.mark.parametrize(
    ("refusal", "step"),
    list(zip([errno.ENOSPC, errno.EDQUOT, errno.EIO], ["make_folder", "write_new", "replace"], strict=True)),
)
def test_a_storage_that_refuses_is_a_reason_and_leaves_nothing(
    on_disk: WeightStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int, step: str
) -> None:
    """Full or read-only, at any step: what is there stays, no part of a file is left (F06, F54)."""

    def refuse(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    weight = put(on_disk, 1)
    monkeypatch.setattr(items, step, refuse)
    answer = on_disk.put(blake3_of(array(2).data), array(2))
    assert code(answer) == "unwritable"
    assert os.strerror(refusal) in str(on_disk.remember(SOURCE, weight))
    monkeypatch.undo()
    assert [path.name for path in (tmp_path / "weights").iterdir()] == [f"{weight.digest}.bin"]
    assert holds(on_disk.get(weight.digest, SIZE), 1)


def test_what_was_found_outlives_its_file(on_disk: WeightStore, tmp_path: Path) -> None:
    """Mapped weights stay while their file goes (F52); copies stay even where it is overwritten in place."""
    weight = put(on_disk, 1)
    answer = on_disk.get(weight.digest, SIZE)
    file_of(tmp_path).unlink()
    assert holds(weight, 1)
    assert holds(answer, 1)
