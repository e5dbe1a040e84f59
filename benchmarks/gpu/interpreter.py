"""The kernels' sources run by Triton's interpreter on numpy arrays: what can be checked without a GPU.

``python interpreter.py`` prints each kernel's largest error. bfloat16 is tried as float16, since the
interpreter gets it wrong; numpy must be older than 2.4, which converts no array of one element to a number.
"""

from __future__ import annotations

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

from typing import Any

import numpy as np
import triton_kernels
from arrays import Array
from calls import ITEM_BYTES, Call, Tensor
from cases import CASES
from checks import check
from triton.tools.tensor_descriptor import TensorDescriptor


class Element(str):
    """An element type by its name, with what Triton asks of torch's."""

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEM_BYTES[self]


class View:
    """A tensor of the host as Triton's interpreter asks for one."""

    device = "cpu"

    def __init__(self, tensor: Tensor) -> None:
        self.dtype, self.shape, self._tensor = Element(tensor.element), tensor.shape, tensor

    def data_ptr(self) -> int:
        """Return the address."""
        return self._tensor.pointer

    def stride(self) -> tuple[int, ...]:
        """Return the strides in elements."""
        return self._tensor.strides

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self._tensor.item

    def untyped_storage(self) -> View:
        """Return the memory below."""
        return self

    def cpu(self) -> View:
        """Return it in the host's memory, where it is."""
        return self

    def copy_(self, _: object) -> None:
        """Copy back what was computed in place."""

    def new_empty(self, *_: object, **__: object) -> View:
        """Return a tensor of this kind."""
        return self

    def set_(self, *_: object) -> View:
        """Take other memory: the same."""
        return self

    def storage_offset(self) -> int:
        """Return where it begins in its memory."""
        return 0

    def size(self) -> tuple[int, ...]:
        """Return the extents."""
        return self.shape


class Interpreter:
    """A device whose memory is the host's and whose launches are interpreted."""

    def __init__(self) -> None:
        self._memory: dict[int, Array] = {}

    def allocate(self, size: int) -> int:
        """Return the address of so many bytes, at a multiple of 256."""
        memory = np.empty(size + 256, np.uint8)
        pointer = -(-memory.ctypes.data // 256) * 256
        self._memory[pointer] = memory
        return int(pointer)

    def free(self, pointer: int) -> None:
        """Give memory back."""
        del self._memory[pointer]

    def _at(self, pointer: int, size: int) -> Array:
        start = pointer - self._memory[pointer].ctypes.data
        return self._memory[pointer][start : start + size]

    def write(self, pointer: int, values: Array) -> None:
        """Copy an array in."""
        self._at(pointer, values.nbytes)[...] = values.view(np.uint8)

    def read(self, pointer: int, values: Array) -> None:
        """Copy into an array."""
        values[...] = self._at(pointer, values.nbytes).view(values.dtype)

    def synchronize(self) -> None:
        """Do nothing: launches are done when they return."""

    def launch(self, call: Call) -> None:
        """Interpret a call."""
        if not all(call.grid):
            return
        case = CASES[call.name]
        arguments = {name: self._argument(case, name, value) for name, value in call.arguments.items()}
        getattr(triton_kernels, case.kernel)[call.grid](**arguments, **case.constants)

    def _argument(self, case: Any, name: str, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        view = View(value)
        if not case.types[name].startswith("tensordesc"):
            return view
        block = case.types[name].partition("[")[2].partition("]")[0]
        return TensorDescriptor(view, list(value.shape), list(value.strides), [int(part) for part in block.split(",")])


def main() -> int:
    """Check all kernels, print a table; a wrong one is an error."""
    for name, case in CASES.items():
        element = "fp16" if case.element == "bf16" else case.element
        errors = check(Interpreter(), name, element=element)
        print(f"{name:34s} as {element}, {len(errors)} extents, largest error {max(errors.values()):.1e}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
