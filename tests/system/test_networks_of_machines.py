"""Networks of machines that were measured differently: one network where the same variants are chosen, else any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.families.matmul import family as matmul
from opbuild.pipeline.remote import _uploads, service_at
from opbuild.platform.files.trust import PRIVATE
from opbuild.report import Report
from opbuild.store.machine_class import MeasuredMachine, caches, system_class, write_measured
from opbuild.store.tuning_database import TuningRecord
from opbuild.target.host import host_level
from opbuild.target.machine import Machine
from support.remote_servers import PATIENT
from support.small_network import SHAPE, small_model
from support.tuned_records import product, record, remember

pytestmark = pytest.mark.usefixtures("kept_objects")

ROWS, COLUMNS = SHAPE
QUESTION, ELSE = product("panels", ROWS, COLUMNS, COLUMNS), product("panels", 9 * ROWS, COLUMNS, COLUMNS)
ARGUMENTS: Any = ("panels", 1, ROWS, COLUMNS, COLUMNS, "float32", Machine.of(host_level()))
DEFAULT = matmul.choose(*ARGUMENTS)
OTHER, THIRD = [each for each in matmul.candidates(*ARGUMENTS) if each != DEFAULT][:2]
X = np.linspace(-1, 1, ROWS * COLUMNS, dtype=np.float32).reshape(SHAPE)


@pytest.fixture(scope="module", autouse=True)
def _patient() -> Iterator[None]:
    """A machine that is busy with tests may take long to answer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opbuild.store.remote.retry.SECONDS", PATIENT)
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of a product and a softmax."""
    network = small_model()
    network.graph.input[0].type.tensor_type.shape.dim[0].dim_value = ROWS
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(network, path)
    return path


def measured(cache: Path, rate: float) -> None:
    """Let a machine have been measured."""
    write_measured(Config(cache_path=cache), PRIVATE, MeasuredMachine(system_class(), {host_level().name: rate}))


def chosen(choice: Any, rate: int = 0, question: Any = QUESTION) -> TuningRecord:
    """Return a record that a machine of a class found a choice to be faster."""
    machine = f"{rate}GF/{caches()}" if rate else ""
    return record(question, DEFAULT, choice, machine=machine, system="another" if rate else system_class())


def started(model: Path, cache: Path, **options: Any) -> Report:
    """Build or start the network for two threads."""
    net = opbuild.compile(model, cache_path=cache, num_threads=2, **options)
    net(X)
    return net.report


def offered(model: Path, cache: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Report:
    """Build the network where it is written to a remote store."""
    with monkeypatch.context() as patch:
        patch.setenv("OPBUILD_REMOTE_MODE", "write")
        report = started(model, cache, remote=url)
    _uploads(service_at(url)).wait()
    return report


def variant(report: Report) -> str:
    """Return the name of the product's kernel."""
    return next(each.name for each in report.operators if each.name.startswith("matmul"))


def test_a_pod_that_measured_differently_starts_what_the_builder_made(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a database of its own class, which chooses the same: the network is one."""
    url, builder, pod = f"file://{tmp_path}/shared", tmp_path / "builder", tmp_path / "pod"
    for cache, rate in ((builder, 128), (pod, 512)):
        measured(cache, rate)
        remember(chosen(OTHER, rate), cache_path=cache, num_threads=2)
    made = offered(model, builder, url, monkeypatch)
    report = started(model, pod, remote=url, forbid_compile=True)
    assert report.image
    assert variant(report) == variant(made)
    assert "tuned on 128GF" in json.dumps(report.tuned)


def test_records_that_say_nothing_of_a_network_leave_it_what_it_is_without_a_database(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it lowered again, here or where it comes from a remote store."""
    url, own, pod = f"file://{tmp_path}/shared", tmp_path / "own", tmp_path / "pod"
    offered(model, own, url, monkeypatch)
    for cache in (own, pod):
        remember(chosen(OTHER, question=ELSE), cache_path=cache, num_threads=2)
        monkeypatch.setattr("opbuild.session.Session.plan", None)  # what would lower it
        assert started(model, cache, remote=url if cache is pod else None).image
    assert started(model, pod, remote="file:///dev/null").image


def test_a_second_start_looks_into_no_database(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it comes to is remembered for its bytes, also where it was built just now."""
    remember(chosen(OTHER), cache_path=tmp_path, num_threads=2)
    assert not started(model, tmp_path).image
    with monkeypatch.context() as patch:
        patch.setattr("opbuild.pipeline.tuned.applicable_records", None)
        assert started(model, tmp_path).image
    remember(chosen(THIRD, question=ELSE), cache_path=tmp_path, num_threads=2)
    assert started(model, tmp_path).image
    remember(chosen(DEFAULT), cache_path=tmp_path, num_threads=2)
    report = started(model, tmp_path)
    assert (report.image, report.tuned) == (False, {})


@pytest.mark.parametrize("through", ["remote", "own"])
@pytest.mark.parametrize("builders", [None, OTHER])
@pytest.mark.parametrize("pods", [None, THIRD])
def test_where_nothing_can_be_compiled_other_variants_serve(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, through: str, builders: Any, pods: Any
) -> None:
    """Without tuning, or tuned for others: through a remote store as from one's own."""
    url, builder = f"file://{tmp_path}/shared", tmp_path / "builder"
    pod = tmp_path / "pod" if through == "remote" else builder
    if builders is not None:
        remember(chosen(builders), cache_path=builder, num_threads=2)
    made = offered(model, builder, url, monkeypatch)
    Config.from_environment(cache_path=builder).tune_bank.unlink(missing_ok=True)
    if pods is not None:
        remember(chosen(pods), cache_path=pod, num_threads=2)
    report = started(model, pod, remote=url if through == "remote" else None, forbid_compile=True)
    assert report.image
    assert variant(report) == variant(made)


@pytest.mark.parametrize("rate", [128, 180])
def test_what_was_pushed_is_pulled_on_one_machine_whose_class_flickered(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: int
) -> None:
    """With its network, into its own cache and into one that knows neither the machine nor a bank."""
    url, own, new = f"file://{tmp_path}/shared", tmp_path / "own", tmp_path / "new"
    measured(own, 128)
    remember(record(QUESTION, DEFAULT, OTHER, machine=f"128GF/{caches()}"), cache_path=own, num_threads=2)
    made = started(model, own)
    place = ["--cache_path", str(own)]
    threads = {"OPBUILD_NUM_THREADS": "2"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in threads.items():
            patch.setenv(name, value)
        assert main(["push", str(model), url, *place, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["networks"] == 1
        measured(own, rate)
        for cache in (own, new):
            assert main(["pull", url, str(model), "--cache_path", str(cache), "--json"]) == 0
            done = json.loads(capsys.readouterr().out)
            assert (done["networks"], done["left_out"]) == (1, {})
    report = started(model, new, forbid_compile=True)
    assert report.image
    assert variant(report) == variant(made)


def test_who_pulls_a_network_that_is_not_there_is_told(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators alone are not what was asked for: exit code 5, and what to do; what is there was taken."""
    url, own = f"file://{tmp_path}/shared", tmp_path / "own"
    offered(model, own, url, monkeypatch)
    (network,) = (tmp_path / "shared").rglob("networks/*")
    network.unlink()
    assert main(["pull", url, str(model), "--cache_path", str(tmp_path / "new")]) == 5
    said = capsys.readouterr()
    assert f"has no network of {model}" in " ".join(said.err.split())
    assert "opbuild push" in said.err
    assert "3 operators and 0 networks taken" in said.out or "2 operators and 0 networks taken" in said.out


def test_a_network_that_came_damaged_was_not_pulled(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same exit code: it is not there for who asked for it."""
    url, own = f"file://{tmp_path}/shared", tmp_path / "own"
    offered(model, own, url, monkeypatch)
    for blob in (tmp_path / "shared").rglob("blobs/*"):
        blob.unlink()
    (network,) = (tmp_path / "shared").rglob("networks/*")
    network.write_bytes(network.read_bytes()[:-1])
    assert main(["pull", url, str(model), "--cache_path", str(tmp_path / "new")]) == 5
    assert "opbuild" in capsys.readouterr().err


def test_what_is_remembered_of_answers_is_checked_and_repaired(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Damage there would end that anything is read by who asks for it: a machine with a bank."""
    url, pod = f"file://{tmp_path}/shared", tmp_path / "pod"
    offered(model, tmp_path / "own", url, monkeypatch)
    (answers,) = (tmp_path / "shared").rglob("answers/*")
    answers.write_bytes(b"opbuild rubbish\n")
    assert main(["cache", "check", "--repair", "--remote", url]) == 0
    assert "1 damaged" in capsys.readouterr().out
    assert not answers.exists()
    remember(chosen(OTHER), cache_path=pod, num_threads=2)
    assert started(model, pod, remote=url, forbid_compile=True).image


def test_a_pull_takes_other_variants_where_those_that_tuning_chooses_are_not_there(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said, and is no error: where nothing can be compiled that network serves."""
    url, new = f"file://{tmp_path}/shared", tmp_path / "new"
    made = offered(model, tmp_path / "own", url, monkeypatch)
    remember(chosen(OTHER), cache_path=new, num_threads=2)
    monkeypatch.setenv("OPBUILD_NUM_THREADS", "2")
    assert main(["pull", url, str(model), "--cache_path", str(new)]) == 0
    assert "one with other variants came" in capsys.readouterr().out
    assert variant(started(model, new, forbid_compile=True)) == variant(made)
