"""CUDA tensors where torch has no CUDA: they say that they are on ``cuda:0``; a driver in memory has their bytes.

What torch computes with them is computed on the CPU when the stream that is torch's current one has come to that, so
that what a network writes later than it promised is not seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opbuild.frontend.torch.capture import DTYPES
from opbuild.torch.backend import opbuild
from support.fake_driver import GUARD, FakeDriver


class CudaTorch(TorchFunctionMode):
    """Torch with a GPU: its current stream, and its allocator.

    Args:
        driver: The driver in memory.

    Attributes:
        stream: The handle of torch's current stream; 0 is the default one.
        copied: Bytes that torch copied over tensors.
    """

    def __init__(self, driver: FakeDriver) -> None:
        super().__init__()
        self.driver, self.stream, self.copied = driver, 0, 0

    def tensor(self, contents: torch.Tensor) -> CudaTensor:
        """Return a tensor on the GPU with the contents of one of the CPU's."""
        return CudaTensor(self, self._placed(contents.detach()))

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options = dict(kwargs or {})
        if func is torch.empty and torch.device(options.get("device") or "cpu").type == "cuda":
            del options["device"]
            return self.tensor(torch.empty(*args, **options))
        if func is torch.Tensor.copy_ and isinstance(args[0], CudaTensor):
            target, source = args[0].inner, args[1].inner
            if target.data_ptr() != source.data_ptr():  # torch copies no tensor onto itself
                self.finish()
                self.copied += target.copy_(source).nbytes
            return args[0]
        if func in _GUARDED and isinstance(args[0], CudaTensor):
            self.finish()
            return CudaTensor(self, self._placed(func(args[0].inner, *args[1:], **options)))
        return func(*args, **options)

    def finish(self) -> None:
        """Have all done that the current stream was asked for."""
        assert self.driver.cuCtxSetCurrent(0xC0) == 0
        assert self.driver.cuStreamSynchronize(self.stream) == 0

    def _placed(self, inner: torch.Tensor) -> torch.Tensor:
        """Return a tensor in the GPU's memory: itself if it lies there, else a copy."""
        start, nbytes = inner.data_ptr(), inner.numel() * inner.element_size()
        if any(each <= start < each + memory.nbytes - 2 * GUARD for each, memory in self.driver.memory.items()):
            return inner
        place = ctypes.c_uint64()
        assert self.driver.cuInit(0) == self.driver.cuCtxSetCurrent(0xC0) == 0
        assert self.driver.cuMemAlloc_v2(ctypes.addressof(place), max(nbytes, 1)) == 0
        whole = torch.from_numpy(self.driver.bytes_at(place.value, max(nbytes, 1)))[:nbytes].view(inner.dtype)
        return torch.as_strided(whole, inner.shape, inner.stride()).copy_(inner)


_GUARDED = {torch.Tensor.__getitem__, torch.Tensor.contiguous}
"""Functions that ask for CUDA in C++ before operators are called."""


class CudaTensor(torch.Tensor):
    """A tensor on such a GPU.

    Args:
        cuda: The GPU.
        inner: Its memory, as the CPU sees it.
    """

    cuda_torch: CudaTorch
    inner: torch.Tensor

    @staticmethod
    def __new__(cls, cuda: CudaTorch, inner: torch.Tensor) -> CudaTensor:
        found: CudaTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device="cuda:0"
        )
        found.cuda_torch, found.inner = cuda, inner
        return found

    def __repr__(self) -> str:  # type: ignore[override]
        return f"CudaTensor({self.inner!r})"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:  # type: ignore[override]
        if self.requires_grad:
            raise RuntimeError("use var.detach()")
        typestr = "<V2" if self.dtype is torch.bfloat16 else np.dtype(DTYPES[self.dtype]).str
        steps = None if self.is_contiguous() else tuple(each * self.element_size() for each in self.stride())
        return {"shape": tuple(self.shape), "typestr": typestr, "data": (self.data_ptr(), False), "strides": steps,
                "version": 2}  # fmt: skip

    def data_ptr(self) -> int:
        """Return the address on the GPU."""
        return self.inner.data_ptr()

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        flat = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, CudaTensor)]
        cuda = flat[0].cuda_torch
        cuda.finish()
        options = {**(kwargs or {})}
        is_moved = torch.device(options.pop("device", None) or "cuda").type == "cpu"
        given, options = pytree.tree_map_only(CudaTensor, lambda each: each.inner, (args, options))
        found = func(*given, **options)
        if is_moved:
            return found.clone()
        return pytree.tree_map_only(torch.Tensor, lambda each: CudaTensor(cuda, cuda._placed(each)), found)


@contextmanager
def cuda_torch(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaTorch]:
    """Give torch a GPU in a block."""
    with CudaTorch(driver) as cuda:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=cuda.stream))
        yield cuda


class Compiled:
    """A module as ``torch.compile`` hands it over, compiled for tensors on GPUs; its weights are on one.

    Args:
        module: The module; Dynamo sees it with fake tensors in place of its parameters.
        shown: Inputs as they are on the CPU; those that are none of a GPU's are given as ``fixed``.
        options: The options of the back end.
        fixed: Inputs behind these, on the CPU.
    """

    def __init__(
        self,
        cuda: CudaTorch | None,
        module: torch.nn.Module,
        *shown: torch.Tensor,
        fixed: Sequence[torch.Tensor] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._inputs = [f"l_{name}_" for name in signature(module.forward).parameters]
        self._cuda, self._graphs = cuda, list[tuple[Callable[..., Any], list[str]]]()
        states = ("parameters", module.named_parameters()), ("buffers", module.named_buffers())
        self.weights, self._names = dict[str, Any](), dict[str, str]()
        for kind, found in states:
            for name, each in found:
                self.weights[name] = each.detach()
                owner, _, leaf = name.rpartition(".")
                within = "modules_" + owner.replace(".", "_modules_") + "_" if owner else ""
                self._names[f"l_self_{within}{kind}_{leaf}_"] = name

        def back_end(gm: Any, inputs: Sequence[Any]) -> Any:
            names = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
            self._graphs.append((opbuild(gm, inputs, options=options), names))
            return gm.forward

        torch._dynamo.reset()
        with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
            for owner in module.modules():
                for name, each in owner.named_parameters(recurse=False):
                    owner._parameters[name] = torch.nn.Parameter(_fake(each), requires_grad=False)
                for name, each in owner.named_buffers(recurse=False):
                    owner._buffers[name] = _fake(each)
            on_cpu = [torch.empty_strided(each.shape, each.stride(), dtype=each.dtype) for each in fixed]
            torch.compile(module, backend=back_end)(*map(_fake, shown), *on_cpu)
        if cuda is not None:
            self.weights = {name: cuda.tensor(each) for name, each in self.weights.items()}

    def __call__(self, *inputs: Any) -> Any:
        """Return the results of the one graph that Dynamo found."""
        run, names = self._graphs[0]
        known = dict(zip(self._inputs, inputs, strict=True))
        given = [self.weights[self._names[name]] if name in self._names else known[name] for name in names]
        with torch.no_grad():
            found = run(*given)
        return found[0] if len(found) == 1 else found


def _fake(each: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device="cuda")
