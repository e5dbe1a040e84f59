"""The page of MindSpore's names says what is true."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "mindspore_names.md"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    """Return the script that writes the page."""
    spec = spec_from_file_location("mindspore_page", ROOT / "tools" / "mindspore_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_its_script_writes(tool):
    """Run tools/mindspore_page.py docs/reference/mindspore_names.md after adding names or calls of them."""
    assert PAGE.read_text() == tool.page()


def test_a_name_works_only_if_a_test_calls_it(tool):
    """Being there is not enough."""
    assert tool.counted("mindspore.ops", "ops.relu(x)").works == ["relu"]
    assert "sigmoid" in tool.counted("mindspore.ops", "ops.relu(x)").missing


@pytest.mark.parametrize("module", ["mindspore.ops", "mindspore.mint", "mindspore.numpy", "mindspore.Tensor"])
def test_most_names_for_inference_work(tool, module):
    """At least 80% of those that inference can use."""
    works, missing = tool.counted(module, tool.called(module))
    assert len(works) >= 0.8 * (len(works) + len(missing))
