"""JSON in one form: equal values have one text."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and no spaces: one text for equal values, whatever the order they were made in."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
