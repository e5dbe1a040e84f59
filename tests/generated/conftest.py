"""What is generated is about results: objects are taken from those that tests compiled before."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _kept_objects(kept_objects: None) -> None:
    """Take them in each test of this folder."""
