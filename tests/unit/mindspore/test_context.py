# ruff: noqa: F811 - a fixture is imported
"""set_context, get_context and run_check."""

from __future__ import annotations

import pytest

import opbuild.mindspore as ms
from opbuild.errors import BuildError
from opbuild.mindspore import context, execution
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Give each test its own settings."""
    monkeypatch.setattr(context, "_CONTEXT", context._Context())


def test_the_defaults_are_mindspores():
    """PYNATIVE_MODE on the CPU."""
    assert context.get_context("mode") == context.PYNATIVE_MODE == 1
    assert context.get_context("device_target") == "CPU"
    assert context.get_context("max_call_depth") == 1000


def test_options_are_kept():
    """What was set is what is returned."""
    context.set_context(
        mode=context.GRAPH_MODE, save_graphs=True, device_id=3, max_call_depth=10, jit_config={"jit_level": "O0"}
    )
    assert context.is_graph_mode()
    assert context.get_context("device_id") == 3
    assert context.get_context("jit_config") == {"jit_level": "O0"}


@pytest.mark.parametrize(
    "options",
    [{"foo": 1}, {"mode": 5}, {"device_target": "TPU"}, {"max_call_depth": 0}, {"device_id": -1}, {"device_id": 4096}],
)
def test_values_that_are_not_allowed_are_value_errors(options):
    """As in MindSpore, unknown options too."""
    with pytest.raises(ValueError, match=next(iter(options))):
        context.set_context(**options)


@pytest.mark.parametrize("options", [{"mode": "x"}, {"device_id": "0"}, {"save_graphs_path": 1}, {"mode": True}])
def test_values_of_another_type_are_type_errors(options):
    """As in MindSpore."""
    with pytest.raises(TypeError, match=next(iter(options))):
        context.set_context(**options)


def test_an_unknown_setting_is_a_value_error():
    """get_context of a name that is none."""
    with pytest.raises(ValueError, match="foo"):
        context.get_context("foo")


def test_a_device_that_is_not_here_is_said_once(capsys):
    """One line on the standard error a process, however often it is set."""
    context.set_context(device_target="CPU")
    assert capsys.readouterr().err == ""
    context.set_context(device_target="Ascend")
    context.set_device("GPU", 1)
    assert capsys.readouterr().err.count("\n") == 1
    assert context.get_context("device_target") == "GPU"


def test_a_gpu_is_built_for_where_there_is_one(monkeypatch, capsys):
    """Nothing is said; whoever names another device, or the CPU, gets the CPU."""
    monkeypatch.setattr(context, "device_problem", {"cuda": None}.__getitem__)
    context.set_context(device_target="GPU")
    assert (context.build_target(), capsys.readouterr().err) == ("cuda", "")
    for name in ("Ascend", "CPU"):
        context.set_context(device_target=name)
        assert context.build_target() is None
    monkeypatch.setattr(context, "device_problem", {"cuda": "there is no GPU here"}.__getitem__)
    context.set_context(device_target="GPU")
    assert context.build_target() is None


def test_run_check_says_whether_an_operator_runs(graphs, monkeypatch, capsys):
    """And whose check it is: that of another package would mislead."""
    ms.run_check()
    assert "opbuild has been installed on platform [CPU] successfully!" in capsys.readouterr().out

    def refused(graph):
        raise BuildError("no linker was found")

    monkeypatch.setattr(execution, "_EAGER", execution._EagerNetworks())
    monkeypatch.setattr(execution, "build", refused)
    ms.run_check()
    assert "failed.\nno linker was found" in capsys.readouterr().out
