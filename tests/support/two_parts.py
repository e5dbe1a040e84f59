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
        self._has_failed = self._has_begun = self._is_cut = False
        self._parts = dict[str, int]()
        config.pluginmanager.register(self)

    def schedule(self) -> None:
        """Begin, now that the tests are known."""
        self._parts = self._parts or parts_of(next(iter(self.registered_collections.values())))
        super().schedule()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a fast test failed."""
        self._has_failed |= report.failed and not self._parts[report.nodeid]

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Say that slow tests were left out."""
        if self._is_cut:
            session.exitstatus = FAST_FAILED

    def remove_node(self, node: Any) -> str | None:
        """Take back the tests that a process has not run; return the one in which it died, which is not tried again.

        Files of which nothing is left are not given to others: they would wait for the end of no test.
        """
        units = self.assigned_work[node]
        died_in = next((test for unit in units.values() for test, is_done in unit.items() if not is_done), None)
        if died_in is not None:
            self._has_failed |= not self._parts[died_in]
            left = {
                scope: {test: False for test, is_done in unit.items() if not (is_done or test == died_in)}
                for scope, unit in units.items()
            }
            self.assigned_work[node] = {scope: unit for scope, unit in left.items() if unit}
        super().remove_node(node)
        return died_in

    def _split_scope(self, nodeid: str) -> str:
        return f"{super()._split_scope(nodeid)} {self._parts[nodeid]}"

    def _assign_work_unit(self, node: Any) -> None:
        if node not in self.registered_collections:  # it takes the place of one that died, and gets its part when ready
            return
        if self._has_failed and not self._has_begun:
            self._leave_out_slow_tests()
        if self.workqueue:
            self._has_begun |= self._is_slow(next(iter(self.workqueue)))
            super()._assign_work_unit(node)
        else:
            node.shutdown()

    def _leave_out_slow_tests(self) -> None:
        for scope in filter(self._is_slow, [*self.workqueue]):
            del self.workqueue[scope]
            self._is_cut = True

    def _is_slow(self, scope: str) -> bool:
        return bool(self._parts[next(iter(self.workqueue[scope]))])
