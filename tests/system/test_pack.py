"""The release's own pack: networks start without compiling, also where no compiler is, and its bytes are right."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from kernels.compiler import CheckedCompiler, PackCompiler
from opbuild.builder.build import Builder
from opbuild.builder.client import IdleServer
from opbuild.config import Config
from opbuild.frontend.example_models import light_path
from opbuild.frontend.onnx_schemas import TABLE
from opbuild.kernel.identity import identify
from opbuild.kernel.key import Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.offline.build import export
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from opbuild.store.pack import PACKS, Pack, PackFile
from opbuild.target.host import host_level
from opbuild.target.level import BY_NAME
from support.packed import object_in
from support.processes import WITHOUT, environment

LEVELS = sorted(path.name for path in PACKS.iterdir() if path.is_dir())
SAMPLE = 4
"""Kernels that are compiled anew at each run."""

needs_pack = pytest.mark.skipif(host_level().name not in LEVELS, reason=f"there is no pack for {host_level()}")


RELEASED = PackCompiler()


def files(level: str) -> list[PackFile]:
    """Return the files of a level's pack."""
    pack = Pack(level)
    found = [pack.file(family) for family in pack.families()]
    assert all(isinstance(file, PackFile) for file in found), found
    return [file for file in found if isinstance(file, PackFile)]


def is_stale(file: PackFile) -> bool:
    """Return whether a family was edited since its pack was made."""
    first = OpDesc.from_components(file.descriptors()[0])
    return RELEASED.sources_digest(first) != file.sources.code


def test_the_pack_is_of_these_sources() -> None:
    """What the release ships is of the code that it ships; ``make kernels`` brings a pack up to date."""
    stale = [f"{level}/{file.family}" for level in LEVELS for file in files(level) if is_stale(file)]
    assert stale == [], "run make kernels"


@pytest.mark.slow
def test_a_random_sample_is_what_is_built(config: Config) -> None:
    """F44: kernels of the pack, compiled anew, are the very same bytes; ``make kernels-check`` compares all."""
    rng = random.Random()
    chosen = [file for level in LEVELS for file in files(level) if not is_stale(file)]
    sample = rng.choices(chosen, [len(file) for file in chosen], k=SAMPLE)
    installed = identify(RELEASED)
    for file in sample:
        if file.compiler.version != installed.version:
            pytest.skip(f"the pack is made by {file.compiler.version}, {installed.version} is installed")
        components = rng.choice(file.descriptors())
        desc = OpDesc.from_components(components)
        with Builder(Operators(Memory()), CheckedCompiler(), BY_NAME[file.target], config) as builder:
            builder.use_identity(file.compiler)
            key: Key = builder.key(desc)
            (entry,) = builder.build({desc: ()}, "sample").entries.values()
        assert entry.object == object_in(file, key), (file.target, components)
        assert entry.pipeline == file.pipeline(key), (file.target, components)


MODEL_OUTPUT = """
import sys, threading
asked = set(sys.modules)
class Seen:
    def find_spec(name, path=None, target=None):
        if threading.current_thread().name != "opbuild-behind":
            asked.add(name)
sys.meta_path.insert(0, Seen)
import numpy as np
import opbuild
net = opbuild.compile(sys.argv[1], num_threads=2)
x = np.sin(np.arange(3 * 224 * 224, dtype=np.float32)).reshape(1, 3, 224, 224)  # random numbers load OpenSSL
outputs = net(x)
np.save(sys.argv[2], outputs[0] if isinstance(outputs, (list, tuple)) else outputs)
reasons = sorted({operator.reason for operator in net.report.operators})
print(net.report.built, reasons, sorted({needless!r} & asked & set(sys.modules)))
"""
"""What is stored behind the answer is no part of the start, and done before it or after it as the machine is busy."""

NEEDLESS = {
    *("halide", "torch", "onnxruntime", "onnx.reference", "click", "rich", "jinja2"),
    *("multiprocessing", "concurrent.futures", "asyncio", "http.client"),
    *("importlib.resources", "zipfile", "graphlib", "_hashlib"),
    *("opbuild.cli", "opbuild.mindspore", "opbuild.offline", "opbuild.builder.server", "opbuild.pipeline.remote"),
    *("opbuild.pipeline.tuned", "opbuild.pipeline.tuned_lowering", "opbuild.store.tuning_database"),
    *(f"opbuild.families.{name}.lowering" for name in ("attention", "conv_integer", "recurrent", "resize", "scatter")),
    *(f"opbuild.families.{name}.family" for name in ("recurrent", "roi_align", "scan", "grid_sample", "top_k")),
    *("opbuild.families.user.family", "opbuild.families.matmul_integer.family", "opbuild.lowering.rules.conv_product"),
    *("opbuild.frontend.microsoft", "opbuild.frontend.onnx_single"),
    *("opbuild.runtime.symbolic", "opbuild.runtime.symbols", "opbuild.runtime.dynamic", "opbuild.runtime.numbering"),
    *("opbuild.pipeline.segmented", "opbuild.backend.host.ml"),
    *(f"opbuild.graph.passes.composite.{name}" for name in ("axes", "einsum", "images", "signal")),
    *("opbuild.families.conv.halide", "opbuild.backend.halide.emission"),
}
"""What a first start of a network of convolutions has no use for; each would make it longer."""

if f'"release":"{onnx.__version__}"' in TABLE.read_text(encoding="utf-8"):  # else onnx is asked for its schemas
    NEEDLESS |= {"onnx", "onnx.onnx_cpp2py_export", "ml_dtypes", "importlib.metadata", "email", "argparse"}

NEEDLESS_AGAIN = NEEDLESS | {
    *("google.protobuf", "importlib.metadata", "subprocess", "tempfile", "argparse"),
    *("opbuild.builder", "opbuild.lowering", "opbuild.families", "opbuild.graph.passes", "opbuild.operations"),
    *("opbuild.frontend.onnx_model", "opbuild.frontend.onnx_messages", "opbuild.frontend.walk"),
    *("opbuild.graph.node_json", "opbuild.graph.shape_rules", "opbuild.graph.tables"),
    *(
        "opbuild.kernel.entry",
        "opbuild.kernel.key",
        "opbuild.kernel.artifact",
        "opbuild.runtime.devices.cpu.link",
        "opbuild.store.pack",
    ),
}
"""What a start from a stored network has no use for beside that: all that reads, lowers, builds and links."""


def started(
    gone: tuple[str, ...],
    pack: str,
    cache: Path,
    output: Path,
    name: str = "squeezenet",
    needless: set[str] = NEEDLESS,
) -> str:
    """Return the output of a fresh process that starts a light network, from an empty cache if nothing is there yet."""
    program = (WITHOUT.format(names=gone) if gone else "") + MODEL_OUTPUT.replace("{needless!r}", repr(needless))
    variables = environment(OPBUILD_PACK=pack, MS_COMPILER_CACHE_PATH=str(cache))
    command = [sys.executable, "-c", program, str(light_path(name)), str(output)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_pack
def test_a_first_start_compiles_nothing_with_and_without_a_compiler(tmp_path: Path) -> None:
    """A network in an empty cache is all from the pack, and loads little; without halide its results are the same."""
    said = "0 ['from the pack'] []"
    assert started((), "1", tmp_path / "with", tmp_path / "with.npy") == said
    assert started(("halide",), "1", tmp_path / "without", tmp_path / "without.npy") == said
    assert not list(tmp_path.glob("with*/rank_0/kernel_meta/*.o"))
    np.testing.assert_array_equal(np.load(tmp_path / "with.npy"), np.load(tmp_path / "without.npy"))


@needs_pack
def test_a_second_start_loads_nothing_of_what_builds(tmp_path: Path) -> None:
    """A stored network starts in a fresh process without what reads models, lowers, keys or links operators."""
    cache, output = tmp_path / "cache", tmp_path / "output.npy"
    first = started((), "1", cache, output)
    expected = np.load(output)
    assert started((), "1", cache, output, needless=NEEDLESS_AGAIN).endswith("[]"), first
    np.testing.assert_array_equal(np.load(output), expected)


@needs_pack
@pytest.mark.parametrize("stored", ["network", "offline model"])
def test_where_the_pack_has_everything_no_compile_server_starts(
    stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take a quarter of a second, and a core from reading the model, for nothing."""
    monkeypatch.setenv("OPBUILD_PACK", "1")
    started = []
    monkeypatch.setattr(IdleServer, "start", lambda *arguments: started.append(arguments))
    model, config = light_path("squeezenet"), Config.from_environment(cache_path=tmp_path)
    if stored == "network":
        assert opbuild.compile(model, cache_path=tmp_path).report.built == 0
    else:
        assert export(model, tmp_path / "net.om", config=config).stat().st_size
    assert started == []


def one_operator(kernel: int) -> bytes:
    """Return a network of one convolution."""
    to = helper.make_node("Conv", ["x", "w", "b"], ["y"], "conv", pads=[kernel // 2] * 4)
    weights = helper.make_tensor("w", TensorProto.FLOAT, (64, 64, kernel, kernel), np.ones(4096 * kernel**2))
    bias = helper.make_tensor("b", TensorProto.FLOAT, (64,), np.ones(64))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 64, 56, 56)) for name in "xy"]
    graph = helper.make_graph([to], "net", values[:1], values[1:], [weights, bias])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


RUN = "import sys, opbuild\nprint(opbuild.compile(sys.argv[1]).report.built)\n"


@pytest.mark.slow
@needs_pack
@pytest.mark.parametrize(("pack", "kernel", "compiles"), [("1", 3, False), ("0", 3, True), ("1", 9, True)])
def test_what_the_pack_lacks_is_compiled(
    pack: str, kernel: int, compiles: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator of common networks is not compiled unless the pack is switched off; a rare one is."""
    monkeypatch.setenv("OPBUILD_PACK", pack)
    built = opbuild.compile(one_operator(kernel), cache_path=tmp_path).report.built
    compiled = len(list(tmp_path.glob("rank_0/kernel_meta/*.o")))
    assert (compiled > 0) == compiles
    assert built == compiled


@needs_pack
def test_a_rare_operator_without_a_compiler_says_what_to_install(tmp_path: Path) -> None:
    """What the pack lacks is named, with its node and the package that compiles it."""
    path = tmp_path / "net.onnx"
    path.write_bytes(one_operator(9))
    program = WITHOUT.format(names=("halide",)) + RUN
    variables = environment(OPBUILD_PACK="1", MS_COMPILER_CACHE_PATH=str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], env=variables, capture_output=True, text=True, check=False
    )
    assert "the compiler halide is not installed, and " in done.stderr
    assert "(of conv)" in done.stderr
    assert "pip install halide" in done.stderr
