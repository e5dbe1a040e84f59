"""The pool of threads that all networks of the process share: ``native/opbuild_pool.c``.

It is loaded once and never unloaded: its threads run its code.
"""

from __future__ import annotations

import ctypes
import platform
from functools import lru_cache
from importlib import resources

from opbuild.errors import LinkError


@lru_cache(maxsize=1)
def load_pool() -> ctypes.CDLL:
    """Return the pool's library; its threads start with the first parallel loop.

    Raises:
        LinkError: If it can not be loaded.
    """
    # By its path: the loader opens a file once, so that a second copy of this module has the same pool.
    name = f"pool_{platform.machine()}.so"
    try:
        with resources.as_file(resources.files("opbuild").joinpath("native", "support", name)) as path:
            return ctypes.CDLL(str(path))
    except OSError as error:
        raise LinkError(f"the pool of threads can not be loaded: {error}", "install opbuild again") from error
