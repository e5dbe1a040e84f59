"""Kernels that were built for a GPU, on a driver in memory: Triton's interpreter runs them on the packed parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path

from opbuild.backend.triton.compiler import TritonCompiler
from opbuild.backend.triton.kernel import ADDRESS, TritonKernel
from opbuild.kernel.opdesc import OpDesc
from support.fake_driver import FakeDriver, Grid, Kernel, Parameters
from support.interpreter import interpret_raw


class StoredKernels:
    """What kernels do whose operators lie in a store: their descriptors say it.

    Args:
        folders: Folders below which the store's entries are.
    """

    def __init__(self, folders: Sequence[Path] = ()) -> None:
        self.folders = [*folders]

    def __call__(self, symbol: str, _: bytes) -> Kernel:
        """Return the interpretation of a kernel."""

        def run(driver: FakeDriver, parameters: Parameters, grid: Grid) -> None:
            desc = self.desc_of(symbol)  # it is stored by now
            kernel, dtypes = defined(desc), [operand.dtype for operand in desc.operands]
            *own, first, second = (int.from_bytes(each, "little", signed=True) for each in parameters)
            assert (first, second) == (0, 0)
            names = [name for name in kernel.function.arg_names if name in kernel.arguments]
            values = dict(zip(names, own, strict=True))
            for name, argument in kernel.arguments.items():
                if argument.kind == ADDRESS:
                    driver.bytes_at(values[name], 1)  # an operand without elements has this byte
            interpret_raw(kernel, dtypes, [values[name] for name in kernel.arguments], grid)

        return run

    @cache  # noqa: B019  a test has one
    def desc_of(self, symbol: str) -> OpDesc:
        """Return the descriptor of the operator whose kernel has a symbol."""
        for folder in self.folders:
            for path in folder.rglob("*_*.json"):
                if f'"kernelName": "{symbol}"' in path.read_text():
                    info = json.loads(path.with_suffix(".info").read_text())
                    return OpDesc.from_components(info["key"]["components"])
        raise LookupError(f"no store has an operator {symbol}")


@cache
def defined(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    kernel: TritonKernel = import_module(TritonCompiler.module(desc)).define(desc)
    return kernel
