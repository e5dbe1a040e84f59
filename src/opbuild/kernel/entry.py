"""Entry: one built operator, as its three files hold it.

    <name>.o     the artifact, on CPUs a relocatable ELF object; its kernel symbol is <optype>_<number>__kernel0
    <name>.info  what was asked for, MindSpore's fields and the whole key: decides whether the object may be reused
    <name>.json  what came out, MindSpore's fields, the object's SHA-256, the digest of the pipeline that it was
                 compiled from, what the linker needs and how another device launches it: the commit mark

Both records are JSON texts that hold no paths and no times except how long compiling took. Everything in ``.json`` but
that and the pipeline's digest follows from the key and the object, so a reader can rebuild it and compare: a record
that was changed is noticed. A digest that was changed is nobody's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.kernel.artifact import OBJECT, Artifact, NotAnArtifactError, UnknownKindError, kind_of
from opbuild.kernel.key import Key, file_op_type, kernel_symbols
from opbuild.kernel.opdesc import FREE, OpDesc, Operand
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import sha256
from opbuild.platform.files.trust import SignatureError, Trust
from opbuild.platform.records import dataclass, replace
from opbuild.text.canonical import canonical_json

SUFFIXES = (".o", ".info", ".json")
"""The three files in the order in which they are published."""

MILLISECONDS = "compileMilliseconds"
"""The field of ``.json`` that says how long compiling took."""

PIPELINE = "pipeline"
"""The field of ``.json`` with the digest of what the compiler was given; empty if it was not asked for that."""

UNCHANGED = "sources changed, what they define did not"
"""What is said where an object serves that was compiled from other sources, and would be the same from these."""

KIND, LAUNCH = "kind", "launch"
"""The fields of ``.json`` of an artifact that is no object: what it is, and how it is launched."""

SIGNATURE = "signature"
"""The field of ``.json`` that is there if entries are signed."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One built operator.

    Attributes:
        name: ``<optype>_<number>_<device>``, the files' name without suffix.
        artifact: What was compiled.
        info: What was asked for (``.info``).
        record: What came out (``.json``).
    """

    name: str
    artifact: Artifact
    info: Mapping[str, Any]
    record: Mapping[str, Any]

    @property
    def symbol(self) -> str:
        """The kernel's symbol; empty in an entry that holds no kernel (the runtime library)."""
        return self.artifact.symbol

    @property
    def object(self) -> bytes:
        """The artifact's bytes, as the file ``.o`` holds them."""
        return self.artifact.data

    @property
    def key(self) -> Key:
        """The key whose entry it is."""
        return Key(self.info["key"]["components"], self.info["key"]["sha256"])

    @property
    def sha256(self) -> str:
        """Digest of the object's bytes."""
        return str(self.record["sha256"])

    @property
    def undefined(self) -> tuple[str, ...]:
        """Global symbols that the object expects from others, sorted."""
        return tuple(self.record["undefined"])

    @property
    def milliseconds(self) -> float:
        """The time of compiling."""
        return float(self.record[MILLISECONDS])

    @property
    def pipeline(self) -> str:
        """Digest of the pipeline; empty if that is not known."""
        return str(self.record[PIPELINE])

    @property
    def debug(self) -> tuple[str, ...]:
        """The debug options that decided the code."""
        return tuple(self.info["key"]["components"].get("debug", ()))

    def files(self) -> tuple[tuple[str, bytes], ...]:
        """Return the files' names and contents in the order in which they are to be published."""
        contents = (self.object, record_bytes(self.info), record_bytes(self.record))
        return tuple((self.name + suffix, content) for suffix, content in zip(SUFFIXES, contents, strict=True))


def make_entry(
    desc: OpDesc,
    key: Key,
    device_id: int,
    artifact: Artifact,
    milliseconds: float,
    *,
    nodes: Sequence[str] = (),
    pipeline: str = "",
    origin: str = "",
) -> Entry:
    """Return the entry of a compiled operator.

    Args:
        desc: What was compiled.
        key: Its key.
        device_id: The device that built it.
        artifact: What came of it.
        milliseconds: How long compiling took.
        nodes: Names of the nodes that asked for it.
        pipeline: Digest of what the compiler was given.
        origin: What it was compiled from (``Key.origin``), if that is not the key's but defines the same.

    Raises:
        NotAnArtifactError: If it is not of its kind, or defines no kernel of the operator.
    """
    name = key.name(device_id)
    record = make_record(desc, name, artifact, milliseconds, pipeline)
    info = make_info(desc, key, name, nodes)
    if origin:
        before = key.of_origin(origin).components
        source = {"source": before["source"]} if before["source"] else {}
        info["origin"] = {"sources": before["sources"], **source, "reason": UNCHANGED}
    return Entry(name, replace(artifact, symbol=record["kernelName"]), info, record)


def make_info(desc: OpDesc, key: Key, name: str, nodes: Sequence[str] = ()) -> dict[str, Any]:
    """Return the content of ``.info``: MindSpore's fields, and the whole key."""
    components = key.components
    target = str(components["target"])
    operands = [_operand(operand) for operand in desc.operands]
    return {
        "SocInfo": {
            "autoTilingMode": "NO_TUNE",
            "coreNum": "",
            "coreType": "",
            "l1Fusion": "false",
            "l2Fusion": "false",
            "l2Mode": "0",
            "op_debug_level": "0",
            "op_impl_mode": desc.impl_mode,
            "op_impl_mode_list": [],
            "socVersion": target,
        },
        "impl_path": "",
        "op_info": {
            "Type": "_".join(desc.op_types),
            "attrs": [{"name": name, "valid": True, "value": value} for name, value in components["attrs"].items()],
            "full_name": nodes[0] if nodes else "",
            "gen_model": "single",
            "graph_id": 0,
            "inputs": [[operand] for operand in operands[: len(desc.inputs)]],
            "is_dynamic_shape": desc.is_dynamic_shape,
            "kernel_name": name,
            "module_name": desc.family,
            "name": desc.op_type,
            "outputs": [[operand] for operand in operands[len(desc.inputs) :]],
            "py_module_path": "",
            "socVersion": target,
        },
        "platform": str(components["compiler"]["name"]).upper(),
        "key": {"sha256": key.sha256, "components": dict(components)},
    }


def make_record(desc: OpDesc, name: str, artifact: Artifact, milliseconds: float, pipeline: str) -> dict[str, Any]:
    """Return the content of ``.json``: MindSpore's fields, the arguments and the linker's data.

    Raises:
        NotAnArtifactError: If it is not of its kind, or defines no kernel of the operator.
    """
    kind = kind_of(artifact.kind)
    symbols = kind.symbols(artifact.data, artifact.launch)
    symbol = _kernel(desc, symbols.defined) if desc.operands else ""
    kinds = ["input"] * len(desc.inputs) + ["output"] * len(desc.outputs)
    return {
        "batchBindOnly": 1,
        "binFileName": name,
        "binFileSuffix": ".o",
        "blockDim": 1,
        "kernelName": symbol,
        "magic": kind.magic,
        "opParaSize": 0,
        "parameters": [0] * len(desc.operands),
        "sha256": digest_of(artifact),
        "workspace": {"num": 0, "size": []},
        "arguments": [
            {"name": operand.name, "kind": kind, "dtype": operand.dtype, "rank": len(operand.dims)}
            for operand, kind in zip(desc.operands, kinds, strict=True)
        ],
        "undefined": list(symbols.undefined),
        **({} if artifact.kind == OBJECT else {KIND: artifact.kind, LAUNCH: dict(artifact.launch)}),
        PIPELINE: pipeline,
        MILLISECONDS: round(milliseconds, 1),
    }


def digest_of(artifact: Artifact) -> str:
    """Return the digest of an artifact's bytes, and of how it is launched."""
    return sha256(artifact.data + (canonical_json(dict(artifact.launch)).encode() if artifact.launch else b""))


def read_entry(key: Key, name: str, object_: bytes, info: Any, record: Any) -> Entry | Reason:
    """Return the entry that three files hold, or why they do not hold the one that ``key`` asks for.

    Nothing that was read is believed: the key is compared whole, and the record with the one that the object gives.
    """
    if not isinstance(info, Mapping) or not isinstance(record, Mapping):
        return Reason("damaged", "a record is not a JSON object")
    stored = info.get("key")
    if not isinstance(stored, Mapping) or not isinstance(stored.get("components"), Mapping):
        return Reason("damaged", ".info has no key")
    difference = key.first_difference(stored["components"])
    if difference or stored.get("sha256") != key.sha256:
        return Reason("other-key", f".info has another key: {difference or 'its digest differs'}")
    kind, launch = record.get(KIND, OBJECT), record.get(LAUNCH, {})
    if not isinstance(kind, str) or not isinstance(launch, dict):
        return Reason("damaged", f".json has no {KIND} or {LAUNCH}")
    artifact = Artifact(object_, "", kind, launch)
    if record.get("sha256") != digest_of(artifact):
        return Reason("damaged", "the object's digest differs from the one in .json")
    milliseconds = record.get(MILLISECONDS)
    if not isinstance(milliseconds, (int, float)) or isinstance(milliseconds, bool) or not 0 <= milliseconds < 1e12:
        return Reason("damaged", f".json has no {MILLISECONDS}")
    pipeline = record.get(PIPELINE)
    if not isinstance(pipeline, str) or not _PIPELINE.fullmatch(pipeline):
        return Reason("damaged", f".json has no {PIPELINE}")
    try:
        expected = make_record(OpDesc.from_components(key.components), name, artifact, milliseconds, pipeline)
    except UnknownKindError as error:
        return Reason("other-format", f"the object cannot be used: {error}")
    except ValueError as error:
        return Reason("damaged", f"the object cannot be used: {error}")
    for field, value in expected.items():
        if field != MILLISECONDS and record.get(field) != value:
            return Reason("damaged", f".json's {field} differs from what the object holds")
    return Entry(name, replace(artifact, symbol=expected["kernelName"]), info, record)


def _kernel(desc: OpDesc, defined: Sequence[str]) -> str:
    found = kernel_symbols(desc.op_types, defined)
    if len(found) != 1:
        raise NotAnArtifactError(f"it does not define {file_op_type(desc.op_types)}_<number>__kernel0, and that once")
    return found[0]


_PIPELINE = re.compile(r"[0-9a-f]{32}|")


def sign_entry(entry: Entry, trust: Trust) -> Entry:
    """Return an entry whose ``.json`` carries a signature of all three files; the entry itself if there is no key."""
    if not trust.key:
        return entry
    return replace(entry, record={**entry.record, SIGNATURE: trust.sign(*_signed_texts(entry))})


def check_entry_signature(entry: Entry, trust: Trust) -> None:
    """Compare an entry's signature; its object was compared with the digest in ``.json`` before.

    Raises:
        SignatureError: If there is a key, and the entry is not signed with it.
    """
    if not trust.key:
        return
    try:
        texts = _signed_texts(entry)
    except (ValueError, RecursionError):  # no JSON that anybody has signed
        raise SignatureError("wrong-signature") from None
    trust.check_signature(entry.record.get(SIGNATURE), *texts)


def _signed_texts(entry: Entry) -> tuple[str, ...]:
    record = {field: value for field, value in entry.record.items() if field != SIGNATURE}
    return "entry", entry.name, canonical_json(dict(entry.info)), canonical_json(record)


def record_bytes(record: Mapping[str, Any]) -> bytes:
    """Return a record as the text of its file."""
    return (json.dumps(record, indent=4, ensure_ascii=False) + "\n").encode(errors="backslashreplace")


def _operand(operand: Operand) -> dict[str, Any]:
    dims = tuple(reversed(operand.dims))
    shape = [dim.extent for dim in dims]
    return {
        "dtype": operand.dtype,
        "format": operand.format,
        "name": operand.name,
        "ori_format": operand.format,
        "ori_shape": shape,
        "param_type": "required",
        "range": [[dim.min, dim.max] if dim.extent == FREE else [dim.extent, dim.extent] for dim in dims],
        "shape": shape,
        "valid": True,
    }
