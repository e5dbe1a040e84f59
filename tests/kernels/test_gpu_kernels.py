"""The sources of the kernels for a GPU, interpreted on the host."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from support.fake_cuda import GPU

OLD_ENOUGH = tuple(map(int, np.__version__.split(".")[:2])) < (2, 4)
pytestmark = [
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed; `make gpu-check` installs it"),
    pytest.mark.skipif(not OLD_ENOUGH, reason="Triton 3.6's interpreter needs numpy < 2.4; `make gpu-check` has it"),
]


@pytest.mark.timeout(600)
def test_each_kernel_agrees_with_float64_and_writes_nothing_beside() -> None:
    """All masks, extents of 0 and 1, strides and infinities, as the sources have them; races are not seen."""
    done = subprocess.run([sys.executable, GPU / "interpreter.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 19
