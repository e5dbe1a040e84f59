"""Every way in which one model is run: built, started from its image, with sizes left open, from an offline model."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt
import onnx

import opbuild
from opbuild.api import compile_model
from opbuild.config import Config
from opbuild.errors import UnsupportedOperatorError
from opbuild.platform.records import replace

PATIENCE = 120.0
"""Seconds in which a network's kernels are surely compiled."""

Array = npt.NDArray[Any]
Results = tuple[Array, ...]


def outputs_of(network: opbuild.Network, feeds: Mapping[str, Array]) -> Results:
    """Call a network and return its outputs, a tuple also if there is only one."""
    results = network(dict(feeds))
    return results if isinstance(results, tuple) else (results,)


def strided(array: Array) -> Array:
    """Return an equal array whose elements are not contiguous, where there are any to be apart."""
    wide = np.zeros((*array.shape, 2), array.dtype)
    wide[..., 0] = array
    return wide[..., 0]


def with_open_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy whose inputs have their ranks, but no extents; nor does it say what shapes come out."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    known = {tensor.name for tensor in opened.graph.initializer}
    for value in opened.graph.input:
        if value.name not in known:
            for axis, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.dim_param = f"{value.name}_{axis}"
    for value in opened.graph.output:
        value.type.tensor_type.ClearField("shape")
    del opened.graph.value_info[:]
    return opened


def every_way(model: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path) -> dict[str, Results]:
    """Return a model's outputs by each way of running it.

    Args:
        model: The model; its inputs have the shapes of ``feeds``.
        feeds: Its inputs.
        folder: Holds the cache, and takes the offline model.
    """
    data = model.SerializeToString()
    if crc32(data) % 4:  # compiling takes long: behind the calls of one in four
        present = later = outputs_of(first_tier(data, folder / "first"), feeds)
    else:
        present, later = until_built(data, folder / "first", feeds)
    cold = opbuild.compile(data, cache_path=folder, num_threads=2)
    results = {"cold": outputs_of(cold, feeds), "again": outputs_of(cold, feeds)}
    warm = opbuild.compile(data, cache_path=folder, num_threads=2, forbid_compile=True)
    results["warm"] = outputs_of(warm, feeds)
    results["strided"] = outputs_of(warm, {name: strided(array) for name, array in feeds.items()})
    open_sizes = opbuild.compile(with_open_inputs(model).SerializeToString(), cache_path=folder, num_threads=2)
    results["open sizes"] = outputs_of(open_sizes, feeds)
    with suppress(UnsupportedOperatorError):  # what runs only where onnx is installed is in no offline model
        config = Config.from_environment(cache_path=folder, num_threads=2)
        path = opbuild.export(data, folder / f"{os.getpid()}.om", config=config)
        results["offline"] = outputs_of(opbuild.load(path, num_threads=2), feeds)
    return {**results, "kernels that are there": present, "its own behind them": later}


def first_tier(model: bytes, folder: Path) -> opbuild.Network:
    """Return a network that is computed by what the pack has, and by numpy: nothing may be compiled."""
    config = Config.from_environment(cache_path=folder, num_threads=2, forbid_compile=True)
    return compile_model(model, replace(config, first="answer", uses_pack=True))


def until_built(model: bytes, folder: Path, feeds: Mapping[str, Array]) -> tuple[Results, Results]:
    """Return the outputs of a network before its kernels are compiled behind its calls, and after."""
    config = Config.from_environment(cache_path=folder, num_threads=2)
    network = compile_model(model, replace(config, first="answer", uses_pack=True))
    first, latest = outputs_of(network, feeds), time.monotonic() + PATIENCE
    while network.report.pending and time.monotonic() < latest:
        outputs_of(network, feeds)
        time.sleep(0.01)
    return first, outputs_of(network, feeds)
