"""Bundles: equal contents give equal bytes, and nothing is imported from one that is not whole or not for here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.cli.store.bundling import export_cache, import_bundle
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.errors import BuildError, OpbuildError, OptionError, TargetError
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import make_entry
from opbuild.kernel.interfaces import Found
from opbuild.kernel.networks import StoredNetwork
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import state_of
from opbuild.platform.files.trust import seal, unseal
from opbuild.store.bundle import read_bundle, write_bundle
from opbuild.store.networks import networks_in
from opbuild.store.operators import operators_in
from opbuild.target.host import parse_level
from support import stored_network
from support.samples import IDENTITY, LEVEL, conv, entry_of, key_of

OTHER = parse_level("armv8-a")


@pytest.fixture
def bundle(config: Config, tmp_path: Path) -> Path:
    """A bundle of two operators, exported from a cache that also has a damaged one and one for another target."""
    store = operators_in(config.kernel_meta)
    for tile in (1, 2, 3):
        store.publish(entry_of(conv(tile))[1])
    (config.kernel_meta / f"{entry_of(conv(3))[1].name}.o").write_bytes(b"damaged")
    key = key_of(conv(1), level=OTHER)
    store.publish(make_entry(conv(1), key, 0, Artifact(entry_of_object(key.symbol)), 1.0))
    done = export_cache(tmp_path / "ops.bundle", config, LEVEL)
    assert (done.operators, done.networks, len(done.left_out), done.others) == (2, 0, 1, {str(OTHER): 1})
    return tmp_path / "ops.bundle"


def entry_of_object(symbol: str) -> bytes:
    """Return an object that defines a symbol."""
    from support.fake_compiler import fake_object

    return fake_object(b"code", (symbol,))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Config:
    """Another machine's empty cache."""
    return Config(cache_path=tmp_path / "elsewhere")


def files_in(config: Config) -> list[Path]:
    """Return everything that lies in a cache."""
    return [path for path in config.cache_folder.rglob("*") if path.is_file()]


def test_a_round_trip_finds_every_operator(bundle: Path, elsewhere: Config) -> None:
    """Operators are looked up by the same keys where they were imported; importing again adds nothing."""
    done = import_bundle(bundle, elsewhere, LEVEL)
    assert (done.operators, done.present) == (2, 0)
    for tile in (1, 2):
        key, entry = entry_of(conv(tile))
        found = operators_in(elsewhere.kernel_meta).lookup(key)
        assert isinstance(found, Found)
        assert found.entry.object == entry.object
    again = import_bundle(bundle, elsewhere, LEVEL)
    assert (again.operators, again.present) == (0, 2)


def test_importing_mends_a_damaged_entry(bundle: Path, elsewhere: Config) -> None:
    """What is there but damaged is replaced."""
    import_bundle(bundle, elsewhere, LEVEL)
    (elsewhere.kernel_meta / f"{entry_of(conv(1))[1].name}.o").write_bytes(b"x")
    assert import_bundle(bundle, elsewhere, LEVEL).operators == 1
    assert list(Cache.of(elsewhere).problems()) == []


def test_the_same_cache_gives_the_same_bytes(bundle: Path, config: Config, tmp_path: Path) -> None:
    """No time, path or order of the folder is in a bundle."""
    export_cache(tmp_path / "again.bundle", config, LEVEL)
    assert (tmp_path / "again.bundle").read_bytes() == bundle.read_bytes()
    import_bundle(bundle, replace(config, cache_path=tmp_path / "moved"), LEVEL)
    export_cache(tmp_path / "moved.bundle", replace(config, cache_path=tmp_path / "moved"), LEVEL)
    assert (tmp_path / "moved.bundle").read_bytes() == bundle.read_bytes()


def test_a_lower_levels_bundle_is_imported_as_what_it_is(bundle: Path, tmp_path: Path) -> None:
    """Its operators run on a machine of a higher level, which finds them where nothing can be compiled."""
    higher = parse_level("x86-64-v4")
    together = import_bundle(bundle, Config(cache_path=tmp_path / "together"), higher)
    apart = import_bundle(bundle, Config(op_compiler_cache_dir=tmp_path / "apart"), higher)
    assert together.target == apart.target == LEVEL
    assert together.operators == apart.operators == 2
    assert list((tmp_path / "apart" / LEVEL.name).rglob("*.o"))


def test_another_targets_bundle_is_refused(bundle: Path, elsewhere: Config) -> None:
    """Both targets are named, and nothing is written."""
    with pytest.raises(TargetError, match="is for x86-64-v3, and the cache is for armv8-a"):
        import_bundle(bundle, elsewhere, OTHER)
    assert files_in(elsewhere) == []


def test_any_changed_byte_is_refused_and_nothing_is_imported(bundle: Path, elsewhere: Config) -> None:
    """F07: header, list and every content are under digests; a cut or grown bundle is damaged too."""
    data = bundle.read_bytes()
    places = [*range(0, len(data), 97), len(data) - 1]
    for damaged in [
        *(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :] for place in places),
        data[:-1],
        data + b"x",
        b"",
        data[:40],
    ]:
        bundle.write_bytes(damaged)
        with pytest.raises((BuildError, OptionError)):
            import_bundle(bundle, elsewhere, LEVEL)
    assert files_in(elsewhere) == []


def test_a_damaged_content_is_named(bundle: Path, elsewhere: Config) -> None:
    """The error says which operator's file is not what was exported."""
    data, name = bundle.read_bytes(), entry_of(conv(2))[1].name
    content = bytes(read_bundle(bundle).files[f"kernel_meta/{name}.info"])
    place = data.index(content)
    bundle.write_bytes(data[:place] + b"!" + data[place + 1 :])
    with pytest.raises(BuildError, match=f"kernel_meta/{name}.info"):
        import_bundle(bundle, elsewhere, LEVEL)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.o",
        "kernel_meta/../../evil_1_0.o",
        "/etc/passwd",
        "kernel_meta/conv_1_0.so",
        "network_meta/weights/../conv_1.so",
        "network_meta/compiler.json",
        "op_cache.ini",
        "kernel_meta/conv_1_0.o\n",
    ],
)
def test_a_name_that_no_cache_has_is_refused(tmp_path: Path, elsewhere: Config, name: str) -> None:
    """F58: a bundle with right digests cannot name a place outside, or a file that an import does not bring."""
    path = tmp_path / "evil.bundle"
    write_bundle(path, LEVEL.name, [IDENTITY], [(name, b"x")])
    with pytest.raises(BuildError, match="the name"):
        import_bundle(path, elsewhere, LEVEL)
    assert files_in(elsewhere) == []


@pytest.mark.parametrize("lie", ["foreign", "torn", "mixed", "stray"])
def test_a_sealed_bundle_of_unusable_entries_is_refused_whole(tmp_path: Path, elsewhere: Config, lie: str) -> None:
    """Right digests do not make a right entry: each is checked as a look-up does, and none is imported then."""
    good, bad = entry_of(conv(1))[1], entry_of(conv(2))[1]
    files = {f"kernel_meta/{name}": data for name, data in good.files()}
    other = {f"kernel_meta/{name}": data for name, data in bad.files()}
    if lie == "foreign":
        key = key_of(conv(2), level=OTHER)
        bad = make_entry(conv(2), key, 0, Artifact(entry_of_object(key.symbol)), 1.0)
        other = {f"kernel_meta/{name}": data for name, data in bad.files()}
    elif lie == "torn":
        del other[f"kernel_meta/{bad.name}.info"]
    elif lie == "mixed":
        other[f"kernel_meta/{bad.name}.o"] = good.object
    else:
        other = {f"network_meta/weights/{blake3_of(b'x')}.bin": b"x"}
    path = tmp_path / "lie.bundle"
    write_bundle(path, LEVEL.name, [IDENTITY], [*files.items(), *other.items()])
    with pytest.raises(BuildError, match="nothing of the bundle") as caught:
        import_bundle(path, elsewhere, LEVEL)
    assert (blake3_of(b"x") if lie == "stray" else bad.name) in caught.value.message
    assert good.name not in caught.value.message
    assert files_in(elsewhere) == []


@pytest.mark.parametrize("content", [b"", b"opbuild bundle 3 " + b"0" * 64 + b" 2\n{}", b"PK\x03\x04", b"\0" * 500])
def test_what_is_no_bundle_is_said(tmp_path: Path, elsewhere: Config, content: bytes) -> None:
    """Another file, or another release's bundle, is an error of the option."""
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(OptionError):
        import_bundle(path, elsewhere, LEVEL)


def test_a_list_that_is_no_list_is_refused(tmp_path: Path) -> None:
    """A sealed list of another form is damage, not a crash."""
    for listing in (b"[]", b'{"target":1}', b'{"target":"t","files":[[1]]}', json.dumps(
        {"target": "t", "compilers": [], "files": [["kernel_meta/conv_1_0.o", -1, "d"]]}
    ).encode()):  # fmt: skip
        path = tmp_path / "file"
        path.write_bytes(f"opbuild bundle 2 {blake3_of(listing)} {len(listing)}\n".encode() + listing)
        with pytest.raises(BuildError):
            read_bundle(path)


def test_an_empty_cache_cannot_be_exported(elsewhere: Config, tmp_path: Path) -> None:
    """The error says so, and no file is written."""
    with pytest.raises(BuildError, match="has no operator"):
        export_cache(tmp_path / "x.bundle", elsewhere, LEVEL)
    assert not (tmp_path / "x.bundle").exists()


def test_a_bundle_that_cannot_be_written_leaves_nothing(config: Config, tmp_path: Path, bundle: Path) -> None:
    """The error names the file; no private file stays."""
    with pytest.raises(OpbuildError, match="cannot be written"):
        export_cache(tmp_path / "absent" / "x.bundle", config, LEVEL)
    (tmp_path / "folder").mkdir()
    with pytest.raises(OpbuildError, match="cannot be written"):
        export_cache(tmp_path / "folder", config, LEVEL)
    assert not list(tmp_path.glob(".*"))


def network_bundle(tmp_path: Path, name: str = stored_network.KEY.stem, target: str = stored_network.TARGET) -> Path:
    """Return a bundle of a network, under a name and for a target that need not be its own."""
    folder = tmp_path / "network_meta"
    stored_network.store_network(folder)
    stem = stored_network.KEY.stem
    files = {f"network_meta/{name}{suffix}": (folder / f"{stem}{suffix}").read_bytes() for suffix in (".so", ".bin")}
    record = unseal((folder / f"{stem}.json").read_bytes(), f"{stem}.json")
    files[f"network_meta/{name}.json"] = seal(record, f"{name}.json")
    weights = f"weights/{stored_network.WEIGHT}.bin"
    files[f"network_meta/{weights}"] = (folder / weights).read_bytes()
    write_bundle(tmp_path / "network.bundle", target, [IDENTITY], files.items())
    return tmp_path / "network.bundle"


def test_a_network_is_imported_into_the_stores_and_its_weights_are_known(tmp_path: Path, elsewhere: Config) -> None:
    """It is found by its key, and a first start need not read the weights again, which were just compared."""
    done = import_bundle(network_bundle(tmp_path), elsewhere, parse_level(stored_network.TARGET))
    assert (done.operators, done.networks) == (0, 1)
    found = networks_in(elsewhere.network_meta).lookup(stored_network.KEY)
    assert isinstance(found, StoredNetwork)
    assert found.library == b"library"
    state = found.states[stored_network.WEIGHT]
    (weights,) = (elsewhere.network_meta / "weights").glob("*.bin")
    assert state == state_of(weights)


def test_a_network_under_another_keys_name_is_not_imported(tmp_path: Path, elsewhere: Config) -> None:
    """F58: sealed under a name that is not its key's it would lie where nobody finds it, or replace another."""
    path = network_bundle(tmp_path, "other_1")
    with pytest.raises(BuildError, match=r"other_1: its key belongs to other_[0-9]{10}"):
        import_bundle(path, elsewhere, parse_level(stored_network.TARGET))
    assert files_in(elsewhere) == []


def test_a_network_for_another_target_than_its_bundle_is_not_imported(tmp_path: Path, elsewhere: Config) -> None:
    """Its library would be code for another machine (F58)."""
    with pytest.raises(BuildError, match=f"it is for {stored_network.TARGET}"):
        import_bundle(network_bundle(tmp_path, target=str(OTHER)), elsewhere, OTHER)
    assert files_in(elsewhere) == []
