"""Settings: variables, options and arguments, their defaults, limits and errors, and a process's place in a job."""

from __future__ import annotations

import inspect
import logging
import os
from pathlib import Path
from typing import Any

import pytest

import opbuild
from opbuild.api import compile  # noqa: A004
from opbuild.config import OPTIONS, Config, available_cores, compiler_environment, quota_environment
from opbuild.errors import OptionError
from opbuild.events import log_warnings
from opbuild.mindspore import context
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.pipeline.setup import set_up
from opbuild.platform.limits import cpu_limit
from opbuild.platform.places import atc_place, user_place
from support.samples import Recorder


def test_defaults() -> None:
    """Without variables the cache is in the working directory, for rank 0 and device 0."""
    config = Config.from_environment(environ={})
    assert config.kernel_meta == Path.cwd() / "rank_0" / "kernel_meta"
    assert config.network_meta == Path.cwd() / "rank_0" / "network_meta"
    assert (config.rank_id, config.device_id, config.forbid_compile) == (0, 0, False)
    assert config.workers == min(24, available_cores())
    assert config.num_threads == available_cores()


def test_mindspore_variables_are_obeyed() -> None:
    """RANK_ID, MS_COMPILER_CACHE_PATH, DEVICE_ID and MS_BUILD_PROCESS_NUM mean what they mean there."""
    config = Config.from_environment(
        environ={
            "RANK_ID": "3",
            "RANK_SIZE": "8",
            "OPBUILD_JOB_DIR": "/run/job",
            "MS_COMPILER_CACHE_PATH": "/some/dir",
            "DEVICE_ID": "5",
            "MS_BUILD_PROCESS_NUM": "24",
            "OPBUILD_FORBID_COMPILE": "1",
            "OPBUILD_COMPILE_TIMEOUT": "7",
        }
    )
    assert config.kernel_meta == Path("/some/dir/rank_3/kernel_meta")
    assert (config.device_id, config.workers, config.forbid_compile, config.compile_timeout) == (5, 24, True, 7.0)
    assert (config.rank_size, config.job_folder) == (8, Path("/run/job"))


@pytest.mark.parametrize(
    ("environ", "usual", "mindspore"),
    [
        ({"OPBUILD_CACHE": "/own"}, "/own", "/own"),
        ({"MS_COMPILER_CACHE_PATH": "/theirs"}, "/theirs", "/theirs"),
        ({"OPBUILD_CACHE": "/own", "MS_COMPILER_CACHE_PATH": "/theirs"}, "/own", "/theirs"),
        ({"OPBUILD_CACHE": "", "MS_COMPILER_CACHE_PATH": "/theirs"}, "/theirs", "/theirs"),
        ({"HOME": "/home/me"}, "/home/me/.cache/opbuild", "."),
    ],
)
def test_each_kind_of_program_obeys_its_own_variable_for_the_cache(
    environ: dict[str, str], usual: str, mindspore: str
) -> None:
    """Where only one is set it counts for all; an argument wins over both."""
    assert Config.from_environment(environ=environ).cache_path == Path(usual)
    assert Config.from_environment(environ=environ, mindspore=True).cache_path == Path(mindspore)
    assert Config.from_environment(environ=environ, mindspore=True, cache_path="/given").cache_path == Path("/given")


def test_a_blank_folder_for_the_cache_is_an_error_of_its_variable() -> None:
    """Nothing is kept in a folder that is called by a blank."""
    for name in ("OPBUILD_CACHE", "MS_COMPILER_CACHE_PATH"):
        with pytest.raises(OptionError, match=f"^{name} is ' '"):
            Config.from_environment(environ={name: " "})


def test_an_unknown_variable_of_opbuild_is_a_warning_with_the_nearest_name() -> None:
    """A slip of the pen changed nothing, and nobody knew; variables of others, and of the tests, are none."""
    environ = {
        "HOME": "/h", "OPBUILD_NUM_THREAD": "2", "OPBUILD_XYZZY": "", "OPBUILD_CACHE": "/c", "OPBUILD_FUZZ_SEED": "1",
        "NUM_THREAD": "2", "OPBUILD_JOB_DIR": "/j",
    }  # fmt: skip
    assert Config.from_environment(environ=environ).warnings == (
        "OPBUILD_NUM_THREAD is set, and opbuild knows no such variable: did you mean OPBUILD_NUM_THREADS?",
        "OPBUILD_XYZZY is set, and opbuild knows no such variable",
    )


def test_one_rank_tells_of_an_unknown_variable() -> None:
    """The ranks of a job have one environment."""
    for rank, count in (("0", 1), ("3", 0)):
        environ = {"HOME": "/h", "OPBUILD_XYZZY": "", "RANK_ID": rank, "RANK_SIZE": "4"}
        assert len(Config.from_environment(environ=environ).warnings) == count


def test_the_environment_is_told_of_once_in_a_process() -> None:
    """Each network that is built has an observer, and the process one environment."""
    config = Config.from_environment(environ={"HOME": "/h", "OPBUILD_XYZZY": ""}, op_compiler_cache_mode="disable")
    seen, later = Recorder(), Recorder()
    set_up(config, None, seen)
    set_up(config, None, later)
    assert [event.message[:13] for event in seen.events] == ["OPBUILD_XYZZY"]  # type: ignore[union-attr]
    assert later.events == []


def test_arguments_win_over_the_environment() -> None:
    """What the caller says is obeyed before what the environment says."""
    environ = {"MS_COMPILER_CACHE_PATH": "/a", "OPBUILD_FORBID_COMPILE": "1", "MS_BUILD_PROCESS_NUM": "3"}
    config = Config.from_environment(cache_path="/b", forbid_compile=False, workers=2, num_threads=1, environ=environ)
    assert (config.cache_path, config.forbid_compile, config.workers) == (Path("/b"), False, 2)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK_ID", "x"),
        ("RANK_ID", "-1"),
        ("RANK_SIZE", "0"),
        ("DEVICE_ID", "1.5"),
        ("MS_BUILD_PROCESS_NUM", "0"),
        ("MS_BUILD_PROCESS_NUM", "25"),
        ("OPBUILD_NUM_THREADS", "0"),
        ("OPBUILD_FORBID_COMPILE", "maybe"),
        ("OPBUILD_COMPILE_TIMEOUT", "0"),
    ],
)
def test_a_bad_value_is_an_error_that_names_the_variable(name: str, value: str) -> None:
    """A value that is not allowed is refused with the variable, the value and what is allowed."""
    with pytest.raises(OptionError) as caught:
        Config.from_environment(environ={name: value})
    assert name in str(caught.value)
    assert value in str(caught.value)
    assert caught.value.hint


def test_workers_follow_the_cores_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """An affinity mask limits the workers, and 24 is the most (F65)."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(3)))
    assert Config.from_environment(environ={}).workers == 3
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(96)))
    assert Config.from_environment(environ={}).workers == 24


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 3),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "5000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 1\n",
          "sys/fs/cgroup/a/cpu.max": "200000 100000\n"}, 2),
        ({"proc/self/cgroup": "4:memory:/x\n3:cpu,cpuacct:/pod/x\n0::/\n",
          "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
          "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n"}, 4),
        ({"proc/self/cgroup": "1:cpu:/\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
          "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "rubbish\n"}, None),
        ({"proc/self/cgroup": "0::/../..\nrubbish\n"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_containers_limit_is_found(tmp_path: Path, files: dict[str, str], limit: int | None) -> None:
    """Both versions of control groups, limits of groups above, no limit, nothing to read (F65)."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert cpu_limit.__wrapped__(tmp_path) == limit


def test_a_containers_limit_counts_like_an_affinity_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers and threads are the lesser of both (F65)."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    for limit, cores in ((3, 3), (12, 8), (None, 8)):
        monkeypatch.setattr("opbuild.config.cpu_limit", lambda limit=limit: limit)
        config = Config.from_environment(environ={})
        assert (config.workers, config.num_threads) == (cores, cores)


def test_the_compilers_environment_is_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """User, home, locale, hash seed and the compiler's own switches do not reach it (F26, F43)."""
    for name in ("HOME", "USER", "LANG", "HL_TARGET", "HL_NUM_THREADS", "RANK_ID"):
        monkeypatch.setenv(name, "odd")
    monkeypatch.setenv("PYTHONHASHSEED", "5")
    environment = compiler_environment()
    assert "odd" not in environment.values()
    assert environment["PYTHONHASHSEED"] == "0"
    monkeypatch.delenv("PATH")
    assert "PATH" not in compiler_environment()


def test_options_are_declared_once() -> None:
    """``compile`` takes each option that is declared, and no table says anything of one besides."""
    own = {"model", "input_shapes", "target", "observer", "executor", "wait"}
    assert set(inspect.signature(compile).parameters) - own == set(OPTIONS)
    defaults = Config()
    for name, how in OPTIONS.items():
        assert how.value(name, None, {}, getattr(defaults, name)) is not None or getattr(defaults, name) is None
        assert how.hint


def test_an_unknown_option_is_refused() -> None:
    """A misspelt option would otherwise be ignored."""
    with pytest.raises(TypeError, match="'num_thread'"):
        Config.from_environment(num_thread=2)


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
    """What exists and is no folder cannot hold the cache."""
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


STARTED = [
    {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1"},
    {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"},
    {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1"},
]


@pytest.mark.parametrize("variables", STARTED, ids=["mpich", "open-mpi", "slurm"])
def test_the_place_in_a_job_comes_from_who_started_it(variables: dict[str, str]) -> None:
    """Rank and size are those of MPI or Slurm, the device is the rank on this host."""
    config = Config.from_environment(environ=variables)
    assert (config.rank_id, config.rank_size, config.device_id, config.by_mpi) == (2, 4, 1, True)


def test_a_processs_own_variables_win_over_those_of_mpi() -> None:
    """RANK_ID, RANK_SIZE and DEVICE_ID decide where they are set."""
    own = {"RANK_ID": "0", "RANK_SIZE": "8", "DEVICE_ID": "7"}
    config = Config.from_environment(environ=STARTED[0] | own)
    assert (config.rank_id, config.rank_size, config.device_id) == (0, 8, 7)


def test_a_batch_script_of_slurm_is_no_rank() -> None:
    """A script that Slurm runs once has a SLURM_PROCID and no step; half a set of variables says nothing."""
    config = Config.from_environment(environ={"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "PMI_RANK": "5"})
    assert (config.rank_id, config.rank_size, config.by_mpi) == (0, 1, False)


def test_a_connect_timeout_outside_its_range_is_obeyed_and_said_once() -> None:
    """2 s are used, with one warning in a job; 120 is the default and 7200 needs none."""
    short = {"HOME": "/home/me", "HCCL_CONNECT_TIMEOUT": "2", "RANK_SIZE": "2"}
    first = Config.from_environment(environ=short)
    second = Config.from_environment(environ=short | {"RANK_ID": "1"})
    assert (first.connect_timeout, len(first.warnings), second.connect_timeout, second.warnings) == (2.0, 1, 2.0, ())
    assert "120 to 7200" in first.warnings[0]
    assert Config.from_environment(environ={}).connect_timeout == 120.0
    assert not Config.from_environment(environ={"HOME": "/home/me", "HCCL_CONNECT_TIMEOUT": "7200"}).warnings
