"""What holds of every descriptor: its key says all of it, in one way, and reads back.

A campaign tries up to a thousand descriptors for each property, the suite thirty.
"""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from opbuild.kernel.debug import OPTIONS, flags_of
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import FREE, Dim, OpDesc, Operand
from opbuild.target.level import LEVELS
from opbuild.text.canonical import canonical_json
from support.fuzzing import CAMPAIGN
from support.samples import IDENTITY, key_of

EXAMPLES = min(CAMPAIGN, 1000) or 30

words = st.text("abcdefxyz_", min_size=1, max_size=8)
scalars = st.one_of(st.integers(-(2**31), 2**31), st.booleans(), st.none(), words, st.floats(allow_nan=False, width=32))
finite = scalars.filter(lambda value: not (isinstance(value, float) and abs(value) == float("inf")))
values = st.recursive(
    finite, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3), max_leaves=6
)
extents = st.one_of(st.just(FREE), st.integers(0, 4096))
dims = st.builds(Dim, extents, extents, st.integers(0, 64), extents, st.integers(1, 64))
operands = st.builds(
    Operand,
    words,
    st.sampled_from(["float32", "float16", "int8", "bool"]),
    st.lists(dims, max_size=4).map(tuple),
    st.sampled_from(["ND", "NCHW", "NC1HWC0"]),
)
descs = st.builds(
    OpDesc,
    op_types=st.lists(words, min_size=1, max_size=3).map(tuple),
    family=words,
    inputs=st.lists(operands, max_size=3).map(tuple),
    outputs=st.lists(operands, min_size=1, max_size=2).map(tuple),
    attrs=st.dictionaries(words, values, max_size=4),
    variant=st.dictionaries(words, finite, max_size=4),
    impl_mode=st.sampled_from(["high_performance", "high_precision"]),
    source=st.text(max_size=20),
)


@settings(max_examples=EXAMPLES)
@given(descs)
def test_a_descriptor_reads_back_from_its_json(desc: OpDesc) -> None:
    """Components survive JSON, and give the same descriptor and the same key (F36)."""
    again = OpDesc.from_components(json.loads(json.dumps(desc.components())))
    assert again == desc
    assert key_of(again).sha256 == key_of(desc).sha256


def reordered(value: Any) -> Any:
    """Return an equal value whose mappings were made in the opposite order."""
    if isinstance(value, dict):
        return {name: reordered(value[name]) for name in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=EXAMPLES)
@given(descs)
def test_the_order_in_which_mappings_were_made_does_not_matter(desc: OpDesc) -> None:
    """Equal descriptors have equal keys, however they were put together (F40)."""
    other = replace(desc, attrs=reordered(desc.attrs), variant=reordered(desc.variant))
    assert key_of(other).sha256 == key_of(desc).sha256
    assert other == desc


def mutations(value: Any) -> list[Any]:
    """Return for one field's value a few others: each place in it changed once."""
    if isinstance(value, (Dim, Operand)):
        return [replace(value, **{f.name: new}) for f in fields(value) for new in mutations(getattr(value, f.name))]
    if isinstance(value, tuple):
        inner = [(*value[:i], new, *value[i + 1 :]) for i, item in enumerate(value) for new in mutations(item)]
        return [*inner, value[:-1], value * 2] if value else inner
    if isinstance(value, dict):
        return [{**value, "a new name": 1}, *({**value, name: [item, 1]} for name, item in value.items())]
    return [value + 1 if isinstance(value, int) else value + "x"]


@settings(max_examples=EXAMPLES)
@given(descs)
def test_every_field_of_a_descriptor_changes_its_key(desc: OpDesc) -> None:
    """Whichever field differs, in whichever operand and dimension, the key differs and says where (F27).

    But for the target: the key has the one that the code is made for, whose descriptor says it only of other devices.
    """
    key = key_of(desc)
    for field in (each for each in fields(desc) if each.name != "target"):
        for value in mutations(getattr(desc, field.name)):
            if value == getattr(desc, field.name) or (field.name == "op_types" and not value):
                continue
            other = key_of(replace(desc, **{field.name: value}))
            assert other.sha256 != key.sha256, (field.name, value)
            difference = key.first_difference(other)
            assert difference is not None
            assert difference.startswith(field.name), difference


@settings(max_examples=EXAMPLES)
@given(descs, descs)
def test_keys_are_equal_exactly_if_descriptors_are(one: OpDesc, other: OpDesc) -> None:
    """No two descriptors share a key, and no descriptor has two."""
    assert (one == other) == (key_of(one).sha256 == key_of(other).sha256)
    assert (one == other) == (key_of(one).first_difference(key_of(other)) is None)


@settings(max_examples=EXAMPLES)
@given(values)
def test_canonical_json_is_one_text_for_equal_values(value: Any) -> None:
    """The text does not depend on the order of insertion, and holds the value."""
    assert canonical_json(value) == canonical_json(reordered(value))
    assert json.loads(canonical_json(value)) == value


@settings(max_examples=EXAMPLES)
@given(descs)
def test_every_level_has_keys_of_its_own(desc: OpDesc) -> None:
    """Code for one machine more or less capable, or of another kind, is another object (F25, F38)."""
    keys = {level.name: key_of(desc, level) for level in LEVELS}
    assert len({key.sha256 for key in keys.values()}) == len(LEVELS)
    difference = keys["x86-64-v3"].first_difference(keys["x86-64-v4-bf16"])
    assert difference == "target x86-64-v3 -> x86-64-v4-bf16"


@settings(max_examples=EXAMPLES)
@given(descs, st.sets(st.sampled_from(sorted(OPTIONS))), st.sets(st.sampled_from(sorted(OPTIONS))))
def test_debug_options_that_decide_code_are_in_the_key(desc: OpDesc, some: set[str], others: set[str]) -> None:
    """Keys differ exactly if the options that decide the code do (F27)."""
    one, other = flags_of(sorted(some)), flags_of(sorted(others))
    keys = [make_key(desc, LEVELS[0], IDENTITY, "s", flags).sha256 for flags in (one, other)]
    assert (keys[0] == keys[1]) == (one == other)
