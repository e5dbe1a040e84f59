"""Compiles on the processes of an MPI job, through ``mpi4py.futures``."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from support.small_network import SHAPE, small_model

MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")

BUILD = """
import hashlib, json, pathlib, sys
from mpi4py.futures import MPIPoolExecutor
import opbuild

def built(folder, executor):
    report = opbuild.compile(sys.argv[1], cache_path=folder, executor=executor).report
    objects = sorted(pathlib.Path(folder).rglob("*.o"))
    return report.built, {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in objects}

if __name__ == "__main__":
    with MPIPoolExecutor() as pool:
        print(json.dumps([pool.num_workers, built("far", pool), built("near", None)]))
"""


@pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None or MPIEXEC is None,
    reason="mpi4py and an mpiexec are not installed (the extra [mpi])",
)
def test_the_processes_of_a_job_compile_what_this_host_would(tmp_path: Path) -> None:
    """Two workers, and byte for byte the objects of a local build."""
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "build.py").write_text(BUILD)
    done = subprocess.run(
        [str(MPIEXEC), "-n", "3", sys.executable, "-m", "mpi4py.futures", "build.py", "model.onnx"],
        cwd=tmp_path, env={**os.environ, "OPBUILD_PACK": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    workers, far, near = json.loads(done.stdout)
    assert workers == 2
    assert far == near
    assert far[0] >= 2
