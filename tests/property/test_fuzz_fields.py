"""Every field of every format that is read, changed and sealed again: an answer or an error of opbuild (F58).

Digests fit what was changed, as if whoever changed it had made them: so what is tried is what stands behind them.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import lzma
import os
import struct
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import opbuild
from opbuild.builder.wire import Unpacker
from opbuild.cli.export import show, write_json
from opbuild.cli.main import main
from opbuild.cli.run_model import read_inputs
from opbuild.cli.store.bundling import _unpack
from opbuild.cli.store.folder import check_network
from opbuild.config import Config
from opbuild.families.family import TuningQuery
from opbuild.frontend.models.memory import read_declaration
from opbuild.frontend.wire import delimited, varint
from opbuild.kernel.identity import remember, remembered
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import key_digest
from opbuild.kernel.networks import NetworkKey, StoredNetwork, Weight
from opbuild.mindspore import load_checkpoint
from opbuild.mindspore.checkpoint_file import _values
from opbuild.offline.format import GRAPH, LIBRARY, WEIGHTS, Section, open_container, write_container
from opbuild.offline.load import load
from opbuild.pipeline.tuned import ApplicableRecords
from opbuild.platform.digest import blake3_of, sha256
from opbuild.platform.files.mapping import digest_of, map_file
from opbuild.platform.files.trust import PRIVATE, seal, seal_text, unseal
from opbuild.ranks.progress import FOLDER, Snapshot, read_snapshot, write_snapshot
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Executor
from opbuild.runtime.stored_network import LoadedNetwork
from opbuild.store import inventory, operators, pack
from opbuild.store.blobs import Folder
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.claims import ClaimFile, _holder
from opbuild.store.counters import FILE, check_counters, count_build, read_counters
from opbuild.store.inventory import survey
from opbuild.store.machine_class import machine_file, read_measured, system_class
from opbuild.store.networks import networks_in
from opbuild.store.operators import operators_in
from opbuild.store.pack import Pack, PackFile
from opbuild.store.pack import _read as forget_packs
from opbuild.store.peers import _read
from opbuild.store.remote.leases import Leases
from opbuild.store.remote.networks import RemoteNetworks, TieredNetworks
from opbuild.store.remote.objects import CLAIMS, NETWORKS, OPERATORS, Objects, sha256_of
from opbuild.store.remote.operators import RemoteStore, _entries, packed
from opbuild.store.tuning_database import TuningRecord, line_of, parse_database
from opbuild.store.weights import weights_in
from opbuild.target.host import host_level
from opbuild.target.level import CPU
from support.fake_compiler import fake_object
from support.fields import Format, try_fields
from support.fuzzing import CAMPAIGN, to_bytes
from support.handmade import build, chain, image_store, write_chain
from support.remote_servers import service
from support.samples import IDENTITY, LEVEL, conv, entry_of, key_of
from support.tiers import spans

SIZE = 64 * 1024
KEY = NetworkKey(
    "chain", {"model": "m", "target": LEVEL.name, "inputs": [["x", "float32", [SIZE]]]}, lambda: "halide-1"
)
DATA = Path(__file__).resolve().parents[1] / "data"

pytestmark = [
    pytest.mark.parametrize("seeds", spans(50, 20)),
    *([pytest.mark.timeout(14400)] if CAMPAIGN else []),
]


def check(formats: list[Format], tmp_path: Path, seeds: range) -> None:
    """Try all fields, and see that a good part of the changes was noticed; some are none, or of what nothing reads."""
    planted = tmp_path / "planted"
    planted.mkdir()
    found = try_fields(formats, planted, seeds)
    assert [sum(outcomes.values()) for outcomes in found.values()] == [len(seeds)] * len(formats)
    sound = sum(outcomes[each] for outcomes in found.values() for each in ("read", "not written"))
    assert sound < 0.8 * len(seeds) * len(formats), found


def memo(path: Path) -> Callable[[Any], None]:
    """Return a writer of a memo, with its digest."""
    return lambda content: path.write_bytes(PRIVATE.write_memo(path, content)) and None


def plain(path: Path) -> Any:
    """Return the content of a memo, without its digest."""
    return {name: value for name, value in json.loads(path.read_bytes()).items() if name != "check"}


def sealed(path: Path) -> Callable[[Any], None]:
    """Return a writer of a sealed file."""
    return lambda content: path.write_bytes(seal_text(to_bytes(content), path.name)) and None


# A folder of operators


def entries(folder: Path) -> list[Format]:
    """The records of an operator; that of what was asked has its key's digest."""
    key, entry = entry_of(conv())
    store = operators_in(folder)
    store.publish(entry)
    info, record = folder / f"{entry.name}.info", folder / f"{entry.name}.json"

    def write_info(content: Any) -> None:
        content["key"]["sha256"] = key_digest(content["key"]["components"])
        info.write_bytes(to_bytes(content))

    def read() -> str:
        answer = store.lookup(key)
        operators.summarize(Folder(folder), entry.name)
        operators.entry_in(Folder(folder), entry.name)
        store.components(entry.name)
        return "read" if isinstance(answer, Found) else answer.reason.code

    return [
        Format("operators (.info)", json.loads(info.read_bytes()), write_info, read, (folder,)),
        Format(
            "operators (.json)", json.loads(record.read_bytes()), lambda c: record.write_bytes(to_bytes(c)) and None,
            read, (folder,),
        ),
    ]  # fmt: skip


def networks(folder: Path) -> list[Format]:
    """The files of a stored network."""
    store = image_store(folder)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    library = Library((folder / f"{KEY.stem}.so").read_bytes(), 1)
    record, seen = folder / f"{KEY.stem}.json", folder / f"{KEY.stem}.seen"
    reference = next((folder / "weights").glob("*.json"))
    model = folder / f"{KEY.stem}.model"
    model.write_bytes(
        seal(
            {"model": "0" * 64, "name": "n", "inputs": [["x", "float32", [1]]], "outputs": [["y", "", None]],
             "external": ["a"]},
            model.name,
        )
    )  # fmt: skip

    def read() -> str:
        image = store.load(KEY)
        check_network(folder, KEY.stem)
        survey(folder, folder)
        if not isinstance(image, LoadedNetwork):
            return image.code
        Executor(image.record, {CPU: library}, image.constants, None)
        return "read"

    def read_model() -> str:
        try:
            read_declaration(model)
        except (ValueError, KeyError, TypeError):  # what its caller takes for a file that is not there
            return "damaged"
        return "read"

    def read_reference() -> str:
        answer = weights_in(folder / "weights").find(reference.stem, SIZE * 4)
        return "read" if isinstance(answer, Weight) else answer.code

    return [
        Format("networks (.json)", unseal(record.read_bytes(), record.name), sealed(record), read, (folder,)),
        Format("networks (.seen)", plain(seen), memo(seen), read, (folder,)),
        Format("models (.model)", unseal(model.read_bytes(), model.name), sealed(model), read_model, (folder,)),
        Format("weights (.json)", plain(reference), memo(reference), read_reference, (folder,)),
    ]


def notes(folder: Path) -> list[Format]:
    """What is remembered of the folder, the compiler and files, and what ranks tell each other."""
    library, compiler, digest = folder / "library", folder / "compiler.json", folder / "model.digest"
    library.write_bytes(b"code")
    remember(compiler, IDENTITY)
    digest.write_bytes(PRIVATE.write_memo(digest, {"blake3": blake3_of(b"code"), "state": map_file(library, 4)[1]}))
    count_build(folder, [1.0], [("absent", 2.0)])
    counters, size = folder / FILE, folder / inventory.SIZE_FILE
    inventory.remember_size(folder, inventory.MeasuredFolder(5, 3.0))
    write_snapshot(folder, 3, Snapshot())
    snapshot, said, claim = folder / FOLDER / "3.json", folder / "said", folder / "claim"

    def lines(path: Path) -> Callable[[Any], None]:
        return lambda content: path.write_bytes(to_bytes(content) + b"\n") and None

    def answered(read: Callable[[], Any]) -> Callable[[], str]:
        return lambda: "read" if read() else "damaged"

    def read_counted() -> str:
        try:
            check_counters(counters, PRIVATE)
        except ValueError:
            return "damaged"
        return "read" if read_counters(folder).builds else "damaged"

    def read_claim() -> bool:
        file = ClaimFile(claim, os.open(claim, os.O_RDONLY))
        try:
            return _holder(file).process > 0
        finally:
            file.release()

    def unpacked() -> bool:
        try:
            return bool(Unpacker().feed((folder / "wire").read_bytes()))
        except ValueError:  # whose reader ends the process at the other end
            return False

    def write_wire(content: Any) -> None:
        text = to_bytes(content)
        (folder / "wire").write_bytes(struct.pack("<II", len(text), 0) + text)

    return [
        Format("compiler.json", plain(compiler), memo(compiler), answered(lambda: remembered(compiler)), (folder,)),
        Format(
            "files (.digest)", plain(digest), memo(digest),
            answered(lambda: digest_of(library, digest).digest == blake3_of(b"code")), (folder,),
        ),
        Format("counters.jsonl", json.loads(counters.read_bytes()), lines(counters), read_counted, (folder,)),
        Format(
            "size.jsonl", json.loads(size.read_bytes()), lines(size),
            answered(lambda: inventory.remembered_size(folder, 3.0, PRIVATE)), (folder,),
        ),
        Format(
            "ranks' progress", json.loads(snapshot.read_bytes()), lines(snapshot),
            answered(lambda: (found := read_snapshot(folder, 3)) and found.doing), (folder,),
        ),
        Format(
            "ranks' stores", [["/a", "/b"], ["/c", "/d"]], lines(said), answered(lambda: len(_read(said)) == 2),
            (folder,),
        ),
        Format("claims", {"process": 3, "host": "h", "rank": 1}, lines(claim), answered(read_claim), (folder,)),
        Format("the compile server's messages", {"kind": "ready"}, write_wire, answered(unpacked), (folder,)),
    ]  # fmt: skip


@pytest.mark.slow
def test_fields_of_a_cache(seeds: range, tmp_path: Path) -> None:
    """Records of operators and networks, and whatever is only remembered."""
    folders = [tmp_path / name for name in ("operators", "networks", "notes")]
    for folder in folders:
        folder.mkdir()
    check(entries(folders[0]) + networks(folders[1]) + notes(folders[2]), tmp_path, seeds)


def shown(cache: Path) -> list[Format]:
    """The same records, as the commands show them."""
    operators, built = cache / "rank_0" / "kernel_meta", cache / "rank_0" / "network_meta"
    for folder in (operators, built):
        folder.mkdir(parents=True)
    names = [entry_of(conv())[1].name, KEY.stem]

    def read() -> str:
        codes = []
        for words in (["ls"], ["stats"], ["verify"], *(["show", name] for name in names)):
            with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
                codes.append(main(["cache", *words, "--cache_path", str(cache)]))
            assert "Traceback" not in said.getvalue()
        return "read" if not any(codes) else "told"

    formats = [*entries(operators), *networks(built)[:1]]
    return [Format(f"{each.name}, shown", each.sound, each.write, read, (cache,)) for each in formats]


@pytest.mark.slow
def test_fields_that_commands_show(seeds: range, tmp_path: Path) -> None:
    """``cache ls``, ``show``, ``stats`` and ``verify`` tell what is wrong, and end with a code."""
    check(shown(tmp_path / "cache"), tmp_path, seeds)


# Files that are given to others


def offline(folder: Path) -> list[Format]:
    """The sections of an offline model that are JSON."""
    path = folder / "model.om"
    container = open_container(write_chain(folder / "sound.om"))
    sections = {place: container.section(*place).tobytes() for place in container.places}

    def write(place: tuple[int, int]) -> Callable[[Any], None]:
        return lambda content: write_container(
            path, [Section(*each, [to_bytes(content) if each == place else data]) for each, data in sections.items()]
        )

    def read() -> str:
        with contextlib.redirect_stdout(io.StringIO()):
            show(path)
        write_json(path, None, folder / "said.json")
        network = load(path)
        return "read" if network.inputs else "nothing"

    texts = [place for place in sections if place[0] not in (LIBRARY, WEIGHTS) and sections[place][:1] == b"{"]
    return [
        Format(f"offline models (section {place[0]})", json.loads(sections[place]), write(place), read, (folder,))
        for place in texts
    ]


def bundles(folder: Path) -> list[Format]:
    """The list of a bundle, and a network's record in it."""
    path = folder / "bundle"
    _, entry = entry_of(conv())
    store = image_store(folder / "networks")
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    files = {f"kernel_meta/{name}": data for name, data in entry.files()}
    files |= {
        f"network_meta/{each.relative_to(folder / 'networks')}": each.read_bytes()
        for each in (folder / "networks").rglob("*")
        if each.is_file() and each.suffix != ".seen" and (each.suffix != ".json" or each.parent.name != "weights")
    }
    mark = f"network_meta/{KEY.stem}.json"
    write_bundle(path, LEVEL.name, [IDENTITY], files.items())
    header, _, rest = path.read_bytes().partition(b"\n")
    length = int(header.split()[-1])
    listing, data = json.loads(rest[:length]), rest[length:]

    def write(content: Any) -> None:
        body = to_bytes(content)
        path.write_bytes(f"opbuild bundle 2 {blake3_of(body)} {len(body)}\n".encode() + body + data)

    def write_mark(content: Any) -> None:
        changed = seal_text(to_bytes(content), f"{KEY.stem}.json")
        write_bundle(path, LEVEL.name, [IDENTITY], (files | {mark: changed}).items())

    def read() -> str:
        bundle = read_bundle(path)
        assert not [name for name in bundle.files if ".." in name or name.startswith("/") or len(name) > 255]
        *_, problems = _unpack(bundle, LEVEL)
        return "problems" if problems else "read"

    return [
        Format("bundles", listing, write, read, (folder,)),
        Format("networks in bundles", unseal(files[mark], f"{KEY.stem}.json"), write_mark, read, (folder,)),
    ]


def packs(folder: Path) -> list[Format]:
    """The list and the descriptors of a pack."""
    descs = [conv(tile) for tile in range(3)]
    keys = [key_of(desc, LEVEL, IDENTITY, "code") for desc in descs]
    objects = [
        pack.Object(desc.components(), key.operator, "pipeline", fake_object(b"code", (key.symbol,)))
        for desc, key in zip(descs, keys, strict=True)
    ]
    data = pack.pack_bytes(LEVEL.name, "conv", IDENTITY, pack.FamilySources("code", "text"), objects)
    path = folder / LEVEL.name / "conv.pack"
    path.parent.mkdir(parents=True)
    header = pack._HEADER.match(data)
    assert header
    listed = data[header.end() : header.end() + int(header[3])]
    rest = data[header.end() + len(listed) :]
    content = json.loads(lzma.decompress(listed))
    nbytes = content["descriptors"][0]

    def written(head: Any, body: bytes) -> None:
        text = lzma.compress(to_bytes(head), preset=1)
        path.write_bytes(f"opbuild pack 2 {sha256(text)} {len(text)}\n".encode() + text + body)

    def write_descriptors(found: Any) -> None:
        text = lzma.compress(to_bytes(found), preset=1)
        written({**content, "descriptors": [len(text), sha256(text)]}, rest[:-nbytes] + text)

    def read() -> str:
        forget_packs.cache_clear()
        pack = Pack(LEVEL.name, folder)
        answers = [pack.lookup(key) for key in keys]
        pack.compiler()
        pack.has(descs[0])
        file = pack.file("conv")
        if isinstance(file, PackFile):
            with contextlib.suppress(ValueError):  # as its caller takes it
                file.descriptors()
        found = [answer for answer in answers if isinstance(answer, Found)]
        return "read" if len(found) == 3 else "lacking"

    return [
        Format("packs", content, lambda found: written(found, rest), read, (folder,)),
        Format("packs (descriptors)", [desc.components() for desc in descs], write_descriptors, read, (folder,)),
    ]


def databases(folder: Path) -> list[Format]:
    """A line of a tuning database."""
    record = TuningRecord(
        "conv",
        "[3,4]",
        "x86-64-v3",
        "m",
        "s",
        2,
        "0" * 64,
        {"tile": 1},
        {"tile": 2},
        2.0,
        1.0,
        0.5,
        0.1,
        9,
        "2026",
        "n",
    )
    line = line_of(record, PRIVATE)
    path = folder / "bank"

    def write(content: Any) -> None:
        text = to_bytes(content)
        path.write_bytes(blake3_of(text)[:16].encode() + b" " + text + b"\n")

    def read() -> str:
        database = parse_database(path.read_bytes(), PRIVATE)
        asked = {TuningQuery(each.family, each.arguments): each for each in database.latest().values()}
        known = ApplicableRecords(asked, lambda family: "0" * 64)
        found = [
            *known.answers(TuningQuery("conv", "[3,4]"), {"tile": 1}),
            *known.answers(TuningQuery("conv", "[2,5]"), None),
        ]
        return "read" if found else "nothing" if database.records else "damaged"

    config = Config(cache_path=folder / "cache")
    machine = machine_file(config)
    machine.parent.mkdir(parents=True)
    sound = {"system": system_class(), "peak": {host_level().name: 100.0}, "classes": {host_level().name: 128.0}}

    def read_machine() -> str:
        found = read_measured(config, PRIVATE)
        return "nothing" if found is None else "read" if found.name(host_level().name) else "unnamed"

    return [
        Format("tuning databases", json.loads(line.partition(b" ")[2]), write, read, (folder,)),
        Format("machine.json", sound, memo(machine), read_machine, (folder,)),
    ]


def arrays(folder: Path) -> list[Format]:
    """The header of an array that is given to ``opbuild run``."""
    path = folder / "x.npy"

    def write(content: Any) -> None:
        text = repr(content).encode(errors="surrogatepass").ljust(118) + b"\n"
        path.write_bytes(b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + bytes(64))

    def read() -> str:
        return "read" if read_inputs((str(path),))[""].nbytes <= 64 else "larger"

    sound = {"descr": "<f4", "fortran_order": False, "shape": [16]}
    return [Format("arrays (.npy)", sound, lambda c: write({**c, "shape": _tuple(c.get("shape"))}), read, (folder,))]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@pytest.mark.slow
def test_fields_of_files_that_are_given_to_others(
    seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offline models, bundles, packs, tuning databases and arrays."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    folders = [tmp_path / name for name in ("offline", "bundles", "packs", "banks", "arrays")]
    for folder in folders:
        folder.mkdir()
    makers = (offline, bundles, packs, databases, arrays)
    check([form for make, folder in zip(makers, folders, strict=True) for form in make(folder)], tmp_path, seeds)


# Networks of open sizes

OPEN = """<ir_version: 9, opset_import: ["" : 21]>
g (float[n,8] x) => (float[n,4] y) <float[8,4] w = {%s}, float[4] b = {1, 2, 3, 4}> {
    s = Softmax <axis = 1> (x)
    m = MatMul(s, w)
    a = Add(m, b)
    y = Relu(a)
}"""


@pytest.mark.slow
def test_fields_of_networks_of_open_sizes(
    seeds: range, tmp_path: Path, kept_objects: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formulas, buffers and kernels of a stored program and of an offline model with ranges, bound to two sizes."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    model = parser.parse_model(OPEN % ", ".join(str(number / 16) for number in range(32)))
    folder = tmp_path / "open"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    options = {"cache_path": folder / "cache", "num_threads": 1}
    network = opbuild.compile(model, **options)
    inputs = [np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32) for rows in (3, 5)]
    right = [network(each) for each in inputs]
    sound, path = folder / "sound.om", folder / "model.om"
    opbuild.export(model, sound, ranges={"x": ((1, 9), 8)}, config=Config(**options))
    marks = [each for each in folder.rglob("*.json") if b'"program"' in each.read_bytes()]
    container = open_container(sound)
    sections = {place: container.section(*place).tobytes() for place in container.places}

    def write(content: Any) -> None:
        data = to_bytes(content)
        write_container(
            path, [Section(*each, [data if each == (GRAPH, 0) else whole]) for each, whole in sections.items()]
        )

    def outcome(network: Any) -> str:
        found = [network(each) for each in inputs]
        return "read" if all(np.allclose(*pair) for pair in zip(found, right, strict=True)) else "another"

    def read_stored() -> str:
        return outcome(opbuild.compile(model, forbid_compile=True, **options))

    formats = [
        Format(
            f"networks of open sizes ({n})", unseal(mark.read_bytes(), mark.name), sealed(mark), read_stored, (folder,)
        )
        for n, mark in enumerate(sorted(marks))
    ]
    formats.append(
        Format(
            "offline models (section 7)", json.loads(sections[GRAPH, 0]), write, lambda: outcome(load(path)), (folder,)
        )
    )
    check(formats, tmp_path, seeds)


# Objects of a remote store


def remote(folder: Path) -> list[Format]:
    """Operators, groups, networks and claims."""
    url = folder / "remote"
    url.mkdir()
    objects = Objects(service(f"file://{url}"), PRIVATE)
    key, entry = entry_of(conv())
    weights = np.arange(70_000, dtype=np.uint8)
    RemoteNetworks(objects).publish(KEY, _network(weights), {blake3_of(weights.data): weights})
    body = objects.get(NETWORKS + KEY.stem, 2**28)
    assert isinstance(body, bytes)
    head, _, rest = body.partition(b"\n")
    operator = packed(entry)
    said, _, files = operator.partition(b"\n")

    def put(path: str, tail: bytes) -> Callable[[Any], None]:
        def write(content: Any) -> None:
            data = to_bytes(content) + b"\n" + tail
            place = url / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(f"opbuild {sha256_of(data)} -\n".encode() + data)

        return write

    def read_network() -> str:
        near = folder / f"near_{os.getpid()}"
        own = weights_in(near / "weights")
        fresh = Objects(service(f"file://{url}"), PRIVATE)
        answer = TieredNetworks(networks_in(near), own, RemoteNetworks(fresh)).lookup(KEY)
        for each in near.rglob("*"):
            assert not each.is_file() or each.stat().st_blocks * 512 < 2**24, each
            each.unlink() if each.is_file() else None
        return "read" if isinstance(answer, StoredNetwork) else answer.elsewhere.partition(",")[0][:40]

    def read_operator() -> str:
        answer = RemoteStore(Objects(service(f"file://{url}"), PRIVATE)).lookup(key)
        return "read" if isinstance(answer, Found) else answer.reason.code

    def write_claim(content: Any) -> None:
        place = url / CLAIMS / "name" / "0"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(to_bytes(content))

    def read_claim() -> str:
        answer = Leases(service(f"file://{url}"), CLAIMS).claim("name", patience=5.0)
        return "read" if getattr(answer, "process", 0) == 3 else "another"

    group = folder / "group"

    def write_group(content: Any) -> None:
        group.write_bytes(to_bytes(content) + b"\n" + operator)

    return [
        Format("remote networks", json.loads(head), put(NETWORKS + KEY.stem, rest), read_network, (folder,)),
        Format("remote operators", json.loads(said), put(OPERATORS + key.stem, files), read_operator, (folder,)),
        Format(
            "remote groups", [[key.stem, len(operator)]], write_group,
            lambda: "read" if _entries(group.read_bytes(), {key.stem: key}) else "nothing", (folder,),
        ),
        Format(
            "remote claims", {"word": "0" * 32, "process": 3, "host": "h", "rank": 1, "seconds": 15.0}, write_claim,
            read_claim, (folder,),
        ),
    ]  # fmt: skip


def _network(weights: Any) -> StoredNetwork:
    constants = np.arange(200, dtype=np.uint8)
    digest = blake3_of(weights.data)
    return StoredNetwork({"weights": [digest], "notes": {}}, b"library" * 1000, constants, {digest: None})


def test_fields_of_objects_of_a_remote_store(seeds: range, tmp_path: Path) -> None:
    """A manifest that lies makes no room, an operator's sizes are its own, a claim is anybody's."""
    folder = tmp_path / "objects"
    folder.mkdir()
    check(remote(folder), tmp_path, seeds)


# Checkpoints and torch


def message(value: Any, number: int = 1) -> bytes:
    """Return a field of protobuf: an object is a message whose keys are fields' numbers, a list a repeated field."""
    if isinstance(value, list):
        return b"".join(message(each, number) for each in value)
    if isinstance(value, dict):
        return delimited(number, b"".join(message(each, int(name)) for name, each in value.items()))
    if isinstance(value, int):
        return varint(number << 3) + varint(value % 2**64)
    text = value if isinstance(value, str) else repr(value)
    return delimited(number, text.encode("latin-1" if max(text, default="") < "\u0100" else "utf-8", "surrogatepass"))


def parameters(content: bytes) -> Any:
    """Return the parameters of a checkpoint as ``message`` takes them."""
    found = []
    for record in _values(memoryview(content)):
        data = b"".join(record.pieces).decode("latin-1")
        found.append({"1": record.tag, "2": {"1": list(record.shape), "2": record.label, "3": data}})
    return found


def test_fields_of_checkpoints(seeds: range, tmp_path: Path) -> None:
    """The header of safetensors, and the messages of MindSpore's own form, with their checksum."""
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    path, own = folder / "x.safetensors", folder / "x.ckpt"
    content = sorted(DATA.glob("*.safetensors"))[0].read_bytes()
    length = int.from_bytes(content[:8], "little")

    def write(header: Any) -> None:
        text = to_bytes(header)
        path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + length :])

    def read() -> str:
        load_checkpoint(str(path), format="safetensors")
        return "read"

    def write_own(found: Any) -> None:
        data = message(found)
        own.write_bytes(data + b"crc_num" + zlib.crc32(data).to_bytes(10, "big"))

    def read_own() -> str:
        load_checkpoint(str(own), crc_check=True)
        return "read"

    check(
        [
            Format("safetensors", json.loads(content[8 : 8 + length]), write, read, (folder,)),
            Format("checkpoints", parameters((DATA / "kinds.ckpt").read_bytes()), write_own, read_own, (folder,)),
        ],
        tmp_path,
        seeds,
    )


@pytest.fixture(scope="module")
def saved_module(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A saved torch module, and a store with its operators."""
    torch = pytest.importorskip("torch", reason="saved modules are torch's")
    import opbuild.torch
    from support.torch_started import Small, rows

    folder = tmp_path_factory.mktemp("saved")
    saved = opbuild.torch.save(
        folder / "net.obt", Small().eval(), (rows(3),), {"bias": torch.ones(4)},
        options={"cache_path": str(folder / "store"), "num_threads": 1},
    )  # fmt: skip
    saved(rows(3), bias=torch.ones(4))
    return folder / "net.obt", folder / "store"


@pytest.mark.slow
def test_fields_of_saved_torch_modules(
    seeds: range,
    saved_module: tuple[Path, Path],
    tmp_path: Path,
    user_store: Path,
    kept_objects: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Names of operators, trees, sizes and constants of ``.obt``; loaded, and called without compiling."""
    import torch

    import opbuild.torch
    from opbuild.torch.aot import _FORM as GRAPH_FORM
    from opbuild.torch.aot import Storable
    from opbuild.torch.artifacts import OperatorArtifact
    from opbuild.torch.saved import _FORM
    from support.torch_started import Small, rows

    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # where networks are linked
    sound, store = saved_module
    content, path, graph = unseal(sound.read_bytes(), _FORM), folder / "net.obt", folder / "graph"
    options = {"cache_path": str(store), "num_threads": 1, "forbid_compile": True}
    right = Small().eval()(rows(3), bias=torch.ones(4))

    def read() -> str:
        loaded = opbuild.torch.load(path, Small().eval(), options=options)
        found = loaded(rows(3), bias=torch.ones(4))
        same = isinstance(found, dict) and found.keys() == right.keys()
        same = same and all(isinstance(found[name], torch.Tensor) for name in right)
        return "read" if same and all(torch.allclose(found[name], right[name]) for name in right) else "another"

    def read_graph() -> str:
        return "read" if Storable.deserialize_compile_artifacts(graph.read_bytes()) else "nothing"

    _, entry = entry_of(conv())
    artifact = folder / "artifact"
    packed = {Path(name).suffix: base64.b64encode(data).decode() for name, data in entry.files()}

    def read_artifact() -> str:
        OperatorArtifact(entry.name, artifact.read_bytes()).populate_cache()
        return "read"

    user_store.mkdir(parents=True, exist_ok=True)  # an artifact for this machine's level is kept there
    roots = (folder, store, user_store)
    plain_options = {"num_threads": 1}
    formats = [
        Format(
            "saved torch modules", content, lambda c: path.write_bytes(seal_text(to_bytes(c), _FORM)) and None,
            read, roots,
        ),
        Format(
            "stored torch graphs", {"graph": content["graph"], "options": plain_options},
            lambda c: graph.write_bytes(seal_text(to_bytes(c), GRAPH_FORM)) and None, read_graph, roots,
        ),
        Format(
            "artifacts of torch's cache", packed,
            lambda c: artifact.write_bytes(seal_text(to_bytes(c), entry.name)) and None, read_artifact, roots,
        ),
    ]  # fmt: skip
    check(formats, tmp_path, seeds)
