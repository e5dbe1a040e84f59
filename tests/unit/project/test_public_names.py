"""What ``import opbuild`` gives: exactly the documented names, and quickly."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import opbuild

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "reference" / "python_api.md"


def documented() -> set[str]:
    """Return the names that have a heading in the reference, e.g. ``### `compile` ``."""
    lines = DOCUMENT.read_text().splitlines()
    return {line.removeprefix("### `").partition("`")[0] for line in lines if line.startswith("### `")}


def test_the_public_names_are_the_documented_ones() -> None:
    """Each name in ``__all__`` exists and has a heading in docs/reference/python_api.md; each heading is a name."""
    assert set(opbuild.__all__) - {"__version__"} == documented()
    for name in opbuild.__all__:
        assert getattr(opbuild, name) is not None


def test_nothing_else_is_public() -> None:
    """Beyond ``__all__`` only sub-packages are visible without an underscore."""
    extra = {name for name in dir(opbuild) if not name.startswith("_")} - set(opbuild.__all__)
    assert [name for name in extra if not inspect.ismodule(getattr(opbuild, name))] == []


def test_public_functions_and_classes_explain_themselves() -> None:
    """Each has a docstring of its own; ruff holds the same for every public function inside."""
    for name in opbuild.__all__:
        thing = getattr(opbuild, name)
        if callable(thing):
            assert thing.__doc__, name


def test_what_users_write_is_checked_by_mypy() -> None:
    """``typed_use.py`` holds the types of calls, of ``run`` and of arguments; the package says that it has types."""
    text = (DOCUMENT.parents[2] / "pyproject.toml").read_text()
    assert '"tests/unit/project/typed_use.py"' in text[text.index("[tool.mypy]") : text.index("[[tool.mypy")]
    assert (Path(opbuild.__file__).parent / "py.typed").is_file()


def test_importing_opbuild_loads_neither_the_compiler_nor_onnx() -> None:
    """A network that was built before starts without them, so nothing may import them by the way (F66)."""
    code = "import sys, opbuild; [getattr(opbuild, name) for name in opbuild.__all__]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded.isdisjoint({"halide", "onnx", "google", "rich", "click", "mindspore"})
