"""The code of a network on a GPU: its kernels' binaries, each with how it is launched, one behind the other.

No linker is needed: a stored network is what Triton's compiler made, and a record of it in JSON.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.errors import LinkError, RunError
from opbuild.graph.types import Array
from opbuild.kernel.artifact import Artifact
from opbuild.platform.records import NamedTuple
from opbuild.runtime.devices.cuda.context import Context

MAGIC = b"opbuild code for CUDA 1\n"
"""What code begins with; then a line of JSON, and the binaries."""

ADDRESS, EXTENT, STRIDE = range(3)
"""Kinds of arguments, by which tables count; launch data has their names."""
KINDS = {"address": ADDRESS, "extent": EXTENT, "stride": STRIDE}
_SIZES = {ADDRESS: 8, EXTENT: 4, STRIDE: 8}

_AXES = 3
_MOST_SHARED = 227 * 1024
_SHARED_UNASKED = 48 * 1024
_MAXIMUM_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_WARP = 32
_MOST_WARPS = 32
_MOST_PARAMETERS = 4096
"""Bytes of parameters that a kernel can be given."""


class Launch(NamedTuple):
    """The form of a kernel's launches.

    Attributes:
        threads: Threads of a program.
        shared: Bytes of shared memory that a program asks for.
        arguments: Rows of what is written: kind, operand, dimension, and the place among the parameters' bytes.
        tiles: Rows of what extents of the grid are products of: axis, operand, dimension, extent of a tile.
        offsets: The place of each parameter, also of those that stay 0.
        nbytes: The bytes of all parameters.
    """

    threads: int
    shared: int
    arguments: Array
    tiles: Array
    offsets: Array
    nbytes: int


def read_launch(launch: Mapping[str, Any]) -> Launch:
    """Return the form of a kernel's launches, as an artifact has it.

    Raises:
        ValueError: If it is none; or ``TypeError``, ``KeyError``.
    """
    warps, shared = launch["warps"], launch["shared"]
    arguments = _table([(KINDS[kind], operand, dim) for kind, operand, dim in launch["arguments"]], 3)
    parameters, axes = _table(launch["parameters"], 2), [*launch["grid"]]
    tiles = _table([(axis, *each) for axis, row in enumerate(axes) for each in row], 4)
    if not (type(warps) is int and 0 < warps <= _MOST_WARPS and type(shared) is int and 0 <= shared <= _MOST_SHARED):
        raise ValueError(f"{warps} warps with {shared} bytes of shared memory are not launched")
    if len(axes) > _AXES or (tiles[:, 3] < 1).any() or (tiles < 0).any() or (arguments < 0).any():
        raise ValueError("its grid, or what it is given, is none")
    offsets, sizes = parameters.T
    kinds = arguments[:, 0]
    if len(kinds) > len(sizes) or [_SIZES[kind] for kind in kinds.tolist()] != sizes[: len(kinds)].tolist():
        raise ValueError("its parameters are of other sizes than what it is given")
    ends = offsets + sizes
    if (offsets % np.maximum(sizes, 1)).any() or (offsets[1:] < ends[:-1]).any() or (offsets < 0).any():
        raise ValueError("its parameters lie over each other")
    nbytes = int(ends[-1]) if len(ends) else 0
    if nbytes > _MOST_PARAMETERS:
        raise ValueError(f"its parameters have {nbytes} bytes")
    rows = np.column_stack([arguments, offsets[: len(kinds)]])
    return Launch(_WARP * warps, shared, rows, tiles, offsets, nbytes)


def _table(rows: Sequence[Sequence[int]], columns: int) -> Array:
    flat = [number for row in rows for number in row]
    if any(len(row) != columns for row in rows) or any(type(number) is not int for number in flat):
        raise ValueError("a row is none")
    return np.array(flat, np.int64).reshape(-1, columns)


def link(artifacts: Sequence[Artifact]) -> bytes:
    """Return binaries as a network's code; the same ones in the same order give the same bytes.

    Raises:
        LinkError: If one is not a GPU's, or two have the same symbol.
    """
    rows = []
    for each in artifacts:
        try:
            read_launch(each.launch)
        except (ValueError, TypeError, LookupError) as error:
            problem = f"operator {each.symbol or '?'} cannot be launched on a GPU: {error}"
            raise LinkError(problem, "build the network again") from error
        rows.append([each.symbol, len(each.data), each.launch])
    names = [each.symbol for each in artifacts]
    if len({*names}) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise LinkError(f"two kernels for the GPU are called {twice}", "this is an error in opbuild; please report it")
    line = json.dumps(rows, sort_keys=True, separators=(",", ":")).encode()
    return b"".join((MAGIC, line, b"\n", *(each.data for each in artifacts)))


def unlink(code: bytes) -> dict[str, tuple[Launch, bytes]]:
    """Return the kernels of code by their symbols: how each is launched, and its binary.

    Raises:
        LinkError: If it is none.
    """
    try:
        if bytes(code[: len(MAGIC)]) != MAGIC:
            raise ValueError("it begins with something else")
        line, _, rest = bytes(code[len(MAGIC) :]).partition(b"\n")
        found = {}
        for symbol, nbytes, launch in json.loads(line):
            if not 0 < nbytes <= len(rest):
                raise ValueError("it is cut")
            found[str(symbol)] = read_launch(launch), rest[:nbytes]
            rest = rest[nbytes:]
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise LinkError(f"the network's code for the GPU cannot be read: {error}", "build the network again") from error
    return found


class CudaKernel:
    """A kernel that is loaded; it goes with this object.

    Args:
        context: Where it is loaded.
        symbol: Its name in the binary.
        launch: How it is launched.
        binary: The binary.

    Raises:
        LinkError: If the driver does not take it.

    Attributes:
        function: The driver's handle.
    """

    def __init__(self, context: Context, symbol: str, launch: Launch, binary: bytes) -> None:
        self.symbol, self.launch = symbol, launch
        contents = ctypes.create_string_buffer(binary)
        try:
            module = context.handle("cuModuleLoadData", ctypes.byref(contents))
            context.give_back(self, "cuModuleUnload", module)
            self.function = context.handle("cuModuleGetFunction", module, symbol.encode())
            if launch.shared > _SHARED_UNASKED:
                context.call("cuFuncSetAttribute", self.function, _MAXIMUM_SHARED, launch.shared)
        except RunError as error:
            raise LinkError(f"kernel {symbol} cannot be loaded: {error.message}", error.hint) from error


class CudaModule:
    """The kernels of a network on a GPU, each loaded when it is first asked for.

    Args:
        context: Where they are loaded.
        code: What ``link`` returned.
    """

    num_threads = 1

    def __init__(self, context: Context, code: bytes) -> None:
        self._context, self._kernels = context, unlink(code)
        self._loaded: dict[str, CudaKernel] = {}

    def kernel(self, symbol: str, /) -> CudaKernel:
        """Return a kernel.

        Raises:
            LinkError: If there is none of this name, or the driver does not take it.
        """
        if symbol not in self._kernels:
            raise LinkError(f"the network's code has no kernel {symbol!r:.200} for the GPU", "build the network again")
        if symbol not in self._loaded:
            self._context.enter()
            self._loaded[symbol] = CudaKernel(self._context, symbol, *self._kernels[symbol])
        return self._loaded[symbol]
