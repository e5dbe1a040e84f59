"""What went wrong has one exit code in every command: 2 for a file that is not there, 5 for a full disk.

That a wrong option is 2 in every command stands in ``test_wrong_arguments``.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support.commands import all_commands, opbuild, run
from support.preloaded import Ended
from support.refusing_storage import RefusingStorage, watched
from support.small_network import SmallNetwork
from support.until import settle

pytestmark = pytest.mark.usefixtures("kept_objects", "patient")

SHAPES = "--shape=x:64,256"
ATC = "atc small.onnx --framework=5 --input_shape=x:64,256"

MISSING = (
    "compile nothing.onnx", "run nothing.onnx", "run nothing.om", "run nothing.py", "profile nothing.onnx",
    "report nothing.om", "bench nothing.onnx", "tune nothing.onnx", "export nothing.onnx",
    "export --mode=1 --om=nothing.om --json=out.json", "export --mode=6 --om=nothing.om",
    "atc nothing.onnx --framework=5 --output=out --soc_version=host", "warm nothing.onnx", "explain nothing.onnx",
    "pack nothing.onnx -o out.pack",
    "launch -n 1 nothing.py", "push nothing.onnx SHARED", "pull SHARED nothing.onnx",
    "cache export out --model=nothing.onnx",
    "cache import nothing.bundle", "bank import nothing.bank", f"run small.onnx {SHAPES} --input x=nothing.npy",
    "export small.onnx --op_debug_config=nothing.cfg",
)  # fmt: skip
"""Commands that are given a file which is not there."""
WITHOUT_FILES = {
    ("example",), ("env",), ("operators",), ("bank", "ls"), ("bank", "export"),
    *(("cache", name) for name in ("ls", "show", "stats", "verify", "prune", "clear", "check")),
}  # fmt: skip
"""Commands that read no file which somebody names."""

FULL = (
    "example squeezenet -o full/x.onnx", f"compile small.onnx {SHAPES} --report=full/x.html",
    f"compile small.onnx {SHAPES} --trace=full/x.json", f"run small.onnx {SHAPES} --runs=1 --output_dir=full/out",
    "run small.om --runs=1 --output_dir=full/out", f"profile small.onnx {SHAPES} --runs=1 --trace=full/x.json",
    f"report small.onnx {SHAPES} --output=full/x.html", f"export small.onnx {SHAPES} --output=full/x",
    "export --mode=1 --om=small.om --json=full/x.json",
    f"export --mode=3 --model=small.onnx {SHAPES} --check_report=full/x.json",
    f"{ATC} --output=full/x --soc_version=host --op_compiler_cache_mode=enable",
    "pack small.onnx --shape=x:64,256 --all -o full/x.pack --cache_path=packed",
    "cache export full/x.bundle", "bank export full/x.bank",
    f"bench small.onnx {SHAPES} --runtime=opbuild --rounds=1 --seconds=1 --num_threads=1 --output=full/x.json",
)  # fmt: skip
"""Commands whose results find no room."""
FULL_STORES = {
    f"compile small.onnx {SHAPES} --cache_path=full": 0,
    f"compile small.onnx {SHAPES} --cache_path=full --strict": 5,
    f"run small.onnx {SHAPES} --runs=1 --cache_path=full": 0,
    f"export small.onnx {SHAPES} --output=x --cache_path=full": 0,
    f"export small.onnx {SHAPES} --output=x --cache_path=full --strict": 5,
    "warm small.onnx --shape=x:64,256 --cache_path=full": 0,
    "warm small.onnx --shape=x:64,256 --cache_path=full --strict": 5,
    "pull SHARED --cache_path=full": 5,
    f"pull SHARED small.onnx {SHAPES} --cache_path=full": 5,
    f"push small.onnx full {SHAPES}": 5,
    "cache import small.bundle --cache_path=full": 5,
    "cache check --remote=full": 5,
}
"""Commands whose store finds no room: what only builds goes on without."""

SHOWN = (
    "env", "example", "operators Relu", f"explain small.onnx {SHAPES}", "cache ls", "cache stats", "cache verify",
    "cache show matmul", "cache prune --older_than=30d", "cache export x.bundle", "cache import small.bundle",
    "cache check --remote=SHARED", "bank ls", "bank export x.bank", "bank import small.bank", "pull SHARED",
    f"push small.onnx SHARED {SHAPES}", f"compile small.onnx {SHAPES}", f"run small.onnx --runs=1 {SHAPES}",
    "run script.py", "launch -n 1 script.py", f"profile small.onnx --runs=1 {SHAPES}", "report small.om",
    "export --mode=6 --om=small.om", "warm small.onnx --shape=x:64,256", f"tune small.onnx --budget=0s {SHAPES}",
)  # fmt: skip
"""Commands that show something."""


@pytest.fixture(scope="module")
def folder(kept_objects: None, small_network: SmallNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all that the commands take was built, with another one that is on a full disk."""
    folder = tmp_path_factory.mktemp("built")
    settle(Path(shutil.copy(small_network.path, folder)))
    (folder / "script.py").write_text("print('it ran')")
    (folder / "small.bank").touch()
    (folder / "full" / "out").mkdir(parents=True)
    for words in (f"compile small.onnx {SHAPES}", f"export small.onnx -o small {SHAPES}", "cache export small.bundle",
                  f"push small.onnx SHARED {SHAPES}"):  # fmt: skip
        done = ended(words, folder)
        assert done.code == 0, done.errors
    return folder


def ended(words: str, folder: Path) -> Ended:
    """Run a command in the folder; return what became of it."""
    given = words.replace("SHARED", f"{folder}/shared").replace("full", f"{folder}/full").split()
    return opbuild(*given, folder=folder, OPBUILD_CACHE=".", OPBUILD_REMOTE_MODE="write")


def test_every_command_that_reads_a_file_is_tried() -> None:
    """One that is added has to be."""
    tried = {name for name in all_commands() if any(f"{words} ".startswith(f"{' '.join(name)} ") for words in MISSING)}
    assert tried | WITHOUT_FILES == {*all_commands()}
    assert not tried & WITHOUT_FILES


@pytest.mark.parametrize("words", MISSING)
def test_a_file_that_is_not_there_is_2(words: str, folder: Path) -> None:
    """Whatever kind it would be of, and it is named."""
    done = ended(words, folder)
    said = done.output + done.errors
    assert done.code == 2, said
    assert "nothing." in said
    assert "Traceback" not in said


@pytest.mark.parametrize("words", FULL)
def test_a_full_disk_is_5_where_a_result_finds_no_room(words: str, folder: Path) -> None:
    """And half a result is nowhere."""
    storage = RefusingStorage(folder / "full", onwards=True, code=errno.ENOSPC)
    storage.refused = 1
    with watched(storage):
        done = ended(words, folder)
    said = done.output + done.errors
    assert done.code == 5, said
    assert "cannot be written: No space left on device" in said
    assert "make room there, or choose another place" in said
    assert [path for path in (folder / "full").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("words", FULL_STORES)
def test_a_full_disk_is_5_where_storing_is_what_was_asked_for(words: str, folder: Path) -> None:
    """What builds, or runs, goes on with a warning, unless it is to be strict."""
    storage = RefusingStorage(folder / "full", onwards=True, code=errno.ENOSPC)
    storage.refused = 1
    with watched(storage):
        done = ended(words, folder)
    assert done.code == FULL_STORES[words], done.output + done.errors
    assert "No space left on device" in done.errors or "it is full" in done.errors


@pytest.mark.parametrize("words", SHOWN)
def test_a_full_disk_is_5_where_the_output_finds_no_room(words: str, folder: Path) -> None:
    """It was taken for a wrong option."""
    given = words.replace("SHARED", f"{folder}/shared").split()
    with Path("/dev/full").open("wb", 0) as output, tempfile.TemporaryFile() as errors:
        code = run(given, output, errors, folder, {**os.environ, "MS_COMPILER_CACHE_PATH": "."})
        errors.seek(0)
        said = errors.read().decode()
    assert code == 5, said
    assert "error (build): the output " in said
    assert "cannot be written: No space left on device" in said
