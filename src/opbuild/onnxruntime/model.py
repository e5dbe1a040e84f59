"""Model: a session's model, its declaration, and the network that runs it."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from opbuild.api import Network, compile_model
from opbuild.config import Config
from opbuild.frontend.models.memory import digest_model
from opbuild.frontend.models.source import ModelSource
from opbuild.frontend.wire import DeclaredModel, DeclaredType, read_declared
from opbuild.kernel.opdesc import FREE
from opbuild.onnxruntime.metadata import arguments_of
from opbuild.onnxruntime.options import SessionOptions
from opbuild.onnxruntime.status import (
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    NoSuchFile,
    NotImplemented,
    as_status,
    failure,
)
from opbuild.platform.files.mapping import read_file
from opbuild.platform.finalizers import WeakValues
from opbuild.platform.locks import Lock
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple

_Key = tuple[str, tuple[tuple[str, tuple[int, ...]], ...], int, bool, str | None]

_NETWORKS = WeakValues[_Key, Network]()
"""Networks that sessions of this process use: by the digest of the model, shapes, the number of threads, whether they
waited for their own kernels, and the class of devices."""

_LOCK = Lock()

_PLACE_OF_DATA = b"location"
"""Every tensor that lies in a file beside the model has this text; the model's bytes then do not tell its weights."""


class Model(NamedTuple):
    """A session's model: one version of it, its metadata, and the network that runs it; ``digest`` is the version's."""

    declared: DeclaredModel
    network: Network
    digest: str


def _shared(
    source: str | bytes,
    digest: str,
    shapes: Mapping[str, tuple[int, ...]],
    options: SessionOptions,
    *,
    has_data: bool,
    target: str | None,
) -> Network:
    """Return a network that another session has, or a new one of the version that was read."""
    num_threads, waits = options.num_threads, options.use_deterministic_compute
    key = (digest, tuple(sorted(shapes.items())), num_threads, waits, target)
    network = None if has_data else _NETWORKS.get(key)
    if network is None:
        config = Config.from_environment(num_threads=num_threads or None)
        network = compile_model(
            source,
            config.waiting() if waits else config,
            input_shapes=shapes,
            target=target,
            recognise=partial(_require_same, digest),
            observer=None if options.log.is_default else options.log.observe,
        )
        if not has_data:
            _NETWORKS[key] = network
    return network


def _require_same(digest: str, source: ModelSource) -> None:
    """Refuse a file that has changed since it was read."""
    if source.own_digest != digest:
        raise source.changed_error()


def read_model(
    path_or_bytes: str | bytes | os.PathLike[str],
    options: SessionOptions,
    overridden: Collection[str] = (),
    version: str = "",
    target: str | None = None,
) -> Model:
    """Return a model.

    Args:
        path_or_bytes: Its file or its bytes.
        options: How its session is made.
        overridden: Inputs with a default that become inputs without one.
        version: The digest that it must have; empty: any.
        target: The class of devices that runs it; None: the processor.

    Raises:
        TypeError: If it is neither a path nor bytes.
        NoSuchFile: If there is no such file.
        StatusError: If it is no ONNX model, cannot be built, or is another version.
    """
    source: str | bytes
    if isinstance(path_or_bytes, (str, os.PathLike)):
        source = os.fspath(path_or_bytes)
        shown = f"Load model from {source} failed:"
        contents = memoryview(_contents(source, shown))
    elif isinstance(path_or_bytes, bytes):
        source, shown, contents = path_or_bytes, "", memoryview(path_or_bytes)
    else:
        raise TypeError(f"Unable to load from type '{type(path_or_bytes)}'")
    if _is_ort_format(source, contents, options):
        raise failure(NotImplemented, f"{shown}ORT format models are not supported.", "give the ONNX model")
    try:
        declared = read_declared(contents)
    except (IndexError, ValueError) as error:
        text = "Protobuf parsing failed." if shown else "Failed to load model because protobuf parsing failed."
        raise failure(InvalidProtobuf, shown + text) from error
    if not declared.outputs and not declared.inputs:
        raise failure(InvalidArgument, f"{shown}No graph was found in the protobuf.")
    digest = own = digest_model(np.frombuffer(contents, np.uint8)).digest
    if version not in ("", own):
        raise failure(InvalidGraph, f"{shown}it changed since the session was made", "make another session")
    has_data = re.search(_PLACE_OF_DATA, contents) is not None
    if overridden or options.gives_values:
        from opbuild.onnxruntime.initializers import with_values  # most sessions take the model as it is

        folder = Path(source).parent if isinstance(source, str) else None
        source = with_values(contents, options, folder, overridden)
        digest, has_data = digest_model(np.frombuffer(source, np.uint8)).digest, False
        declared = read_declared(memoryview(source))
    with _LOCK, as_status(shown):
        shapes = _overridden(declared.inputs, options)
        return Model(declared, _shared(source, digest, shapes, options, has_data=has_data, target=target), own)


def _contents(path: str, shown: str) -> Any:
    try:
        return read_file(Path(path))
    except FileNotFoundError as error:
        raise failure(NoSuchFile, f"{shown}Load model {path} failed. File doesn't exist") from error
    except OSError as error:
        raise failure(InvalidProtobuf, f"{shown}{error.strerror}") from error


def _is_ort_format(source: str | bytes, contents: memoryview, options: SessionOptions) -> bool:
    asked = options.config.get("session.load_model_format", "")
    named = isinstance(source, str) and source.endswith(".ort")
    return asked == "ORT" or (not asked and (named or bytes(contents[4:8]) == b"ORTM"))


def _overridden(inputs: Mapping[str, DeclaredType], options: SessionOptions) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the inputs of which the options fix open extents."""
    shapes = {}
    for argument in arguments_of(inputs, options):
        declared = inputs[argument.name]
        fixed = tuple(each if isinstance(each, int) else FREE for each in argument.shape)
        if declared.kind == "tensor" and fixed != tuple(
            FREE if each.value is None else each.value for each in declared.shape or ()
        ):
            shapes[argument.name] = fixed
    return shapes
