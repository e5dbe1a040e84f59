"""The pool of threads that all networks of the process share: ``native/opbuild_pool.c``.

It is loaded once and never unloaded: its threads run its code.
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache

from opbuild.errors import LinkError
from opbuild.platform.paths import Path

_SUPPORT = Path(__file__).parent.parent / "native" / "support"
"""Not by ``importlib.resources``, whose import takes a tenth of the start of a stored network."""


@lru_cache(maxsize=1)
def load_pool() -> ctypes.CDLL:
    """Return the pool's library; its threads start with the first parallel loop.

    Raises:
        LinkError: If it can not be loaded.
    """
    # By its path: the loader opens a file once, so that a second copy of this module has the same pool.
    try:
        return ctypes.CDLL(str(_SUPPORT / f"pool_{platform.machine()}.so"))
    except OSError as error:
        raise LinkError(f"the pool of threads can not be loaded: {error}", "install opbuild again") from error
