"""Bundling: a cache, or the part of it that one model needs, carried to another machine in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from opbuild.cli.store.folder import Cache, check_network, describe, folder_of, looked_at
from opbuild.cli.store.transfers import (
    Transfer,
    add,
    choose,
    compiler_of,
    entries_of,
    networks_of,
    note_compilers,
    target_of,
    trust_of,
)
from opbuild.config import Config
from opbuild.errors import BuildError, FileError, OptionError, TargetError
from opbuild.frontend.models.declaration import signature_of
from opbuild.frontend.models.source import ModelSource, open_model
from opbuild.kernel.entry import SUFFIXES, Entry
from opbuild.kernel.key import file_op_type
from opbuild.kernel.networks import StoredNetwork
from opbuild.kernel.opdesc import OpDesc, runtime_desc
from opbuild.kernel.reason import Reason
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import deciding_builder
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.kinds import BUNDLE, require_kind
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import Trust, seal, unseal
from opbuild.platform.paths import Path
from opbuild.platform.records import replace
from opbuild.session import Session
from opbuild.store.blobs import Memory
from opbuild.store.bundle import NETWORKS, OPERATORS, Bundle, read_bundle, write_bundle
from opbuild.store.inventory import forget_size
from opbuild.store.networks import NetworkFiles, networks_in, read_network
from opbuild.store.operators import entry_in, entry_of
from opbuild.store.weights import weights_file, weights_in
from opbuild.target.host import parse_target
from opbuild.target.level import BuildTarget
from opbuild.text.plural import listed

_RUNTIME = file_op_type(runtime_desc().op_types)

Files = dict[str, bytes]
Kernels = Mapping[OpDesc, tuple[str, ...]]


def export_cache(path: Path, config: Config, target: BuildTarget) -> Transfer:
    """Write every sound operator for one target into a bundle; the same cache gives the same bytes.

    Raises:
        BuildError: If the cache has no operator for the target, or others can write to it.
        OptionError: If the bundle cannot be written.
    """
    trust = trust_of(config)
    items = Cache.of(config).items("operator")
    found = ((item.name, entry_in(looked_at(folder_of(item), trust), item.name)) for item in items)
    chosen = choose(found, target, lambda reason: reason.text)
    entries = chosen.entries
    if not any(target_of(entry) == target.names[-1] for entry in entries):
        hint = (
            f"--target names another: {', '.join(sorted(each.partition(':')[0] for each in chosen.others))}"
            if chosen.others
            else "build a model there first; what a build took from the pack is in every installation of this release, "
            "and --model MODEL.onnx exports it too"
        )
        raise BuildError(f"{config.kernel_meta} has no operator for {target}", hint)
    nbytes = write_bundle(path, target.name, map(compiler_of, entries), _entry_files(entries).items(), trust)
    return Transfer(target, len(entries), 0, nbytes, left_out=tuple(chosen.left_out), others=chosen.others)


def export_model(
    path: Path,
    model: Path,
    config: Config,
    target: BuildTarget,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    network: bool = False,
) -> Transfer:
    """Write exactly the needs of one model into a bundle: its operators, and the runtime library if they call it.

    With ``network`` also the stored network and its weights, which starts without linking and packing too.

    Raises:
        ModelError: If the model is at fault.
        BuildError: If the cache lacks an operator or the network.
        OptionError: If a shape is open, or the bundle cannot be written.
    """
    trust_of(config)
    setup = set_up(config, target, None, runs_elsewhere=True)
    session = Session(setup)
    source = open_model(model, session.stores.models)
    shapes = signature_of(source.declaration, model.name, input_shapes or {})
    networks = networks_of(source, shapes, session)
    kernels = {desc: nodes for _, own in networks for desc, nodes in own.items()}
    entries = entries_of(kernels, deciding_builder(setup, session.stores))
    files = _entry_files(entries)
    for key, _ in networks if network else ():
        files |= _network_files(config.network_meta, key.stem, source, setup.trust)
    nbytes = write_bundle(path, target.name, map(compiler_of, entries), files.items(), setup.trust)
    return Transfer(target, len(entries), len(networks) if network else 0, nbytes)


def import_bundle(path: Path, config: Config, target: BuildTarget) -> Transfer:
    """Put the content of a bundle into a cache, under its own level. It is checked whole before anything is written.

    Raises:
        OptionError: If there is no such file, or it is no bundle.
        TargetError: If it is for a level that does not run on the cache's, or for a device that is not here.
        BuildError: If anything in it is not what was exported, or the cache cannot be written; names each.
    """
    try:
        require_kind(path, BUNDLE)
    except FileError as error:
        raise OptionError(error.message, "give a file that 'opbuild cache export' wrote") from error
    trust = trust_of(config)
    bundle = read_bundle(path, trust)
    found = _checked_target(path, bundle, target)
    config = replace(config, soc_version=found.level.name)
    entries, networks, memos, problems = _unpack(bundle, found)
    if problems:
        raise BuildError(
            f"nothing of the bundle {str(path)!r} was imported, since it holds what cannot be used:\n"
            + listed(problems),
            "export it again, with this release of opbuild",
        )
    added = 0
    for place, folder in ((OPERATORS, config.kernel_meta), (NETWORKS, config.network_meta)):
        own = (entry for name, entry in entries if name == place)
        added += add(own, folder, trust, partial(_not_written, folder))
    for network in networks:
        problem = _publish_network(network, config, trust)
        if problem:
            raise _not_written(config.network_meta, problem)
    for name, content in memos.items():
        try:
            publish(config.network_meta / name, seal(content, name, trust))
        except OSError as error:
            raise _not_written(config.network_meta, str(error)) from error
    forget_size(config.network_meta)
    warnings = note_compilers((entry for _, entry in entries), config, trust)
    return Transfer(found, added, len(networks), present=len(entries) - added, warnings=warnings)


def _checked_target(path: Path, bundle: Bundle, target: BuildTarget) -> BuildTarget:
    """Return the target of a bundle whose code runs on a target's level, and on the device that is here."""
    try:
        found = parse_target(bundle.target)
    except TargetError as error:
        raise BuildError(f"the bundle {str(path)!r} is for {bundle.target!r}: {error.message}", error.hint) from error
    if not found.level.runs_on(target.level):
        raise TargetError(
            f"the bundle {str(path)!r} is for {found}, and the cache is for {target.level}",
            "export it for this level or a lower one (--target), or import it where its level is used",
        )
    return found


def _entry_files(entries: Sequence[Entry]) -> Files:
    files: Files = {}
    for entry in entries:
        place = NETWORKS if entry.name.startswith(f"{_RUNTIME}_") else OPERATORS
        files |= {place + name: content for name, content in entry.files()}
    return files


def _network_files(folder: Path, name: str, source: ModelSource, trust: Trust) -> Files:
    stored = check_network(folder, name, trust)
    if isinstance(stored, Reason):
        message = f"the network {name} cannot be exported: {stored.text}"
        raise BuildError(message, "build the model first, with the same shapes")
    source.remember()
    files = [*stored.files, source.declaration_file.name]
    return {NETWORKS + file: trust.read(folder / file, (folder / file).stat().st_size) for file in files}


_Network = tuple[NetworkFiles, Mapping[str, memoryview]]
"""A network of a bundle, and its weights by digest."""


def _unpack(
    bundle: Bundle, target: BuildTarget
) -> tuple[list[tuple[str, Entry]], list[_Network], dict[str, Any], list[str]]:
    """Return a bundle's entries by place, its networks, contents of its models' memos, and their problems."""
    left = dict(bundle.files)
    entries, problems = [], []
    for prefix, name in _entry_names(bundle):
        files = {suffix: left.pop(f"{prefix}{name}{suffix}", None) for suffix in SUFFIXES}
        contents = {suffix: bytes(file) for suffix, file in files.items() if file is not None}
        answer = entry_of(name, contents) if len(contents) == len(SUFFIXES) else Reason("", "a file is missing")
        if isinstance(answer, Entry) and target_of(answer) not in target.names:
            answer = Reason("", f"it is for {target_of(answer)}")
        if isinstance(answer, Reason):
            problems.append(f"{name}: {answer.text}")
        else:
            entries.append((prefix, answer))
    beside = {name.removeprefix(NETWORKS): data for name, data in left.items()}
    networks, used = [], set[str]()
    for name in sorted(file.removesuffix(".so") for file in beside if file.endswith(".so")):
        network = _network(name, beside, bundle.target, used)
        if isinstance(network, Reason):
            problems.append(f"{name}: {network.text}")
        else:
            networks.append(network)
    memos = {}
    for name, data in beside.items():
        if name.endswith(".model"):
            try:
                memos[name] = unseal(bytes(data), name)
            except ValueError as error:
                problems.append(f"{name}: {error}")
        elif name not in used:
            problems.append(f"{name}: nothing in the bundle uses it")
    return entries, networks, memos, problems


def _network(name: str, files: Mapping[str, memoryview], target: str, used: set[str]) -> _Network | Reason:
    """Return a network, or its problem; its files are added to those that are used."""
    stored = read_network(name, Memory(files))
    if isinstance(stored, Reason):
        return stored
    described = describe(name, stored)
    if isinstance(described, Reason):
        return described
    if described.target != target:
        return Reason("other-target", f"it is for {described.target}")
    try:
        if stored.key.stem != name:
            return Reason("other-key", f"its key belongs to {stored.key.stem}")
    except (ValueError, RecursionError):
        return Reason("damaged", "its key is not what was written")
    weights = {digest: files.get(weights_file(digest), memoryview(b"")) for digest in described.weights}
    for digest, data in weights.items():
        if blake3_of(data) != digest:
            return Reason("damaged", f"{weights_file(digest)} is not what was written")
    used.update(described.files)
    return stored, weights


def _entry_names(bundle: Bundle) -> list[tuple[str, str]]:
    """Return place and name of each operator; beside networks there is only the runtime library."""
    found = {}
    for name in bundle.files:
        prefix, _, file = name.partition("/")
        if prefix + "/" == OPERATORS or file.startswith(f"{_RUNTIME}_"):
            found[f"{prefix}/", file.rpartition(".")[0]] = True
    return sorted(found)


def _publish_network(network: _Network, config: Config, trust: Trust) -> str | None:
    """Put a network and its weights into the cache; return None, or why the storage refused."""
    found, packed = network
    weights, states = weights_in(config.network_meta / "weights", trust=trust), {}
    for digest, data in packed.items():
        weight = weights.put(digest, np.frombuffer(data, np.uint8))
        if isinstance(weight, Reason):
            return weight.text
        states[digest] = weight.state
    constants = np.frombuffer(found.constants, np.uint8)
    stored = StoredNetwork(found.record, bytes(found.library), constants, states, found.compiler)
    return networks_in(config.network_meta, trust=trust).publish(found.key, stored)


def _not_written(folder: Path, problem: str) -> BuildError:
    message = f"the bundle is sound but the cache {folder} cannot be written: {problem}"
    return BuildError(message, "what was written can be used; make room or give the right to write, and import again")
