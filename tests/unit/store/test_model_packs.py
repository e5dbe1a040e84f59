"""Model packs: kernels of one's own models are found in files that settings name, and in installed packages."""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.kernel.interfaces import Found, Missing
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.store import model_packs
from opbuild.store.archive import Archive, ArchiveKind, archive_parts, read_archive
from opbuild.store.model_packs import GROUP, INSTALLED, KIND, PackArchive, Packs
from opbuild.store.pack import FamilySources, Object, Pack, pack_bytes
from support.fake_compiler import fake_object
from support.samples import LEVEL, conv, key_of

MAKERS = CompilerIdentity("fake", "0.9", "1" * 64), CompilerIdentity("fake", "0.8", "2" * 64)
SOURCES = FamilySources("code", "text")
KEY = bytes(range(16))


def asked(tile: int, sources: str = SOURCES.code) -> Key:
    """Return the key that a build asks for, of an installed compiler that made no pack."""
    return key_of(conv(tile), LEVEL, CompilerIdentity("fake", "1.0", "0" * 64), sources)


def family(*descs: OpDesc, maker: CompilerIdentity = MAKERS[0]) -> bytes:
    """Return a pack file of made-up objects, which say what they are of."""
    objects = []
    for desc in descs:
        key = key_of(desc, LEVEL, maker, SOURCES.code)
        code = f"{maker.version} {desc.variant['tile']}".encode()
        objects.append(Object(desc.components(), key.operator, "", fake_object(code, (key.symbol,))))
    return pack_bytes(LEVEL.name, "conv", maker, SOURCES, objects)


def pack_of(*files: bytes, trust: Trust = PRIVATE) -> bytes:
    """Return a model pack of the files of one family, each of another compiler."""
    named = {f"{number}/{LEVEL.name}/conv.pack": data for number, data in enumerate(files)}
    return b"".join(archive_parts(KIND, {"opbuild": "1", "models": ["a.onnx"]}, named, trust))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A model pack of three kernels of two compilers."""
    path = tmp_path / "my.pack"
    path.write_bytes(pack_of(family(conv(1), conv(2)), family(conv(3), maker=MAKERS[1])))
    return path


class Told(list[str]):
    """The warnings of a build about packs."""

    def packs(self, *named: Path, release: Pack | None = None, trust: Trust = PRIVATE) -> Packs:
        """Return the packs of a build that names some."""
        return Packs(LEVEL.name, release, named, trust, self.append)


@pytest.mark.parametrize("tile", [1, 2, 3])
@pytest.mark.parametrize("sources", SOURCES)
def test_a_kernel_is_found_whatever_compiler_made_it(file: Path, tile: int, sources: str) -> None:
    """It is used from where it lies, and the report says which file that is."""
    answer = Told().packs(file).lookup(asked(tile, sources))
    assert isinstance(answer, Found)
    assert (answer.source, answer.stays) == (f"the pack {file}", True)
    maker = MAKERS[tile == 3]
    symbol = key_of(conv(tile), LEVEL, maker, SOURCES.code).symbol
    assert answer.entry.object == fake_object(f"{maker.version} {tile}".encode(), (symbol,))


def test_what_no_pack_has_is_absent_and_nothing_to_tell(file: Path) -> None:
    """It is compiled, as ever."""
    told = Told()
    answer = told.packs(file).lookup(asked(4))
    assert isinstance(answer, Missing)
    assert answer.reason.code == "absent"
    assert told == []


def test_the_release_is_asked_first_and_files_are_opened_when_it_has_none(file: Path, tmp_path: Path) -> None:
    """What the release's pack has comes from there, and no other file is read for it."""
    folder = tmp_path / "packs" / LEVEL.name
    folder.mkdir(parents=True)
    (folder / "conv.pack").write_bytes(family(conv(1)))
    told = Told()
    packs = told.packs(tmp_path / "absent.pack", file, release=Pack(LEVEL.name, tmp_path / "packs"))
    sources = [getattr(packs.lookup(asked(1)), "source", "")]
    assert told == []
    sources.append(getattr(packs.lookup(asked(2)), "source", ""))
    assert sources == ["the pack", f"the pack {file}"]
    assert [str(tmp_path / "absent.pack") in text for text in told] == [True]
    assert packs.compiler() == MAKERS[0]


def test_a_damaged_pack_is_a_miss_and_one_warning(file: Path, tmp_path: Path) -> None:
    """F36: whatever bytes are changed, cut or added, a look-up gives the very kernel or none, and the file is named."""
    rng, data = random.Random(7), file.read_bytes()
    right = Told().packs(file).lookup(asked(2))
    assert isinstance(right, Found)
    for number in range(60):
        place = rng.randrange(len(data))
        wrong = [
            data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :],
            data[:place],
            data[:place] + rng.randbytes(3) + data[place:],
        ][number % 3]
        path = tmp_path / f"{number}.pack"
        path.write_bytes(wrong)
        told = Told()
        for _ in range(2):
            assert isinstance(told.packs(path).lookup(asked(2)), Missing)
        assert [str(path) in text for text in told] == [True]


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"opbuild bundle 2 " + b"0" * 64 + b" 2\n{}", b"opbuild model-pack 9 " + b"0" * 64 + b" 2\n{}"],
    ids=["empty", "text", "bundle", "format"],
)
def test_what_is_no_model_pack_is_a_miss_and_one_warning(tmp_path: Path, content: bytes) -> None:
    """Nothing stops for it."""
    path, told = tmp_path / "foreign.pack", Told()
    path.write_bytes(content)
    assert isinstance(told.packs(path).lookup(asked(1)), Missing)
    assert len(told) == 1


def test_a_part_that_is_no_pack_of_this_release_is_told(tmp_path: Path) -> None:
    """An archive that is whole may hold what only another release reads."""
    path, told = tmp_path / "my.pack", Told()
    path.write_bytes(pack_of(b"opbuild pack 1 of old"))
    assert isinstance(told.packs(path).lookup(asked(1)), Missing)
    assert ["cannot be used" in text for text in told] == [True]


def test_kernels_of_edited_sources_are_a_miss_that_is_told(file: Path) -> None:
    """F30: a pack that another release made serves as far as the sources are the same; what a build lacks is said."""
    told = Told()
    packs = told.packs(file)
    for tile in (1, 2, 4):
        assert isinstance(packs.lookup(asked(tile, "edited since")), Missing)
    assert ["another release" in text for text in told] == [True]
    assert packs.origins([asked(1, "edited since")]) == [{}]  # these made-up objects have no pipelines


def test_a_pack_that_others_can_write_to_is_not_used(file: Path) -> None:
    """It is machine code: who can write it decides what runs."""
    file.chmod(0o666)
    told = Told()
    assert isinstance(told.packs(file).lookup(asked(1)), Missing)
    assert ["everybody may write to" in text for text in told] == [True]
    assert isinstance(told.packs(file, trust=Trust(shared=True)).lookup(asked(1)), Found)


def test_with_a_key_only_signed_packs_are_used(file: Path, tmp_path: Path) -> None:
    """One without a key uses signed ones as any others."""
    signed, told = tmp_path / "signed.pack", Told()
    signed.write_bytes(pack_of(family(conv(1)), trust=Trust(key=KEY)))
    assert isinstance(told.packs(file, trust=Trust(key=KEY)).lookup(asked(1)), Missing)
    assert ["not signed" in text for text in told] == [True]
    assert isinstance(told.packs(signed, trust=Trust(key=KEY)).lookup(asked(1)), Found)
    assert isinstance(told.packs(signed).lookup(asked(1)), Found)
    assert isinstance(told.packs(signed, trust=Trust(key=KEY[::-1])).lookup(asked(1)), Missing)


def install(site: Path, package: str, content: bytes, value: str = "") -> None:
    """Put a package that brings a model pack into a folder, as pip does; importing it is an error."""
    (site / package).mkdir(parents=True)
    (site / package / "__init__.py").write_text("raise RuntimeError('it was imported')")
    (site / package / INSTALLED).write_bytes(content)
    metadata = site / f"{package}-1.0.dist-info"
    metadata.mkdir()
    text = f"[console_scripts]\nx = y:z\n\n[{GROUP}]\n{package} = {value or package}\n"
    (metadata / "entry_points.txt").write_text(text)


def test_an_installed_package_brings_a_pack(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found by its metadata, and neither imported nor asked for a signature: it is code of the environment."""
    install(tmp_path / "site", "some_models", file.read_bytes())
    install(tmp_path / "site", "gone_models", b"", "no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    told = Told()
    release = Pack(LEVEL.name, tmp_path / "none")
    answer = told.packs(release=release, trust=Trust(key=KEY)).lookup(asked(3))
    assert isinstance(answer, Found)
    assert answer.source == "the pack of some_models"
    assert (told, "some_models" in sys.modules) == ([], False)
    assert isinstance(told.packs().lookup(asked(3)), Missing)  # without the release's pack these are not used


def test_metadata_are_read_only_where_no_other_pack_has_an_operator(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up that a file answers asks no package."""
    looked = list[object]()
    monkeypatch.setattr(model_packs, "_installed_packs", lambda places: looked.append(places) or ())
    packs = Told().packs(file, release=Pack(LEVEL.name, Path("none")))
    assert isinstance(packs.lookup(asked(1)), Found)
    assert looked == []
    packs.lookup(asked(4))
    assert len(looked) == 1


@pytest.mark.parametrize(
    ("text", "release", "files"),
    [
        ("", True, []),
        ("1", True, []),
        ("0", False, []),
        ("/a/my.pack", True, ["/a/my.pack"]),
        ("/a/my.pack:/b/c", True, ["/a/my.pack", "/b/c"]),
        ("0:/a/my.pack", False, ["/a/my.pack"]),
        ("/a/my.pack:off", False, ["/a/my.pack"]),
    ],
)
def test_the_setting_names_files_beside_yes_and_no(text: str, release: bool, files: list[str]) -> None:
    """``OPBUILD_PACK`` is 0, 1, paths, or some of these with colons between them."""
    config = Config.from_environment(environ={"OPBUILD_PACK": text, "HOME": "/home/somebody"})
    assert (config.uses_pack, [str(path) for path in config.model_packs]) == (release, files)


def test_a_relative_path_is_of_the_folder_where_the_build_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later builds of the process find the file wherever it is then."""
    config = Config.from_environment(environ={"OPBUILD_PACK": "my.pack", "HOME": "/home/somebody"})
    assert [str(path) for path in config.model_packs] == [os.path.abspath("my.pack")]


def test_another_word_is_refused() -> None:
    """The error says what may stand there."""
    with pytest.raises(OptionError, match="OPBUILD_PACK is 'maybe'") as refused:
        Config.from_environment(environ={"OPBUILD_PACK": "maybe", "HOME": "/home/somebody"})
    assert "paths of packs" in str(refused.value.hint)


@pytest.mark.parametrize(("mindspore", "used"), [(False, True), (True, False)])
def test_a_build_uses_the_packs_that_settings_name(
    file: Path, monkeypatch: pytest.MonkeyPatch, mindspore: bool, used: bool
) -> None:
    """A cache that is to hold all that is used, as MindSpore's, takes nothing from them while it can compile."""
    monkeypatch.setenv("OPBUILD_PACK", f"0:{file}")
    stores = Stores(set_up(Config.from_environment(mindspore=mindspore), LEVEL, None, runs_elsewhere=True))
    assert (stores.packs is not None) == used
    assert isinstance(stores.operators_and_runtimes[0].lookup(asked(1)), Found) == used


def test_threads_that_come_at_once_are_told_once_of_a_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find that it is damaged, whoever opens it."""
    path, told, both = tmp_path / "foreign.pack", Told(), threading.Barrier(2)
    path.write_bytes(b"hello")
    builds = told.packs(path), told.packs(path)

    def read_slowly(path: Path, kind: ArchiveKind, trust: Trust) -> Archive:
        time.sleep(0.05)
        return read_archive(path, kind, trust)

    def look(packs: Packs) -> Found | Missing:
        both.wait()
        return packs.lookup(asked(1))

    monkeypatch.setattr(model_packs, "read_archive", read_slowly)
    with ThreadPoolExecutor(2) as threads:
        assert [type(found) for found in threads.map(look, builds)] == [Missing, Missing]
    assert len(told) == 1


class _Slow(set[str]):
    """A set behind whose look others go first."""

    def __contains__(self, problem: object) -> bool:
        found = super().__contains__(problem)
        time.sleep(0.05)
        return found


def test_a_problem_is_news_once_however_many_ask() -> None:
    """Builds of several threads find it in one pack that was opened before."""
    archive, all_here = PackArchive(Path("my.pack"), "my.pack", {}, {}), threading.Barrier(4)
    archive._told = _Slow()

    def ask(_: int) -> bool:
        all_here.wait()
        return archive.is_news("it is damaged")

    with ThreadPoolExecutor(4) as threads:
        assert sorted(threads.map(ask, range(4))) == [False, False, False, True]
