"""``mindspore.parallel``: the questions of one's own steps, in ``_utils``, before they combine gradients."""

from __future__ import annotations

from opbuild.mindspore import names
from opbuild.mindspore.communication import GlobalComm, get_group_size, get_rank
from opbuild.mindspore.context import get_auto_parallel_context

__path__: list[str] = []  # so that ``_utils`` can be imported; it is this module too
__all__: list[str] = []


def _get_gradients_mean() -> bool:
    """Return whether the mean of gradients is taken."""
    return bool(get_auto_parallel_context("gradients_mean"))


def _get_parallel_mode() -> str:
    """Return the mode in which ranks work together."""
    return str(get_auto_parallel_context("parallel_mode"))


def _get_device_num() -> int:
    """Return the number of ranks."""
    return get_group_size() if GlobalComm.INITED else 1


def _get_global_rank() -> int:
    """Return this process's rank."""
    return get_rank() if GlobalComm.INITED else 0


__getattr__ = names.getter(__name__)
