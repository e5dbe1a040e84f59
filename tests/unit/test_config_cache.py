"""Settings of the cache, of debugging and of precision: the same names, limits and errors everywhere."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import opbuild
from opbuild.config import Config, quota_environment
from opbuild.errors import OptionError
from opbuild.events import log_warnings
from opbuild.mindspore import context
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.pipeline.setup import set_up
from opbuild.platform.places import atc_place, user_place
from support.samples import Recorder

BAD = [
    ("op_compiler_cache_mode", "always", "enable or force or disable"),
    ("op_compiler_cache_dir", "", "a folder"),
    ("op_debug_level", 5, "from 0 to 4"),
    ("op_debug_level", True, "from 0 to 4"),
    ("op_debug_config", "/no/such/file", "an existing file"),
    ("debug_dir", "/no/such/folder", "an existing folder"),
    ("op_select_implmode", "fast", "high_performance or high_precision"),
    ("optypelist_for_implmode", "Conv,,Pool", "names of operator types"),
    ("precision_mode", "force_fp16", "must_keep_origin_dtype or force_fp32"),
]


@pytest.mark.parametrize(("option", "value", "allowed"), BAD)
def test_a_bad_value_names_option_value_and_what_is_allowed(
    option: str, value: Any, allowed: str, tmp_path: Path
) -> None:
    """``compile`` refuses it in one line before it reads the model, and writes nothing."""
    with pytest.raises(OptionError) as caught:
        opbuild.compile("no such model", cache_path=tmp_path / "cache", **{option: value})
    said = str(caught.value)
    assert option in said
    assert repr(value) in said
    assert allowed in said
    assert "\n" not in said.partition("\n  hint: ")[0]
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """What exists and is no folder can not hold the cache."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="op_compiler_cache_dir"):
        Config.from_environment(op_compiler_cache_dir=tmp_path / "file", environ={})


def test_defaults_leave_everything_as_it_was() -> None:
    """The cache is on, nothing is debugged, and precision is the model's."""
    config = Config.from_environment(environ={"HOME": "/home/me"})
    assert (config.op_compiler_cache_mode, config.op_debug_level, config.op_select_implmode) == (
        "enable", 0, "high_performance"
    )  # fmt: skip
    assert config.precision_mode == "must_keep_origin_dtype"
    assert config.policy_file == Path("/home/me/.cache/opbuild/rank_0/op_cache.ini")
    assert config.uses_cache
    assert not config.forces


def test_a_cache_dir_holds_a_folder_for_each_target(tmp_path: Path) -> None:
    """``<dir>/<soc_version>/`` holds entries and networks, ``op_cache.ini`` lies above."""
    config = Config.from_environment(op_compiler_cache_dir=tmp_path, environ={"RANK_ID": "3"})
    setup = set_up(config, "x86-64-linux-sse41", None)
    assert setup.config.kernel_meta == tmp_path / "x86-64-v2"
    assert setup.config.network_meta == tmp_path / "x86-64-v2" / "network_meta"
    assert setup.config.policy_file == tmp_path / "op_cache.ini"


def test_operator_types_are_a_list_or_text() -> None:
    """``"A, B,A"`` and ``["A", "B"]`` mean the same."""
    assert Config.from_environment(optypelist_for_implmode="Exp, Tanh,Exp", environ={}).optypelist_for_implmode == (
        Config.from_environment(optypelist_for_implmode=["Exp", "Tanh"], environ={}).optypelist_for_implmode
    )


def test_atcs_place_is_at_home_or_where_the_variable_says() -> None:
    """``ASCEND_CACHE_PATH`` wins over ``HOME``; both hold ``kernel_cache``."""
    assert atc_place({"HOME": "/home/me"}) == (Path("/home/me/atc_data/kernel_cache"), "")
    both = {"HOME": "/home/me", "ASCEND_CACHE_PATH": "/data/ascend"}
    assert atc_place(both) == (Path("/data/ascend/kernel_cache"), "")


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/opbuild"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/caches"}, "/caches/opbuild"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/opbuild"),
        ({"HOME": "/home/me", "ASCEND_CACHE_PATH": "/data"}, "/home/me/.cache/opbuild"),
        ({"HOME": "/home/me", "MS_COMPILER_CACHE_PATH": "named"}, "named"),
    ],
)
def test_each_user_has_one_store(environ: dict[str, str], folder: str) -> None:
    """Whoever asks, from whichever folder, gets the place of the platform's convention, or the one that is named."""
    assert Config.from_environment(environ=environ).cache_path == Path(folder)


def test_mindspores_scripts_and_atc_keep_their_own_places(tmp_path: Path) -> None:
    """Scripts store in the working folder and ATC where ATC does; what is named counts for both."""
    environ = {"HOME": "/home/me", "XDG_CACHE_HOME": "/caches"}
    script = Config.from_environment(mindspore=True, environ=environ)
    assert script.kernel_meta == Path.cwd() / "rank_0" / "kernel_meta"
    atc = Config.from_environment(atc=True, environ=environ)
    assert atc.kernel_meta == Path("/home/me/atc_data/kernel_cache/host")
    named = Config.from_environment(atc=True, cache_path=tmp_path, environ=environ)
    assert named.kernel_meta == tmp_path / "rank_0" / "kernel_meta"


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home_the_store_is_in_the_working_folder(environ: dict[str, str]) -> None:
    """A container with a numeric user and no home builds all the same, and is told where (F53, F57)."""
    folder, warning = atc_place(environ, known_users=False)
    assert folder == Path.cwd() / "atc_data" / "kernel_cache"
    assert str(folder) in warning
    config = Config.from_environment(environ=environ)
    assert config.cache_path == Path.cwd()
    assert str(Path.cwd()) in config.warnings[0]
    assert not Config.from_environment(environ=environ, op_compiler_cache_mode="disable").warnings
    assert not Config.from_environment(environ=environ, cache_path=".").warnings


def test_a_user_without_a_passwd_entry_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where neither ``HOME`` nor the system's list of users knows the user, nothing raises."""

    def unknown(user: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {user}")

    assert user_place({}).folder != Path.cwd()
    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert atc_place({}).folder == Path.cwd() / "atc_data" / "kernel_cache"
    assert user_place({}).folder == Path.cwd()


@pytest.mark.parametrize(
    ("text", "level", "mode"),
    [("", 0, "enable"), ("3", 0, "enable"), ("0", 0, "disable"), ("1", 1, "enable"), ("4", 4, "enable")],
)
def test_mindspores_level_is_mapped(text: str, level: int, mode: str) -> None:
    """3, the default, is no debugging; 0 keeps no files; the others are ATC's levels."""
    config = Config.from_environment(mindspore=True, environ={"MS_COMPILER_OP_LEVEL": text})
    assert (config.op_debug_level, config.op_compiler_cache_mode, config.warnings) == (level, mode, ())
    assert Config.from_environment(environ={"MS_COMPILER_OP_LEVEL": text}).op_debug_level == 0


def test_an_invalid_mindspore_level_is_a_warning() -> None:
    """The default is used, and who observes the build is told."""
    config = Config.from_environment(mindspore=True, environ={"MS_COMPILER_OP_LEVEL": "7"})
    assert config.op_debug_level == 0
    seen = Recorder()
    set_up(config, None, seen)
    assert "MS_COMPILER_OP_LEVEL is '7'" in seen.events[0].message  # type: ignore[union-attr]


def test_warnings_are_logged_once_where_nobody_observes(caplog: pytest.LogCaptureFixture) -> None:
    """Without an observer the logger ``opbuild`` says them, each once."""
    config = Config.from_environment(mindspore=True, environ={"MS_COMPILER_OP_LEVEL": "seven"})
    with caplog.at_level(logging.WARNING, "opbuild"):
        set_up(config, None, None)
        set_up(config, None, log_warnings)
    assert [record.name for record in caplog.records] == ["opbuild"]


def test_set_context_takes_the_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A MindSpore program says them by the same names; bad ones are refused when they are set."""
    monkeypatch.setattr(context._CONTEXT, "values", dict(context._CONTEXT.values))
    context.set_context(op_compiler_cache_mode="force", op_compiler_cache_dir=str(tmp_path), op_debug_level=0)
    config = context.build_config()
    assert (config.op_compiler_cache_mode, config.op_compiler_cache_dir) == ("force", tmp_path)
    with pytest.raises(ArgumentValueError, match="op_compiler_cache_mode is 'never'"):
        context.set_context(op_compiler_cache_mode="never")
    assert context.get_context("op_compiler_cache_mode") == "force"


def test_debugging_leaves_the_cache_alone() -> None:
    """A level that is not 0 neither reads nor writes, whatever the mode is."""
    config = Config.from_environment(op_debug_level=1, op_compiler_cache_mode="force", environ={})
    assert not config.uses_cache
    assert not config.forces


def test_the_quotas_variables_are_given_as_they_stand() -> None:
    """What is valid is decided where ``op_cache.ini`` is read."""
    assert quota_environment({"ASCEND_MAX_OP_CACHE_SIZE": " x "}) == ("x", "")
