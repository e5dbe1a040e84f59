"""What is generated is about results: objects are taken from those that tests compiled before.

``make test`` runs one case of each parametrised test, unless the test says otherwise.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from support.tiers import leave_one


@pytest.fixture(autouse=True)
def _kept_objects(kept_objects: None) -> None:
    """Take them in each test of this folder."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave all but one case of each parametrised test of this folder to ``make test-all``."""
    leave_one(items, Path(__file__).parent)
