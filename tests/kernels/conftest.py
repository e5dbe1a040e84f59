"""What ``make test`` runs of kernels: one case of each parametrised test; a compile takes longer than all else."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tiers import leave_one


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one case of each parametrised test of this folder to ``make test-all``."""
    leave_one(items, Path(__file__).parent)
