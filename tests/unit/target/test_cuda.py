"""NVIDIA's GPUs as a class of devices: what it says without a compiler, a driver or a GPU."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from opbuild.backend.triton import compiler
from opbuild.backend.triton.compiler import TritonCompiler
from opbuild.errors import BuildError, CompileError, MissingPackageError
from opbuild.families import cuda
from opbuild.families.copy.family import describe
from opbuild.families.elementwise.family import FAMILY
from opbuild.kernel.identity import identify
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS
from opbuild.target.devices import device_class, is_known
from opbuild.target.host import parse_target
from opbuild.target.level import DeviceTarget


def added(dtype: str = "float32", **own: object) -> OpDesc:
    """Return a CPU's descriptor of a sum."""
    dims = (Dim(stride=1, min=16), Dim())
    x, y, out = (Operand(name, dtype, dims) for name in ("x", "y", "out"))
    desc = FAMILY.desc(("Add",), (x, y), (out,), {"expression": ["add", ["arg", 0], ["arg", 1]]}, {"width": 16})
    return replace(desc, **own)


def test_the_class_is_known_and_nothing_of_it_is_loaded() -> None:
    """Who never asks for it pays nothing; who asks loads neither Triton nor a driver."""
    code = (
        "import sys, opbuild.target.devices as d\n"
        "assert d.is_known('cuda') and 'opbuild.target.cuda' not in sys.modules\n"
        "found = d.device_class('cuda')\n"
        "assert found.target().name == 'cuda:sm_90a' and found.layouts('elementwise') == ()\n"
        "found.kinds(), found.compiler().files()\n"
        "assert not {'triton', 'halide', 'numpy', 'opbuild.runtime'} & {*sys.modules}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert is_known("cuda")
    assert device_class("cuda") is CLASS


def test_a_target_is_named_with_the_cpu_beside_it() -> None:
    """By its class alone, too."""
    for text in ("cuda", "cuda:sm_90a"):
        target = parse_target(text) if text == "cuda" else parse_target(f"x86-64-v3 with {text}")
        assert isinstance(target, DeviceTarget)
        assert target.device == CLASS.target()


def test_a_kernel_takes_any_extents_and_the_strides_that_cpus_know() -> None:
    """Limits of a CPU's vectors are gone; an index is an int32."""
    served = CLASS.kernel(added())
    assert served.target == cuda.TARGET
    assert served.outputs[0].dims == (Dim(stride=1, max=cuda.MOST), Dim(max=cuda.MOST))
    assert served.problem([[(3, 1), (7, 50)]] * 3) is None
    assert "above" in str(served.problem([[(2**31, 1), (7, 2**31)]] * 3))
    moved = CLASS.kernel(describe("float32", (FREE, 1), 3, {"kind": "transpose", "width": 8}))
    assert moved.variant["columns"] == moved.variant["rows"]
    assert moved.inputs[0].dims[1].stride == 1


@pytest.mark.parametrize(
    "desc",
    [
        added("float8_e4m3fn"),
        added(source="def f(x): ..."),
        added(impl_mode="high_precision"),
        added(attrs={"expression": ["cast", "int4", ["arg", 0]]}),
        added(attrs={"expression": ["user", "f", ["arg", 0]]}),
        added("float64", attrs={"expression": ["mod", ["arg", 0], ["arg", 1]]}),
        replace(added(), family="runtime"),
        replace(added(), family="no.such"),
        replace(added(), family="tree_ensemble"),
    ],
)
def test_what_has_no_code_stays_on_the_cpu(desc: OpDesc) -> None:
    """Types of codes, a user's operators, the precise mode, families without kernels."""
    assert CLASS.kernel(desc) is None


def test_a_copy_to_the_card_costs_more_than_a_call_there() -> None:
    """Else everything tiny would go there and back."""
    assert CLASS.copy_cost().call > CLASS.kernel_cost("elementwise").call > 0
    assert CLASS.layouts("elementwise") == ()
    assert CLASS.layouts("no_such_family") is None


def test_a_missing_triton_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has no store with the kernels learns what to install; nothing else fails before."""
    monkeypatch.setitem(sys.modules, "triton", None)
    monkeypatch.setattr(compiler, "find_spec", lambda name: None if name == "triton" else import_module(name).__spec__)
    assert TritonCompiler.library() is None
    assert TritonCompiler.files() == ()
    with pytest.raises(BuildError, match=r"compiler triton is not installed") as found:
        identify(TritonCompiler())
    assert found.value.hint == "pip install 'opbuild[gpu]'"
    with pytest.raises(MissingPackageError, match="package triton is not installed") as missing:
        TritonCompiler().prepare()
    assert missing.value.hint == "pip install 'opbuild[gpu]'"


def test_a_family_without_kernels_is_refused_by_its_name() -> None:
    """A descriptor may come from anywhere."""
    for family in ("tree_ensemble", "no_such", "no.such", "runtime"):
        with pytest.raises(CompileError, match=f"family '{family}' has no kernel in Triton"):
            TritonCompiler.define(replace(added(), family=family, target=cuda.TARGET), CLASS.target())


def test_a_kernel_s_sources_are_those_of_its_family_and_of_the_backend() -> None:
    """What serves descriptors, or another family, decides no binary."""
    asked = TritonCompiler()
    one, other = asked.sources_digest(added()), asked.sources_digest(replace(added(), family="copy"))
    assert one != other
    assert asked.sources_digest(added("int8")) == one
    assert asked._modules is not None
    found = asked._modules.closure((f"{compiler.PACKAGE}.compiler", "opbuild.families.elementwise.triton"))
    assert {"opbuild.backend.triton.floats", "opbuild.operations.table", "opbuild.kernel.opdesc"} <= {*found}
    assert not {"opbuild.families.elementwise.cuda", "opbuild.families.copy.triton", "opbuild.errors"} & {*found}
