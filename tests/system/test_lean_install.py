"""Without one of the packages that opbuild needs: what does not need it goes on, the rest says which and how."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from opbuild.cli.main import COMMANDS
from opbuild.platform.packages import DEPENDENCIES
from support.commands import opbuild
from support.elsewhere import elsewhere, variables_without
from support.processes import environment
from support.small_network import SmallNetwork
from support.until import settle

pytestmark = pytest.mark.usefixtures("kept_objects")

SHAPES = "--shape=x:64,256"
ATC = "atc small.onnx --framework=5 --input_shape=x:64,256"
ALL = {"numpy", "blake3"}
TABLES, MODELS = {*ALL, "rich"}, {*ALL, "onnx", "ml_dtypes"}
READS = TABLES | MODELS
"""What models are read with; onnx needs ``ml_dtypes``."""

NEEDS: dict[str, set[str]] = {
    "example": READS - {"blake3"},
    "example squeezenet": MODELS,
    f"compile small.onnx {SHAPES}": TABLES,
    f"compile small.onnx --report=r.html {SHAPES}": {*TABLES, "jinja2"},
    f"run small.onnx --runs=1 {SHAPES}": TABLES,
    "run small.om --runs=1": TABLES,
    f"profile small.onnx --runs=1 {SHAPES}": TABLES,
    "profile small.om --runs=1": TABLES,
    f"report small.onnx {SHAPES}": {*TABLES, "jinja2"},
    "report small.om": {*TABLES, "jinja2"},
    f"bench small.onnx --runtime=opbuild --rounds=1 --seconds=1 --num_threads=1 {SHAPES}": READS,
    f"tune small.onnx --budget=1s {SHAPES}": READS,
    f"export small.onnx --output=new {SHAPES}": READS,
    "export --mode=1 --om=small.om --json=small.json": TABLES,
    "export --mode=6 --om=small.om": TABLES,
    f"{ATC} --output=other --soc_version=host --op_compiler_cache_mode=enable": READS,
    "warm small.onnx --shape=x:64,256": TABLES,
    "pack small.onnx --shape=x:64,256 --all -o small.pack": {*TABLES, "onnx"},
    f"explain small.onnx {SHAPES}": READS,
    f"push small.onnx shared {SHAPES}": {*ALL, "onnx"},
    "pull shared": ALL,
    f"pull shared small.onnx {SHAPES}": ALL,
    "cache ls": TABLES,
    "cache stats": ALL,
    "cache show ENTRY": ALL,
    "cache verify": TABLES,
    "cache prune --older_than=30d": TABLES,
    "cache check --remote=shared": ALL,
    "cache export new.bundle": ALL,
    "cache import small.bundle": ALL,
    "cache clear --cache_path=nothing": TABLES,
    "bank ls": TABLES,
    "bank export new.bank": TABLES,
    "bank import small.bank": TABLES,
    "operators Relu": READS,
    "launch -n 1 script.py": {"blake3"},
    "run script.py": {"blake3"},
}
"""Commands, and the packages that each needs besides ``click``."""


@pytest.fixture(scope="module")
def built(kept_objects: None, small_network: SmallNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all that the commands take was built."""
    folder = tmp_path_factory.mktemp("built")
    settle(Path(shutil.copy(small_network.path, folder)))
    (folder / "script.py").write_text("print('it ran')")
    (folder / "small.bank").touch()
    for words in (
        f"compile small.onnx {SHAPES}", f"export small.onnx -o small {SHAPES}", "warm small.onnx --shape=x:64,256",
        "cache export small.bundle", f"push small.onnx {folder}/shared {SHAPES}",
    ):  # fmt: skip
        done = opbuild(*words.split(), folder=folder, OPBUILD_CACHE=".")
        assert done.code == 0, done.errors
    return folder


def test_every_command_is_tried() -> None:
    """Of those that the program lists."""
    assert {words.partition(" ")[0] for words in NEEDS} == {*COMMANDS} - {"env"}


@pytest.mark.parametrize("gone", DEPENDENCIES)
def test_each_command_goes_on_or_says_which_package_to_install(gone: str, built: Path) -> None:
    """In one block and with one exit code, never by a traceback; nothing but what it needs keeps it from its work."""
    entry = min(path.stem for path in built.glob("rank_0/kernel_meta/matmul*.json"))  # tune may have built another one
    commands = [words.replace("shared", f"{built}/shared").replace("ENTRY", entry).split() for words in NEEDS]
    told = re.compile(
        rf"error \(missing package\): the package {gone} is not installed\b.*\n  hint: pip install {gone}\b.*\n"
    )
    as_atc = re.compile(rf"the package {gone} is not installed\b.*\n        Solution: pip install {gone}\b")
    for (words, needed), done in zip(
        NEEDS.items(), elsewhere(built, *commands, without={gone}, OPBUILD_PACK="1"), strict=True
    ):
        lacks = gone in {"click", *needed}
        assert done.code == (5 if lacks else 0), f"{words}: {done}"
        assert "Traceback" not in done.output + done.errors
        assert not lacks or told.fullmatch(done.errors) or as_atc.search(done.output), f"{words}: {done}"


@pytest.mark.parametrize("gone", DEPENDENCIES)
def test_env_shows_the_rest_and_which_are_missing(gone: str, built: Path) -> None:
    """As far as it can be loaded; a script's own import that fails ends with Python's traceback, as without opbuild."""
    (built / "imports.py").write_text(f"import {gone}")
    done, script = elsewhere(built, ["env"], ["run", "imports.py"], without={gone})
    assert done.code == 5
    assert done.errors == f"error (missing package): the package {gone} is not installed\n  hint: pip install {gone}\n"
    if gone in ("click", "blake3"):  # nothing is run
        assert script.code == 5
        return
    assert f"{gone} NOT INSTALLED" in done.output
    assert "\ncompiling  allowed\n" in done.output
    assert script.code == 1
    assert script.errors.endswith(f"import {gone}\nModuleNotFoundError: No module named '{gone}'\n")


def test_env_names_all_packages_that_are_missing(built: Path) -> None:
    """One command installs them."""
    (done,) = elsewhere(built, ["env"], without={"jinja2", "halide"})
    assert done.errors.endswith("the packages halide, jinja2 are not installed\n  hint: pip install halide jinja2\n")


PROGRAM = """
import opbuild, sys
for call in sys.argv[1:]:
    try:
        eval(call)
        print("done")
    except ImportError as error:
        assert isinstance(error, opbuild.errors.OpbuildError)
        print(f"{error.message}: {error.hint}")
"""

CALLS = {
    "opbuild.compile('small.onnx', input_shapes={'x': (64, 256)})": ALL,
    "opbuild.compile('small.onnx', input_shapes={'x': (64, 256)}, cache_path='none')": MODELS,
    "opbuild.load('small.om')": ALL,
    "opbuild.export('small.onnx', 'new', input_shapes={'x': (64, 256)})": MODELS,
    "opbuild.warm(['small.onnx'], shapes={'x': (64, 256)})": ALL,
}
"""Functions, and the packages that each needs."""


@pytest.mark.parametrize("gone", DEPENDENCIES)
def test_a_call_goes_on_or_raises_an_error_that_names_the_package(gone: str, built: Path) -> None:
    """It is one of opbuild's, and an ``ImportError``; ``import opbuild`` needs none of the packages."""
    place = environment(OPBUILD_CACHE=".", OPBUILD_PACK="1", **variables_without({gone}, built))
    shutil.rmtree(built / "none", ignore_errors=True)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *CALLS], cwd=built, env=place, capture_output=True, text=True, check=False
    )
    lacking = rf"the package {gone} is not installed\b.*: pip install {gone}\b.*"
    assert done.stderr == ""
    for line, needed in zip(done.stdout.splitlines(), CALLS.values(), strict=True):
        assert re.fullmatch(lacking if gone in needed else "done", line), done.stdout
