"""How networks and reports show themselves: in a line at the prompt, as tables in a notebook."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

import opbuild
from opbuild.graph.types import TensorType
from opbuild.report import OperatorReport, Report
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Network
from opbuild.text.visible import visible

OPERATORS = tuple(
    OperatorReport(
        f"conv_{number}_0", "built" if number % 2 else "reused", "not in the store", (f"node{number}",), 40.0
    )
    for number in range(30)
)
VOID = {"br", "hr", "img"}


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects them and the text."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.cells: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a tag."""
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        """Close the tag that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Collect the text of cells."""
        if self.open[-1:] in (["td"], ["th"]):
            self.cells[-1] += data


def test_a_report_is_one_short_line_at_the_prompt() -> None:
    """It was every operator and every note in one line of thousands of characters."""
    report = Report("resnet50", OPERATORS, {"TopK": 2}, {"lower": 1.5, "build": 100.0}, notes={"n": "why" * 99})
    assert repr(report) == ("Report(network='resnet50', built=15, reused=15, host=2, image=False, milliseconds=101.5)")
    small = Report("small", steps={"build": 1.0}, arena=640, constants=3000)
    assert str(small).endswith("memory: 640 B intermediate, 2.9 KiB constant")  # it was 0.0 MiB
    assert len(str(report).splitlines()) > 30  # ``print`` shows each operator


def test_a_report_is_a_table_in_a_notebook() -> None:
    """Counts first; each operator with its nodes and reason, folded."""
    page = Page(
        Report("resnet50", OPERATORS, {"TopK": 2}, {"lower": 1.0}, image_reason="it is not stored")._repr_html_()
    )
    assert page.tags.count("tr") == 7 + 1 + len(OPERATORS)
    assert {"operators built", "15", "2 x TopK", "no: it is not stored", "conv_3_0", "node3"} <= {*page.cells}
    assert "details" in page.tags
    many = OperatorReport("conv_0", "built", "r", tuple(f"n{number}" for number in range(26)), 1.0)
    assert "n0, n1, n2, n3 and 22 more" in Page(Report("n", (many,), {}, {"lower": 1.0})._repr_html_()).cells


NAMES = st.text(min_size=1, max_size=20) | st.sampled_from(
    ["<script>alert(1)</script>", "&amp;", '"><img src=x onerror=alert(1)>', "</td></table>", "a\nb", "\ud800"]
)


@settings(max_examples=60)
@given(NAMES, NAMES, NAMES)
def test_names_of_models_are_text_in_a_notebook(name: str, node: str, reason: str) -> None:
    """A model's names cannot add tags to the page, and are shown as they are."""
    report = Report(name, (OperatorReport(node, "built", reason, (node,), 1.0),), {node: 1}, {"lower": 1.0})
    net = Network(name, [Endpoint(node, TensorType("float32", (-1, 3)))], [node], lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    plain = Page(
        Report("n", (OperatorReport("o", "built", "r", ("o",), 1.0),), {"o": 1}, {"lower": 1.0})._repr_html_()
    ).tags
    page = Page(report._repr_html_())
    assert page.tags == plain
    assert shown(node) in page.cells
    assert shown(node) in Page(net._repr_html_()).cells


def shown(text: str) -> str:
    """A text as it is shown: what does not print is written as an escape."""
    return visible(text)


def test_a_network_shows_its_inputs_and_outputs(tmp_path: Path) -> None:
    """In a notebook, a row for each, before the first call too."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("n", 4)) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    net = opbuild.compile(model, cache_path=tmp_path)
    page = Page(net._repr_html_())
    assert page.cells == ["", "name", "type", "shape", *("input", "x", "float32", "[any, 4]"),
                          *("output", "y", "float32", "[any, 4]")]  # fmt: skip
    assert str(net.report).startswith("network relu: nothing is built before the first call")
    assert "nothing is built before the first call" in net.report._repr_html_()
    assert repr(net.report) == "Report(network='relu', built=0, reused=0, host=0, image=False, milliseconds=0.0)"
