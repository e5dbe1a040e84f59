"""``opbuild report`` and ``opbuild profile``, and what ``--report`` and ``--trace`` write: whole, valid, and of use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from opbuild.cli.main import main
from opbuild.cli.page.render import PageContents, gather
from opbuild.cli.picture import nominal_peak
from opbuild.report import Report
from opbuild.runtime.profile import Profile
from support.small_network import SmallNetwork

pytestmark = pytest.mark.usefixtures("kept_objects")

SIZE = ["--shape", "x:64,256"]
FILES = ["--report", "page.html", "--trace", "trace.json"]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a store that is empty."""
    for name in ("MS_COMPILER_CACHE_PATH", "ASCEND_CACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def folder(small_network: SmallNetwork, place: Path) -> Iterator[Path]:
    """The same with a model, whose compiles are answered from another store."""
    (place / "small.onnx").write_bytes(small_network.path.read_bytes())
    with small_network.replayed():
        yield place


def parted(path: Path, rows: int | str = 4) -> None:
    """Write ``nonzero(relu(x))``, which runs in two parts."""
    graph = helper.make_graph(
        [
            helper.make_node("Relu", ["x"], ["r"], name="positive"),
            helper.make_node("NonZero", ["r"], ["n"], name="places"),
            helper.make_node("Transpose", ["n"], ["y"], name="rows"),
        ],
        "parted",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, 8))],
        [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)


def complete(text: str) -> dict[int, list[dict[str, Any]]]:
    """Return a trace's complete events by process, after looking at the form of all events."""
    events = json.loads(text)["traceEvents"]
    named = {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"}
    found: dict[int, list[dict[str, Any]]] = {}
    for event in events:
        assert event.keys() >= {"ph", "ts", "pid", "tid", "name"}
        assert event["ph"] in ("M", "X")
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert (event["pid"], event["tid"]) in named
            found.setdefault(event["pid"], []).append(event)
    lanes = {(each["pid"], each["tid"]) for events in found.values() for each in events}
    for lane in lanes:
        ordered = sorted((each for each in found[lane[0]] if each["tid"] == lane[1]), key=lambda each: each["ts"])
        for before, after in pairwise(ordered):  # what overlaps in one thread would be drawn as a call inside another
            assert before["ts"] + before["dur"] <= after["ts"] + 0.01
    return found


@pytest.mark.slow
@pytest.mark.parametrize("command", ["compile", "run", "profile"])
def test_a_command_writes_what_it_built_as_a_page_and_as_a_trace(folder: Path, command: str) -> None:
    """What was compiled stands in both; each call in the trace, unless nothing was timed."""
    assert main([command, "small.onnx", *SIZE, *FILES]) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    found = complete((folder / "trace.json").read_text(encoding="utf-8"))
    compiled = [each["name"] for each in found[1] if each["args"]["why"]]
    assert len(compiled) == (3 if command == "profile" else 2)  # that is of the program for any size
    for name in ("product", "scores", *compiled):
        assert name in page
    assert "peak" in page or command == "compile"
    assert [each["name"] for each in found.get(2, [])] == ([] if command == "compile" else ["product", "scores"])


def test_a_report_times_calls_only_if_asked(folder: Path) -> None:
    """The page is beside the reader, named as the model, unless another place is given."""
    assert main(["report", "small.onnx", *SIZE]) == 0
    assert "medians" not in (folder / "small.html").read_text(encoding="utf-8")
    assert main(["report", "small.onnx", *SIZE, "--time", "--runs", "3", "-o", "timed.html"]) == 0
    timed = (folder / "timed.html").read_text(encoding="utf-8")
    assert "medians of 3 runs" in timed
    assert "it was there" in timed


def facts(page: str) -> dict[str, str]:
    """Return the numbers at the head of a page."""
    return dict(re.findall(r"<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))


def rows(page: str, table: str) -> list[dict[str, str]]:
    """Return the rows of a table of a page, the text of each cell by its column, with a blank for each tag."""
    body = page.partition(f'id="{table}"')[2].partition("<tbody>")[2].partition("</tbody>")[0]
    cells = [re.findall(r'data-label="([^"]*)"[^>]*>(.*?)</td>', row) for row in body.split("<tr ")[1:]]
    return [{name: plain(text) for name, text in row} for row in cells]


def plain(text: str) -> str:
    """Return the text of a cell."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).replace("\u00d7", "x").split())


NETWORKS = {
    "of one size": ("fixed.onnx", 4, []),
    "with an open size": ("open.onnx", "rows", ["--shape", "x:4,8"]),
}


@pytest.mark.parametrize("command", [["report", "--time"], ["profile", "--report", "page.html"]], ids=lambda c: c[0])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_numbers_on_the_page_are_those_of_the_report(
    place: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: list[str]
) -> None:
    """Kernels of the pack have other names than their entries: no call was found, and no time shown for any."""
    file, extent, sizes = NETWORKS[name]
    parted(place / file, extent)
    monkeypatch.setenv("OPBUILD_PACK", "1")
    seen: list[tuple[Report, Profile]] = []

    def gathered(report: Report, *runners: Any, profile: Profile, **given: Any) -> PageContents:
        seen.append((report, profile))
        return gather(report, *runners, profile=profile, **given)

    monkeypatch.setattr("opbuild.cli.page.render.gather", gathered)
    output = ["-o", "page.html"] if command[0] == "report" else []
    for _ in range(2):  # built, and as it is stored
        assert main([command[0], file, *command[1:], *output, *sizes, "--runs", "2"]) == 0
        page = (place / "page.html").read_text(encoding="utf-8")
        report, profile = seen[-1]
        shown, operators, layers = facts(page), rows(page, "kernels"), rows(page, "layers")
        assert [int(shown[each]) for each in ("calls", "distinct operators", "built", "reused")] == [
            len(profile.rows), len(report.operators), report.built, report.reused
        ]  # fmt: skip
        assert int(shown["calls on the host"]) == sum(report.host.values()) == 1
        assert sorted(each["kernel"].split()[0] for each in operators) == sorted(each.name for each in report.operators)
        states = [each["became"].split()[0] for each in layers]
        assert sum(int(each["calls"]) for each in operators) == len(layers) - states.count("host")
        assert [float(each["run ms"]) for each in layers] == pytest.approx(
            [row.milliseconds for row in profile.rows], abs=6e-4
        )
        assert sum(float(each["run ms"]) for each in operators if each["run ms"]) == pytest.approx(
            sum(row.milliseconds for row in profile.rows if not row.call.is_host), abs=2e-3
        )
        assert all(int(each["calls"]) for each in operators)


def test_the_program_of_an_open_size_is_shown_with_the_size_that_was_called(folder: Path) -> None:
    """What follows from an open extent is named after its input; what is the same at any size is a number."""
    assert main(["report", "small.onnx", *SIZE, "--time", "--runs", "2", "-o", "page.html"]) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    (given,) = rows(page, "inputs")
    assert given == {"input": "x", "type": "float32", "declared": "x[0] x 256", "called with": "64 x 256"}
    assert [each["layer"] for each in rows(page, "layers")] == [
        "product 64 x 256 x[0] x 256", "scores 1 x 64 x 256 1 x x[0] x 256",
    ]  # fmt: skip


@pytest.mark.parametrize("peak", [None, 1000.0])
def test_shares_of_the_peak_are_shown_where_the_system_names_a_clock(
    folder: Path, peak: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Virtual machines name none: the page has no such column, and all else."""
    monkeypatch.setattr("opbuild.cli.picture.nominal_peak", lambda _: peak)
    assert main(["report", "small.onnx", *SIZE, "--time", "--runs", "2", "-o", "page.html"]) == 0
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert ("of peak" in page) == (peak is not None)
    assert "medians of 2 runs" in page
    assert ("The system does not name the greatest clock" in page) == (peak is None)


def test_a_report_shows_what_is_behind_a_cut(place: Path) -> None:
    """All parts are there, since the network is run once; nothing is timed that was not asked for."""
    parted(place / "parted.onnx")
    assert main(["report", "parted.onnx", "-o", "page.html"]) == 0
    page = (place / "page.html").read_text(encoding="utf-8")
    for each in ("positive", "rows", "cut at NonZero places"):
        assert each in page, each
    assert "medians" not in page


def test_a_profile_has_a_row_for_each_call_or_kernel(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Shares make one, and the peak is said to be nominal where it is known."""
    assert main(["profile", "small.onnx", *SIZE, "--runs", "3"]) == 0
    by_layer = capfd.readouterr().out
    shares = [
        float(each) for each in re.findall(r"^(?:product|scores) .*?\d\.\d{3}\s+([\d.]+)", by_layer, re.MULTILINE)
    ]
    assert len(shares) == 2
    assert sum(shares) == pytest.approx(100, abs=0.2)
    assert "median of 3 runs" in by_layer
    assert ("GFLOP/s of a nominal peak" in by_layer) == (nominal_peak(1) is not None)
    assert main(["profile", "small.onnx", *SIZE, "--by", "kernel"]) == 0
    assert re.findall(r"^(\w+)_\d+ .*matmul .*", capfd.readouterr().out, re.MULTILINE) == ["matmul"]


def test_an_offline_model_is_shown_too(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """It has calls and nothing that was built; another size of an open model has calls of another shape."""
    assert main(["export", "small.onnx", *SIZE, "--output", "small"]) == 0
    assert main(["report", "small.om"]) == 0
    assert "scores" in (folder / "small.html").read_text(encoding="utf-8")
    capfd.readouterr()
    assert main(["profile", "small.om", *FILES]) == 0
    assert "64x256" in capfd.readouterr().out
    assert list(complete((folder / "trace.json").read_text(encoding="utf-8"))) == [2]


def test_a_network_in_parts_is_shown_whole(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Its later parts are built in the first run: they were left out of the build, and a step ended before it began."""
    parted(place / "parted.onnx")
    assert main(["profile", "parted.onnx", *FILES]) == 0
    rows = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in rows[2:-1] if line.split()][:3] == ["positive", "places", "y"]
    assert not any(line.endswith("0 B") for line in rows)
    found = complete((place / "trace.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in found[2]] == ["positive", "places", "y"]
    assert "cut at NonZero places" in (place / "page.html").read_text(encoding="utf-8")


def test_each_part_runs_the_network_once(place: Path) -> None:
    """A call that is made again, or with other values, adds no part that was there."""
    parted(place / "parted.onnx")
    network = opbuild.compile("parted.onnx")
    values = np.arange(32, dtype=np.float32).reshape(4, 8)
    for x in (values, values, -values, values):
        network.profile({"x": x}, runs=1)
        nodes = [runner.call_of(step).nodes for runner in network.runners for step in range(runner.step_count)]
        assert len({id(each) for each in network.runners}) == len(network.runners)
        assert nodes.count(("positive",)) == 1


def test_a_page_whose_writing_is_interrupted_leaves_the_one_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is written appears whole, and nothing else is left; a link stays one."""
    (folder / "page.html").symlink_to("shown.html")
    assert main(["report", "small.onnx", *SIZE, "-o", "page.html"]) == 0
    before, listing = (folder / "shown.html").read_bytes(), sorted(folder.iterdir())

    def interrupted(path: Path, data: bytes) -> None:
        path.write_bytes(data[: len(data) // 2])
        raise KeyboardInterrupt

    monkeypatch.setattr("opbuild.cli.picture.write_new", interrupted)
    assert main(["report", "small.onnx", *SIZE, "--time", "--runs", "1", "-o", "page.html"]) == 130
    assert (folder / "page.html").is_symlink()
    assert (folder / "shown.html").read_bytes() == before
    assert sorted(folder.iterdir()) == listing


def test_a_page_goes_where_no_other_file_can_take_the_name(folder: Path) -> None:
    """A device is written to."""
    assert main(["report", "small.onnx", *SIZE, "-o", "/dev/null"]) == 0
    assert Path("/dev/null").is_char_device()


WRONG: dict[str, tuple[str, str]] = {
    "report small.onnx -o small.onnx": ("--output is 'small.onnx', which is the model", "name another file to write"),
    "report small.onnx -o link": ("--output is 'link', which is the model", "name another file to write"),
    "profile small.onnx --report small.onnx": (
        "--report is 'small.onnx', which is the model", "name another file to write"
    ),
    "compile small.onnx --trace small.onnx": (
        "--trace is 'small.onnx', which is the model", "name another file to write"
    ),
    "run small.onnx --trace a --report ./a": ("--trace is 'a', which --report writes", "name another file to write"),
    "report small.onnx -o a.html --trace a.html": (
        "--trace is 'a.html', which --output writes", "name another file to write"
    ),
    "report small.onnx -o no/a.html": (
        "--output is 'no/a.html'",
        "it must be the file to write in a folder that you may write to, and there is no folder 'no'",
    ),
    "compile small.onnx --report .": (
        "--report is '.'", "it must be the file to write in a folder that you may write to, and it is a folder"
    ),
}  # fmt: skip


@pytest.mark.parametrize("typed", WRONG)
def test_a_place_that_is_wrong_is_refused_before_anything_is_built(
    folder: Path, capfd: pytest.CaptureFixture[str], typed: str
) -> None:
    """A page was written over the model, which was lost."""
    (folder / "link").symlink_to("small.onnx")
    before = (folder / "small.onnx").read_bytes()
    assert main([*typed.split(), *SIZE]) == 2
    message, hint = WRONG[typed]
    assert capfd.readouterr().err.splitlines() == [f"error (option): {message}", f"  hint: {hint}"]
    assert (folder / "small.onnx").read_bytes() == before
    assert not list(folder.glob("cache/**/*.so"))
