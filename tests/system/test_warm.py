"""Warming: everything that models need is stored, for this machine and others, before anybody runs them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.errors import InvalidModelError, OptionError, ShapeError
from opbuild.events import CompileFinished
from opbuild.target.host import host_level
from support.samples import Recorder
from support.small_network import SHAPE, SmallNetwork, make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

OTHER = "armv8.2-a-dotprod" if host_level().triple.startswith("x86") else "x86-64-v3"
"""A level that does not run here."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network of two operators."""
    return make_small_network(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def warmed(small: SmallNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which it is warm for this machine and another."""
    cache = tmp_path_factory.mktemp("warmed")
    reports = opbuild.warm([small.path], shapes={"x": SHAPE}, targets=["host", OTHER], cache_path=cache)
    assert [len(report.operators) for report in reports] == [3, 2]  # where it runs, one more for other sizes
    return cache


def test_a_warmed_network_starts_where_compiling_is_forbidden(small: SmallNetwork, warmed: Path) -> None:
    """It starts from its stored image; a size that nobody named is bound by what was prepared for any."""
    network = opbuild.compile(small.path, cache_path=warmed, forbid_compile=True, input_shapes={"x": SHAPE})
    assert network.report.image
    np.testing.assert_array_equal(network(small.x), small.y)
    other = opbuild.compile(small.path, cache_path=warmed, forbid_compile=True, input_shapes={"x": (5, 256)})
    np.testing.assert_allclose(other(small.x[:5]), small.y[:5], rtol=1e-5)


def test_what_is_warm_is_not_built_again(small: SmallNetwork, warmed: Path) -> None:
    """A second time nothing is compiled, packed or linked, for levels that do not run here neither."""
    seen = Recorder()
    options = {"shapes": {"x": SHAPE}, "targets": ["host", OTHER], "cache_path": warmed}
    second = opbuild.warm([small.path], **options, observer=seen)  # type: ignore[arg-type]
    assert [report.level for report in second] == [str(host_level()), OTHER]
    assert seen.of(CompileFinished) == []
    assert [report.image for report in second] == [True, True]


def test_an_executor_compiles_what_all_networks_need_at_once(small: SmallNetwork, tmp_path: Path) -> None:
    """Operators that several networks share are compiled once, and the networks find all of theirs."""
    same = tmp_path / "same.onnx"
    same.write_bytes(small.path.read_bytes())
    seen = Recorder()
    with ThreadPoolExecutor(1) as pool:
        reports = opbuild.warm(
            [small.path, same], shapes=[{"x": SHAPE}, {"x": (3, 256)}], cache_path=tmp_path / "cache", executor=pool,
            observer=seen,
        )  # fmt: skip
    assert len(reports) == 4
    assert {operator.status for report in reports for operator in report.operators} == {"reused"}
    names = [event.name for event in seen.of(CompileFinished)]
    assert len(names) == len(set(names)) > 0


def test_one_model_at_fault_does_not_stop_the_others(small: SmallNetwork, warmed: Path, tmp_path: Path) -> None:
    """The error names it, and comes once all were tried."""
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x08\x07\x3a\x00")
    with pytest.raises(InvalidModelError, match=r"^2 of 3 networks cannot be built; the first, .*bad\.onnx for "):
        opbuild.warm([bad, small.path, bad], shapes={"x": SHAPE}, cache_path=warmed)


def test_shapes_that_are_missing_or_nobodys_are_named(small: SmallNetwork, tmp_path: Path) -> None:
    """An input that is left open, and a name that no model has."""
    with pytest.raises(ShapeError, match="'x' has an open shape"):
        opbuild.warm([small.path], cache_path=tmp_path)
    with pytest.raises(OptionError, match=r"'z', which is no input(?s:.*)the inputs are 'x'"):
        opbuild.warm([small.path], shapes={"z": (1, 2)}, cache_path=tmp_path)
    with pytest.raises(OptionError, match="targets has 'x86-64-v9'"):
        opbuild.warm([small.path], shapes={"x": SHAPE}, targets=["x86-64-v9"], cache_path=tmp_path)
    assert list(tmp_path.rglob("*.o")) == []


def test_the_command_warms_several_levels(
    small: SmallNetwork, warmed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says for which levels, how many operators were compiled, and where they are."""
    shapes = ",".join(map(str, SHAPE))
    arguments = [str(small.path), "--shape", f"x:{shapes}", "--cache_path", str(warmed)]
    assert main(["warm", *arguments, "--target", f"host, {OTHER}"]) == 0
    out = capsys.readouterr().out
    assert f"small for {host_level()}: 2 operators\n" in out
    assert f"small for {OTHER}: 2 operators\n" in out
    assert "2 networks warm, 0 operators compiled in " in out
    assert "kept in" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["warm"], "the models are missing"),
        (["warm", "m.onnx", "--executor", "ray://h:1"], "--executor is 'ray://h:1'"),
        (["warm", "m.onnx", "--executor", "dask://"], "dask://HOST:PORT"),
        (["warm", "m.onnx", "--executor", "dask://127.0.0.1:9"], "no Dask scheduler answers at tcp://127.0.0.1:9"),
    ],
)
def test_what_cannot_be_warmed_is_said_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No model, and executors that are none or not there."""
    monkeypatch.setattr("opbuild.cli.executors.CONNECT_SECONDS", 0.5)
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
