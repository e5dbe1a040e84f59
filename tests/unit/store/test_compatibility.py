"""Files that a release wrote are read by later ones, and those of a format that is not known are told so."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.cli.store.bundling import import_bundle
from opbuild.config import Config
from opbuild.errors import InvalidModelError, OptionError
from opbuild.kernel.entry import Entry
from opbuild.kernel.reason import Reason
from opbuild.offline.file import read_offline
from opbuild.offline.format import OLDEST
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.bundle import read_bundle
from opbuild.store.model_packs import opened
from opbuild.store.operators import entry_of
from opbuild.store.pack import PackFile
from opbuild.store.tuning_database import parse_database
from support import stored_network
from support.kept_files import BANK, BUNDLE, FORMATS, LEVEL, MODEL_PACK, OFFLINE, PACK, SHAPE, formats
from support.packed import object_in
from support.samples import conv, key_of

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "compatibility.md"
RENEW = (
    "A format was raised. If that is meant: keep the file of the former format and test that it is read or refused; "
    "write the others anew (PYTHONPATH=tests python -m support.kept_files); and put the format into "
    "docs/reference/compatibility.md and the release into CHANGELOG.md."
)


def copied(path: Path, folder: Path, *changes: tuple[bytes, bytes]) -> Path:
    """Return a copy of a file that others cannot write to, with some bytes replaced by as many."""
    data = path.read_bytes()
    for before, after in changes:
        assert data.count(before) >= 1
        data = data.replace(before, after, 1)
    copy = folder / path.name
    copy.write_bytes(data)
    copy.chmod(0o600)
    return copy


def test_the_kept_files_are_of_the_formats_that_are_written() -> None:
    """So what is read below is what users of this release have."""
    assert formats() == {kind: version for kind, version in FORMATS.items() if kind != "networks"}, RENEW
    assert (stored_network.STORED / f"{stored_network.KEY.stem}.json").is_file(), RENEW


def test_the_page_names_the_formats() -> None:
    """Each with the number that is written, and the oldest that is read."""
    rows = dict(re.findall(r"^\| ([^|]+?) \| (\d+) \|", PAGE.read_text(), re.MULTILINE))
    assert rows == {kind: str(version) for kind, version in FORMATS.items()}, RENEW
    assert f"{OLDEST} to {FORMATS['`.om` files']}" in PAGE.read_text()


def test_an_offline_model_is_read(tmp_path: Path) -> None:
    """On its machines it computes what it did."""
    path = copied(OFFLINE, tmp_path)
    assert read_offline(path).record(0).outputs
    if platform.machine() == "x86_64":
        x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(SHAPE)
        np.testing.assert_array_equal(opbuild.load(path)(x), np.maximum(x, 0))


def test_a_newer_offline_model_is_refused(tmp_path: Path) -> None:
    """With its version and those that are read."""
    version = FORMATS["`.om` files"]
    path = copied(OFFLINE, tmp_path, (bytes([version, 0, 0, 0]), bytes([version + 1, 0, 0, 0])))
    with pytest.raises(InvalidModelError, match=f"version {version + 1} of the format, .* {OLDEST} to {version}"):
        opbuild.load(path)


def files_of_operator() -> tuple[str, dict[str, bytes]]:
    """Return the name of the bundle's operator, and its three files by suffix."""
    files = {Path(name): bytes(content) for name, content in read_bundle(BUNDLE).files.items()}
    own = {path.suffix: content for path, content in files.items() if path.parent.name == "kernel_meta"}
    return next(path.stem for path in files if path.suffix == ".info"), own


def test_a_bundle_is_imported(tmp_path: Path) -> None:
    """Its operator and its network are the cache's then."""
    config = Config.from_environment(environ={}, cache_path=str(tmp_path / "cache"))
    import_bundle(copied(BUNDLE, tmp_path), config, LEVEL)
    names = {path.name for path in tmp_path.glob("cache/**/*_meta/*")}
    assert {Path(name).name for name in read_bundle(BUNDLE).files} <= names


def test_a_newer_bundle_is_refused(tmp_path: Path) -> None:
    """With its format, and what to do."""
    path = copied(BUNDLE, tmp_path, (b"opbuild bundle 2", b"opbuild bundle 3"))
    with pytest.raises(OptionError, match="has the bundle format 3, this release reads 2") as caught:
        read_bundle(path)
    assert caught.value.hint == "export it again, with this release of opbuild"


def test_an_operator_is_read() -> None:
    """From its three files."""
    name, files = files_of_operator()
    assert isinstance(entry_of(name, files), Entry)


def test_an_operator_of_another_format_is_a_miss() -> None:
    """No build finds it; commands say that it is another release's."""
    name, files = files_of_operator()
    written = f'"format": {FORMATS["operators"]}'.encode()
    assert files[".info"].count(written) == 1
    found = entry_of(name, {**files, ".info": files[".info"].replace(written, b'"format": 99')})
    assert isinstance(found, Reason)
    assert found.code == "other-format"


def test_a_network_of_another_format_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has another name than is looked for."""
    name = stored_network.KEY.stem
    monkeypatch.setattr("opbuild.kernel.networks.FORMAT", FORMATS["networks"] + 1)
    assert stored_network.KEY.stem != name


def test_a_pack_is_read() -> None:
    """Its kernel is found."""
    file = PackFile(PACK.read_bytes())
    assert len(file) == 1
    assert object_in(file, file.own_key(key_of(conv(), LEVEL))) is not None


def test_a_pack_of_another_format_is_refused() -> None:
    """A look-up takes that for a miss."""
    with pytest.raises(ValueError, match="no pack of this release"):
        PackFile(PACK.read_bytes().replace(b"opbuild pack 2", b"opbuild pack 3", 1))


def test_a_model_pack_is_read() -> None:
    """Its kernel is found."""
    [model_pack] = opened(MODEL_PACK, "the pack", PRIVATE).packs(LEVEL.name)
    file = model_pack.file("conv")
    assert isinstance(file, PackFile)
    assert object_in(file, file.own_key(key_of(conv(), LEVEL))) is not None


def test_a_model_pack_of_another_format_is_not_used(tmp_path: Path) -> None:
    """It has no kernels, and says why."""
    path = copied(MODEL_PACK, tmp_path, (b"opbuild model-pack 1", b"opbuild model-pack 2"))
    archive = opened(path, "the pack", PRIVATE)
    assert list(archive.packs(LEVEL.name)) == []
    assert "format 2, this release reads 1" in str(archive.problem)


def test_a_tuning_database_is_read_but_for_lines_of_another_format() -> None:
    """Each line counts by itself."""
    [told] = parse_database(BANK.read_bytes(), PRIVATE).records
    text = BANK.read_text().partition(" ")[2].strip().replace('"format":1', '"format":2').encode()
    newer = blake3_of(text)[:16].encode() + b" " + text
    both = parse_database(newer + b"\n" + BANK.read_bytes(), PRIVATE)
    assert (both.records, both.damaged) == ((told,), 1)
