"""What is small and says that it is large: nothing is unpacked, mapped or made room for beyond what its kind can be."""

from __future__ import annotations

import lzma
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.cli.run_model import read_inputs
from opbuild.errors import BuildError, OptionError
from opbuild.kernel.interfaces import Missing
from opbuild.kernel.networks import NetworkKey, StoredNetwork
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import blake3_of, sha256
from opbuild.platform.files.trust import PRIVATE
from opbuild.store import pack
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.networks import networks_in
from opbuild.store.pack import Pack, _read
from opbuild.store.remote import manifest
from opbuild.store.remote.manifest import ContentDigests
from opbuild.store.remote.networks import RemoteNetworks, TieredNetworks
from opbuild.store.remote.objects import NETWORKS, Objects
from opbuild.store.weights import weights_in
from support.fake_compiler import fake_object
from support.packed import object_in
from support.remote_servers import Servers
from support.samples import IDENTITY, LEVEL, conv, entry_of, key_of

PIECE = manifest.PIECE
BOMB = lzma.compress(bytes(96 * 2**20), preset=0)
"""96 MiB of zeros in some kilobytes; one more than any part of a pack can have."""

KEY = key_of(conv(), LEVEL, IDENTITY, "code")
CODE = fake_object(b"code", (KEY.symbol,))


def peak(read: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a function, and the most bytes that it had."""
    tracemalloc.start()
    try:
        return read(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def packed(list_: bytes | None = None, block: bytes | None = None, descriptors: bytes | None = None) -> bytes:
    """Return a pack of one operator, some of whose parts are what is given, under digests that fit."""
    block = block or lzma.compress(CODE)
    descriptors = descriptors or lzma.compress(b"[]")
    content = {
        "level": LEVEL.name, "family": "conv", "compiler": IDENTITY.components(),
        "sources": {"code": "code", "text": "text"},
        "blocks": [[len(block), sha256(block), [[KEY.operator[:32], len(CODE), "pipeline"]]]],
        "descriptors": [len(descriptors), sha256(descriptors)],
    }  # fmt: skip
    list_ = list_ or lzma.compress(pack.canonical_json(content).encode())
    head = f"opbuild pack 2 {sha256(list_)} {len(list_)}\n".encode()
    return head + list_ + block + descriptors


def with_a_large_window(data: bytes) -> bytes:
    """Return an XZ stream that says its filter remembers 2 GiB; the checksum of its header is right."""
    head = bytearray(data[12 : 12 + 4 * (data[12] + 1)])
    assert head[2:4] == b"\x21\x01"
    head[4] = 36
    head[-4:] = struct.pack("<I", zlib.crc32(head[:-4]))
    return data[:12] + bytes(head) + data[12 + len(head) :]


@pytest.mark.parametrize(
    ("part", "bomb"),
    [
        *(("list_", BOMB), ("block", BOMB), ("descriptors", BOMB)),
        *((part, with_a_large_window(lzma.compress(CODE))) for part in ("list_", "block", "descriptors")),
    ],
)
def test_a_packs_parts_are_unpacked_up_to_what_they_can_have(tmp_path: Path, part: str, bomb: bytes) -> None:
    """A few kilobytes that unpack to 96 MiB, or want a window of 2 GiB, are damage, and take next to nothing."""
    path = tmp_path / LEVEL.name / "conv.pack"
    path.parent.mkdir()
    path.write_bytes(packed())
    assert object_in(pack.read_pack(path), KEY) == CODE
    path.write_bytes(packed(**{part: bomb}))
    _read.cache_clear()

    def read() -> Any:
        answer = Pack(LEVEL.name, tmp_path).lookup(KEY)
        if part == "descriptors":
            with pytest.raises(ValueError, match="not what was written"):
                pack.read_pack(path).descriptors()
        return answer

    answer, most = peak(read)
    assert part == "descriptors" or (isinstance(answer, Missing) and answer.reason.code == "damaged")
    assert most < (2**24 if part == "block" else 2 * pack._LIST + 2**24)  # it is joined of pieces


def test_a_huge_pack_is_not_read(tmp_path: Path) -> None:
    """A sparse file of a terabyte in a pack's place is a miss."""
    path = tmp_path / LEVEL.name / "conv.pack"
    path.parent.mkdir()
    path.write_bytes(packed())
    os.truncate(path, 2**40)
    _read.cache_clear()
    answer = Pack(LEVEL.name, tmp_path).lookup(KEY)
    assert isinstance(answer, Missing)
    assert answer.reason.code == "damaged"


@pytest.mark.parametrize("name", ["a" * 5000, "a" * 201, "é" * 10])
def test_a_name_that_no_file_can_have_is_none_of_a_bundle(tmp_path: Path, name: str) -> None:
    """It is damage that names it shortly, before anything is imported."""
    path = tmp_path / "bundle"
    _, entry = entry_of(conv())
    sound = {f"kernel_meta/{each}": data for each, data in entry.files()}
    for wrong in (f"kernel_meta/{name}_1_0.o", f"network_meta/{name}_1.model", f"network_meta/weights/{name}.bin"):
        write_bundle(path, LEVEL.name, [IDENTITY], [*sound.items(), (wrong, b"")])
        with pytest.raises(BuildError, match="is damaged") as refused:
            read_bundle(path)
        assert len(str(refused.value)) < 1000


def test_contents_are_no_larger_than_a_constant_can_be() -> None:
    """A manifest that says that a weight has a terabyte says nothing."""
    digest = "0" * 64
    nbytes = manifest.MOST
    assert ContentDigests.from_json([nbytes, [digest] * (nbytes // PIECE)]).nbytes == nbytes
    with pytest.raises(ValueError, match="its pieces are not those"):
        ContentDigests.from_json([nbytes + 1, [digest] * (nbytes // PIECE + 1)])


@pytest.fixture
def pod(servers: Servers, tmp_path: Path) -> tuple[Objects, TieredNetworks, NetworkKey]:
    """A remote store of files, and an empty store above it."""
    objects = Objects(servers("file"), PRIVATE)
    key = NetworkKey("net", {"model": "m"}, lambda: "halide-1")
    own = weights_in(tmp_path / "near" / "weights")
    return objects, TieredNetworks(networks_in(tmp_path / "near"), own, RemoteNetworks(objects)), key


def publish_lying(objects: Objects, key: NetworkKey, weights: dict[str, ContentDigests]) -> None:
    """Publish a network whose manifest declares weights that nobody wrote."""
    network = StoredNetwork({"notes": {}}, b"library", np.zeros(0, np.uint8), {})
    assert RemoteNetworks(objects).publish(key, network) is None
    body = objects.get(NETWORKS + key.stem, 2**28)
    assert isinstance(body, bytes)
    head, _, rest = body.partition(b"\n")
    listed = pack.canonical_json({name: list(each) for name, each in weights.items()})
    objects.put(
        [(NETWORKS + key.stem, head.replace(b'"weights": {}', b'"weights": ' + listed.encode()) + b"\n" + rest)]
    )


def test_weights_that_a_manifest_declares_take_no_room_before_they_come(
    pod: tuple[Objects, TieredNetworks, NetworkKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 GiB were allocated on the disk for a manifest of one megabyte, and stayed when nothing came."""
    objects, networks, key = pod
    monkeypatch.setattr("opbuild.store.remote.networks.room_in", lambda folder: 2**50)
    lying = {"0" * 64: ContentDigests(manifest.MOST, ("1" * 64,) * (manifest.MOST // PIECE))}
    publish_lying(objects, key, lying)
    answer = networks.lookup(key)
    assert isinstance(answer, Reason)
    taken = [path.stat().st_blocks * 512 for path in (tmp_path / "near").rglob("*") if path.is_file()]
    assert sum(taken) < 2**20


def test_weights_that_have_no_room_are_not_asked_for(
    pod: tuple[Objects, TieredNetworks, NetworkKey], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on the disk nor in memory: the network is built instead, and nothing is fetched or left behind."""
    objects, networks, key = pod
    monkeypatch.setattr("opbuild.store.remote.networks.room_in", lambda folder: 3 * PIECE)
    monkeypatch.setattr("opbuild.store.remote.networks.room_in_memory", lambda: PIECE)
    publish_lying(objects, key, {f"{n:064}": ContentDigests(2 * PIECE, ("1" * 64,) * 2) for n in range(3)})
    before = objects.service.traffic.requests
    answer = networks.lookup(key)
    assert isinstance(answer, Reason)
    assert "unwritable" in answer.elsewhere
    assert objects.service.traffic.requests == before + 1
    assert not [path for path in (tmp_path / "near").rglob("*") if path.is_file() and path.stat().st_blocks]


def test_an_array_that_says_it_is_larger_than_its_file_is_refused(tmp_path: Path) -> None:
    """Its header is compared with the file's size before memory is taken."""
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6, dtype=np.float32).reshape(2, 3))
    assert read_inputs((str(path),))[""].tolist() == [[0, 1, 2], [3, 4, 5]]
    for shape in ("(1099511627776,)", "(9, 9)", "(-2, 3)", "(2**40,)", "(1e9,)", "('x',)", "(99999999999999999999,)"):
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
        path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + bytes(24))
        with pytest.raises(OptionError, match=r"is not .* of numbers"):
            read_inputs((str(path),))
    np.save(path, np.zeros((0, 3), np.float32))
    assert read_inputs((str(path),))[""].shape == (0, 3)


def test_digests_of_bombs_fit(tmp_path: Path) -> None:
    """What these tests write is sound up to what they are about."""
    assert lzma.decompress(BOMB) == bytes(96 * 2**20)
    assert len(BOMB) < 2**18
    assert blake3_of(b"") != blake3_of(BOMB)
    with pytest.raises(lzma.LZMAError):
        lzma.LZMADecompressor(memlimit=2**27).decompress(with_a_large_window(lzma.compress(CODE)))
