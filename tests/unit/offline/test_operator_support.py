"""``opbuild.operators`` and ``opbuild operators``: what they say of each ONNX operator is what happens."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from pathlib import Path

import onnx
import pytest

import opbuild
from opbuild.backend.host.movement import IMPLEMENTATIONS
from opbuild.cli.main import main
from opbuild.cli.operators import row, short, summary
from opbuild.config import Config
from opbuild.errors import OptionError, UnsupportedOperatorError
from opbuild.frontend.expansion import has_body
from opbuild.frontend.operator_examples import MICROSOFT_FORMS, OperatorExample, operator_types
from opbuild.frontend.rewritten import LEARNED, MICROSOFT
from opbuild.frontend.rewritten import REWRITES as REWRITTEN
from opbuild.graph.passes import quantization
from opbuild.graph.passes.composite import REWRITES as COMPOSITE
from opbuild.graph.passes.integers import REWRITES as INTEGERS
from opbuild.graph.shape_rules import RULES as SHAPES
from opbuild.graph.types import Node
from opbuild.lowering.implementations import operators
from opbuild.offline.operator_support import NO_TENSORS
from support.fuzzing import CAMPAIGN
from support.operator_claims import all_examples, claim, feeds_of, what_happens

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "operators.md"
TRIED = {"no host": 8, "host": 16, "refused": 8}


def chosen() -> list[OperatorExample]:
    """Some examples of each claim; in a campaign all of them."""
    by_claim = defaultdict(list)
    for example in all_examples():
        by_claim[claim(example)].append(example)
    assert set(by_claim) == set(TRIED)
    some = random.Random(0)
    return [
        each
        for name, examples in by_claim.items()
        for each in (examples if CAMPAIGN else some.sample(examples, TRIED[name]))
    ]


@pytest.mark.slow
def test_what_is_said_of_each_operator_and_type_is_what_happens(tmp_path: Path) -> None:
    """Each small model is built and called: with kernels alone, with calls of the host, or not at all."""
    wrong = []
    for example in chosen():
        said, happened = claim(example), what_happens(example, tmp_path)
        if said != happened:
            wrong.append((example.op_type, example.label, example.dtype, said, happened))
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("op_type", ["Loop", "NonZero", "RoiAlign", "SplitToSequence", "com.microsoft.GreedySearch"])
def test_what_is_not_in_offline_models_is_said(op_type: str, tmp_path: Path) -> None:
    """A network that is cut there is in a file as any other, unless the onnx package runs what is on the host."""
    config = Config(cache_path=tmp_path, workers=1, num_threads=1)
    for record in opbuild.operators(op_type):
        example = next(
            each
            for each in all_examples()
            if each[0] == op_type
            and each.dtype == "float32"
            and (not record.form or each.label in record.form.split(", "))
        )
        assert example.model is not None
        try:
            built = opbuild.load(opbuild.export(example.model, tmp_path / "net", config=config))
        except UnsupportedOperatorError:
            assert not record.offline
        else:
            built.run(feeds_of(example.model))
            assert record.offline


@pytest.mark.slow
def test_every_operator_is_asked_about_in_a_form_that_onnx_allows() -> None:
    """What is refused is refused for what it is, not for an example that lacks an input or an attribute."""
    records = opbuild.operators()
    known = {*operator_types(), *operator_types(LEARNED), *operator_types(MICROSOFT)}
    assert {record.name for record in records} == known
    assert len({(record.name, record.form) for record in records}) == len(records)
    reasons = (
        "not known when the network is built",
        "knows tensors only",
        "lists, optional values or text",
        "the onnx package does not",
    )
    for record in records:
        assert record.kernel or record.host or record.folded or record.refused or record.why, record
        if not (record.kernel or record.host or record.folded):
            assert any(reason in record.why for reason in reasons), record


def test_every_lowering_rule_shows_as_a_kernel() -> None:
    """An operator that has a rule has kernels for some type, so the examples reach every rule."""
    kernels = {record.name for record in opbuild.operators(operator_types()) if record.kernel}
    kernels = {name for name in kernels if "." not in name}
    rules = {op_type for domain, op_type in operators() if not domain} & set(operator_types())
    assert rules - kernels == set()
    made_of_others = {name for name in kernels - rules if has_body(Node(name, (), ()), onnx.defs.onnx_opset_version())}
    integers = {op_type for domain, op_type in INTEGERS if not domain} - rules
    rewritten = {*(op_type for _, op_type in COMPOSITE), *quantization.REWRITES, *integers}
    between_parts = {"If", "Loop", "Scan"}
    assert kernels - rules - made_of_others <= rewritten | between_parts  # passes make others of them


def test_operators_of_onnx_runtime_are_those_that_are_served() -> None:
    """What is written with others or has a rule is listed, with its domain; only of text no types are said."""
    served = {f"{domain}.{op_type}" for domain, op_type in (*REWRITTEN, *SHAPES) if domain.startswith(MICROSOFT)}
    records = opbuild.operators(sorted(served))
    assert {record.name for record in records} == served
    assert {each if "." in each else f"{MICROSOFT}.{each}" for each in MICROSOFT_FORMS} == served
    refused = {record.name: record.why for record in records if not record.kernel + record.host + record.folded}
    assert refused == {"com.microsoft.Tokenizer": NO_TENSORS}
    (few_bits,) = opbuild.operators("MatMulNBits")
    assert few_bits.name == "com.microsoft.MatMulNBits"
    assert "float32" in few_bits.kernel
    assert {record.name for record in opbuild.operators("Pad")} == {"Pad", "com.microsoft.Pad"}


def test_learned_operators_are_those_that_are_served() -> None:
    """What is written with others, or computed by the host alone; maps are no tensors."""
    served = {name for domain, name in (*REWRITTEN, *IMPLEMENTATIONS) if domain == LEARNED}
    assert {*operator_types(LEARNED)} == {f"{LEARNED}.{name}" for name in served}
    records = {record.name.rpartition(".")[2]: record for record in opbuild.operators(operator_types(LEARNED))}
    assert {name for name, record in records.items() if record.why == NO_TENSORS} == {"CastMap", "DictVectorizer"}
    assert {name for name, record in records.items() if record.host} == {"CategoryMapper", "ZipMap"}
    assert all("float32" in records[name].kernel for domain, name in REWRITTEN if domain == LEARNED)
    assert [record.name for record in opbuild.operators("Scaler")] == ["ai.onnx.ml.Scaler"]


def test_a_record_says_where_an_operator_runs() -> None:
    """Forms that are served alike share a record."""
    (relu,) = opbuild.operators("Relu")
    assert {"float32", "float16"} <= {*relu.kernel}
    assert (relu.form, relu.host, relu.offline, relu.why) == ("", (), True, "")
    whole, between = opbuild.operators("Resize")
    assert (whole.form, between.form) == ("nearest", "linear, cubic")
    assert "int8" in whole.kernel
    assert "int8" in between.host
    (drawn,) = opbuild.operators(["RandomNormalLike"])
    assert not drawn.offline
    assert drawn.why == "no kernel for RandomNormalLike"
    (shape,) = opbuild.operators("Shape")
    assert shape.folded
    assert not shape.host


def test_an_unknown_operator_names_the_nearest() -> None:
    """In Python and as a command."""
    with pytest.raises(OptionError, match=r"there is no operator 'conv'\n  hint: did you mean 'Conv'"):
        opbuild.operators("conv")
    assert main(["operators", "Convv"]) == 2


def test_the_command_shows_a_table_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Filters choose by where an operator runs and for which type."""
    assert main(["operators", "LSTM", "RandomNormalLike", "Relu", "NonZero"]) == 0
    table = capsys.readouterr().out
    assert re.search(r"LSTM +float16 float32 bfloat16 +float64", table)
    assert re.search(r"RandomNormalLike +float16 float32 float64", table)
    assert "not in .om files" in table
    assert "NonZero" in table
    assert "what it gives decides the shapes" in table
    assert "operators: 4; with kernels: 2; numpy only: 2" in table
    for options, expected in (
        (["--kernel"], {"LSTM", "Relu"}),
        (["--host"], {"LSTM", "RandomNormalLike", "NonZero"}),
        (["--kernel", "--type", "float16"], {"LSTM", "Relu"}),
        (["--type", "float32"], {"LSTM", "RandomNormalLike", "Relu", "NonZero"}),
    ):
        assert main(["operators", "LSTM", "RandomNormalLike", "Relu", "NonZero", "--json", *options]) == 0
        assert {record["name"] for record in json.loads(capsys.readouterr().out)} == expected


def test_types_are_shown_in_few_words() -> None:
    """A group stands for its types only if all are there."""
    assert short(("bool", "int8", "int16", "int32", "int64", "float16", "float32")) == "bool int* float16 float32"
    assert short(()) == ""


def test_a_node_without_inputs_is_built(tmp_path: Path) -> None:
    """A network with RandomNormal ended its build as an IndexError, of a pass that looks for BatchNormalization."""
    for example in all_examples():
        if example.op_type in ("RandomNormal", "RandomUniform") and example.dtype == "float32":
            assert example.model is not None
            net = opbuild.compile(example.model, cache_path=tmp_path)
            assert net.run(feeds_of(example.model))["y0"].shape == (2, 3)


def page() -> str:
    """Return the page of the documentation that lists the operators."""
    records = opbuild.operators()
    rows = ["| " + " | ".join(cell.replace("*", r"\*") for cell in row(record)) + " |" for record in records]
    return "\n".join([_HEAD.format(onnx=onnx.__version__, summary=summary(records)), *rows, ""])


_HEAD = """# Operators

Which operators of ONNX, of its domain `ai.onnx.ml` and of ONNX Runtime's domains have kernels, for which element types,
and which fall back to numpy. `opbuild operators` prints this table for the `onnx` package that is installed;
[`opbuild.operators()`](python_api.md#operators) returns it. Each operator is asked about by a small network in its
usual form: other attributes and shapes may be served otherwise, which `opbuild explain` and `net.report.host` tell of a
network.

`uint*` is uint8, uint16, uint32, uint64; `int*` is int8, int16, int32, int64; `float*` is float16, float32, float64
and bfloat16; `float8*` is float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz and float8_e8m0fnu.
What falls back has no kernel: numpy computes it, or, where it says "not in .om files", the `onnx` package.

With onnx {onnx}: {summary}.

| operator | kernels for | falls back to numpy | remarks |
|---|---|---|---|"""


def test_the_page_of_operators_is_what_the_command_says(request: pytest.FixtureRequest) -> None:
    """``--update-golden`` writes it; other releases of onnx have other operators."""
    if request.config.getoption("--update-golden"):
        PAGE.write_text(page())
    written = re.search(r"With onnx (\S+):", PAGE.read_text())
    assert written is not None
    if written[1] != onnx.__version__:
        pytest.skip(f"the page is of onnx {written[1]}, installed is {onnx.__version__}")
    assert PAGE.read_text() == page()
