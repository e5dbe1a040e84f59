"""Torch modules that another process starts: saved, compiled ahead of time, or from the artifacts of a cache."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from opbuild.errors import BuildError, FileError, InputError, InvalidModelError, OpbuildError, UnsupportedOperatorError

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402

import opbuild.torch  # noqa: E402
from opbuild.torch.aot import Storable  # noqa: E402
from opbuild.torch.artifacts import OperatorArtifact  # noqa: E402
from opbuild.torch.saved import read_saved  # noqa: E402
from support.torch_started import Plain, Small, options, rows  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_objects")

TESTS = Path(__file__).parents[1]

needs_ahead_of_time = pytest.mark.skipif(
    not hasattr(torch.compile(nn.Identity()).forward, "aot_compile"),
    reason="this torch, as 2.9, compiles no methods of modules ahead of time",
)


@pytest.fixture(autouse=True)
def _no_other_compiles() -> None:
    """Forget what other tests compiled: sizes that they brought would be open, and be guarded."""
    torch.compiler.reset()


def in_another_process(program: str, *args: object) -> str:
    """Return the output of a program in a process of its own, which ends without a warning."""
    lines = f"import sys; sys.path.insert(0, {str(TESTS)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", lines, *map(str, args)], capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


LOAD = """
import torch
from support.torch_started import Plain, options, rows
import opbuild.torch
assert "torch._dynamo" not in sys.modules
model = Plain().eval()
loaded = opbuild.torch.load(sys.argv[1], model, options={**options(sys.argv[2]), "forbid_compile": True})
torch.testing.assert_close(loaded(rows(3)), model(rows(3)))
print(loaded.report.built, [name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor"))])
"""


@pytest.mark.slow
def test_another_process_runs_a_saved_module_without_dynamo_or_a_compile(tmp_path: Path, shared_store: Path) -> None:
    """Torch's compiler is never imported, and nothing is built."""
    saved = opbuild.torch.save(tmp_path / "net", Plain().eval(), (rows(3),), options=options(shared_store))
    saved(rows(3))
    assert in_another_process(LOAD, tmp_path / "net", shared_store).strip() == "0 []"


def test_a_saved_module_has_the_weights_of_the_module_that_it_is_loaded_for(tmp_path: Path, shared_store: Path) -> None:
    """Kernels do not depend on weights; those of the module are read again when they change."""
    path = tmp_path / "net"
    opbuild.torch.save(path, Plain().eval(), (rows(3),), options=options(shared_store))
    other = Plain().eval()
    with torch.no_grad():
        other.layer.weight.mul_(2)
        loaded = opbuild.torch.load(path, other, options=options(shared_store))
        torch.testing.assert_close(loaded(rows(3)), other(rows(3)))
        other.layer.bias.add_(1)
        torch.testing.assert_close(loaded(rows(3)), other(rows(3)))
        other.layer.weight = nn.Parameter(torch.ones(5, 6))
        torch.testing.assert_close(loaded(rows(3)), other(rows(3)))


@pytest.mark.slow
def test_a_saved_module_does_all_that_the_module_does(tmp_path: Path, shared_store: Path) -> None:
    """Sizes are open, a buffer is written to, an argument is by name, results have names, and torch does its part."""
    sizes = {"x": {0: torch.export.Dim("rows", max=64)}, "bias": None}
    path = tmp_path / "net"
    example = {"bias": torch.ones(4)}
    opbuild.torch.save(path, Small().eval(), (rows(3),), example, dynamic_shapes=sizes, options=options(shared_store))
    own, model = Small().eval(), Small().eval()
    loaded = opbuild.torch.load(path, own, options=options(shared_store))
    with torch.no_grad():
        for count in (3, 5):
            bias = torch.full((4,), float(count))
            torch.testing.assert_close(loaded(rows(count), bias=bias), model(rows(count), bias=bias))
    assert own.calls.item() == model.calls.item() == 2
    assert loaded.report.partitioned


def test_a_call_that_a_module_was_not_saved_for_is_an_error(tmp_path: Path, shared_store: Path) -> None:
    """Structure, sizes, element types and kinds of arguments are compared, and the message says what differs."""
    saved = opbuild.torch.save(tmp_path / "net", Plain().eval(), (rows(3),), options=options(shared_store))
    for arguments, problem in (
        ((rows(4),), r"x: it is \[4, 6\], but was saved for \[3, 6\]"),
        ((rows(3).double(),), "x: it is of torch.float64, but was saved for float32"),
        ((3,), "x: a tensor on the CPU is needed, not int"),
        ((rows(3), rows(3)), "the arguments have another structure"),
    ):
        with pytest.raises(InputError, match=problem):
            saved(*arguments)


def test_a_module_that_is_not_the_one_saved_is_refused(tmp_path: Path, shared_store: Path) -> None:
    """Another layer, another size, or the mode of training are seen when it is loaded."""
    path, build = tmp_path / "net", options(shared_store)
    opbuild.torch.save(path, Plain().eval(), (rows(3),), options=build)
    wide = Plain().eval()
    wide.layer = nn.Linear(6, 7)
    for model, problem in (
        (Small().eval(), "the module has no layer"),
        (wide, r"layer\.weight is torch\.float32 \[7, 6\], not float32 \[5, 6\]"),
        (Plain().train(), r"saved in the mode of eval\(\)"),
    ):
        with pytest.raises(InvalidModelError, match=problem):
            opbuild.torch.load(path, model, options=build)


def test_a_damaged_file_is_refused_wherever_it_is_damaged(tmp_path: Path) -> None:
    """A byte that changed, a lost end, another file and none at all are errors of opbuild."""
    path = tmp_path / "net"
    opbuild.torch.save(path, Plain().eval(), (rows(3),))
    sound = path.read_bytes()
    assert read_saved(path).given
    for place in range(0, len(sound), len(sound) // 40):
        path.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
        with pytest.raises(InvalidModelError, match="is no saved module"):
            read_saved(path)
        path.write_bytes(sound[:place])
        with pytest.raises(InvalidModelError, match="is no saved module"):
            read_saved(path)
    path.unlink()
    with pytest.raises(FileError, match="cannot be read"):
        read_saved(path)


def test_what_torch_cannot_export_is_an_error_of_opbuild(tmp_path: Path) -> None:
    """The message has torch's reason, and nothing is written."""

    class Branches(nn.Module):
        def forward(self, x: Any) -> Any:
            return x + 1 if x.sum() > 0 else x - 1

    with pytest.raises(InvalidModelError, match=r"torch\.export cannot export the module"):
        opbuild.torch.save(tmp_path / "net", Branches().eval(), (rows(3),))
    assert not list(tmp_path.iterdir())


AHEAD = """
import torch
from support.torch_started import Plain, rows
model = Plain().eval()
with open(sys.argv[1], "rb") as file, torch.no_grad():
    loaded = torch.compiler.load_compiled_function(file)
    torch.testing.assert_close(loaded(model, rows(3)), model(rows(3)))
import opbuild.torch
print(opbuild.torch.report().built)
"""


def ahead(model: nn.Module, store: Path, *args: Any) -> Any:
    """Return a module that torch compiled ahead of time."""
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend=opbuild.torch.opbuild, options=options(store))
        return compiled.forward.aot_compile((args, {}))


@pytest.mark.slow
@needs_ahead_of_time
def test_another_process_runs_what_torch_compiled_ahead_of_time(tmp_path: Path, shared_store: Path) -> None:
    """``aot_compile``, ``save_compiled_function`` and ``load_compiled_function`` are torch's own; nothing is built."""
    model = Plain().eval()
    compiled = ahead(model, shared_store, rows(3))
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, rows(3)), model(rows(3)))
    compiled.save_compiled_function(str(tmp_path / "net"))
    assert in_another_process(AHEAD, tmp_path / "net").strip() == "0"


class Hidden(nn.Module):
    """The numbers of a module whose result is a class of its own."""

    def __init__(self, inside: nn.Module) -> None:
        super().__init__()
        self.inside = inside

    def forward(self, words: Any) -> Any:
        return self.inside(words).last_hidden_state


@pytest.mark.slow
@needs_ahead_of_time
def test_transformers_modules_are_compiled_ahead_of_time_without_the_guards_that_torch_cannot_store(
    tmp_path: Path, shared_store: Path
) -> None:
    """Torch refuses to store what Dynamo guards in them, with any back end, unless it is told what to leave out."""
    transformers = pytest.importorskip("transformers", reason="its modules are what this is about")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    model = Hidden(transformers.BertModel(config, add_pooling_layer=False)).eval()
    words = torch.arange(8).reshape(1, 8)
    guarded = {**options(shared_store), "guard_filter_fn": torch.compiler.keep_tensor_guards_unsafe}
    with torch.no_grad():
        compiled = torch.compile(model, fullgraph=True, backend="opbuild", options=guarded)
        compiled.forward.aot_compile(((words,), {})).save_compiled_function(str(tmp_path / "net"))
        with (tmp_path / "net").open("rb") as file:
            loaded = torch.compiler.load_compiled_function(file)
        found, expected = loaded(model, words), model(words)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


DRAW = random.Random(3)


class Draws(nn.Module):
    """It is here because torch stores classes by their modules' names."""

    def forward(self, x: Any) -> Any:
        return x * DRAW.uniform(1, 2)


@needs_ahead_of_time
def test_a_stored_graph_sees_all_digits_of_a_float_that_is_drawn(shared_store: Path) -> None:
    """Dynamo declares it as float32 and hands over float64; there is no module that could compute it at the call."""
    x, number = torch.arange(1, 5, dtype=torch.float64), torch.tensor(0.1, dtype=torch.float64)
    stored = ahead(Draws(), shared_store, x)._artifacts.compiled_fn
    again = Storable.deserialize_compile_artifacts(Storable.serialize_compile_artifacts(stored))
    torch.testing.assert_close(again(number, x), [x * number], rtol=1e-15, atol=0)


@needs_ahead_of_time
def test_what_is_done_around_a_graph_is_not_lost_when_it_is_stored(shared_store: Path) -> None:
    """A graph that writes to its inputs, returns views of them, or needs gradients is refused."""

    class Writes(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.add_(1) * 2

    class Views(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.view(-1), x * 2

    for model, problem in ((Writes(), "writes to its inputs"), (Views(), "views of them")):
        with pytest.raises(UnsupportedOperatorError, match=problem):
            ahead(model.eval(), shared_store, rows(3))
    compiled = torch.compile(Plain(), fullgraph=True, backend=opbuild.torch.opbuild)
    with pytest.raises(OpbuildError, match="needs gradients"):
        compiled.forward.aot_compile(((rows(3),), {}))


ARTIFACTS = """
import torch
from support.torch_started import Plain, rows
import opbuild.torch
model = Plain().eval()
compiled = torch.compile(model, backend=opbuild.torch.opbuild)
with open(sys.argv[1], "rb") as file:
    found = torch.compiler.load_cache_artifacts(file.read())
assert found.artifacts["opbuild"]
with torch.no_grad():
    torch.testing.assert_close(compiled(rows(3)), model(rows(3)))
print(opbuild.torch.report().built)
"""


@pytest.mark.slow
def test_the_artifacts_of_torchs_caches_bring_operators_to_an_empty_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process compiles and saves; another with an empty one compiles nothing. Builds behind calls delay no exit."""
    monkeypatch.setenv("OPBUILD_NUM_THREADS", "1")
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(tmp_path / "save"))
    model = Plain().eval()
    compiled = torch.compile(model, backend=opbuild.torch.opbuild)
    with torch.no_grad():
        torch.testing.assert_close(compiled(rows(3)), model(rows(3)))
    assert opbuild.torch.report(compiled).built == 1
    (tmp_path / "artifacts").write_bytes(torch.compiler.save_cache_artifacts()[0])
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(tmp_path / "load"))
    assert in_another_process(ARTIFACTS, tmp_path / "artifacts").strip() == "0"


def test_a_damaged_artifact_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not what was saved does not come into a store."""
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(tmp_path))
    for content in (b"", b"{}", b'{"blake3":"'):
        with pytest.raises(BuildError, match="the artifact x_1_0 is not what was saved"):
            OperatorArtifact("x_1_0", content).populate_cache()
    assert not list(tmp_path.rglob("*.o"))
