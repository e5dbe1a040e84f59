"""Binaries of kernels for GPUs: what they have of the machine's resources, what their bytes and digests follow from.

No GPU is needed: the tools that read binaries come with Triton.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module, reload
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.backend.triton.cubin import Cubin
from opbuild.errors import CompileError
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS

triton = pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from opbuild.backend.triton import elements, source  # noqa: E402
from opbuild.backend.triton.compiler import TritonCompiler, TritonPipeline  # noqa: E402
from opbuild.backend.triton.expression import function_text  # noqa: E402
from support.cuda_kernels import describe  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
CHAIN = ["add", ["tanh", ["mul", ["arg", 0], ["arg", 1]]], ["arg", 0]]


def served(dtype: str = "float32", family: str = "elementwise", transposed: bool = False) -> OpDesc:
    """Return the device's descriptor of a chain, or of a copy."""
    x, out = (np.zeros((4, 64), dtype) for _ in range(2))
    x = np.zeros((64, 4), dtype).T if transposed else x
    if family == "copy":
        variant = {"kind": "transpose" if transposed else "rows", "width": 16}
        desc = describe("copy", [x], [out], {}, variant)
        (source_,) = desc.inputs
        turned = tuple(
            replace(dim, stride=1) if transposed and number == 1 else dim for number, dim in enumerate(source_.dims)
        )
        desc = replace(desc, inputs=(replace(source_, dims=turned),))
    else:
        desc = describe("elementwise", [x, x], [out], {"expression": CHAIN}, {"width": 16})
    found: OpDesc = CLASS.kernel(desc)
    return found


def pipeline_of(desc: OpDesc) -> TritonPipeline:
    """Return the pipeline of a descriptor."""
    return TritonCompiler.define(desc, CLASS.target())


def resources(binary: bytes, folder: Path) -> tuple[int, str]:
    """Return the registers of a thread, and the code."""
    path = folder / "kernel.cubin"
    path.write_bytes(binary)
    usage = subprocess.run([TOOLS / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True)
    code = subprocess.run([TOOLS / "nvdisasm", "-c", path], capture_output=True, text=True, check=True)
    return int(re.findall(r"REG:(\d+)", usage.stdout)[0]), code.stdout


KERNELS = [
    ("elementwise", "float32", False), ("elementwise", "float16", False), ("elementwise", "bfloat16", False),
    ("copy", "float32", False), ("copy", "uint8", False), ("copy", "uint16", True),
]  # fmt: skip


@pytest.mark.parametrize(("family", "dtype", "transposed"), KERNELS)
def test_a_kernel_takes_few_registers_spills_nothing_and_moves_16_bytes_at_once(
    family: str, dtype: str, transposed: bool, tmp_path: Path
) -> None:
    """Its memory is no more than what a program may have, and what it says of itself is sound."""
    if dtype == "bfloat16":
        desc = served("float32", family)
        parts = [tuple(replace(each, dtype=dtype) for each in side) for side in (desc.inputs, desc.outputs)]
        desc = replace(desc, inputs=parts[0], outputs=parts[1])
    else:
        desc = served(dtype, family, transposed)
    made = pipeline_of(desc).compile("kernel_of_mine")
    assert Cubin.symbols(made.data, made.launch).defined == ("kernel_of_mine",)
    registers, code = resources(made.data, tmp_path)
    assert registers <= 128
    assert not re.search(r"\b(STL|LDL)\b", code)
    assert re.search(r"\bLDG\.E\.128\b", code)
    assert re.search(r"\bSTG\.E\.128\b", code)
    assert made.launch["shared"] <= 48 << 10


MAKE = """
import sys
from opbuild.kernel.opdesc import desc_from_text
from opbuild.target.cuda import CLASS
from opbuild.backend.triton.compiler import TritonCompiler
desc = desc_from_text(sys.stdin.read())
found = TritonCompiler.define(desc, CLASS.target())
sys.stdout.buffer.write(found.digest.encode() + found.compile("kernel").data)
"""


def test_bytes_follow_from_the_key_alone(tmp_path: Path) -> None:
    """Another folder, home, hash seed, and Triton's own variables change neither the digest nor a byte."""
    desc = served()
    (tmp_path / "home").mkdir()
    others = {
        "HOME": str(tmp_path / "home"), "PYTHONHASHSEED": "77", "TRITON_DEFAULT_FP_FUSION": "0",
        "TRITON_INTERPRET": "1",
        "TRITON_DEBUG": "1", "PTXAS_OPTIONS": "-O0", "DISABLE_PTXAS_OPT": "1", "TRITON_F32_DEFAULT": "tf32",
        "TRITON_DISABLE_LINE_INFO": "0",
    }  # fmt: skip
    made = []
    for cwd, more in ((ROOT, {}), (tmp_path, others)):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}
        command = [sys.executable, "-c", MAKE]
        done = subprocess.run(
            command, input=desc.canonical().encode(), env=environment, cwd=cwd, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()[-2000:]
        made.append(done.stdout)
    assert made[0] == made[1]
    here = pipeline_of(desc)
    assert made[0] == here.digest.encode() + here.compile("kernel").data
    assert not [*(tmp_path / "home").iterdir()], "Triton's own cache was written"


def test_the_user_s_environment_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton has another one only while it compiles."""
    monkeypatch.setenv("TRITON_DEBUG", "1")
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "0")
    before = dict(os.environ)
    pipeline_of(served())
    assert dict(os.environ) == before


def test_the_symbol_is_no_part_of_the_digest() -> None:
    """So sources that define the same make the same binary, whatever its name."""
    made = pipeline_of(served())
    one, other = made.compile("one"), made.compile("other")
    assert one.launch == other.launch
    assert one.data.replace(b"one", b"") != b""
    assert Cubin.symbols(other.data, other.launch).defined == ("other",)


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A function that gives the generated kernels another text."""

    def edit(change: Any) -> None:
        monkeypatch.setattr(elements, "jit_function", lambda text, *others: source.jit_function(change(text), *others))

    yield edit
    reload(import_module("opbuild.families.elementwise.triton"))


def test_a_kernel_that_is_written_in_another_way_is_the_same_pipeline(edited: Any) -> None:
    """Comments, names of variables, lines and what is computed and not used; another computation is another one."""
    wanted = pipeline_of(served()).digest

    def refactored(text: str) -> str:
        text = (
            text.replace("i0", "column")
            .replace("start", "first")
            .replace("program = tl", "# the number\n    program = tl")
        )
        return text.replace("    program = program //", "    unused = program * 7\n\n    program = program //")

    edited(refactored)
    assert pipeline_of(served()).digest == wanted
    edited(lambda text: text.replace("tl.store(", "tl.debug_barrier()\n        tl.store(", 1))
    assert pipeline_of(served()).digest != wanted


def test_names_in_loops_that_are_equal_or_differ_are_the_same_pipeline(edited: Any) -> None:
    """A name ends with its loop, so the next one may use it again."""
    loop = "    for {0} in range(n0):\n        tl.store(p2, {0} * 2.0)\n"
    digests = set()
    for names in (("one", "other"), ("one", "one")):
        edited(lambda text, names=names: text + "".join(map(loop.format, names)))
        digests.add(pipeline_of(served()).digest)
    assert len(digests) == 1


def test_what_decides_a_binary_decides_the_digest() -> None:
    """The tile, an operand's type, a stride that is known, the expression."""
    desc = served()
    others = [
        replace(desc, variant={**desc.variant, "rows": 4}),
        served("float16"),
        replace(desc, attrs={"expression": ["add", ["arg", 0], ["arg", 1]]}),
        replace(
            desc,
            inputs=(
                replace(desc.inputs[0], dims=tuple(replace(each, stride=0) for each in desc.inputs[0].dims)),
                desc.inputs[1],
            ),
        ),
    ]
    assert len({pipeline_of(each).digest for each in (desc, *others)}) == 5


def test_no_product_is_contracted_with_a_sum(tmp_path: Path) -> None:
    """So a chain has the bits of its operators one by one."""
    desc = replace(served(), attrs={"expression": ["add", ["mul", ["arg", 0], ["arg", 1]], ["arg", 0]]})
    _, code = resources(pipeline_of(desc).compile("kernel").data, tmp_path)
    assert re.search(r"\bFMUL\b", code)
    assert not re.search(r"\bFFMA\b", code)


def test_an_accumulator_stands_behind_the_operands_and_the_result_is_converted() -> None:
    """As kernels with an epilogue call the function."""
    text = function_text(("max", ("add", ("acc",), ("arg", 0)), ("arg", 0)), ["float32"], "float16", "float32")
    assert text.startswith("def expression(a0, acc):\n    v0 = acc + a0\n")
    assert text.endswith(".to(tl.float16)\n    return v7\n")


def test_a_type_that_is_none_is_refused() -> None:
    """A descriptor's text never becomes a kernel's."""
    with pytest.raises(CompileError, match="there is no type"):
        function_text(("cast", "float32); print(1", ("arg", 0)), ["int8"], "float32")
