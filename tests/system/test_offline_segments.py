"""Offline models of networks in segments: shapes from data or values, branches, loops; without onnx and Halide."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import opbuild
from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.errors import BuildError, InvalidModelError, OpbuildError, UnsupportedOperatorError
from opbuild.offline.build import export
from opbuild.offline.format import GRAPH, PLAN, Section, open_container, write_container
from opbuild.offline.plan import check, preview
from support.fuzzing import INPUTS, Change, changed_json, fuzz, to_bytes
from support.processes import WITHOUT_COMPILER, environment
from support.segment_networks import HEAD, NETWORKS, ON_HOST, feeds, network, same

pytestmark = pytest.mark.usefixtures("kept_objects")

_RUN = (
    WITHOUT_COMPILER
    + """
import json
import numpy as np, opbuild
folder = sys.argv[1]
hosts = {}
for name in sys.argv[2:]:
    net = opbuild.load(f"{folder}/{name}.om")
    with np.load(f"{folder}/{name}.npz") as feeds:
        given = {}
        for key in feeds:
            number, _, value = key.partition(" ")
            given.setdefault(number, {})[value] = feeds[key]
    found = {f"{number} {value}": array for number, each in given.items() for value, array in net.run(each).items()}
    np.savez(f"{folder}/{name}.out.npz", **found)
    hosts[name] = dict(net.report.host)
print(json.dumps(hosts))
"""
)


@pytest.fixture(scope="module")
def config(shared_store: Path) -> Config:
    """One store for all builds of this module, and for those of other real networks."""
    return Config(cache_path=shared_store, workers=2, num_threads=2)


@pytest.fixture(scope="module")
def files(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a file of each network."""
    folder = tmp_path_factory.mktemp("segments")
    for name in NETWORKS:
        export(network(name), folder / name, config=config)
    return folder


@pytest.mark.slow
def test_networks_in_segments_run_from_their_files_without_halide_and_onnx(files: Path) -> None:
    """Every segment has kernels of the file: only what stands at breaks is evaluated in numpy."""
    for name in NETWORKS:
        given = {f"{i} {value}": each for i, one in enumerate(feeds(name)) for value, each in one.items()}
        np.savez(files / f"{name}.npz", **given)
    command = [sys.executable, "-c", _RUN, str(files), *NETWORKS]
    done = subprocess.run(command, check=False, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    hosts = json.loads(done.stdout)
    for name in NETWORKS:
        with np.load(files / f"{name}.out.npz") as found:
            for number, given in enumerate(feeds(name)):
                names = [output.name for output in network(name).graph.output]
                same(network(name), given, {each: found[f"{number} {each}"] for each in names})
        assert hosts[name].keys() == ON_HOST.get(name, set()), name


@pytest.mark.slow
def test_a_file_of_ranges_may_hold_a_network_in_segments(config: Config, tmp_path: Path) -> None:
    """Each size has segments of its own; outputs are as the model has them."""
    model = network("data")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    path = export(model, tmp_path / "net", ranges={"x": [(1, 64), 8]}, config=config)
    net = opbuild.load(path)
    assert net.inputs[0].shape == (-1, 8)
    assert [output.name for output in net.outputs] == ["y", "found"]
    for rows in (1, 7, 64):
        given = {"x": np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)}
        same(model, given, net.run(given))
    assert net.report.host.keys() == {"NonZero"}


def test_a_file_may_hold_a_network_in_segments_for_several_signatures(config: Config, tmp_path: Path) -> None:
    """They share kernels; others are refused."""
    model = network("data")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    path = export(model, tmp_path / "net", variants=[{"x": (2, 8)}, {"x": (9, 8)}], config=config)
    net = opbuild.load(path)
    for rows in (2, 9):
        given = {"x": np.random.default_rng(rows).standard_normal((rows, 8)).astype(np.float32)}
        same(model, given, net.run(given))
    with pytest.raises(OpbuildError, match="no plan for x:3,8"):
        net(np.zeros((3, 8), np.float32))


@pytest.mark.slow
def test_a_file_of_another_version_runs_no_segment(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes behind a break would be lowered otherwise than its kernels were chosen."""
    monkeypatch.setattr("opbuild.offline.load.own_sources", lambda: "other")
    with pytest.raises(BuildError, match=r"another version of opbuild.*runs none of it"):
        opbuild.load(files / "data.om")


def test_nodes_at_breaks_that_need_onnx_are_refused_by_name(config: Config, tmp_path: Path) -> None:
    """So are inputs that are no tensors, and both are refused before anything is written."""
    model = network("data")
    model.graph.node.append(onnx.helper.make_node("CenterCropPad", ["y", "i"], ["c"], name="the_crop"))
    model.graph.output[0].name = "c"
    with pytest.raises(UnsupportedOperatorError, match="the_crop"):
        export(model, tmp_path / "net", config=config)
    text = parser.parse_model(HEAD + "g (seq(float[2]) s, int64 i) => (float[] y) { y = SequenceAt(s, i) }")
    with pytest.raises(UnsupportedOperatorError, match="input 's' is no tensor"):
        export(text, tmp_path / "net", config=config)
    assert list(tmp_path.iterdir()) == []


def test_a_preview_lists_what_a_file_of_segments_would_hold(config: Config, tmp_path: Path) -> None:
    """After the build all of it would be reused; the breaks behind which segments are bound in calls are named."""
    onnx.save(network("data"), tmp_path / "net.onnx")
    export(tmp_path / "net.onnx", tmp_path / "net", config=config)
    report = preview(tmp_path / "net.onnx", config=config)
    assert report.built == 0
    assert len(report.operators) > 3
    assert report.breaks == ("NonZero NonZero_2",)
    assert report.host == {"NonZero": 1}
    checked = check(tmp_path / "net.onnx", config=config)
    assert checked.failed == ()
    assert [node.op_type for node in checked.without_kernel] == ["NonZero"]


@pytest.mark.parametrize(
    ("name", "known", "waits"),
    [
        ("branches", {"MatMul", "Exp", "ReduceMax", "Greater"}, ""),
        ("count", {"MatMul"}, "Loop Loop_0"),
        ("data", {"MatMul", "Greater"}, "NonZero NonZero_2"),
        ("top", {"Greater", "ReduceMax"}, "TopK TopK_4"),
    ],
)
def test_explain_shows_what_is_known_before_a_call_and_names_what_is_not(
    name: str, known: set[str], waits: str, shared_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both branches of an If and the body of a loop are known; what follows data or values is bound when called."""
    onnx.save(network(name), tmp_path / "net.onnx")
    assert main(["explain", str(tmp_path / "net.onnx"), "--cache_path", str(shared_store)]) == 0
    shown = capsys.readouterr().out
    for op_type in known:
        assert op_type.lower() in shown
    assert ("is bound when the network is called" in shown) == bool(waits)
    assert f"what follows {waits}" in shown or not waits


@pytest.mark.slow
def test_sealed_segments_that_are_not_sound_are_refused_or_run_safely(files: Path, tmp_path: Path) -> None:
    """F58: nodes, names, types and breaks may be anything under digests that fit: an error of opbuild, or a result.

    What a kernel's limits are is believed, as its code is: both are under the signature.
    """
    container = open_container(files / "branches.om")
    sections = {place: container.section(*place).tobytes() for place in container.places}
    lying, programs = tmp_path / "lying.om", max(index for kind, index in sections if kind == GRAPH)

    def read(changes: list[Change], pick: int) -> str:
        chosen = [(PLAN, 0), (GRAPH, 0), (GRAPH, 1 + pick // 3 % programs)][pick % 3]
        content = json.loads(sections[chosen])
        changing = "cut" if chosen != (GRAPH, 0) else "segments"
        data = to_bytes({**content, changing: changed_json(content[changing], changes)})
        write_container(lying, [Section(*place, [data if place == chosen else each])
                                for place, each in sections.items()])  # fmt: skip
        try:
            net = opbuild.load(lying)
            for given in feeds("branches"):
                net.run(given)
        except OpbuildError:
            return "refused"
        return "ran"

    assert fuzz("offline models in segments", read)["refused"] > INPUTS // 4


def test_a_segment_alone_is_no_network(files: Path, tmp_path: Path) -> None:
    """A file whose plan is a first segment, without the network that it is a segment of."""
    container = open_container(files / "data.om")
    sections = [Section(*place, [container.section(*place).tobytes()]) for place in container.places]
    write_container(tmp_path / "alone.om", [each for each in sections if each.kind != GRAPH])
    with pytest.raises(InvalidModelError, match="a segment of a network that the file does not hold"):
        opbuild.load(tmp_path / "alone.om")
