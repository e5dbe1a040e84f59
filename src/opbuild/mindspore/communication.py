"""``communication``: connects the ranks of a job that ``opbuild launch`` or ``mpiexec`` started."""

from __future__ import annotations

import sys
from collections.abc import Callable

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.context import build_config

management = sys.modules[__name__]
"""MindSpore has these functions in a module of that name too."""
__path__: list[str] = []  # so that it can be imported

_BACKENDS = ("hccl", "nccl", "mccl", "gloo", "mpi")

HCCL_WORLD_COMM_GROUP = "hccl_world_group"
NCCL_WORLD_COMM_GROUP = "nccl_world_group"
MCCL_WORLD_COMM_GROUP = "mccl_world_group"
_WORLD_GROUPS = (HCCL_WORLD_COMM_GROUP, NCCL_WORLD_COMM_GROUP, MCCL_WORLD_COMM_GROUP)


class GlobalComm:
    """The facts of communication that programs ask for."""

    BACKEND = "hccl"
    WORLD_COMM_GROUP = HCCL_WORLD_COMM_GROUP
    INITED = False
    CHECK_ENVS = True


def check_group(group: str) -> None:
    """Refuse a group that is not that of all ranks."""
    if not isinstance(group, str):
        raise ArgumentTypeError(f"group is {group!r}", "give the name of a group")
    if group not in _WORLD_GROUPS:
        raise ArgumentValueError(f"group is {group!r}", f"there is one group, of all ranks: {HCCL_WORLD_COMM_GROUP!r}")


def init(backend_name: str | None = None) -> None:
    """Connect the ranks of the job; returns when all have called it.

    Ranks of ``opbuild launch`` meet through their launcher, those of ``mpiexec`` through MPI. A process that was
    started alone is a job of one rank.

    Args:
        backend_name: A name that MindSpore knows; it changes nothing.

    Raises:
        ArgumentValueError: If there is no such backend.
        RankError: If nothing connects the ranks, one ended, or one hangs.
    """
    if backend_name is not None and backend_name not in _BACKENDS:
        raise ArgumentValueError(f"backend_name is {backend_name!r}", f"it must be one of {', '.join(_BACKENDS)}")
    from opbuild.events import Warned, log_warnings
    from opbuild.ranks.world import connect

    config = build_config()
    for warning in config.warnings:
        log_warnings(Warned(warning))
    connect(config)
    GlobalComm.INITED = True


def release() -> None:
    """Let go of the other ranks."""
    from opbuild.ranks.world import disconnect

    disconnect()
    GlobalComm.INITED = False


def _of_ranks(name: str, attribute: str, what: str) -> Callable[..., int]:
    def function(group: str = GlobalComm.WORLD_COMM_GROUP) -> int:
        from opbuild.ranks.world import connected

        check_group(group)
        number: int = getattr(connected(), attribute)
        return number

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Return {what}.\n\nRaises:\n    RankError: If ``init`` was not called.\n"
    return function


get_rank = _of_ranks("get_rank", "rank", "this process's rank")
get_group_size = _of_ranks("get_group_size", "size", "the number of ranks")
get_local_rank = _of_ranks("get_local_rank", "local_rank", "this process's rank among those of its host")
get_local_rank_size = _of_ranks("get_local_rank_size", "local_size", "the number of ranks of this host")
