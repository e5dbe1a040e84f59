"""Example networks: valid models with the inputs that are listed, and outputs that tell right from wrong.

The suite makes each with one of two seeds, a campaign with both.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from kernels.combinations import crossed
from opbuild.cli.main import main
from opbuild.frontend.example_models import EXAMPLES, PRODUCER, example_model, light_path

SMALL = [name for name, example in EXAMPLES.items() if example.megabytes < 110]
"""Those that are made and run in a second or two; the weights of the others take seconds to draw."""


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_listed_with_its_own_input_and_size(name: str) -> None:
    """Name, shape and megabytes are those of the structure, which the onnx package ships without weights."""
    graph = onnx.load(light_path(name)).graph
    known = {tensor.name: tensor for tensor in graph.initializer}
    (value,) = (each for each in graph.input if each.name not in known)
    assert value.name == EXAMPLES[name].input
    assert tuple(each.dim_value for each in value.type.tensor_type.shape.dim) == EXAMPLES[name].shape
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    elements = sum(math.prod(numpy_helper.to_array(known[node.input[0]]).tolist()) for node in made)
    assert abs(4e-6 * elements - EXAMPLES[name].megabytes) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seed"), crossed(2, SMALL, (0, 1)))
def test_the_outputs_of_an_example_vary(name: str, seed: int) -> None:
    """Before Softmax they spread by 1 to 6 for normally distributed inputs; the packaged constants give one value."""
    model = example_model(name, seed)
    onnx.checker.check_model(model, full_check=True)
    last = model.graph.node[-1]
    if last.op_type == "Softmax":
        model.graph.output.append(onnx.helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    image = np.random.default_rng(seed).standard_normal(EXAMPLES[name].shape).astype(np.float32)
    scores = session.run(None, {EXAMPLES[name].input: image})[-1]
    assert 1 < np.std(scores) < 6
    assert len(np.unique(scores)) > 500


def test_one_seed_makes_one_model() -> None:
    """The same bytes each time, other weights for another seed."""
    first, again, other = (example_model("squeezenet", seed).SerializeToString() for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_the_command_writes_a_model_and_replaces_only_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is named and its input told; a file that is no example is never overwritten."""
    monkeypatch.chdir(tmp_path)
    assert main(["example", "squeezenet"]) == 0
    assert "squeezenet.onnx: squeezenet with random weights, 5 MB, input data_0 " in capsys.readouterr().out
    assert onnx.load("squeezenet.onnx").producer_name == PRODUCER
    assert main(["example", "squeezenet", "--seed", "1", "-o", "squeezenet.onnx"]) == 0
    mine = tmp_path / "mine.onnx"
    mine.write_bytes(b"my own model")
    assert main(["example", "squeezenet", "-o", "mine.onnx"]) == 2
    assert mine.read_bytes() == b"my own model"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.onnx", "squeezenet.onnx"]


@pytest.mark.parametrize(
    ("arguments", "said", "hint"),
    [
        (["resnet5"], "there is no example 'resnet5'", "did you mean resnet50?"),
        (["mine"], "there is no example 'mine'", "there are resnet50, squeezenet"),
        (["squeezenet", "-o", "."], "'.' is a folder", "-o squeezenet.onnx"),
        (["squeezenet", "-o", "no/model.onnx"], "there is no folder 'no'", "mkdir -p no"),
        (["squeezenet", "--seed", "-1"], "--seed", ""),
    ],
)
def test_what_cannot_be_written_is_one_clear_error(
    arguments: list[str], said: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A wrong name, place or seed: what was wrong, what to do, exit code 2, and no file."""
    monkeypatch.chdir(tmp_path)
    assert main(["example", *arguments]) == 2
    printed = capsys.readouterr().err
    assert said in printed
    assert hint in printed
    assert not list(tmp_path.iterdir())


def test_without_a_name_all_examples_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """With the names of their inputs, which a reader needs to call them."""
    assert main(["example"]) == 0
    printed = capsys.readouterr().out
    for name, example in EXAMPLES.items():
        assert any(name in line and example.input in line for line in printed.splitlines())
