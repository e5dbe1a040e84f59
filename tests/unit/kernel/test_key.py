"""The key: what is in it, how it is named, and how two keys are told apart."""

from __future__ import annotations

from dataclasses import replace

from opbuild.kernel.key import KEY_FORMAT, file_op_type, key_digest
from support.samples import IDENTITY, LEVEL, conv, key_of


def test_every_component_is_named_and_ordered_for_readers() -> None:
    """The key names the descriptor's parts, the target, the compiler, the sources and its own format."""
    components = key_of(conv()).components
    assert list(components) == [
        "op_types", "family", "attrs", "variant", "inputs", "outputs", "impl_mode", "source",
        "target", "compiler", "sources", "format",
    ]  # fmt: skip
    assert components["target"] == "x86-64-v3"
    assert components["compiler"] == {"name": "fake", "version": "1.0", "digest": "0" * 64}
    assert components["format"] == KEY_FORMAT


def test_the_number_in_a_name_is_the_first_64_bits_of_the_digest() -> None:
    """A file's name holds the digest's first 64 bits as a decimal, the operator type before and the device behind."""
    key = key_of(conv())
    assert key.sha256 == key_digest(key.components)
    assert key.number == int(key.sha256, 16) >> 192
    assert key.name(5) == f"conv_relu_{key.number}_5"


def test_the_device_is_in_the_name_but_not_in_the_symbol() -> None:
    """What device 0 built runs on device 5 (F35)."""
    key = key_of(conv())
    assert key.name(0) != key.name(5)
    assert key.symbol == f"{key.operator_stem}__kernel0"
    assert key.stem.rpartition("_")[0] == key.operator_stem.rpartition("_")[0] == "conv_relu"


def test_the_sources_are_in_the_name_but_not_in_the_symbol() -> None:
    """Sources that define the same make the same bytes."""
    one = key_of(conv(), sources="one")
    other = one.of_origin("other")
    assert other == key_of(conv(), sources="other")
    assert (one.stem != other.stem, one.symbol == other.symbol) == (True, True)
    assert one.symbol != key_of(conv(2), sources="one").symbol


def test_long_fused_names_stay_short_and_unique() -> None:
    """Names of operators that share 300 characters stay under 100 characters and differ (F62)."""
    shared = ("A" * 300,)
    names = {key_of(conv(tile, shared)).name(2**31 - 1) for tile in range(50)}
    assert len(names) == 50
    assert all(len(f"{name}.info") < 100 and name == name.lower() for name in names)


def test_names_are_c_identifiers_whatever_the_operator_is_called() -> None:
    """A user's operator type never makes a path or a symbol that cannot be."""
    assert file_op_type(["../..", "Ünicode op"]) == "nicode_op"
    assert file_op_type(["3D-Conv"]) == "op_3d_conv"
    assert file_op_type(["//"]) == "op"


def test_a_difference_names_the_field_and_both_values() -> None:
    """The first field that differs is named with its values on either side (F69)."""
    assert key_of(conv(1)).first_difference(key_of(conv(2))) == "variant tile 1 -> 2"
    upgraded = replace(IDENTITY, version="2.0", digest="1" * 64)
    difference = key_of(conv()).first_difference(key_of(conv(), identity=upgraded))
    assert difference == "compiler fake 1.0 -> 2.0"
    desc = conv()
    half = replace(desc, inputs=(replace(desc.inputs[0], dtype="float16"), *desc.inputs[1:]))
    assert key_of(desc).first_difference(key_of(half)) == "inputs[0].dtype float32 -> float16"


def test_equal_keys_have_no_difference() -> None:
    """A key does not differ from one made again, nor from its components read back."""
    key = key_of(conv())
    assert key.first_difference(key_of(conv())) is None
    assert key.first_difference(dict(key.components)) is None


def test_a_part_that_only_one_key_has_is_a_difference() -> None:
    """A field that is missing on one side is shown as none."""
    assert key_of(conv()).first_difference(key_of(conv(extra=3))) == "variant extra none -> 3"


def test_target_compiler_and_sources_are_in_the_key() -> None:
    """Another CPU, another compiler under the same version, or edited sources give another key (F25 F28 F29 F30)."""
    keys = {
        key_of(conv()).sha256,
        key_of(conv(), level=LEVEL.lower()[0]).sha256,
        key_of(conv(), identity=replace(IDENTITY, digest="1" * 64)).sha256,
        key_of(conv(), identity=replace(IDENTITY, version="1.1")).sha256,
        key_of(conv(), sources="t").sha256,
    }
    assert len(keys) == 5
