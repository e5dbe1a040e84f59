"""Which failed imports are packages that opbuild needs, and what is said of them."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from opbuild.errors import BuildError, MissingPackageError
from opbuild.platform.limits import named
from opbuild.platform.packages import DEPENDENCIES, lacking, missing_package

ROOT = Path(__file__).resolve().parents[3]


def failed(module: str, wanted: str) -> ModuleNotFoundError:
    """Return the error of an import in a module."""
    code = compile(f"import_module('no_such_{wanted}')" if wanted else "", module, "exec")
    try:
        exec(code, {"__name__": module, "import_module": import_module})
    except ModuleNotFoundError as error:
        error.name = wanted
        return error
    raise AssertionError("it was found")


@pytest.mark.parametrize(
    ("module", "wanted", "told"),
    [
        ("opbuild.cli.env", "numpy", "the package numpy is not installed: pip install numpy"),
        ("onnx.helper", "numpy", "the package numpy is not installed: pip install numpy"),
        ("onnx", "google.protobuf", "the module google is not installed, which the package onnx needs: pip install "
                                    "onnx installs what it needs; 'pip check' says what else is missing"),
        ("opbuild.cli.env", "opbuild.nothing", ""),
        ("opbuild.cli.env", "opendal", ""),
        ("__main__", "numpy", ""),
        ("users.module", "onnx", ""),
    ],
)  # fmt: skip
def test_an_import_that_fails_is_opbuilds_or_the_users(module: str, wanted: str, told: str) -> None:
    """Of opbuild's own, and of what the packages need that it needs, the package is named; others are left alone."""
    found = missing_package(failed(module, wanted))
    assert (f"{found.message}: {found.hint}" if found else "") == told
    assert found is None or isinstance(found, (BuildError, ImportError))


def test_functions_raise_it_in_place_of_the_import_error() -> None:
    """What failed is its cause; an error of opbuild's own stays as it is."""
    cause = failed("opbuild.x", "jinja2")
    with pytest.raises(MissingPackageError) as caught, named(BuildError, "it cannot be built"):
        raise cause
    assert caught.value.__cause__ is cause
    own: Any = lacking("onnx")
    with pytest.raises(MissingPackageError) as caught, named(BuildError, "it cannot be built"):
        raise own
    assert caught.value is own
    assert missing_package(own) is missing_package(ValueError()) is None


def test_all_dependencies_are_known() -> None:
    """Those of ``pyproject.toml``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    required = text.partition("\ndependencies = [\n")[2].partition("\n]\n")[0]
    assert tuple(re.findall(r'^ *"([A-Za-z0-9_]+)', required, re.MULTILINE)) == DEPENDENCIES
