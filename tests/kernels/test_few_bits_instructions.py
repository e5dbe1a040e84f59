"""Products of weights of few bits and int8 are compiled to a level's instructions for bytes."""

from __future__ import annotations

import re
from pathlib import Path

import halide as hl
import numpy as np
import pytest
from onnx import helper

from kernels.small_models import model_of, program_of
from kernels.test_level_instructions import text_of
from kernels.test_matmul_nbits import MICROSOFT, weights
from kernels.test_matmul_nbits_integer import BYTES
from opbuild.target.level import BY_NAME


@pytest.mark.parametrize(
    ("level", "bits", "instruction"),
    [
        ("x86-64-v4-bf16", 4, "vpdpbusd"),
        ("x86-64-v4-bf16", 8, "vpdpbusd"),
        ("x86-64-v4", 4, "vpmaddwd"),
        ("x86-64-v3", 4, "vpmaddubsw"),
        ("x86-64-v4-bf16", 2, "vpdpbusd"),
        ("x86-64-v3", 2, "vpmaddubsw"),
        ("x86-64-v3", 8, "vpmaddwd"),
    ],
)
def test_products_take_a_levels_instruction(level: str, bits: int, instruction: str, tmp_path: Path) -> None:
    """Of bytes where there is one, else of 16 bits: weights that fit int8 are not multiplied as such."""
    known = weights(bits, 128, 70, 32, "")
    attrs = {"K": 128, "N": 70, "bits": bits, "block_size": 32, "accuracy_level": BYTES}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], {"x": np.zeros((7, 128), np.float32)}, {"y": "float32"}, known)
    (call,) = program_of(model, BY_NAME[level]).calls
    assembly = text_of(call.desc, BY_NAME[level], tmp_path / "s", hl.OutputFileType.assembly)
    assert len(re.findall(rf"\t{instruction}\t", assembly)) >= 4
