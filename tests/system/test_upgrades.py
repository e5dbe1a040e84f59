"""F46: a network that was built before an edit starts after it, and compiles what the edit changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opbuild.frontend.example_models import light_path
from opbuild.kernel.entry import UNCHANGED
from support.kept_kernels import SOURCE
from support.processes import environment

_RUN = """
import json, os, sys
import opbuild
net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], num_threads=1)
report = net.report
used = os.times()
print(json.dumps({
    "file": opbuild.__file__, "image": report.image,
    "compiled": sorted(each.name for each in report.operators if each.status == "built"),
    "reasons": sorted({each.reason for each in report.operators}), "operators": len(report.operators),
    "seconds": round(sum(used[:4]), 2),
}))
"""

Edit = Callable[[Path], None]


def replaced(module: str, old: str, new: str) -> Edit:
    """Return an edit that replaces a text of a module, which has it."""

    def edit(site: Path) -> None:
        path = site.joinpath(*module.split(".")).with_suffix(".py")
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{module} has no {old!r}: take another edit"
        path.write_text(text.replace(old, new), encoding="utf-8")

    return edit


def appended(module: str, text: str) -> Edit:
    """Return an edit that adds a text to a module."""

    def edit(site: Path) -> None:
        path = site.joinpath(*module.split(".")).with_suffix(".py")
        path.write_text(f"{path.read_text(encoding='utf-8')}\n\n{text}\n", encoding="utf-8")

    return edit


OTHERWISE = """
_before = schedule


def schedule(definition, desc, machine):
    _before(definition, desc, machine)
    definition.outputs[0].output_buffer().dim(0).set_estimate(0, %d)
"""

DEFINITION = "opbuild.backend.halide.definition"
EDITS: dict[str, tuple[Edit, set[str]]] = {
    "a comment in what all families import": (appended(DEFINITION, "# as Halide has them"), set()),
    "a variable renamed there": (replaced(DEFINITION, "constraint", "limits"), set()),
    "a helper function there": (
        appended(
            DEFINITION, "_constrain_before = _constrain\n\ndef _constrain(*given):\n    _constrain_before(*given)"
        ),
        set(),
    ),
    "an idle line there": (
        replaced(DEFINITION, "    param = hl.ImageParam", "    _ = operand.format\n    param = hl.ImageParam"),
        set(),
    ),
    "a helper function in a schedule": (
        appended("opbuild.families.conv.halide", "def _unused():\n    return 1"),
        set(),
    ),
    "another pipeline of one family": (appended("opbuild.families.softmax.halide", OTHERWISE % 64), {"softmax"}),
    "the first pipeline of that family again": (
        replaced("opbuild.families.softmax.halide", "output_buffer().dim(0).set_estimate(0, 64)", "args()"),
        set(),
    ),
}
"""What is edited one after the other, and the families of which something is compiled then."""


def start(site: Path, cache: Path, **variables: str) -> dict[str, Any]:
    """Start ResNet-50 in a process of a package; return what it says."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN, light_path("resnet50"), str(cache)],
        env=environment(PYTHONPATH=str(site), OPBUILD_PACK="0", OPBUILD_SHIPPED_BANK="0", **variables),
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert said["file"] == str(site / "opbuild" / "__init__.py")
    return said


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, to be edited."""
    folder = tmp_path_factory.mktemp("site")
    ignored = shutil.ignore_patterns("__pycache__", "packs", "mindspore", "torch", "*.egg-info")
    return Path(shutil.copytree(SOURCE, folder / "src", ignore=ignored))


@pytest.mark.slow
def test_after_an_edit_only_what_it_changed_is_compiled(site: Path, tmp_path: Path) -> None:
    """Entries of before serve: nothing is compiled for a comment, a name, a helper; one family for its own pipeline."""
    first = start(site, tmp_path)
    assert len(first["compiled"]) == first["operators"] > 15
    for path in (tmp_path / "rank_0" / "network_meta").iterdir():
        if path.is_file() and path.suffix in (".json", ".so", ".bin", ".states") and path.name != "compiler.json":
            path.unlink()  # the network, so that operators are looked up
    table = [("nothing", start(site, tmp_path))]
    assert (table[0][1]["image"], table[0][1]["compiled"]) == (False, [])
    for name, (edit, families) in EDITS.items():
        edit(site)
        said = start(site, tmp_path, **({} if families else {"OPBUILD_FORBID_COMPILE": "1"}))
        assert {each.partition("_")[0] for each in said["compiled"]} == families, name
        assert families or UNCHANGED in said["reasons"], name
        table.append((name, said))
    again = start(site, tmp_path, OPBUILD_FORBID_COMPILE="1")
    assert again["image"]
    for name, said in table:
        print(f"{name}: {len(said['compiled'])} of {said['operators']} compiled, {said['seconds']} s of a core")
