"""Records of a database as tuning would have written them on this machine."""

from __future__ import annotations

import json
from typing import Any

from opbuild.config import Config
from opbuild.families.family import TuningQuery
from opbuild.pipeline.tuned import family_sources
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.machine_class import system_class
from opbuild.store.tuning_database import TuningRecord, append_records
from opbuild.target.host import host_level

DATE = "2026-11-23T12:00:00Z"


def record(query: TuningQuery, default: Any, choice: Any, **other: Any) -> TuningRecord:
    """Return a record that says that a choice beats the default here, with two threads."""
    known: dict[str, Any] = {
        "level": host_level().name, "machine": "", "system": system_class(), "threads": 2,
        "sources": family_sources(query.family), "before": 10.0, "after": 8.0, "bound": 0.9, "spread": 0.01,
        "pairs": 20, "date": DATE,
    }  # fmt: skip
    return TuningRecord(*query, default=default, choice=choice, **{**known, **other})


def product(layout: str, m: int, n: int, k: int) -> TuningQuery:
    """Return the query of the family of matrix products."""
    return TuningQuery("matmul", json.dumps([layout, 1, m, n, k, "float32"], separators=(",", ":")))


def remember(*records: TuningRecord, **settings: Any) -> None:
    """Write records to the database that builds with these settings read."""
    append_records(Config.from_environment(**settings).tune_bank, records, PRIVATE)
