"""Small files of each kind that users keep: one operator for every x86-64 processor, as a release wrote them.

``PYTHONPATH=tests python -m support.kept_files`` writes them anew, where a format was raised on purpose.
"""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import opbuild
from opbuild.api import compile_model
from opbuild.cli.store.bundling import export_model
from opbuild.config import Config
from opbuild.kernel.key import KEY_FORMAT
from opbuild.kernel.networks import FORMAT as NETWORKS
from opbuild.offline.format import VERSION
from opbuild.platform.files.trust import PRIVATE
from opbuild.store import bundle, model_packs, pack
from opbuild.store.archive import archive_parts
from opbuild.store.bundle import read_bundle
from opbuild.store.pack import FamilySources, Object, pack_bytes
from opbuild.store.tuning_database import FORMAT as TUNING
from opbuild.store.tuning_database import line_of
from opbuild.target.level import BY_NAME
from opbuild.version import __version__
from support.fake_compiler import fake_object
from support.samples import IDENTITY, conv, key_of
from support.tuned_records import product, record

FOLDER = Path(__file__).parents[1] / "data" / "compatibility"
LEVEL = BY_NAME["x86-64"]
SHAPE = (4, 8)
OFFLINE, BUNDLE, PACK, MODEL_PACK, BANK = (
    FOLDER / name for name in ("relu.om", "relu.bundle", "conv.pack", "model.pack", "opbuild_bank.jsonl")
)
FORMATS = {
    "operators": KEY_FORMAT, "networks": NETWORKS, "`.om` files": VERSION, "bundles": bundle._KIND.format,
    "packs": pack._FORMAT, "model packs": model_packs.KIND.format, "tuning databases": TUNING,
}  # fmt: skip
"""What this release writes."""


def formats() -> Mapping[str, int]:
    """Return the formats of the kept files; a network's is told by its name alone."""
    files = read_bundle(BUNDLE).files
    [info] = [bytes(content) for name, content in files.items() if name.endswith(".info")]
    return {
        "operators": json.loads(info)["key"]["components"]["format"],
        "`.om` files": struct.unpack_from("<I", OFFLINE.read_bytes(), 8)[0],
        "bundles": int(BUNDLE.read_bytes().split()[2]),
        "packs": int(PACK.read_bytes().split()[2]),
        "model packs": int(MODEL_PACK.read_bytes().split()[2]),
        "tuning databases": json.loads(BANK.read_text().partition(" ")[2])["format"],
    }


def write() -> None:
    """Write all of them."""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        "relu",
        *([helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)] for name in "xy"),
    )
    with tempfile.TemporaryDirectory() as work:
        model = Path(work, "relu.onnx")
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        config = Config.from_environment(environ={"OPBUILD_PACK": "0"}, cache_path=f"{work}/cache")
        opbuild.export(str(model), OFFLINE, target=LEVEL.name, config=config)
        compile_model(model, config, target=LEVEL, waits=True)(np.zeros(SHAPE, np.float32))
        export_model(BUNDLE, model, config, LEVEL, network=True)
    key, object_ = key_of(conv(), LEVEL, IDENTITY, "code"), fake_object(b"code", (key_of(conv(), LEVEL).symbol,))
    packed = Object(conv().components(), key.operator, "0" * 32, object_)
    PACK.write_bytes(pack_bytes(LEVEL.name, "conv", IDENTITY, FamilySources("code", "text"), [packed]))
    files = {f"0/{LEVEL.name}/conv.pack": PACK.read_bytes()}
    MODEL_PACK.write_bytes(b"".join(archive_parts(model_packs.KIND, {"release": __version__, "models": []}, files)))
    told = record(product("panels", 64, 256, 256), None, None, level=LEVEL.name, system="", sources="0" * 64)
    BANK.write_bytes(line_of(told, PRIVATE) + b"\n")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    write()
