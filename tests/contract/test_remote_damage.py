"""Damage in stores: who may write replaces what a reader found damaged, wherever and however it is damaged."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from opbuild.cli.store.sharing import RemoteCheck
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.networks import NetworkKey, StoredNetwork, Weight
from opbuild.kernel.reason import Reason
from opbuild.pipeline.remote import Remote, _uploads
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.claims import Flights
from opbuild.store.networks import networks_in
from opbuild.store.remote import manifest
from opbuild.store.remote.networks import RemoteNetworks
from opbuild.store.remote.objects import BLOBS, GROUPS, NETWORKS, OPERATORS, Objects
from opbuild.store.remote.operators import Group, RemoteStore, write_group
from opbuild.store.remote.service import Service
from opbuild.store.weights import weights_in
from support.fuzzing import CAMPAIGN, Change, changed, changed_json, check_seeds
from support.remote_servers import KINDS, Servers, servers, service
from support.samples import conv, entry_of

__all__ = ["servers"]

MADE = [entry_of(conv(tile)) for tile in range(6)]
KEY = NetworkKey("Net 1", {"model": "m"}, lambda: "halide-1")
WEIGHTS = {
    blake3_of(array.data): array
    for array in (np.random.default_rng(size).integers(0, 256, size, np.uint8) for size in (700, 90, 33))
}
NETWORK = StoredNetwork({"weights": sorted(WEIGHTS)}, b"library" * 30, np.arange(99, dtype=np.uint8),
                        dict.fromkeys(WEIGHTS), "halide-1")  # fmt: skip
GROUP = Group({key.stem: key for key, _ in MADE}).name
DAMAGES = ("flip", "cut", "empty", "grow", "other", "resealed")


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small network has many blobs."""
    monkeypatch.setattr(manifest, "PIECE", 256)
    monkeypatch.setattr(manifest, "HELD", 0)


def filled(far: Service) -> None:
    """Write operators, their group and a network to a remote store."""
    objects = Objects(far, PRIVATE)
    for _, entry in MADE:
        assert RemoteStore(objects).publish(entry) is None
    assert write_group(objects, GROUP, [entry for _, entry in MADE], None) is None
    assert RemoteNetworks(objects).publish(KEY, NETWORK, WEIGHTS) is None


def paths() -> list[str]:
    """Return the paths of all of that."""
    parts = [memoryview(NETWORK.library), NETWORK.constants.data, *(array.data for array in WEIGHTS.values())]
    blobs = sorted({digest for part in parts for digest in manifest.ContentDigests.of(part).pieces})
    operators = [OPERATORS + key.stem for key, _ in MADE]
    return [*operators, GROUPS + GROUP, NETWORKS + KEY.stem, *(BLOBS + digest for digest in blobs)]


def raw(far: Service, path: str) -> bytes:
    """Return the bytes at a path."""
    data = far.get(path, 2**24)
    assert isinstance(data, bytes), data
    return data


def damage(far: Service, path: str, how: str, chance: random.Random) -> None:
    """Damage an object."""
    data = raw(far, path)
    if how == "other":
        wrong = raw(far, chance.choice([other for other in paths() if other != path]))
    elif how == "resealed" and not path.startswith(BLOBS):
        assert Objects(far, PRIVATE).put([(path, _lying(path, data.partition(b"\n")[2], chance))]) is None
        return
    else:
        at = chance.randrange(len(data))
        flipped = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        wrong = {"cut": data[:at], "empty": b"", "grow": data + b"x"}.get(how, flipped)
    assert far.put([(path, wrong)]) is None


def _lying(path: str, body: bytes, chance: random.Random) -> bytes:
    """Return another body; of a network what the runtime stored stays, which only that can judge."""
    draw: list[Change] = [(chance.randint(0, 8), chance.randint(0, 2000), chance.randint(0, 255)) for _ in range(3)]
    if not path.startswith(NETWORKS) or chance.random() < 0.3:
        return changed(body, draw, [body]) + b"."
    head, _, rest = body.partition(b"\n")
    said = json.loads(head)
    record = said.pop("record")
    lie = changed_json(said, draw)
    return json.dumps({**lie, "record": record} if isinstance(lie, dict) else lie).encode() + b"\n" + rest


class Machine:
    """One machine's own store and the remote one, as a process of its own has them."""

    def __init__(self, far: Service, folder: Path, **named: bool) -> None:
        self.remote = Remote(far, PRIVATE, lambda text: None, writes=True, **named)
        self.near = networks_in(folder), weights_in(folder / "weights")
        self.networks = self.remote.below(*self.near, lambda: None, Flights(folder / "claims"), lambda _: None)
        self.weights = self.near[1]

    def complete(self) -> bool:
        """Return whether the network and each of its weights is found, as it was written."""
        found = self.networks.lookup(KEY)
        if isinstance(found, Reason) or found.record != NETWORK.record:
            return False
        assert found.library == NETWORK.library
        return all(isinstance(self.weights.get(d, a.nbytes, found.states.get(d)), Weight) for d, a in WEIGHTS.items())

    def build(self) -> None:
        """Do what a build does that may write: look for everything, make what is not there, and offer it."""
        for (_, entry), answer in zip(MADE, self.remote.operators.lookup_all([key for key, _ in MADE]), strict=True):
            if isinstance(answer, Missing):
                self.remote.offer_operator(entry)
        if not self.complete():
            for digest, array in WEIGHTS.items():
                assert isinstance(self.weights.put(digest, array), Weight)
            self.remote.offer_network(KEY, NETWORK, WEIGHTS)

    def warm(self) -> None:
        """Do what warming does where one's own store has everything."""
        for digest, array in WEIGHTS.items():
            assert isinstance(self.near[1].put(digest, array), Weight)
        assert self.near[0].publish(KEY, NETWORK) is None
        assert self.complete()
        for _, entry in MADE:
            self.remote.check_operator(entry)

    def push(self) -> None:
        """Do what ``push`` does."""
        for _, entry in MADE:
            self.remote.operators.holds(entry) or self.remote.operators.publish(entry)
        assert self.remote.networks.publish(KEY, NETWORK, WEIGHTS) is None


WAYS: dict[str, tuple[Callable[[Machine], None], dict[str, bool]]] = {
    "build": (Machine.build, {}),
    "warm": (Machine.warm, {"checks": True}),
    "push": (Machine.push, {"reads_all": True}),
}


def mend(url: str, way: str, folder: Path) -> Service:
    """Let a new process mend a remote store in one of the ways; return its service."""
    work, named = WAYS[way]
    far = service(url)
    machine = Machine(far, folder, **named)
    work(machine)
    _uploads(far).wait()
    return far


def unsound(url: str, folder: Path) -> list[str]:
    """Return the keys that a new process that only reads does not get as it asks for them: operators of a group too."""
    keys = [key for key, _ in MADE]
    answers = RemoteStore(Objects(service(url), PRIVATE)).lookup_all(keys)
    lacking = [key.stem for key, answer in zip(keys, answers, strict=True) if not isinstance(answer, Found)]
    return lacking + ([] if Machine(service(url), folder).complete() else ["the network"])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_damaged_everywhere_is_written_again(way: str, kind: str, servers: Servers, tmp_path: Path) -> None:
    """One byte of every object flipped: a build that may write, warming and pushing leave a sound store."""
    far = servers(kind)
    filled(far)
    for path in paths():
        damage(far, path, "flip", random.Random(path))
    again = Service(far.address, seconds=far.seconds)
    work, named = WAYS[way]
    machine = Machine(again, tmp_path / "own", **named)
    work(machine)
    assert _uploads(again).wait() == []
    assert again.mended
    reading = Service(far.address, seconds=far.seconds)
    assert all(isinstance(RemoteStore(Objects(reading, PRIVATE)).lookup(key), Found) for key, _ in MADE)
    assert Machine(reading, tmp_path / "new", reads_all=True).complete()
    assert Service(far.address, seconds=far.seconds).damaged == set()


@pytest.mark.slow
def test_whatever_is_damaged_and_however_it_is_mended(tmp_path: Path) -> None:
    """Random damages of random objects, sealed anew too; a new process gets everything then."""

    def one(seed: int) -> tuple[str, str]:
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        url = f"file://{folder}/shared"
        far = service(url)
        filled(far)
        hit = [path for path in paths() if chance.random() < chance.choice((0.1, 0.5, 1.0))]
        hows = chance.choice([DAMAGES, [chance.choice(DAMAGES)]])
        for path in hit:
            damage(far, path, chance.choice(hows), chance)
        way = chance.choice(list(WAYS))
        mend(url, way, folder / "own")
        lacking = unsound(url, folder / "new")
        return ("wrong", f"{way}: {lacking} after {hows} of {hit}") if lacking else (f"mended by {way}", "")

    tally = check_seeds("damages of a remote store", one, CAMPAIGN or 24)
    assert len(tally.outcomes) == len(WAYS)


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_store_is_checked_and_what_is_damaged_removed(kind: str, servers: Servers) -> None:
    """What is sound stays; a network whose blob is gone goes with it; the next look finds nothing wrong."""
    far = servers(kind)
    filled(far)
    remote = Remote(far, PRIVATE, lambda text: None, writes=True, reads_all=True)
    assert list(RemoteCheck(remote).problems()) == []
    chance = random.Random(1)
    hit = [paths()[0], GROUPS + GROUP, paths()[-1]]
    for path in hit:
        damage(far, path, "flip", chance)
    checked = RemoteCheck(remote)
    found = list(checked.problems())
    assert {problem.path for problem in found} == {*hit, NETWORKS + KEY.stem}
    assert {problem.reason.code for problem in found} == {"damaged", "incomplete"}
    assert all(checked.repair(problem) for problem in found)
    assert list(RemoteCheck(remote).problems()) == []
    assert set(remote.operators.stems()) == {key.stem for key, _ in MADE[1:]}
