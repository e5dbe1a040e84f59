"""Figures of ``opbuild bench``: medians, spread, differences, and a process that waits for turns."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from opbuild.cli import bench, bench_texts
from opbuild.platform.processor import processor_name
from opbuild.runtime.accuracy import relative_error
from opbuild.tuning.bench import runtimes as converted
from opbuild.tuning.bench.child import LEAST_CALLS, turn
from opbuild.tuning.bench.measure import Figures, TextFigures
from opbuild.tuning.bench.runtimes import RUNTIMES, BenchJob, Runtime


@pytest.mark.parametrize(
    ("output", "reference", "error"),
    [
        ([1.0, 2.0], [1.0, 4.0], 0.5),
        ([np.nan, np.inf, 1.0], [np.nan, np.inf, 1.0], 0.0),
        ([np.inf, 1.0], [1.0, 1.0], np.inf),
        ([1.0], [[1.0]], np.inf),
        ([], [], 0.0),
        ([0.0], [0.0], 0.0),
        ([True], [False], 1.0),
        (["a"], ["a"], 0.0),
        (["a"], ["b"], np.inf),
    ],
)
def test_outputs_are_compared_relative_to_the_greatest_value(output: list, reference: list, error: float) -> None:
    """Equal special values are no difference, and other shapes are all of it."""
    assert relative_error(np.array(output), np.array(reference)) == error


def test_a_difference_of_nan_is_not_lost() -> None:
    """A runtime that returns NaN where the other does not is wrong, and must not look right."""
    assert not relative_error(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) < 1


def test_figures_have_the_median_and_the_distance_of_the_quarters() -> None:
    """Of one round there is no spread."""
    figures = Figures("opbuild", 1, seconds=[3.0, 1.0, 2.0, 5.0, 4.0], with_gaps={20: [1.0, 3.0]})
    assert (figures.median, figures.spread, figures.median_after(20)) == (3.0, 2 / 3, 2.0)
    assert Figures("opbuild", 1, seconds=[2.0]).spread == 0


def test_a_turn_makes_some_calls_however_long_they_take() -> None:
    """One more before them brings back caches and threads, unless what sleeps between calls is measured."""
    calls: list[int] = []
    assert turn(lambda: calls.append(1) or [], 0.0, 0.0) >= 0
    assert len(calls) == 1 + LEAST_CALLS
    turn(lambda: calls.append(1) or [], 0.0, 1e-3)
    assert len(calls) == 1 + 2 * LEAST_CALLS


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not tell it otherwise")
def test_memory_is_that_of_a_process_and_not_of_the_one_that_started_it() -> None:
    """What the system calls the greatest size is inherited when a process starts another one."""
    held = bytearray(b"x") * (400 << 20)
    program = "from opbuild.tuning.bench.child import most_memory; print(most_memory())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 5 << 20 < int(done.stdout) < len(held) // 2


def test_the_verdict_is_relative_to_the_best_other_runtime_for_each_number_of_threads() -> None:
    """What failed does not count; without another there is nothing to say."""
    figures = [
        Figures("opbuild", 1, seconds=[2.0]),
        Figures("onnxruntime", 1, seconds=[4.0]),
        Figures("openvino", 1, failure="it ended"),
        Figures("opbuild", 2, seconds=[1.0]),
    ]
    assert bench._verdicts(figures) == ["1 thread: opbuild takes 0.50 of the time of ONNX Runtime"]


def test_the_verdict_on_texts_is_of_prompts_and_of_tokens_behind_them() -> None:
    """What only one runtime measured is compared with nothing."""
    figures = [
        TextFigures("opbuild", 1, seconds=[2.0, 1.0, 3.0], prompts=[1.0]),
        TextFigures("onnxruntime", 1, seconds=[4.0], prompts=[4.0]),
        TextFigures("opbuild", 2, seconds=[1.0], prompts=[1.0]),
        TextFigures("onnxruntime", 2, failure="it ended"),
    ]
    said = "1 thread: opbuild takes 0.25 of the time of ONNX Runtime for the prompt, 0.50 for a token behind it"
    assert bench_texts._verdicts(figures) == [said]


def test_a_processor_has_a_name_or_at_least_an_architecture(tmp_path: Path) -> None:
    """Arm's ``/proc/cpuinfo`` names no model."""
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n")
    assert processor_name(tmp_path / "cpuinfo") == "Some CPU @ 2 GHz"
    assert processor_name(tmp_path / "nothing")


def test_written_figures_are_json_that_anybody_reads(tmp_path: Path) -> None:
    """Infinity is no number of JSON."""
    figures = [Figures("opbuild", 1, seconds=[1.0], error=np.inf)]
    bench._write(tmp_path / "r.json", Path("m.onnx"), {"inputs": {"x": "float32[1,2]"}}, figures)
    read = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert (read["inputs"], read["figures"][0]["error"]) == ({"x": "float32[1,2]"}, None)


def test_a_runtime_that_computes_something_else_is_not_the_best() -> None:
    """A wrong answer that comes fast is none."""
    figures = [
        Figures("opbuild", 1, seconds=[2.0]),
        Figures("onnxruntime", 1, seconds=[4.0]),
        Figures("mnn", 1, seconds=[1.0], error=np.inf),
    ]
    assert bench._verdicts(figures) == ["1 thread: opbuild takes 0.50 of the time of ONNX Runtime"]
    assert not Figures("ncnn", 1, failure="it takes batches of one").is_right(1.0)
    assert not Figures("ncnn", 1, error=np.nan).is_right(1.0)


def test_a_runtime_without_its_converter_is_not_installed() -> None:
    """So nobody waits for what cannot be made."""
    assert Runtime("json", "json", RUNTIMES["opbuild"].load).is_installed
    assert not Runtime("json", "json", RUNTIMES["opbuild"].load, needs="no_such_converter").is_installed


def test_a_converter_that_fails_says_why_and_leaves_nothing_that_looks_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network that a runtime cannot take is told with the converter's last line."""
    (tmp_path / "m.onnx").write_bytes(b"(")  # no program either
    monkeypatch.setattr(converted, "_program", lambda name: sys.executable)
    job = BenchJob(str(tmp_path / "m.onnx"), {"x": np.zeros((1, 2), np.float32)}, 1, str(tmp_path / "cache"))
    with pytest.raises(RuntimeError, match=r"python.*:"):
        converted._pnnx(job)
    assert not (tmp_path / "cache" / "pnnx" / "done").exists()


def test_mnns_command_that_reports_conversions_is_not_run() -> None:
    """It installs a package and tells a service of each model; the converter itself does neither."""
    assert converted.MNN_CONVERT[0] == sys.executable
    assert "mnnconvert.main" not in converted.MNN_CONVERT[-1]
    assert "MNN.tools" not in converted.MNN_CONVERT[-1]
    assert '_program("mnnconvert")' not in Path(converted.__file__).read_text(encoding="utf-8")
