"""Signed entries: with a key, what is not signed with it is a miss, and is built again."""

from __future__ import annotations

import hmac
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.builder.client import server_environment
from opbuild.cli.store.bundling import export_cache, import_bundle
from opbuild.config import Config
from opbuild.errors import BuildError, InvalidModelError, OptionError
from opbuild.kernel.entry import Entry
from opbuild.kernel.identity import remember, remembered
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.networks import NetworkKey
from opbuild.kernel.reason import Reason
from opbuild.offline.format import SIGNATURE, WEIGHTS, Section, open_container, write_container
from opbuild.pipeline.setup import set_up
from opbuild.platform.files.mapping import digest_of, map_file
from opbuild.platform.files.trust import PRIVATE, SHORTEST_KEY, SignatureError, Trust, make_trust, seal, unseal
from opbuild.runtime.stored_network import LoadedNetwork, StoredNetworks
from opbuild.store import operators
from opbuild.store.blobs import Folder
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.operators import Operators, operators_in
from support.handmade import build, chain, image_store
from support.samples import IDENTITY, LEVEL, Recorder, conv, disk_builder, entry_of, needed

SECRET = "a secret of many letters"
MINE, THEIRS = Trust(key=SECRET.encode()), Trust(key=b"another secret of theirs")
KEY = NetworkKey("chain", {"model": "m", "inputs": [["x", "float32", [64 * 1024]]]}, lambda: "halide-1")
SIZE = 64 * 1024


def reason(store: Operators, key: Any) -> str:
    """Return the code of the reason why an entry is missing, "" if it is found."""
    answer = store.lookup(key)
    return answer.reason.code if isinstance(answer, Missing) else ""


def test_an_entry_must_be_signed_with_this_key(tmp_path: Path) -> None:
    """F59: unsigned and wrongly signed entries are misses for that reason, replaced, and then found."""
    key, entry = entry_of(conv())
    mine, theirs, nobodys = (operators_in(tmp_path, trust=trust) for trust in (MINE, THEIRS, PRIVATE))
    nobodys.publish(entry)
    assert reason(mine, key) == "unsigned"
    theirs.publish(entry)
    assert reason(mine, key) == "wrong-signature"
    mine.publish(entry)
    assert (reason(mine, key), reason(theirs, key), reason(nobodys, key)) == ("", "wrong-signature", "")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_build_replaces_what_is_not_signed(config: Config) -> None:
    """F59: the operator is compiled once more, with the reason, and the next build reuses it."""
    with disk_builder(config) as builder:
        builder.build(needed(conv()), "net")
        builder.store = operators_in(config.kernel_meta, trust=MINE)
        first = builder.build(needed(conv()), "net")
        second = builder.build(needed(conv()), "net")
    assert [decision.reason.code for decision in first.decisions] == ["unsigned"]
    assert (first.built, second.built) == (1, 0)


@pytest.mark.parametrize(
    "change",
    [
        lambda info, record: record.update(compileMilliseconds=99.0),
        lambda info, record: record.update(more=1),
        lambda info, record: info["op_info"].update(full_name="other"),
        lambda info, record: record.update(signature="0" * 64),
        lambda info, record: record.update(signature=5),
        lambda info, record: record.update(signature="\u00e4"),
        lambda info, record: record.pop("signature"),
    ],
)
def test_any_change_of_a_record_breaks_the_signature(tmp_path: Path, change: Any) -> None:
    """F59: also of fields that no key and no digest covers."""
    key, entry = entry_of(conv())
    store = operators_in(tmp_path, trust=MINE)
    store.publish(entry)
    paths = [tmp_path / f"{entry.name}{suffix}" for suffix in (".info", ".json")]
    records = [json.loads(path.read_bytes()) for path in paths]
    change(*records)
    for path, record in zip(paths, records, strict=True):
        path.write_text(json.dumps(record))
    assert reason(store, key) in ("wrong-signature", "unsigned")
    assert isinstance(operators.entry_in(Folder(tmp_path), entry.name), Entry)


def test_another_object_under_a_right_digest_breaks_the_signature(tmp_path: Path) -> None:
    """F59: who can write all three files, and so make them agree, cannot sign them."""
    key, entry = entry_of(conv())
    _, forged = entry_of(conv(), code=b"evil")
    store = operators_in(tmp_path, trust=MINE)
    store.publish(entry)
    stolen = json.loads((tmp_path / f"{entry.name}.json").read_bytes())["signature"]
    operators_in(tmp_path).publish(replace(forged, record={**forged.record, "signature": stolen}))
    assert isinstance(operators_in(tmp_path).lookup(key), Found)
    assert reason(store, key) == "wrong-signature"


def test_a_signed_entry_does_not_serve_under_another_name(tmp_path: Path) -> None:
    """F59: the name is signed too, so a signed entry cannot be passed off as another device's."""
    key, entry = entry_of(conv())
    store = operators_in(tmp_path, trust=MINE)
    store.publish(entry)
    for suffix in (".o", ".info", ".json"):
        path = tmp_path / f"{entry.name}{suffix}"
        path.rename(path.with_name(path.name.replace("_0.", "_3.")))
    path = tmp_path / f"{entry.name[:-1]}3.json"
    path.write_text(path.read_text().replace(entry.name, f"{entry.name[:-1]}3"))
    assert reason(operators_in(tmp_path, 3), key) == ""
    assert reason(operators_in(tmp_path, 3, trust=MINE), key) == "wrong-signature"


def test_without_a_key_nothing_is_signed_and_files_are_as_ever(tmp_path: Path) -> None:
    """The files of an unsigned store hold no signature, byte for byte what they were; signed ones are used as usual."""
    key, entry = entry_of(conv())
    operators_in(tmp_path / "a").publish(entry)
    assert (tmp_path / "a" / f"{entry.name}.json").read_bytes() == entry.files()[2][1]
    assert seal({"a": 1}, "name", PRIVATE) == seal({"a": 1}, "name")
    assert unseal(seal({"a": 1}, "name", MINE), "name") == {"a": 1}
    operators_in(tmp_path / "b", trust=MINE).publish(entry)
    found = operators_in(tmp_path / "b").lookup(key)
    assert isinstance(found, Found)
    assert found.entry.object == entry.object


def stored_network(folder: Path, trust: Trust) -> StoredNetworks:
    """Store a network with a file of weights."""
    store = image_store(folder, trust=trust)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    return store


def test_a_network_must_be_signed_with_this_key(tmp_path: Path) -> None:
    """F59: its record is signed, and holds the digests of all its files."""
    stored_network(tmp_path, PRIVATE)
    assert image_store(tmp_path, trust=MINE).load(KEY) == Reason("unsigned", "it is not signed")
    stored_network(tmp_path, THEIRS)
    answer = image_store(tmp_path, trust=MINE).load(KEY)
    assert isinstance(answer, Reason)
    assert answer.code == "wrong-signature"
    mine = stored_network(tmp_path, MINE)
    assert isinstance(mine.load(KEY), LoadedNetwork)
    assert isinstance(image_store(tmp_path).load(KEY), LoadedNetwork)


def test_what_is_remembered_of_weights_is_signed_too(tmp_path: Path) -> None:
    """F59: an unsigned note that changed weights were verified is not believed; the digest is compared."""
    store = stored_network(tmp_path, MINE)
    (weights,) = (tmp_path / "weights").glob("*.bin")
    weights.write_bytes(bytes(weights.stat().st_size))
    seen = tmp_path / f"{KEY.stem}.seen"
    seen.write_bytes(PRIVATE.write_memo(seen, {weights.stem: map_file(weights, weights.stat().st_size)[1]}))
    assert isinstance(image_store(tmp_path).load(KEY), LoadedNetwork)  # whom nobody told of a key
    assert "digest" in str(store.load(KEY))


def test_a_reference_to_weights_does_not_serve_under_another_name(tmp_path: Path) -> None:
    """F59: a signed file that says what a source packs to cannot stand for another source."""
    store = stored_network(tmp_path, MINE)
    (reference,) = (tmp_path / "weights").glob("*.json")
    assert MINE.read_memo(reference)["nbytes"] == 4 * SIZE
    moved = reference.rename(reference.with_name("0" * 64 + ".json"))
    with pytest.raises(SignatureError):
        MINE.read_memo(moved)
    assert store.packer().packed == 0


def test_memos_must_be_signed(tmp_path: Path) -> None:
    """F59: the compiler that is remembered decides which entries are used where none is installed."""
    memo = tmp_path / "compiler.json"
    for trust in (PRIVATE, THEIRS, MINE):
        remember(memo, IDENTITY, trust)
        assert remembered(memo, MINE) == (IDENTITY if trust is MINE else None)
        assert remembered(memo) == IDENTITY


def test_the_digest_of_a_model_that_is_remembered_must_be_signed(tmp_path: Path) -> None:
    """F59: it decides which stored network is started."""
    model, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    model.write_bytes(b"model")
    forged = {"blake3": "0" * 64, "state": map_file(model, 5)[1]}
    for trust in (PRIVATE, THEIRS, MINE):
        memo.write_bytes(trust.write_memo(memo, forged))
        assert (digest_of(model, memo, None, MINE).digest == "0" * 64) == (trust is MINE)


def test_an_offline_model_must_be_signed_with_this_key(tmp_path: Path) -> None:
    """F59: the signature covers the digests of all sections; readers without a key skip it."""
    path = tmp_path / "model.om"
    sections = [Section(kind, 0, [bytes([kind]) * 100]) for kind in range(1, 8)]
    for trust, why in ((PRIVATE, "not signed"), (THEIRS, "another key")):
        write_container(path, sections, trust)
        with pytest.raises(InvalidModelError, match=why):
            open_container(path, trust=MINE)
        assert open_container(path).section(WEIGHTS).nbytes == 100
    write_container(path, sections, MINE)
    container = open_container(path, trust=MINE)
    assert [container.section(kind).tobytes() for kind in range(1, 8)] == [bytes([k]) * 100 for k in range(1, 8)]
    assert container.section(SIGNATURE).nbytes == 64
    write_container(tmp_path / "other.om", [*sections[:-1], Section(7, 0, [b"changed"])])
    stolen = Section(SIGNATURE, 0, [container.section(SIGNATURE).tobytes()])
    write_container(tmp_path / "forged.om", [*sections[:-1], Section(7, 0, [b"changed"]), stolen])
    with pytest.raises(InvalidModelError, match="another key"):
        open_container(tmp_path / "forged.om", trust=MINE)


def test_a_bundle_must_be_signed_with_this_key(tmp_path: Path) -> None:
    """F59: the signature covers the list, which holds the digests of all contents."""
    path = tmp_path / "bundle"
    for trust, why in ((PRIVATE, "not signed"), (THEIRS, "another key")):
        write_bundle(path, "t", [IDENTITY], [], trust)
        with pytest.raises(BuildError, match=why):
            read_bundle(path, MINE)
    write_bundle(path, "t", [IDENTITY], [], MINE)
    assert read_bundle(path, MINE) == read_bundle(path)


def test_a_cache_signs_what_it_imports(tmp_path: Path) -> None:
    """F59: entries of an unsigned cache are not exported with a key; those of a signed bundle are signed on arrival."""
    plain = Config(cache_path=tmp_path / "plain", signing_key="")
    signing = replace(plain, cache_path=tmp_path / "signing", signing_key=SECRET)
    key, entry = entry_of(conv())
    operators_in(plain.kernel_meta).publish(entry)
    with pytest.raises(BuildError, match="no operator"):
        export_cache(tmp_path / "bundle", replace(plain, signing_key=SECRET), LEVEL)
    export_cache(tmp_path / "bundle", plain, LEVEL)
    with pytest.raises(BuildError, match="not signed"):
        import_bundle(tmp_path / "bundle", signing, LEVEL)
    operators_in(plain.kernel_meta, trust=MINE).publish(entry)
    export_cache(tmp_path / "bundle", replace(plain, signing_key=SECRET), LEVEL)
    assert import_bundle(tmp_path / "bundle", signing, LEVEL).operators == 1
    assert reason(operators_in(signing.kernel_meta, trust=MINE), key) == ""


def test_signatures_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """F59: how long a comparison takes says nothing about where a forged signature is wrong."""
    compared: list[bytes] = []
    compare = hmac.compare_digest

    def watched(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    MINE.check_signature(MINE.sign("a", "b"), "a", "b")
    with pytest.raises(SignatureError):
        MINE.check_signature("0" * 64, "a", "b")
    assert len(compared) == 2


def test_parts_of_what_is_signed_do_not_run_together() -> None:
    """``ab, c`` and ``a, bc`` are not the same, nor are two kinds of file with equal contents."""
    assert len({MINE.sign("ab", "c"), MINE.sign("a", "bc"), MINE.sign("abc"), MINE.sign("abc", "")}) == 4


@pytest.mark.parametrize("text", ["short", "x" * (SHORTEST_KEY - 1), "file:/nonexistent", "file:", "file:a\0b"])
def test_a_bad_key_is_an_error_that_does_not_show_it(tmp_path: Path, text: str) -> None:
    """The message says how long it is, not what it is; of a file it says why it cannot be used."""
    with pytest.raises(OptionError, match="OPBUILD_SIGNING_KEY") as caught:
        set_up(Config(cache_path=tmp_path, signing_key=text), None, Recorder())
    assert text.startswith("file:") or text not in str(caught.value)


def test_a_key_may_lie_in_a_file_of_ones_own(tmp_path: Path) -> None:
    """Its surrounding white space does not count, and it is refused if others can write to it."""
    path = tmp_path / "key"
    path.write_text(f"{SECRET}\n")
    path.chmod(0o600)
    setting = Config(cache_path=tmp_path, signing_key=f"file:{path}")
    assert make_trust(setting) == MINE
    path.chmod(0o666)
    with pytest.raises(OptionError, match="everybody may write"):
        make_trust(setting)


def test_the_key_is_nowhere_to_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in what is printed of settings, not in the environment of compilers, not in any file."""
    monkeypatch.setenv("OPBUILD_SIGNING_KEY", SECRET)
    config = Config.from_environment(cache_path=tmp_path)
    setup = set_up(config, None, Recorder())
    shown = repr((config, setup, make_trust(config)))
    assert SECRET not in shown
    assert not any(SECRET in value for value in server_environment().values())
    operators_in(config.kernel_meta, trust=setup.trust).publish(entry_of(conv())[1])
    stored_network(config.network_meta, setup.trust)
    contents = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(contents) > 5
    assert not any(SECRET.encode() in content for content in contents)


def test_without_a_key_nothing_of_openssl_is_loaded() -> None:
    """A start without a key pays nothing: neither hmac nor OpenSSL is imported."""
    program = (
        "import sys; from opbuild.config import Config; from opbuild.platform.files.trust import trusted\n"
        "import opbuild.runtime.stored_network\n"
        "trusted(Config())[1].sign('a')\n"
        "print([name for name in ('hmac', '_hashlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_network_of_a_signed_cache_computes_the_same(tmp_path: Path) -> None:
    """Signing changes no value."""
    image = stored_network(tmp_path, MINE).load(KEY)
    assert isinstance(image, LoadedNetwork)
    np.testing.assert_array_equal(image.constants[0].view(np.float32), np.arange(SIZE, dtype=np.float32))
