"""Starting a network in a new process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

START_ONCE = Path(__file__).with_name("start_once.py")


def start(model: Path, cache: Path | None) -> dict[str, Any]:
    """Start a network in a new process.

    Args:
        model: The model's file.
        cache: opbuild's cache folder; None: start it with ONNX Runtime.

    Returns:
        ``seconds`` from ``compile()`` to a callable network, ``process`` seconds of the whole process, and for opbuild
        the operators ``built`` and ``reused`` and whether ``halide`` was imported.
    """
    command = [sys.executable, str(START_ONCE), str(model), "onnxruntime" if cache is None else str(cache)]
    # An installed package has its bytecode beside it; a checkout must be allowed to write it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    started = time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    return {**json.loads(done.stdout), "process": time.perf_counter() - started}
