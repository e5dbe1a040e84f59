"""Models as ``make structures`` leaves them in a folder, of one operator each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

NAMES = [f"transformers/{kind}/masked/torchscript/{form}" for kind in "abcdefgh" for form in ("float32", "int8-qdq")]
"""Of both sides: held out and not."""


def write_all(folder: Path) -> None:
    """Write all of them, half with an open extent."""
    for name in NAMES:
        write(folder, name, 3 if name.endswith("float32") else "batch")


def write(folder: Path, name: str, extent: int | str, op_type: str = "Relu", family: str = "encoders") -> None:
    """Write a network of one operator as it would have been exported."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [extent, 4])
    nodes = [helper.make_node(op_type, ["x"], ["y"]), helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)]
    z = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
    path = folder / f"{name}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", [x], [z]), opset_imports=opset), path)
    np.savez(path.with_suffix(".npz"), x=np.zeros((3, 4), np.float32))
    path.with_suffix(".json").write_text(json.dumps({"family": family}))
