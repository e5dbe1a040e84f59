"""A run of several processes in two parts: its slow tests only if no fast one failed."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from support.order import parts_of

FAST_FAILED = 6
"""The status of a run that left out its slow tests; pytest's own are smaller."""


class TwoParts(LoadFileScheduling):
    """Gives processes whole files; one with fast and slow tests once in each part.

    Args:
        config: Of the run.
        log: As every scheduler has it.
    """

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._has_failed = self._is_cut = False
        self._parts = dict[str, int]()
        config.pluginmanager.register(self)

    def schedule(self) -> None:
        """Begin, now that the tests are known."""
        self._parts = self._parts or parts_of(next(iter(self.registered_collections.values())))
        super().schedule()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a test failed."""
        self._has_failed |= report.failed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say that slow tests were left out."""
        if self._is_cut:
            session.exitstatus = FAST_FAILED

    def _split_scope(self, nodeid: str) -> str:
        return f"{super()._split_scope(nodeid)} {self._parts[nodeid]}"

    def _assign_work_unit(self, node: Any) -> None:
        first = next(iter(next(iter(self.workqueue.values()))))
        if self._has_failed and self._parts[first]:
            self.workqueue.clear()
            self._is_cut = True
            node.shutdown()
        else:
            super()._assign_work_unit(node)
