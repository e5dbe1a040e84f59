"""What one's own store promises with a remote one below it, whatever the remote one does meanwhile."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.networks import Bytes, NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store.networks import networks_in
from opbuild.store.operators import operators_in
from opbuild.store.remote import manifest
from opbuild.store.remote.networks import RemoteNetworks, TieredNetworks
from opbuild.store.remote.objects import BLOBS, NETWORKS, OPERATORS, Objects
from opbuild.store.remote.operators import ABSENT_SECONDS, FIRST, RemoteStore
from opbuild.store.remote.service import Service
from opbuild.store.tiers import TieredStore
from opbuild.store.weights import StoredWeights, weights_in
from support.remote_servers import READ_KINDS, Servers, service
from support.samples import conv, entry_of
from support.together import run_together

KEY = NetworkKey("Net 1", {"model": "m", "inputs": [["x", "float32", [2]]]}, lambda: "halide-1")
SIGNED = Trust(key=b"a key of sixteen bytes")
WEIGHTS = {"large": 5 * 2**20 + 3, "small": 70_000, "empty": 0}


@pytest.fixture(params=READ_KINDS)
def remote(request: pytest.FixtureRequest, servers: Servers) -> Service:
    """An empty remote store of each kind."""
    return servers(request.param)


@pytest.fixture
def folder_store(servers: Servers) -> Service:
    """An empty remote store of files."""
    return servers("file")


def weights() -> dict[str, Bytes]:
    """Return weights like no others, by digest."""
    arrays = [np.random.default_rng(size).integers(0, 256, size, np.uint8) for size in WEIGHTS.values()]
    return {blake3_of(array.data): array for array in arrays}


def network(digests: Any = ()) -> StoredNetwork:
    """Return a network that names weights."""
    constants = np.arange(200, dtype=np.uint8)
    return StoredNetwork({"weights": sorted(digests)}, b"library" * 1000, constants, dict.fromkeys(digests))


@dataclass
class Pod:
    """One machine's own store with a remote one below it."""

    networks: TieredNetworks
    weights: StoredWeights
    folder: Path

    def complete(self) -> bool:
        """Return whether the network and each of its weights is found, as it was written."""
        found = self.networks.lookup(KEY)
        if isinstance(found, Reason):
            return False
        assert found[:2] == network(weights())[:2]
        assert np.array_equal(found.constants, network().constants)
        for digest, array in weights().items():
            weight = self.weights.get(digest, array.nbytes, found.states.get(digest))
            assert isinstance(weight, Weight), weight
            assert np.array_equal(weight.array, array)
        return True


def pod(remote: Service, folder: Path, trust: Trust = PRIVATE) -> Pod:
    """Return a machine with this folder."""
    own = weights_in(folder / "weights", trust=trust)
    below = RemoteNetworks(Objects(remote, trust))
    return Pod(TieredNetworks(networks_in(folder, trust=trust), own, below), own, folder)


def written(remote: Service, trust: Trust = PRIVATE) -> None:
    """Write the network with its weights to a remote store."""
    assert RemoteNetworks(Objects(remote, trust)).publish(KEY, network(weights()), weights()) is None


def told(answer: Found | Missing) -> str:
    """Return the message about the remote store, which has no entry."""
    assert isinstance(answer, Missing)
    return answer.reason.elsewhere


def test_a_network_of_small_contents_is_one_request(remote: Service, tmp_path: Path) -> None:
    """Its manifest has all of it: library, constants and weights."""
    array = np.random.default_rng(1).integers(0, 256, manifest.HELD - 10_000, np.uint8)
    digest = blake3_of(array.data)
    far = RemoteNetworks(Objects(remote, PRIVATE))
    assert far.publish(KEY, network([digest]), {digest: array}) is None
    before = remote.traffic.requests
    machine = pod(remote, tmp_path / "own")
    found = machine.networks.lookup(KEY)
    assert isinstance(found, StoredNetwork)
    assert found[:2] == network([digest])[:2]
    weight = machine.weights.get(digest, array.nbytes)
    assert isinstance(weight, Weight)
    assert np.array_equal(weight.array, array)
    if not hasattr(remote, "_web"):
        assert remote.traffic.requests - before == 1


def test_a_known_network_costs_one_request_and_one_for_each_large_piece(remote: Service, tmp_path: Path) -> None:
    """Then it is one's own: no further request, and no file but its own; its weights are named by their content."""
    written(remote)
    before = remote.traffic.requests
    machine = pod(remote, tmp_path / "own")
    assert machine.complete()
    if not hasattr(remote, "_web"):
        assert remote.traffic.requests - before == 1 + 2  # the manifest has all but two whole pieces
    remote.reading.stop(Reason("refused", "the test ends it"))
    assert pod(remote, tmp_path / "own").complete()
    assert sorted(path.suffix for path in (tmp_path / "own" / "weights").iterdir()) == [".bin"] * 3


def test_a_machine_without_a_disk_starts_all_the_same(remote: Service, tmp_path: Path) -> None:
    """What cannot be kept is used from memory."""
    written(remote)
    (tmp_path / "file").write_text("no folder")
    assert pod(remote, tmp_path / "file" / "own").complete()


def test_weights_that_are_here_are_not_fetched(folder_store: Service, tmp_path: Path) -> None:
    """An edited network brings what is new of it, and what is small."""
    written(folder_store)
    machine = pod(folder_store, tmp_path / "own")
    for digest, array in weights().items():
        assert isinstance(machine.weights.put(digest, array), Weight)
    requests, nbytes = folder_store.traffic.requests, folder_store.traffic.bytes_read
    assert machine.complete()
    assert folder_store.traffic.requests - requests == 1
    assert folder_store.traffic.bytes_read - nbytes < manifest.HELD + 20_000


@pytest.mark.parametrize("pieces", range(7))
def test_a_fetch_that_broke_off_goes_on_where_it_was(
    folder_store: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    """In another process too: pieces that came are compared and kept; meanwhile nobody sees part of a weight."""
    monkeypatch.setattr("opbuild.store.concurrent_map._THREADS", 1)
    monkeypatch.setattr(manifest, "HELD", 0)
    written(folder_store)
    read, left = Service.get, [1 + pieces]

    def breaks(self: Service, path: str, most: int) -> bytes | Reason:
        left[0] -= 1
        return read(self, path, most) if left[0] >= 0 else Reason("slow", "no answer in time")

    monkeypatch.setattr(Service, "get", breaks)
    machine = pod(folder_store, tmp_path / "own")
    assert machine.complete() == (pieces >= 6)
    monkeypatch.setattr(Service, "get", read)
    before = folder_store.traffic.requests
    assert pod(folder_store, tmp_path / "own").complete()
    kept = max(0, pieces - 2) if pieces < 6 else 7
    assert folder_store.traffic.requests - before == 7 - kept
    assert not [path for path in (tmp_path / "own" / "weights").iterdir() if path.name.startswith(".")]


def test_several_processes_fetch_at_once_into_one_folder(folder_store: Service, tmp_path: Path) -> None:
    """As the ranks of a host do: each has the whole network in the end."""
    written(folder_store)
    complete: list[bool] = []
    assert run_together(lambda _: complete.append(pod(folder_store, tmp_path / "own").complete()), 4) == []
    assert complete == [True] * 4


@pytest.mark.parametrize("part", [NETWORKS, BLOBS])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grow", "other", "remove"])
def test_what_is_damaged_is_never_kept(folder_store: Service, tmp_path: Path, part: str, damage: str) -> None:
    """Each object in turn: the answer is a reason, the folder holds no network, and writing it again mends it."""
    root = Path(folder_store.address.options["root"])
    written(folder_store)
    for number, path in enumerate(sorted((root / part).iterdir())):
        data = path.read_bytes()
        if not data:
            continue
        other = next((each.read_bytes() for each in sorted((root / part).iterdir()) if each != path), b"")
        changed = {"flip": data[:-1] + bytes([data[-1] ^ 1]), "cut": data[:-1], "grow": data + b"\0", "other": other}
        path.unlink()
        if damage != "remove":
            path.write_bytes(changed.get(damage, b""))
        machine = pod(service(folder_store.address.url), tmp_path / str(number))
        assert not machine.complete()
        assert not list((tmp_path / str(number)).glob("*.json"))
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        assert machine.complete()


def test_what_is_not_signed_with_the_key_is_not_used(folder_store: Service, tmp_path: Path) -> None:
    """Neither unsigned nor with another key, nor signed for another place; with it, and by who asks for none, it is."""
    key, entry = entry_of(conv())
    other_key, other = entry_of(conv(2))
    other_trust = Trust(key=b"another key of sixteen bytes")
    for trust, code in ((PRIVATE, "unsigned"), (other_trust, "wrong-signature")):
        written(folder_store, trust)
        RemoteStore(Objects(folder_store, trust)).publish(entry)
        asked = service(folder_store.address.url)
        assert told(RemoteStore(Objects(asked, SIGNED)).lookup(key)).startswith(f"the remote store: {code}, ")
        answer = pod(asked, tmp_path / code, SIGNED).networks.lookup(KEY)
        assert isinstance(answer, Reason)
        assert code in answer.elsewhere
    written(folder_store, SIGNED)
    store = RemoteStore(Objects(folder_store, SIGNED))
    store.publish(entry)
    store.publish(other)
    assert isinstance(RemoteStore(Objects(folder_store, SIGNED)).lookup(key), Found)
    assert isinstance(RemoteStore(Objects(folder_store, PRIVATE)).lookup(key), Found)
    assert pod(folder_store, tmp_path / "own", SIGNED).complete()
    stem = entry.name.rpartition("_")[0]
    moved = folder_store.get(OPERATORS + other.name.rpartition("_")[0], 10**6)
    assert isinstance(moved, bytes)
    folder_store.put([(OPERATORS + stem, moved)])
    assert "wrong-signature" in told(RemoteStore(Objects(folder_store, SIGNED)).lookup(key))
    assert isinstance(RemoteStore(Objects(folder_store, SIGNED)).lookup(other_key), Found)


def test_a_forged_manifest_brings_no_wrong_weights(folder_store: Service, tmp_path: Path) -> None:
    """Who may write can name other bytes for a digest; what they are is seen before they are kept."""
    right = weights()
    wrong = dict(zip(right, [np.zeros_like(array) for array in right.values()], strict=True))
    assert RemoteNetworks(Objects(folder_store, PRIVATE)).publish(KEY, network(right), wrong) is None
    for folder in (tmp_path / "own", tmp_path / "file" / "own"):
        (tmp_path / "file").touch()
        assert isinstance(pod(folder_store, folder).networks.lookup(KEY), Reason)
    assert not any(array.nbytes == path.stat().st_size for array in right.values() if array.nbytes
                   for path in (tmp_path / "own" / "weights").glob("[!.]*"))  # fmt: skip


@pytest.mark.parametrize("digest", ["", "../../x", "A" * 64])
def test_a_forged_manifest_names_no_other_files(folder_store: Service, tmp_path: Path, digest: str) -> None:
    """F58: nothing is written outside the folder of weights."""
    array = np.zeros(10, np.uint8)
    RemoteNetworks(Objects(folder_store, PRIVATE)).publish(KEY, network([digest]), {digest: array})
    assert isinstance(pod(folder_store, tmp_path / "a" / "own").networks.lookup(KEY), Reason)
    assert [path.name for path in tmp_path.iterdir()] in ([], ["a"])


@pytest.mark.parametrize(
    "held", [[["0" * 64, 7000]], [["", 0]], [["0" * 64, -1]], [["0" * 64, 10**18]], [[1, 2, 3]], [7], None, {"a": "b"}]
)
def test_pieces_in_a_forged_manifest_are_what_their_names_say(folder_store: Service, tmp_path: Path, held: Any) -> None:
    """Who may write can seal anything; it costs the network, and nothing escapes."""
    objects = Objects(folder_store, PRIVATE)
    written(folder_store)
    body = objects.get(NETWORKS + KEY.stem, 2**24)
    assert isinstance(body, bytes)
    head, _, rest = body.partition(b"\n")
    forged = json.dumps({**json.loads(head), "held": held}).encode() + b"\n" + rest
    assert objects.put([(NETWORKS + KEY.stem, forged)]) is None
    answer = pod(folder_store, tmp_path / "own").networks.lookup(KEY)
    assert isinstance(answer, Reason)
    assert answer.elsewhere.startswith("the remote store: damaged, ")
    assert not list((tmp_path / "own").glob("*.json"))


def test_a_piece_of_another_size_than_its_place_has_is_asked_for(folder_store: Service, tmp_path: Path) -> None:
    """A manifest that gives the library fewer bytes than the piece of it that came with it writes no others."""
    objects = Objects(folder_store, PRIVATE)
    written(folder_store)
    body = objects.get(NETWORKS + KEY.stem, 2**24)
    assert isinstance(body, bytes)
    head, _, rest = body.partition(b"\n")
    said = json.loads(head)
    said["library"][0] -= 1
    assert objects.put([(NETWORKS + KEY.stem, json.dumps(said).encode() + b"\n" + rest)]) is None
    answer = pod(folder_store, tmp_path / "own").networks.lookup(KEY)
    assert isinstance(answer, Reason)
    assert answer.elsewhere == "absent from the remote store"


def test_operators_are_asked_for_together_and_absence_is_remembered(folder_store: Service, tmp_path: Path) -> None:
    """One's own answer no request; what is absent is not asked for twice in a second, and an upload ends that.

    Five are lacking: they are asked for as a group, and then one by one.
    """
    far = RemoteStore(Objects(folder_store, PRIVATE))
    made = [entry_of(conv(tile)) for tile in range(6)]
    for _, entry in made[:4]:
        far.publish(entry)
    near = operators_in(tmp_path / "kernel_meta")
    near.publish(made[0][1])
    store = TieredStore(near, [far])
    before = folder_store.traffic.requests
    answers = store.lookup_all([key for key, _ in made])
    assert [isinstance(answer, Found) for answer in answers] == [True] * 4 + [False] * 2
    assert [answer.source for answer in answers if isinstance(answer, Found)] == ["", *["the remote store"] * 3]
    assert folder_store.traffic.requests - before == 6
    assert told(store.lookup(made[4][0])) == "absent from the remote store"
    assert folder_store.traffic.requests - before == 6
    far.publish(made[4][1])
    assert isinstance(store.lookup(made[4][0]), Found)
    assert ABSENT_SECONDS <= 1.0


def test_who_claims_asks_for_few_where_nothing_is_there(folder_store: Service) -> None:
    """Each is looked up again once it is claimed; where half of the first are there all are asked for now."""
    far = RemoteStore(Objects(folder_store, PRIVATE), 0.0)
    made = [entry_of(conv(tile)) for tile in range(FIRST + 5)]
    keys = [key for key, _ in made]
    far.publish(made[-1][1])
    before = folder_store.traffic.requests
    assert not any(isinstance(answer, Found) for answer in far.lookup_all(keys))
    assert folder_store.traffic.requests - before == 1 + FIRST  # the group of them, too
    for _, entry in made[: FIRST // 2]:
        far.publish(entry)
    before = folder_store.traffic.requests
    answers = RemoteStore(Objects(folder_store, PRIVATE), 0.0).lookup_all(keys)
    there = [number for number, answer in enumerate(answers) if isinstance(answer, Found)]
    assert there == [*range(FIRST // 2), FIRST + 4]
    assert folder_store.traffic.requests - before == 1 + len(keys)


def test_two_writers_leave_one_whole_network(folder_store: Service, tmp_path: Path) -> None:
    """However they take turns, who reads meanwhile finds all of it or a miss."""
    problems: list[object] = []

    def work(number: int) -> None:
        for round_ in range(3):
            written(service(folder_store.address.url))
            pod(folder_store, tmp_path / f"{number}.{round_}").complete() or problems.append(number)

    assert run_together(work, 3) == []
    assert problems == []


def test_pieces_have_the_size_that_one_limit_is_for() -> None:
    """A piece at the least rate takes little longer than the limit of an answer."""
    assert manifest.PIECE == 2 * 2**20
    assert manifest.ContentDigests.of(memoryview(bytes(manifest.PIECE + 1))).nbytes == manifest.PIECE + 1
