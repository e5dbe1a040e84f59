"""Readers of the cache's files, offline models and bundles: a miss or a clear error, whatever the bytes are (F58)."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from opbuild.cli.export import _rows, write_json
from opbuild.cli.store.bundling import _unpack
from opbuild.cli.store.folder import check_network
from opbuild.errors import OpbuildError
from opbuild.kernel.artifact import NotAnObjectError, read_symbols
from opbuild.kernel.identity import remember, remembered
from opbuild.kernel.interfaces import Found
from opbuild.kernel.networks import NetworkKey, Weight
from opbuild.offline.file import read_offline
from opbuild.offline.format import LIBRARY, Section, open_container, write_container
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import digest_of, map_file
from opbuild.platform.files.trust import PRIVATE, seal, seal_text, unseal
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Executor
from opbuild.runtime.stored_network import LoadedNetwork
from opbuild.store import operators
from opbuild.store.blobs import Folder
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.counters import FILE, count_build, read_counters
from opbuild.store.inventory import survey
from opbuild.store.networks import weights_of
from opbuild.store.operators import operators_in
from opbuild.store.policy import read_policy
from opbuild.store.weights import weights_in
from opbuild.target.level import CPU
from support.fuzzing import CAMPAIGN, INPUTS, Change, changed, changed_json, fuzz, to_bytes
from support.handmade import build, chain, image_store, write_chain
from support.samples import IDENTITY, LEVEL, conv, entry_of

SIZE = 64 * 1024
KEY = NetworkKey("chain", {"model": "m", "inputs": [["x", "float32", [SIZE]]]}, lambda: "halide-1")


pytestmark = [pytest.mark.timeout(7200)] if CAMPAIGN else []


def test_files_of_an_entry(tmp_path: Path) -> None:
    """F58: any change of object or records is a miss, or leaves what the key and the digest say."""
    key, entry = entry_of(conv())
    store = operators_in(tmp_path)
    files = dict(entry.files())
    store.publish(entry)

    def read(changes: list[Change], pick: int) -> str:
        name = list(files)[pick % 3]
        content = files[name]
        if pick % 2 and not name.endswith(".o"):
            content = to_bytes(changed_json(json.loads(content), changes))
        else:
            content = changed(content, changes, list(files.values()))
        (tmp_path / name).write_bytes(content)
        try:
            answer = store.lookup(key)
            store.components(entry.name)
            operators.summarize(Folder(tmp_path), entry.name)
            operators.entry_in(Folder(tmp_path), entry.name)
        finally:
            (tmp_path / name).write_bytes(files[name])
        if isinstance(answer, Found):
            assert answer.entry.object == entry.object
            return "the same"
        return answer.reason.code

    outcomes = fuzz("entries", read)
    assert outcomes["damaged"] + outcomes["other-key"] > INPUTS // 3


def test_objects() -> None:
    """F58: the reader of symbols says what is wrong with an ELF file, and reads nothing outside it."""
    from support.handmade import ADD, kernel_object

    content = kernel_object(ADD)

    def read(changes: list[Change], pick: int) -> str:
        try:
            read_symbols(changed(content, changes))
        except NotAnObjectError:
            return "refused"
        return "read"

    assert fuzz("objects", read)["refused"] > 0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stored network with a file of weights."""
    folder = tmp_path_factory.mktemp("network")
    store = image_store(folder)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    return folder


def test_files_of_a_network(network: Path) -> None:
    """F58: also where the record's own digest fits what was changed; what can be started stays in its memory."""
    contents = {
        path: path.read_bytes() for path in network.rglob("*") if path.is_file() and path.stat().st_size < 2**16
    }
    record = network / f"{KEY.stem}.json"
    store = image_store(network)
    library = Library((network / f"{KEY.stem}.so").read_bytes(), 1)

    def read(changes: list[Change], pick: int) -> str:
        path = list(contents)[pick % len(contents)] if pick % 3 == 0 else record
        content = changed(contents[path], changes)
        if path == record and pick % 2:
            content = seal_text(to_bytes(changed_json(unseal(contents[record], record.name), changes)), record.name)
        path.write_bytes(content)
        try:
            image = store.load(KEY)
            check_network(network, KEY.stem)
            for item in survey(network, network).items:
                weights_of(item)
        finally:
            path.write_bytes(contents[path])
        if not isinstance(image, LoadedNetwork):
            return "refused"
        try:
            Executor(image.record, {CPU: library}, image.constants, None)
        except OpbuildError:
            return "not started"
        return "started"

    assert fuzz("networks", read)["refused"] > INPUTS // 3


def test_offline_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """F58: also where all digests fit what was changed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    path, sound = tmp_path / "model.om", write_chain(tmp_path / "sound.om")
    content, container = sound.read_bytes(), open_container(sound)
    library = Library(build(chain(64)).library, 1)
    sections = {place: container.section(*place).tobytes() for place in container.places}
    inner = [place for place in sections if place[0] != LIBRARY]

    def read(changes: list[Change], pick: int) -> str:
        if pick % 3 == 0:
            path.write_bytes(changed(content, changes))
        else:
            chosen = inner[pick % len(inner)]
            data = sections[chosen]
            if data[:1] == b"{" and pick % 4:
                data = to_bytes(changed_json(json.loads(data), changes))
            else:
                data = changed(data, changes)
            write_container(
                path, [Section(*place, [data if place == chosen else sections[place]]) for place in sections]
            )
        try:
            model = read_offline(path)
            for index in range(len(model.signatures)):
                bound = model.record(index)
                Executor(bound, {CPU: library}, model.constants(bound), None)
            repr(model.endpoints)
            assert _rows(model)
            write_json(path, None, tmp_path / "shown.json")
        except OpbuildError:
            return "refused"
        return "started"

    assert fuzz("offline models", read)["refused"] > INPUTS // 3


def test_bundles(tmp_path: Path) -> None:
    """F58: also where the list's digest fits what was changed; a name never leads outside the cache."""
    path = tmp_path / "bundle"
    _, entry = entry_of(conv())
    files = [(f"kernel_meta/{name}", data) for name, data in entry.files()]
    write_bundle(path, "target", [IDENTITY], [*files, ("network_meta/chain_1.model", seal({"a": 1}, "chain_1.model"))])
    content = path.read_bytes()
    header, _, rest = content.partition(b"\n")
    length = int(header.split()[-1])
    listing, data = json.loads(rest[:length]), rest[length:]

    def read(changes: list[Change], pick: int) -> str:
        if pick % 2:
            body = to_bytes(changed_json(listing, changes))
            head = f"opbuild bundle 1 {blake3_of(body)} {len(body)}\n".encode()
            path.write_bytes(head + body + (changed(data, changes) if pick % 4 == 1 else data))
        else:
            path.write_bytes(changed(content, changes))
        try:
            bundle = read_bundle(path)
            *_, problems = _unpack(bundle, LEVEL)
        except OpbuildError:
            return "refused"
        assert not [name for name in bundle.files if ".." in name or name.startswith("/")]
        return "problems" if problems else "read"

    assert fuzz("bundles", read)["refused"] > INPUTS // 3


def test_settings_of_a_cache(tmp_path: Path) -> None:
    """F58: whatever stands in op_cache.ini, there is a policy within its limits."""
    file = tmp_path / "op_cache.ini"
    content = b"# size\n[op_compiler_cache]\nmax_op_cache_size=500\nremain_cache_size_ratio=50\n"

    def read(changes: list[Change], pick: int) -> str:
        file.write_bytes(changed(content, changes, [content, b"\xef\xbb\xbf", b"=\r[;]#\n", b"99999999999999"]))
        policy, warnings = read_policy(file)
        assert policy.max_megabytes == -1 or policy.max_megabytes >= 1
        assert 1 <= policy.remain_ratio <= 100
        return "warned" if warnings else policy.origin.rpartition(".")[2]

    assert len(fuzz("op_cache.ini", read)) > 1


def test_counters_and_memos(tmp_path: Path) -> None:
    """F58: what is only remembered is left out if it is not sound, and never stops anything."""
    library, memo, weights = tmp_path / "library", tmp_path / "compiler.json", tmp_path / "weights"
    library.write_bytes(b"code")
    remember(memo, IDENTITY)
    count_build(tmp_path, [1.0], [("absent", 2.0)])
    state = map_file(library, 4)[1]
    digest = tmp_path / "model.digest"
    digest.write_bytes(PRIVATE.write_memo(digest, {"blake3": blake3_of(b"code"), "state": state}))
    sound = {path: path.read_bytes() for path in (memo, tmp_path / FILE, digest)}
    built = chain(SIZE).buffers[1]
    store, source = weights_in(weights), "0" * 64
    array = built.pack().view("uint8")  # type: ignore[misc]
    weight = store.put(blake3_of(array.data), array)
    assert isinstance(weight, Weight)
    assert store.remember(source, weight) is None
    reference = weights / f"{source}.json"
    sound[reference] = reference.read_bytes()

    def read(changes: list[Change], pick: int) -> str:
        path = list(sound)[pick % len(sound)]
        content = changed(sound[path], changes, list(sound.values()))
        if pick % 3:
            content = to_bytes(changed_json(json.loads(sound[path]), changes))
        path.write_bytes(content)
        try:
            known = remembered(memo) is not None
            counted = read_counters(tmp_path).builds
            answer = store.find(source, array.nbytes)
            found = answer if isinstance(answer, Weight) else None
            assert found is None or blake3_of(found.array.data) == found.digest
            assert len(digest_of(library, digest).digest) == 64
        finally:
            path.write_bytes(sound[path])
        return f"{path.suffix}{' known' * known}{' counted' * bool(counted)}{' found' * (found is not None)}"

    assert len(fuzz("counters and memos", read)) > 2
