"""Settings: the environment's variables, their defaults, limits and errors."""

from __future__ import annotations

import inspect
import os
from pathlib import Path

import pytest

from opbuild.api import compile  # noqa: A004
from opbuild.config import OPTIONS, Config, available_cores, compiler_environment
from opbuild.errors import OptionError
from opbuild.platform.limits import cpu_limit


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
    own = {"model", "input_shapes", "target", "observer", "executor"}
    assert set(inspect.signature(compile).parameters) - own == set(OPTIONS)
    defaults = Config()
    for name, how in OPTIONS.items():
        assert how.value(name, None, {}, getattr(defaults, name)) is not None or getattr(defaults, name) is None
        assert how.hint


def test_an_unknown_option_is_refused() -> None:
    """A misspelt option would otherwise be ignored."""
    with pytest.raises(TypeError, match="'num_thread'"):
        Config.from_environment(num_thread=2)
