"""Where nothing can be compiled, a lower level's operators and networks serve, and all are told; never a higher's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

import opbuild
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.host.evaluate import evaluate
from opbuild.cli.main import main
from opbuild.errors import CompileForbiddenError, OpbuildError
from opbuild.events import LowerServes, Warned
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.target.host import host_level
from opbuild.target.level import Level
from opbuild.target.machine import Machine
from support import networks
from support.processes import WITHOUT, environment
from support.samples import Recorder

HOST = host_level()
LOWER = HOST.lower()


def choices(level: Level) -> tuple[int, int]:
    """Return the numbers by which kernels of float32 are chosen."""
    machine = Machine.of(level)
    return machine.lanes, machine.registers


SAME = tuple(level for level in LOWER if choices(level) == choices(HOST))
"""Lower levels for which kernels are chosen as for this machine's."""
OTHER = tuple(level for level in LOWER if choices(level) != choices(HOST))
DATA = {"x": np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)}

pytestmark = [
    pytest.mark.skipif(not LOWER, reason="there is no level below this machine's"),
    pytest.mark.usefixtures("kept_objects"),
]
has_same = pytest.mark.skipif(not SAME, reason="no level below this machine's has its registers")
has_other = pytest.mark.skipif(not OTHER, reason="every level below this machine's has its registers")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """A network of a few operators."""
    return networks.mlp()


Places = Callable[[], dict[str, Any]]


@pytest.fixture(params=["cache_path", "op_compiler_cache_dir"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where a cache is: levels lie together, or each has a folder."""
    return {request.param: tmp_path / "cache"}


def forget_networks(folder: Path) -> int:
    """Remove stored networks; return how many."""
    found = list(folder.rglob("network_meta/network_*.json"))
    for path in found:
        path.unlink()
    return len(found)


def said_of(level: Level, why: str = "compiling is forbidden") -> str:
    """Return the message where a lower level serves."""
    return f"{level} (this machine has {HOST}; {why})"


@has_other
def test_a_lower_levels_network_starts_where_compiling_is_forbidden(
    model: onnx.ModelProto, place: dict[str, Any]
) -> None:
    """The stored network of a level with other registers: report and event name it, and the numbers are its own."""
    there, recorder = OTHER[0], Recorder()
    first = opbuild.compile(model, target=str(there), **place)
    assert first.report.level == str(there)
    net = opbuild.compile(model, forbid_compile=True, observer=recorder, **place)
    assert net.report.image
    assert net.report.level == said_of(there)
    assert f"\nlevel {said_of(there)}\n" in str(net.report)
    assert said_of(there) in net.report._repr_html_()
    assert recorder.of(LowerServes) == [LowerServes("network", said_of(there))]
    np.testing.assert_array_equal(net(DATA), first(DATA))


@has_other
def test_a_lower_levels_operators_are_put_together_and_stored_as_its_network(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path
) -> None:
    """Without a stored network it is lowered for that level; the own level's build is not hidden by it later."""
    lower = OTHER[0]
    expected = opbuild.compile(model, target=str(lower), **place)(DATA)
    assert forget_networks(tmp_path) == 1
    net = opbuild.compile(model, forbid_compile=True, **place)
    assert (net.report.image, net.report.built, net.report.level) == (False, 0, said_of(lower))
    np.testing.assert_array_equal(net(DATA), expected)
    assert opbuild.compile(model, forbid_compile=True, **place).report.image
    assert opbuild.compile(model, target=str(lower), forbid_compile=True, **place).report.image
    own = opbuild.compile(model, **place)
    assert (own.report.image, own.report.level) == (False, str(HOST))
    assert own.report.built == len(own.report.operators)
    assert opbuild.compile(model, forbid_compile=True, **place).report.level == str(HOST)


@has_other
def test_a_lower_levels_own_tiles_serve(tmp_path: Path) -> None:
    """Where both levels choose other kernels the network is lowered for the lower one, as its own machines do."""
    convolutions, lower_level = networks.light("squeezenet"), OTHER[0]
    graph = optimize(load_model(convolutions).bind({}, evaluate), evaluate)
    chosen = [set(lower(graph, level).descriptors()) for level in (HOST, lower_level)]
    assert chosen[0] - chosen[1]
    feeds = networks.random_input(convolutions)
    there = opbuild.compile(convolutions, target=str(lower_level), cache_path=tmp_path)
    there.wait_until_stored()
    for path in tmp_path.rglob("network_meta/squeezenet_*.json"):
        path.unlink()
    net = opbuild.compile(convolutions, forbid_compile=True, cache_path=tmp_path)
    assert (net.report.image, net.report.level) == (False, said_of(lower_level))
    for one, other in zip(net.run(feeds).values(), there.run(feeds).values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@has_same
def test_single_operators_of_a_lower_level_serve_beside_the_own_levels(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path
) -> None:
    """One that is missing is taken under the same descriptor; a network of both levels is never stored."""
    lower = SAME[0]
    own, there = opbuild.compile(model, **place), opbuild.compile(model, target=str(lower), **place)
    lost, taken = own.report.operators[0].name, there.report.operators[0].name
    for path in tmp_path.rglob(f"{lost}.*"):
        path.unlink()
    forget_networks(tmp_path)
    for _ in range(2):
        net = opbuild.compile(model, forbid_compile=True, **place)
        assert not net.report.image
        assert net.report.level == f"{HOST}, with 1 operator of lower levels (compiling is forbidden)"
        assert [each.name for each in net.report.operators] == [taken, *(e.name for e in own.report.operators[1:])]
        assert net.report.operators[0].reason == f"in the store, for level {said_of(lower)}"
        np.testing.assert_allclose(net(DATA), own(DATA), rtol=1e-5)
    again = opbuild.compile(model, **place)
    assert [each.name for each in again.report.operators if each.status == "built"] == [lost]


def test_a_higher_levels_operators_never_serve(model: onnx.ModelProto, place: dict[str, Any]) -> None:
    """With all of this machine's operators stored, a lower level asked for has none (F38)."""
    opbuild.compile(model, **place)
    with pytest.raises(CompileForbiddenError, match="would have to be compiled") as caught:
        opbuild.compile(model, target=str(LOWER[0]), forbid_compile=True, **place)
    assert "build the network once without OPBUILD_FORBID_COMPILE" in caught.value.hint


@pytest.mark.slow
def test_a_network_that_no_level_has_whole_is_the_own_levels_error(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path
) -> None:
    """One operator of a lower level that is missing: the error names what the own level lacks."""
    there = opbuild.compile(model, target=str(LOWER[-1]), **place)
    for path in tmp_path.rglob(f"{there.report.operators[0].name}.*"):
        path.unlink()
    forget_networks(tmp_path)
    with pytest.raises(CompileForbiddenError, match=f"{there.report.operators[0].name.split('_')[0]}_"):
        opbuild.compile(model, forbid_compile=True, **place)


@has_other
def test_a_lower_level_serves_where_no_compiler_is_installed(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As imported from a bundle; without a compiler nothing is more forbidden than it is impossible."""
    lower, bundle = OTHER[0], tmp_path / "lower.bundle"
    opbuild.compile(model, target=str(lower), **place)
    options = [f"--{name}={value}" for name, value in place.items()]
    assert main(["cache", "export", str(bundle), f"--target={lower}", *options]) == 0
    elsewhere = dict.fromkeys(place, tmp_path / "elsewhere")
    with monkeypatch.context() as patch:
        patch.setattr(HalideCompiler, "library", staticmethod(lambda: None))
        patch.setattr(HalideCompiler, "files", staticmethod(tuple))
        patch.setattr(HalideCompiler, "version", staticmethod(lambda: ""))
        assert main(["cache", "import", str(bundle), *(f"--{name}={path}" for name, path in elsewhere.items())]) == 0
        net = opbuild.compile(model, **elsewhere)
        assert net.report.level == said_of(lower, "the compiler halide is not installed")
        assert net.report.built == 0


@has_other
def test_a_lower_levels_network_starts_where_neither_compiler_nor_onnx_is(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path
) -> None:
    """What is remembered of the model is found where that level is, also if each level has a folder."""
    path, ((name, folder),) = tmp_path / "net.onnx", place.items()
    onnx.save(model, path)
    opbuild.compile(path, target=str(OTHER[0]), **place)
    program = WITHOUT.format(names=("halide", "onnx")) + (
        f"import opbuild\nnet = opbuild.compile({str(path)!r}, {name}={str(folder)!r})\n"
        "print(net.report.image, net.report.level)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == f"True {said_of(OTHER[0], 'the compiler halide is not installed')}\n", done.stderr


def cache_of(place: dict[str, Any]) -> Path:
    """Return the folder where the levels' caches are."""
    (folder,) = place.values()
    return Path(folder)


def sized(model: onnx.ModelProto, place: dict[str, Any], feeds: Sequence[dict[str, Any]]) -> None:
    """Store a network with open sizes at the lowest level, start it at this machine's, and compare its results.

    Single operators are gone: what serves is what was stored whole.
    """
    there = opbuild.compile(model, target=str(OTHER[-1]), wait=True, **place)
    expected = [there.run(each) for each in feeds]
    there.wait_until_stored()
    for path in [*cache_of(place).rglob("kernel_meta/*")]:
        path.unlink()
    recorder = Recorder()
    net = opbuild.compile(model, forbid_compile=True, observer=recorder, **place)
    for given, wanted in zip(feeds, expected, strict=True):
        got = net.run(given)
        assert (net.report.built, net.report.level) == (0, said_of(OTHER[-1]))
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array)
    assert recorder.of(Warned) == []
    assert {each.level for each in recorder.of(LowerServes)} == {said_of(OTHER[-1])}


@has_other
def test_a_lower_levels_program_serves_each_size_of_an_open_batch(place: dict[str, Any]) -> None:
    """Sizes that were never called at that level, too: they are bound to its program by numbers."""
    opened = networks.with_input_shape(networks.mlp(), ("batch", 64))
    x = np.random.default_rng(0).standard_normal((33, 64)).astype(np.float32)
    sized(opened, place, [{"x": x[:rows]} for rows in (4, 7, 1, 33)])
    fresh = opbuild.compile(opened, forbid_compile=True, **place)
    assert fresh({"x": x[:19]}).shape == (19, 10)
    assert fresh.report.level == said_of(OTHER[-1])


SEGMENTS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,6] x) => (float[] y, int64[] found) <float[6] bias = {1, 2, 3, 4, 5, 6}> {
    a = Add(x, bias)
    r = Relu(a)
    found = NonZero(r)
    i = Transpose(found)
    v = GatherND(a, i)
    y = Neg(v)
}"""


@has_other
def test_a_lower_levels_segments_serve(place: dict[str, Any]) -> None:
    """What follows from data has a program of its own, which is found where the first segment's is."""
    x = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32) * 4
    sized(parser.parse_model(SEGMENTS), place, [{"x": x[:rows]} for rows in (4, 9, 2)])


@has_other
def test_explain_says_which_level_would_serve(
    model: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where compiling is forbidden it shows the operators of the level that has them all, and names it."""
    path = tmp_path / "net.onnx"
    onnx.save(model, path)
    built = opbuild.compile(path, target=str(OTHER[0]), cache_path=tmp_path)
    monkeypatch.setenv("OPBUILD_FORBID_COMPILE", "1")
    assert main(["explain", str(path), f"--cache_path={tmp_path}"]) == 0
    assert f"0 operators to build, {len(built.report.operators)} to reuse, level {said_of(OTHER[0])}" in (
        " ".join(capsys.readouterr().out.split())
    )
    assert main(["explain", str(path), f"--cache_path={tmp_path}", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["level"] for row in rows} == {said_of(OTHER[0])}
    assert [row["name"] for row in rows] == [each.name for each in built.report.operators]


def test_the_command_compiles_for_the_level_that_is_named(
    model: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``opbuild compile --target`` stores operators of that level, as ``target=`` does."""
    onnx.save(model, tmp_path / "net.onnx")
    words = [f"--target={LOWER[0]}", f"--cache_path={tmp_path}"]
    assert main(["compile", str(tmp_path / "net.onnx"), *words]) == 0
    capsys.readouterr()
    assert main(["explain", str(tmp_path / "net.onnx"), *words]) == 0
    assert f"level {LOWER[0]}\n" in capsys.readouterr().out
    assert opbuild.compile(model, target=str(LOWER[0]), cache_path=tmp_path, forbid_compile=True).report.built == 0


def test_an_offline_model_of_a_lower_level_says_so(
    model: onnx.ModelProto, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It runs here, its report and ``opbuild export --mode=6`` name both levels."""
    path = opbuild.export(model, tmp_path / "net", target=str(LOWER[0]))
    net = opbuild.load(path)
    assert net.report.level == f"{LOWER[0]} (this machine has {HOST})"
    assert net(DATA).shape == (4, 10)
    capsys.readouterr()
    assert main(["export", "--mode=6", f"--om={path}"]) == 0
    assert f"{LOWER[0]} (this machine has {HOST})" in capsys.readouterr().out


@pytest.mark.slow
def test_an_error_of_a_lower_level_is_not_the_networks(
    model: onnx.ModelProto, place: dict[str, Any], tmp_path: Path
) -> None:
    """A damaged network of a lower level is passed over."""
    opbuild.compile(model, target=str(LOWER[0]), **place)
    for path in tmp_path.rglob("network_meta/*.so"):
        path.write_bytes(b"damaged")
    assert not opbuild.compile(model, forbid_compile=True, **place).report.image
    for path in tmp_path.rglob("*.o"):
        path.write_bytes(b"damaged")
    forget_networks(tmp_path)
    with pytest.raises(OpbuildError, match="would have to be compiled"):
        opbuild.compile(model, forbid_compile=True, **place)
