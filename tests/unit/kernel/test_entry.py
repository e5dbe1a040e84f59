"""The entry: what its records hold, and that no other files pass for it."""

from __future__ import annotations

import pytest

from opbuild.kernel.artifact import Artifact, NotAnArtifactError
from opbuild.kernel.entry import make_entry, read_entry
from opbuild.kernel.opdesc import needs_runtime, runtime_desc
from opbuild.kernel.reason import Reason
from opbuild.platform.digest import sha256
from support.fake_compiler import fake_object
from support.samples import conv, entry_of, key_of


def test_info_has_every_mindspore_field_and_the_whole_key() -> None:
    """A reader of MindSpore's records finds each of its fields in .info, and ours under ``key``."""
    key, entry = entry_of(conv())
    info = entry.info
    assert list(info) == ["SocInfo", "impl_path", "op_info", "platform", "key"]
    assert set(info["SocInfo"]) == {
        "autoTilingMode", "coreNum", "coreType", "l1Fusion", "l2Fusion", "l2Mode", "op_debug_level", "op_impl_mode",
        "op_impl_mode_list", "socVersion",
    }  # fmt: skip
    assert set(info["op_info"]) == {
        "Type", "attrs", "full_name", "gen_model", "graph_id", "inputs", "outputs", "is_dynamic_shape", "kernel_name",
        "module_name", "name", "py_module_path", "socVersion",
    }  # fmt: skip
    assert set(info["op_info"]["inputs"][0][0]) == {
        "dtype", "format", "name", "ori_format", "ori_shape", "param_type", "range", "shape", "valid",
    }  # fmt: skip
    assert info["key"] == {"sha256": key.sha256, "components": key.components}
    assert info["op_info"]["kernel_name"] == entry.name


def test_record_has_every_mindspore_field_and_what_the_linker_needs() -> None:
    """A reader of MindSpore's records finds each of its fields in .json, with the object's own digest."""
    key, entry = entry_of(conv())
    record = entry.record
    assert record["binFileName"] + record["binFileSuffix"] == f"{entry.name}.o"
    assert record["kernelName"] == key.symbol == entry.symbol
    assert record["magic"] == "RT_DEV_BINARY_MAGIC_ELF"
    assert record["sha256"] == sha256(entry.object)
    assert {"batchBindOnly", "blockDim", "opParaSize", "parameters", "workspace", "undefined"} <= set(record)
    assert [argument["kind"] for argument in record["arguments"]] == ["input", "input", "output"]


def test_free_extents_are_shown_with_their_range() -> None:
    """A free extent is -1 with its range: an entry serves every size, and says of none that it was the first."""
    desc = conv()
    key = key_of(desc)
    entry = make_entry(desc, key, 0, Artifact(fake_object(b"", (key.symbol,))), 1.0)
    operand = entry.info["op_info"]["inputs"][0][0]
    assert operand["shape"] == [-1, -1, -1]
    assert operand["range"] == [[0, -1], [1, -1], [0, -1]]
    assert operand["ori_shape"] == operand["shape"]


def test_undefined_symbols_are_listed() -> None:
    """Symbols that an object expects from others are in its record: the runtime library is linked only as needed."""
    desc = conv()
    key = key_of(desc)
    entry = make_entry(desc, key, 0, Artifact(fake_object(b"", (key.symbol,), ("tanhf", "halide_malloc"))), 1.0)
    assert entry.undefined == ("halide_malloc", "tanhf")
    assert needs_runtime(entry.undefined)
    assert not needs_runtime(entry.undefined, provided=("halide_free", "halide_malloc"))
    assert not needs_runtime(("tanhf",))


def test_an_object_without_the_kernel_is_refused() -> None:
    """A compiler that delivers the wrong symbol delivers nothing (F05)."""
    desc = conv()
    with pytest.raises(NotAnArtifactError, match="does not define conv_relu_"):
        make_entry(desc, key_of(desc), 0, Artifact(fake_object(b"", ("other",))), 1.0)


def test_the_runtime_library_needs_no_kernel_symbol() -> None:
    """A descriptor without operands stands for a library, whose entry names no kernel."""
    desc = runtime_desc()
    entry = make_entry(desc, key_of(desc), 0, Artifact(fake_object(b"", ("halide_malloc",))), 1.0)
    assert entry.symbol == ""
    assert entry.name.startswith("halideruntime_")


@pytest.mark.parametrize(
    "field", ["binFileName", "kernelName", "sha256", "undefined", "arguments", "magic", "compileMilliseconds"]
)
def test_a_record_with_a_changed_field_is_refused(field: str) -> None:
    """No field of .json is believed: a path in binFileName or another symbol makes a miss (F58)."""
    key, entry = entry_of(conv())
    record = {**entry.record, field: "../../etc/passwd"}
    answer = read_entry(key, entry.name, entry.object, entry.info, record)
    assert isinstance(answer, Reason)
    assert answer.code == "damaged"


def test_another_key_in_info_is_refused_with_the_difference() -> None:
    """Files under the right name that were made for another key are not used (F11)."""
    key, entry = entry_of(conv(1))
    _, other = entry_of(conv(2))
    assert read_entry(key, entry.name, entry.object, other.info, entry.record) == Reason(
        "other-key", ".info has another key: variant tile 1 -> 2"
    )


@pytest.mark.parametrize(("info", "record"), [(None, {}), ({}, {}), ([], {}), ({"key": 1}, {}), ({"key": {}}, None)])
def test_records_of_any_shape_are_answered_with_a_reason(info: object, record: object) -> None:
    """JSON that is no record is a reason, not an exception (F01)."""
    key, entry = entry_of(conv())
    assert isinstance(read_entry(key, entry.name, entry.object, info, record), Reason)
