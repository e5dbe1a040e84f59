"""How those who start the ranks of a job tell each its place: the names of their variables, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

STARTERS = (
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
"""Rank, number of ranks and rank on this host, as MPICH and its relatives, Open MPI and Slurm name them."""


def started_rank(variables: Mapping[str, str]) -> tuple[int, int, int]:
    """Return rank, number of ranks and rank on this host; ``(0, 1, 0)`` for a process that was started alone.

    Args:
        variables: The environment.
    """
    for names in STARTERS:
        rank, size, local = (variables.get(name, "").strip() for name in names)
        if rank.isdecimal() and size.isdecimal() and int(rank) < int(size):
            return int(rank), int(size), int(local if local.isdecimal() else rank)
    return 0, 1, 0
