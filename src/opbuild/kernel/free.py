"""FREE: the stand-in for a number that is known only when a kernel is called."""

from __future__ import annotations

FREE = -1
"""An extent or a stride that is read from the buffer at run time; as ``max``: no upper limit."""
