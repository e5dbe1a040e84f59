"""Published packages: for Linux, each for the machine that it says; and texts that tell how to install them."""

from __future__ import annotations

import ctypes
import re
import runpy
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbuild.kernel.artifact import read_symbols
from opbuild.store.pack import PACKS
from opbuild.target.level import BY_NAME

ROOT = Path(__file__).resolve().parents[3]
SETUP: dict[str, Any] = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
NATIVE = ROOT / "src" / "opbuild" / "native" / "support"
MACHINES = {"x86_64": "x86-64-linux", "aarch64": "arm-64-linux"}

INDEX = "https://download.pytorch.org/whl/cpu"

SINCE = {
    **dict.fromkeys(("free", "getpid", "madvise", "malloc", "mmap", "munmap", "sched_yield", "syscall"), "2.2.5"),
    **dict.fromkeys(("pthread_create", "pthread_join"), "2.2.5"),
    "__tls_get_addr": "2.3",
    **dict.fromkeys(("sched_getaffinity", "sched_setaffinity"), "2.3.4"),
    "sched_getcpu": "2.6",
}
"""The release of glibc for x86-64 that brought each function that shipped code calls."""


@pytest.mark.parametrize(("machine", "triple"), MACHINES.items())
@pytest.mark.parametrize("form", ["linux", "manylinux_2_17", "musllinux_1_2"])
def test_a_wheel_has_the_packs_of_its_machine(form: str, machine: str, triple: str) -> None:
    """Those of another one would be three quarters of a wheel for Arm, and never run."""
    packs = sorted(PACKS.iterdir())
    kept = [pack for pack in packs if SETUP["is_for"](f"{form}_{machine}", f"{pack}/conv.pack")]
    assert [BY_NAME[pack.name].triple for pack in kept] == [triple] * len(kept)
    assert 0 < len(kept) < len(packs)


def test_a_wheel_has_all_that_keys_count() -> None:
    """The digest of opbuild's sources holds what is linked for any machine: a store serves both."""
    assert all(SETUP["is_for"]("linux_x86_64", str(path)) for path in NATIVE.iterdir())


@pytest.mark.parametrize("system", ["darwin", "win32"])
def test_other_systems_are_refused_in_a_sentence(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that installs and then fails would be found out later."""
    with monkeypatch.context() as changed:
        changed.setattr(sys, "platform", system)
        with pytest.raises(SystemExit, match=r"^opbuild is for Linux, and this is .*\.$"):
            runpy.run_path(str(ROOT / "setup.py"), run_name="setup")


def undefined(path: Path) -> Iterator[str]:
    """Yield the names that a shipped object or library expects from others."""
    data = path.read_bytes()
    if path.suffix == ".o":
        yield from read_symbols(data).undefined
        return
    start, size, _, count = struct.unpack_from("<Q10xHHH", data, 40)[0], *struct.unpack_from("<HHH", data, 58)
    heads = [struct.unpack_from("<IIQQQQIIQQ", data, start + number * size) for number in range(count)]
    symbols = next(head for head in heads if head[1] == 11)  # SHT_DYNSYM; its link is to the names
    names = heads[symbols[6]][4]
    for place in range(symbols[4], symbols[4] + symbols[5], 24):
        name, _, _, section = struct.unpack_from("<IBBH", data, place)
        if name and not section:
            yield data[names + name : data.index(0, names + name)].decode()


def test_wheels_are_tagged_for_the_oldest_glibc_that_has_what_they_call() -> None:
    """That is 2.17, the first for 64-bit Arm; a kernel's own mathematics is found in libm when it is linked."""
    called = {name for path in NATIVE.iterdir() if path.suffix in (".o", ".so") for name in undefined(path)}
    linked = {name for name in called if name.startswith(("halide_", "opbuild_", "_GLOBAL_OFFSET_TABLE_"))}
    assert called - linked == SINCE.keys()
    oldest = re.search(r"manylinux_(\d+)_(\d+)_", (ROOT / "tools" / "release.sh").read_text())
    assert oldest is not None
    assert all(tuple(map(int, since.split("."))) <= (int(oldest[1]), int(oldest[2])) for since in SINCE.values())


@pytest.mark.skipif(sys.implementation._multiarch != "x86_64-linux-gnu", reason="the releases are those for x86-64")
@pytest.mark.parametrize("name", SINCE)
def test_each_function_is_of_the_release_that_is_said(name: str) -> None:
    """As this machine's glibc says."""
    find = ctypes.CDLL(None).dlvsym
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
    assert find(None, name.encode(), f"GLIBC_{SINCE[name]}".encode())


def texts() -> Iterator[tuple[Path, str]]:
    """Yield what users read: documents, and sources with their hints."""
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")):
        yield path, path.read_text(encoding="utf-8")


def test_extras_that_texts_name_exist() -> None:
    """``pip install 'opbuild[NAME]'`` works for a wheel and in a clone, if there is such an extra."""
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    named = {(path.name, name) for path, text in texts() for name in re.findall(r"\bopbuild\[([a-z]\w*)\]", text)}
    assert len(named) > 4
    assert [each for each in named if each[1] not in extras] == []


def test_no_text_installs_what_only_a_clone_has() -> None:
    """But where it says that it is in a clone."""
    bare = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, text in texts()
        for line in text.splitlines()
        if re.search(r"pip install\b[^`]* '?\.(?![\w/])", line) and "clone" not in line
    ]
    assert bare == []


def test_torch_is_installed_from_its_index_for_processors() -> None:
    """Other indexes have torch with gigabytes for GPUs."""
    assert any(INDEX in text for _, text in texts())
    bare = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, text in texts()
        for line in text.splitlines()
        if re.search(r"pip install( [^-`]\S*)* torch\b", line) and f"--index-url {INDEX}" not in line
    ]
    assert bare == []


def test_the_readme_of_a_package_index_links_to_the_repository() -> None:
    """What is relative here leads nowhere there; pyproject.toml has the one address."""
    readme = "[a](docs/a.md#b) ![c](docs/c.svg) [d](https://d.org) [e](#e)"
    project = '[project.urls]\nRepository = "https://r.org/p"\n'
    assert SETUP["description"](readme, project).split() == [
        "[a](https://r.org/p/blob/main/docs/a.md#b)",
        "![c](https://r.org/p/raw/main/docs/c.svg)",
        "[d](https://d.org)",
        "[e](#e)",
    ]
    ours = SETUP["description"]((ROOT / "README.md").read_text(), (ROOT / "pyproject.toml").read_text())
    assert not re.search(r"\]\((?!https?:|#)", ours)
