"""Packages written for ONNX Runtime, unmodified: what they find with ONNX Runtime they find with opbuild.

Each script uses a package as its documents say, on input that it makes; the models are in the packages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.processes import environment

pytestmark = pytest.mark.usefixtures("kept_objects")

SCRIPTS = Path(__file__).parent / "onnxruntime_scripts"
PACKAGES = {
    "rapidocr_text": "rapidocr",
    "rapidocr_onnxruntime_text": "rapidocr_onnxruntime",
    "magika_types": "magika",
    "onnx_asr_features": "onnx_asr",
}


def _printed(command: list[str], store: Path) -> Any:
    done = subprocess.run(
        command,
        env=environment(MS_COMPILER_CACHE_PATH=str(store), OPBUILD_PACK="1"),
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_finds_the_same(name: str, shared_store: Path) -> None:
    """Texts are the same, numbers but for the order of sums."""
    for needed in (PACKAGES[name], "onnxruntime"):
        if find_spec(needed) is None:
            pytest.skip(f"the package {needed} is not installed")
    script = str(SCRIPTS / f"{name}.py")
    expected = _printed([sys.executable, script], shared_store)
    found = _printed([sys.executable, "-m", "opbuild", "run", "--serve", "onnxruntime", script], shared_store)
    assert found["texts"] == expected["texts"]
    assert found["numbers"] == pytest.approx(expected["numbers"], rel=1e-3, abs=2e-3)
