"""Builds where little is allowed: nothing writable, no home, no user name, few files, few processes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import Config
from support.processes import WITHOUT
from support.samples import conv, disk_builder, needed
from support.small_network import small_model

WANTED = needed(*(conv(tile) for tile in range(6)))

SCRIPT = f"""
import sys
sys.path[:0] = {sys.path!r}
import os, resource
from pathlib import Path
from support.samples import conv, disk_builder, needed
from opbuild.config import Config
from opbuild.errors import OpbuildError
exec(sys.argv[2])
with disk_builder(Config(cache_path=Path(sys.argv[1]), workers=2)) as builder:
    result = builder.build(needed(*(conv(tile) for tile in range(6))), "net")
print(result.built, result.reused, len(result.warnings), sum(bool(e.object) for e in result.entries.values()))
"""


def build_under(config: Config, preparation: str, **environment: str) -> list[int]:
    """Return the output of a build in a new process: built, reused, warnings, entries."""
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(config.cache_path), preparation],
        env=environment, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [int(word) for word in ran.stdout.split()]


def readable_by_others(path: Path) -> bool:
    """Return whether every user can reach a file."""
    return all(parent.stat().st_mode & 0o005 for parent in (path.resolve(), *path.resolve().parents))


NOBODY = """
import pwd
def unknown(*_):
    raise KeyError("no such user")
pwd.getpwuid = unknown
"""


def test_a_user_without_name_and_home_builds(config: Config) -> None:
    """A uid that no passwd entry knows, without HOME, builds and reuses (F60)."""
    prepare = NOBODY
    if os.geteuid() == 0 and readable_by_others(Path(sys.executable)) and readable_by_others(config.cache_path.parent):
        prepare += "os.setgroups([]); os.setgid(12345); os.setuid(12345)"
        config.cache_path.mkdir()
        os.chown(config.cache_path, 12345, 12345)
    assert build_under(config, prepare) == [6, 0, 0, 6]
    assert build_under(config, prepare) == [0, 6, 0, 6]


READ_ONLY = """
import errno
from opbuild.platform.files import writing as files
import opbuild.store.items as publish
def refuse(*_):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
files.make_folder = files.write_new = publish.make_folder = publish.write_new = refuse
"""


def test_a_read_only_store_serves_hits_and_builds_the_rest(config: Config) -> None:
    """On a read-only file system hits are served; what is missing is built in memory, with one warning (F55, F61)."""
    with disk_builder(config) as builder:
        builder.build(needed(*(conv(tile) for tile in range(4))), "net")
    assert build_under(config, READ_ONLY) == [2, 4, 1, 6]
    assert len(list(config.kernel_meta.iterdir())) == 12


def test_nothing_writable_at_all_still_builds(config: Config) -> None:
    """Without any place to write, the network is built, with one warning (F61)."""
    assert build_under(config, READ_ONLY) == [6, 0, 1, 6]
    assert not config.cache_path.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_cache_path_that_is_a_device_still_builds(config: Config) -> None:
    """A cache path that can hold no folder costs a warning, not the build (F54)."""
    with disk_builder(replace(config, cache_path=Path("/dev/full"))) as builder:
        result = builder.build(WANTED, "net")
    assert (result.built, len(result.warnings)) == (6, 1)


def test_few_open_files_are_enough(config: Config) -> None:
    """With a low limit on open files the build succeeds, and every entry is whole (F06)."""
    assert build_under(config, "resource.setrlimit(resource.RLIMIT_NOFILE, (20, 20))") == [6, 0, 0, 6]
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        assert builder.build(WANTED, "net").reused == 6
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 20


def test_a_file_size_limit_leaves_no_wrong_entry(config: Config) -> None:
    """A limit on file sizes stops storing, not building; what is in the store is whole (F06, F07)."""
    prepare = """
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))
"""
    built, reused, warnings, entries = build_under(config, prepare)
    assert (built, reused, entries) == (6, 0, 6)
    assert warnings == 1
    with disk_builder(config) as builder:
        again = builder.build(WANTED, "net")
    assert again.built == 6
    assert again.warnings == ()


def test_a_model_that_must_be_read_where_onnx_is_missing_is_an_error_that_says_so(tmp_path: Path) -> None:
    """A container without onnx starts what is stored; what is not stored there was a traceback of ``import``."""
    model = tmp_path / "model.onnx"
    model.write_bytes(small_model().SerializeToString())
    program = WITHOUT.format(names=("onnx",)) + (
        "import opbuild\ntry:\n"
        f"    opbuild.compile({str(model)!r}).inputs\n"
        "except opbuild.errors.BuildError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "onnx is not installed, and " in done.stdout
    assert "model.onnx' must be read, since no network of it that serves is stored" in done.stdout
    assert "hint: pip install onnx, or warm the cache with this file" in done.stdout
