"""Threads of a C program that runs offline models: one pool for all of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild import native
from opbuild.config import Config
from support.pools import HERE

NATIVE = Path(native.__file__).parent

_PROGRAM = """
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "opbuild_om.h"

static float in[64 * 256], out[2][64 * 256];

/* The threads of this process; one that has ended may show for a moment. */
static int tasks(int most) {
    int count = 0;
    for (int turn = 0; turn < 5000 && (turn == 0 || count > most); turn++, usleep(1000)) {
        DIR *folder = opendir("/proc/self/task");
        count = -2;
        while (readdir(folder)) count++;
        closedir(folder);
    }
    return count;
}

static void run(opbuild_model *model, int which) {
    char why[256];
    const void *inputs[] = {in};
    void *outputs[] = {out[which]};
    memset(out[which], 0, sizeof out[which]);
    if (opbuild_run(model, 0, inputs, outputs, why, sizeof why) != 0) printf("%s\\n", why);
}

int main(int count, char **words) {
    char why[256];
    opbuild_model *one = opbuild_open(words[1], 3, 0, why, sizeof why);
    opbuild_model *other = opbuild_open(words[1], 4, 0, why, sizeof why);
    if (count != 2 || !one || !other) return printf("%s\\n", why), 1;
    for (int i = 0; i < 64 * 256; i++) in[i] = (float)(i % 7);
    printf("%d ", tasks(1));
    run(one, 0);
    printf("%d ", tasks(3));
    run(other, 1);
    printf("%d ", tasks(4));
    fflush(stdout);
    if (fork() == 0) {
        memset(out, 0, sizeof out);
        alarm(20);
        printf("%d ", tasks(1));
        run(one, 0);
        printf("%d ", tasks(3));
        opbuild_close(one);
        opbuild_close(other);
        printf("%d ", tasks(1));
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    opbuild_close(other);
    printf("%d ", tasks(3));
    run(one, 0);
    opbuild_close(one);
    printf("%d %d\\n", tasks(1), memcmp(out[0], out[1], sizeof out[0]) == 0 && out[0][64 * 256 - 1] != 0);
    return 0;
}
"""


def model() -> onnx.ModelProto:
    """A product of matrices that is worth several threads."""
    matrix = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float32)
    sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256]) for name in "xy"]
    nodes = [helper.make_node("MatMul", ["x", "m"], ["y"])]
    graph = helper.make_graph(nodes, "product", sides[:1], sides[1:], [numpy_helper.from_array(matrix, "m")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.slow
def test_two_models_of_a_c_program_share_one_pool(shared_store: Path, tmp_path: Path) -> None:
    """Threads are those of the model with the most, start with its first call, and end when it is closed."""
    compiler = shutil.which("cc")
    if compiler is None or not HERE:
        pytest.skip("there is no C compiler, or no pool for this machine")
    config = Config(cache_path=shared_store, workers=2, num_threads=3)
    path = opbuild.export(model(), tmp_path / "product", config=config)
    (tmp_path / "two.c").write_text(_PROGRAM)
    sources = [str(tmp_path / "two.c"), *map(str, sorted(NATIVE.glob("*.c")))]
    program = str(tmp_path / "two")
    command = [compiler, "-O2", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *sources, "-o", program]
    subprocess.run([*command, "-ldl", "-lpthread", "-lm"], check=True)
    done = subprocess.run([program, str(path)], capture_output=True, text=True, timeout=120, check=True)
    before, one, both, in_child, runs, closed, left, last, right = done.stdout.split()
    assert (before, one, both) == ("1", "3", "4")
    assert (in_child, runs, closed) == ("1", "3", "1")
    assert (left, last, right) == ("3", "1", "1")
