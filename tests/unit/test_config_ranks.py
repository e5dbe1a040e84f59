"""Where a process's place in a job is read: its own variables, then those of MPI and Slurm."""

from __future__ import annotations

import pytest

from opbuild.config import Config

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
