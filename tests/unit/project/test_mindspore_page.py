"""The page of MindSpore's names says what is true."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
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


def test_a_name_works_only_if_something_compared_uses_it(tool):
    """What is there and not compared is told apart from what is not there; the page said "Not here" of both."""
    found = tool.counted("mindspore.ops", {"mindspore.ops.relu", "mindspore.ops.no_such_name"})
    assert found.works == ["relu"]
    assert "sigmoid" in found.not_compared
    assert "ctc_loss" in found.missing


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("mint.nn.ReLU()(x)", {"mindspore.mint", "mindspore.mint.nn", "mindspore.mint.nn.ReLU"}),
        ("ops.relu(x.tanh())", {"mindspore.ops", "mindspore.ops.relu", "mindspore.Tensor.tanh"}),
        ("Tensor(np.tanh(x.asnumpy()).copy())", {"mindspore.Tensor", "mindspore.Tensor.asnumpy"}),
    ],
)
def test_a_name_is_used_where_its_whole_path_stands(tool, text, names):
    """``mint.nn.ReLU`` is no use of ``nn.ReLU``, and a method of an array none of the tensor's."""
    assert tool.used(text, tool.IN_EXPRESSIONS) == names


def test_most_names_for_inference_work(tool):
    """At least 80% of those that inference can use, of every module."""
    for module in tool.MODULES:
        found = tool.counted(module, tool.compared())
        assert len(found.works) >= 0.8 * found.total, module
