"""Each option of ONNX Runtime acts, warns or refuses: the table of effects, its page, and the installed release."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import opbuild.onnxruntime as ort
from opbuild.onnxruntime.capi._pybind_state import Fail
from opbuild.onnxruntime.effects import (
    ACTS,
    ENTRIES,
    REFUSES,
    RUN,
    RUN_ENTRIES,
    SESSION,
    UNKNOWN,
    WARNS,
    Effect,
    effect_of,
    is_ignored,
)
from opbuild.onnxruntime.logs import Log

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "onnxruntime.md"

TABLES = {"SessionOptions": SESSION, "RunOptions": RUN}

NO_KEYS = {"session.cc", "session.h"}
"""Texts of ONNX Runtime's library that look like keys and are names of files."""

OTHERS: dict[str, Any] = {
    "execution_mode": ort.ExecutionMode.ORT_PARALLEL,
    "execution_order": ort.ExecutionOrder.PRIORITY_BASED,
    "graph_optimization_level": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "inter_op_num_threads": 2,
}
"""Values that are not the default, of options of which one cannot tell by the type."""


def rows(table: Mapping[str, Effect]) -> list[str]:
    """Return the rows of the page for a table, options of the same effect in one."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, effect in table.items():
        groups.setdefault((effect.does, effect.why), []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {does} | {why} |" for (does, why), names in groups.items()]


@pytest.mark.parametrize(
    "table", [SESSION, RUN, ENTRIES, RUN_ENTRIES], ids=["session", "run", "entries", "run entries"]
)
def test_the_page_has_the_rows_of_the_table(table: Mapping[str, Effect]) -> None:
    """Word for word, in the same order."""
    wanted = "\n".join(rows(table))
    assert f"|---|---|---|\n{wanted}\n\n" in PAGE.read_text(encoding="utf-8"), f"the page lacks:\n{wanted}"


@pytest.mark.parametrize("name", TABLES)
def test_each_attribute_of_onnx_runtimes_options_has_an_effect(name: str) -> None:
    """Those that the installed release has, methods too: a later one that has more fails here."""
    theirs = getattr(pytest.importorskip("onnxruntime", reason="compared where it is installed"), name)
    assert {each for each in dir(theirs) if each[0] != "_"} == set(TABLES[name])
    assert all(hasattr(getattr(ort, name), each) for each in TABLES[name])


def test_each_key_in_onnx_runtimes_library_has_an_effect() -> None:
    """The keys are texts in it; a later release that has more fails here."""
    theirs = pytest.importorskip("onnxruntime", reason="compared where it is installed")
    (library,) = (Path(theirs.__file__).parent / "capi").glob("onnxruntime_pybind11_state*.so")
    found = re.findall(rb"\0((?:session|optimization|mlas|ep|memory)\.[a-z0-9_.]+)(?=\0)", library.read_bytes())
    keys = {key.decode() for key in found} - NO_KEYS
    assert len(keys) > 50
    unknown = {key for key in keys if effect_of(key, ENTRIES) == effect_of(key, RUN_ENTRIES) == UNKNOWN}
    assert unknown == set()


@pytest.mark.parametrize("name", [name for name in SESSION if not callable(getattr(ort.SessionOptions, name))])
def test_a_session_option_does_what_the_table_says(name: str) -> None:
    """One that warns is named once, with its reason; one that acts is not; the default never is."""
    options = ort.SessionOptions()
    default = getattr(options, name)
    setattr(options, name, default)
    assert said(options) == []
    if name == "use_per_session_threads":
        return  # another value needs threads of the process, which stay for all others
    setattr(options, name, OTHERS.get(name, not default if isinstance(default, bool) else type(default)(1)))
    if SESSION[name].does == REFUSES:
        with pytest.raises(Fail):
            options.check()
        return
    texts = said(options)
    if SESSION[name].does == ACTS:
        assert texts == []
        return
    assert len(texts) == 1
    assert f"the session option {name} = " in texts[0]
    assert SESSION[name].why in texts[0]
    assert said(options) == []


def said(options: Any, *arguments: Any) -> list[str]:
    """Return the warnings of options that are used."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options.check(*arguments)
    return [str(each.message) for each in caught]


@pytest.mark.parametrize("key", [*ENTRIES, "of.another"])
def test_an_entry_of_a_session_does_what_the_table_says(key: str) -> None:
    """One that opbuild does not know warns, too."""
    effect, key = effect_of(key, ENTRIES), key.replace("*", "any")
    options = ort.SessionOptions()
    for value in effect.fits:
        options.add_session_config_entry(key, value)
        assert said(options) == []
    options.add_session_config_entry(key, "1" if effect.does == REFUSES else "other")
    if effect.does == REFUSES:
        with pytest.raises(Fail):
            options.check()
        return
    assert [key in text and effect.why in text for text in said(options)] == ([True] if effect.does == WARNS else [])


def test_run_options_are_looked_at_when_they_were_set() -> None:
    """Once: the next call with the same ones says nothing."""
    options = ort.RunOptions()
    assert said(options, Log()) == []
    options.only_execute_path_to_fetches = True
    options.add_run_config_entry("qnn.htp_perf_mode", "burst")
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    first, second = said(options, Log())
    assert "the run option only_execute_path_to_fetches = True is ignored: a network runs whole" in first
    assert "the run configuration entry qnn.htp_perf_mode = 'burst' is ignored" in second
    assert said(options, Log()) == []


def test_the_longest_key_decides_and_values_of_enumerations_are_compared_by_name() -> None:
    """``ep.context_*`` is told apart from ``ep.*``."""
    entries = {"a.*": Effect(WARNS, "all"), "a.b*": Effect(WARNS, "some"), "a.b": Effect(ACTS, "one")}
    assert [effect_of(key, entries).why for key in ("a.b", "a.bc", "a.c", "b")] == ["one", "some", "all", UNKNOWN.why]
    effect = Effect(WARNS, "why", ("DEFAULT",))
    assert not is_ignored(effect, ort.ExecutionOrder.DEFAULT)
    assert is_ignored(effect, ort.ExecutionOrder.MEMORY_EFFICIENT)


def test_the_page_has_every_name() -> None:
    """Of the package, what is not served too."""
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in ort.__all__ if f"`{name}`" not in page] == []
