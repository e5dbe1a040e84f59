"""What every store of networks promises; a new tier is done when this suite is green over it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from opbuild.kernel.interfaces import NetworkStore
from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store import items
from opbuild.store.blobs import Memory
from opbuild.store.claims import Flights
from opbuild.store.networks import Networks, networks_in
from opbuild.store.remote.networks import RemoteNetworks, TieredNetworks
from opbuild.store.remote.objects import Objects
from opbuild.store.remote.retry import Breaker
from opbuild.store.tiers import SharedNetworks
from opbuild.store.weights import weights_in
from support.remote_servers import READ_KINDS, Servers, service
from support.together import run_together

SIGNED = Trust(key=b"k" * 16)
BASES: dict[str, Callable[[Path], Networks]] = {
    "disk": lambda folder: networks_in(folder / "network_meta"),
    "copies": lambda folder: networks_in(folder / "network_meta", copies=True),
    "signed": lambda folder: networks_in(folder / "network_meta", trust=SIGNED),
    "memory": lambda folder: Networks(Memory()),
}
"""Where one's own networks lie."""


def _stacked(base: str, folder: Path, *, peers: bool, remote: bool, in_turn: bool) -> NetworkStore:
    """Return them with what lies round them, from the inside."""
    own = BASES[base](folder)
    store: NetworkStore = SharedNetworks(own, lambda: [folder / "peer"]) if peers else own
    if not remote:
        return store
    below = RemoteNetworks(Objects(service(f"file://{folder}/far"), PRIVATE))
    turns = Flights(folder / "claims") if in_turn else None
    return TieredNetworks(store, weights_in(folder / "weights"), below, turns=turns)


KINDS: dict[str, Callable[[Path], NetworkStore]] = {
    " < ".join(filter(None, (base, "peers" * peers, "remote" * remote, "in turn" * in_turn))): partial(
        _stacked, base, peers=peers, remote=remote, in_turn=in_turn
    )
    for base, peers, remote, in_turn in product(BASES, (False, True), (False, True), (False, True))
    if remote >= in_turn and not (base == "memory" and peers)
}
"""Every combination."""

ON_DISK = [kind for kind in KINDS if not kind.startswith("memory")]
KEY = NetworkKey("Net 1", {"model": "m", "inputs": [["x", "float32", [2]]]}, lambda: "halide-1")


def network(number: int = 0) -> StoredNetwork:
    """Return a network like no other; what its parts mean only the runtime knows."""
    constants = np.full(64, number, np.uint8)
    return StoredNetwork({"steps": [number]}, b"library %d" % number, constants, {"w": [number]}, "halide-1")


def found(store: NetworkStore, key: NetworkKey = KEY) -> StoredNetwork:
    """Return a network that must be there."""
    answer = store.lookup(key)
    assert isinstance(answer, StoredNetwork), answer
    return answer


def code(store: NetworkStore, key: NetworkKey = KEY) -> str:
    """Return why there is no network."""
    answer = store.lookup(key)
    assert isinstance(answer, Reason)
    assert answer.text
    return answer.code


def equal(one: StoredNetwork, other: StoredNetwork) -> bool:
    """Return whether two networks are one."""
    return one[:2] == other[:2] and bool(np.array_equal(one.constants, other.constants))


@pytest.fixture(params=[*sorted(KINDS), *READ_KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path, servers: Servers) -> NetworkStore:
    """An empty store of each kind, and one at each remote service."""
    if request.param in READ_KINDS:
        return RemoteNetworks(Objects(servers(request.param), PRIVATE))
    return KINDS[request.param](tmp_path)


@pytest.fixture(params=ON_DISK)
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NetworkStore]:
    """A store of each kind that has files, with one network."""
    store = KINDS[request.param](tmp_path)
    assert store.publish(KEY, network()) is None
    return store


def test_an_empty_store_answers_absent(store: NetworkStore) -> None:
    """What was never published is missing for exactly that reason (F69)."""
    assert code(store) == "absent"


def test_what_was_published_is_found_byte_for_byte(store: NetworkStore) -> None:
    """Record, library, constants and states come back as they were; the constants cannot be written to by mistake."""
    assert store.publish(KEY, network(7)) is None
    assert equal(found(store), network(7))
    assert found(store).states in ({"w": [7]}, {})  # other machines have other files


def test_publishing_again_replaces(store: NetworkStore) -> None:
    """The last writer's network is found, whole (F17)."""
    for number in (1, 1, 2):
        assert store.publish(KEY, network(number)) is None
    assert equal(found(store), network(2))


def test_other_networks_do_not_disturb(store: NetworkStore) -> None:
    """Every component of the key tells networks apart, and the compiler that is installed decides (F27)."""
    store.publish(KEY, network(1))
    other = NetworkKey("Net 1", {**KEY.components, "model": "n"}, lambda: "halide-1")
    assert code(store, other) == "absent"
    store.publish(other, network(2))
    assert equal(found(store), network(1))
    assert code(store, KEY._replace(installed=lambda: "halide-2")) == "other-compiler"
    assert equal(found(store, KEY._replace(installed=str)), network(1))


def test_a_network_of_a_releases_kernels_serves_whatever_compiler_is_installed(store: NetworkStore) -> None:
    """Which one that is need not be known, and nobody asks: 165 MB would be read for it."""

    def installed() -> str:
        raise AssertionError("the compiler was asked for")

    store.publish(KEY, network(1)._replace(compiler=""))
    assert found(store, KEY._replace(installed=installed)).compiler == ""
    assert code(store, NetworkKey("Net 2", KEY.components, installed)) == "absent"
    store.publish(KEY, network(2))
    assert found(store).compiler == "halide-1"


def test_new_states_of_weights_are_kept_or_lost(store: NetworkStore) -> None:
    """Noting them changes nothing else; a store that needs none may forget them."""
    store.publish(KEY, network(1))
    store.note(KEY, {"w": [99]})
    assert equal(found(store), network(1))
    assert found(store).states in ({"w": [99]}, {"w": [1]}, {})


@pytest.mark.slow
def test_two_writers_and_readers_at_once_give_whole_networks(store: NetworkStore) -> None:
    """What is found is one of those that were published, never a mixture, and no exception (F17, F23)."""
    published = [network(number) for number in range(4)]
    problems: list[object] = []

    def work(number: int) -> None:
        for round_ in range(4 if isinstance(store, RemoteNetworks) else 20):
            store.publish(KEY, published[(number + round_) % 4])
            answer = store.lookup(KEY)
            if isinstance(answer, StoredNetwork) and not any(equal(answer, each) for each in published):
                problems.append(answer)

    assert run_together(work, 4) == []
    assert problems == []
    if isinstance(store, RemoteNetworks):  # what WebDAV's server writes in place was seen half-written, which ends it
        store.objects.service.reading = Breaker()
    store.publish(KEY, network(9))
    assert equal(found(store), network(9))


@pytest.mark.parametrize("suffix", [".json", ".so", ".bin"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grow", "remove", "folder"])
def test_a_damaged_file_is_a_reason_and_publishing_mends_it(
    on_disk: NetworkStore, tmp_path: Path, suffix: str, damage: str
) -> None:
    """F07, F08: whatever happens to a file, the answer is a reason, and the next publication is found."""
    (path,) = (tmp_path / "network_meta").glob(f"*{suffix}")
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "remove":
        changed = {"flip": bytes([data[0] ^ 1]) + data[1:], "cut": data[:-1], "empty": b"", "grow": data + b"\0"}
        path.write_bytes(changed[damage])
    assert code(on_disk) in ("damaged", "incomplete", "unreadable", "absent")
    assert on_disk.publish(KEY, network(3)) is None
    assert equal(found(on_disk), network(3))


@pytest.mark.parametrize("suffix", [".json", ".so", ".bin", ".seen"])
def test_what_others_can_write_to_is_not_believed(on_disk: NetworkStore, tmp_path: Path, suffix: str) -> None:
    """F58: the answer says so; of states, which only save reading, nothing is lost but what they said."""
    (path,) = (tmp_path / "network_meta").glob(f"*{suffix}")
    path.chmod(0o666)
    if suffix == ".seen":
        assert found(on_disk).states == {}
    else:
        assert code(on_disk) == "untrusted"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_not_believed(on_disk: NetworkStore, tmp_path: Path) -> None:
    """F58: its owner could change it at any time."""
    (path,) = (tmp_path / "network_meta").glob("*.so")
    os.chown(path, 12345, -1)
    assert code(on_disk) == "untrusted"


@pytest.mark.parametrize(
    ("refusal", "step"),
    list(zip([errno.ENOSPC, errno.EDQUOT, errno.EIO], ["make_folder", "write_new", "replace"], strict=True)),
)
def test_a_storage_that_refuses_is_a_reason_and_leaves_what_was_there(
    on_disk: NetworkStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int, step: str
) -> None:
    """Full or read-only, at any step: the reason is returned, the old network is still whole (F06, F54)."""

    def refuse(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    before = sorted(path.name for path in (tmp_path / "network_meta").iterdir())
    monkeypatch.setattr(items, step, refuse)
    assert os.strerror(refusal) in str(on_disk.publish(KEY, network(5)))
    monkeypatch.undo()
    assert sorted(path.name for path in (tmp_path / "network_meta").iterdir()) == before
    assert equal(found(on_disk), network(0))


def test_mapped_constants_outlive_their_files(on_disk: NetworkStore, tmp_path: Path) -> None:
    """What was found stays while it is replaced and removed (F52)."""
    kept = found(on_disk)
    on_disk.publish(KEY, network(8))
    for path in (tmp_path / "network_meta").iterdir():
        path.unlink()
    assert equal(kept, network(0))


def test_a_peer_whose_folder_others_can_write_to_lends_nothing(tmp_path: Path) -> None:
    """F58: the files themselves may be sound; who can write beside them can exchange them."""
    peer = tmp_path / "peer"
    assert networks_in(peer).publish(KEY, network(1)) is None

    def shared() -> SharedNetworks:
        return SharedNetworks(networks_in(tmp_path / "network_meta"), lambda: [peer])

    peer.chmod(0o777)
    assert code(shared()) == "absent"
    peer.chmod(0o700)
    assert equal(found(shared()), network(1))
