"""How two keys differ: what was changed is named, with both values, and not what follows from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opbuild.families.catalogue import with_implied
from opbuild.kernel.difference import distance, fields, first_change
from opbuild.kernel.key import CompilerIdentity, Key
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.host import parse_level
from support.samples import IDENTITY, conv, key_of

OLD = key_of(conv())
ARM = parse_level("armv8-a")


def typed(dtype: str, **variant: int) -> OpDesc:
    """Return the convolution with every operand of one type."""
    desc = conv(**variant)
    inputs = tuple(replace(operand, dtype=dtype) for operand in desc.inputs)
    outputs = tuple(replace(operand, dtype=dtype) for operand in desc.outputs)
    return replace(desc, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (key_of(replace(conv(), attrs={**conv().attrs, "kernel": [5, 5]})), "attrs.kernel [3,3] -> [5,5]"),
        (key_of(typed("float64", lanes=8)), "inputs[0].dtype float32 -> float64"),
        (key_of(conv(4)), "variant tile 1 -> 4"),
        (key_of(conv(), sources="newer"), "source of Conv s -> newer"),
        (key_of(replace(conv(), impl_mode="high_precision")), "impl_mode high_performance -> high_precision"),
        (key_of(conv(), level=ARM), "target x86-64-v3 -> armv8-a"),
        (key_of(conv(), level=parse_level("x86-64-v4")), "target x86-64-v3 -> x86-64-v4"),
        (key_of(conv(), identity=replace(IDENTITY, version="2.0", digest="1" * 64)), "compiler fake 1.0 -> 2.0"),
        (key_of(conv(), identity=replace(IDENTITY, name="tvm")), "compiler fake 1.0 -> tvm 1.0"),
        (
            key_of(conv(), identity=CompilerIdentity("fake", "1.0", "1" * 64)),
            "compiler fake 1.0, its bytes 00000000 -> 11111111",
        ),
    ],
)
def test_what_was_changed_is_named_with_both_values(new: Key, said: str) -> None:
    """F69: a kernel size, a type, a variant, a source, a target, a compiler: that field is named, nothing else."""
    assert first_change(OLD.components, new.components) == said


def test_a_kernel_size_is_named_where_the_algorithm_followed_from_it() -> None:
    """Winograd is for 3 x 3 and its key does not say so; for the same size the algorithm itself is what changed."""
    attrs = {name: value for name, value in conv().attrs.items() if name != "kernel"}
    old = with_implied(key_of(replace(conv(), family="winograd", attrs=attrs)).components)
    larger = key_of(replace(conv(), attrs={**attrs, "kernel": [5, 5]})).components
    assert first_change(old, larger) == "attrs.kernel [3,3] -> [5,5]"
    assert first_change(old, OLD.components) == "family winograd -> conv"
    assert distance(fields(old), fields(OLD.components)) < distance(fields(old), fields(larger))


def test_a_users_source_is_named_by_its_digests() -> None:
    """The text of a user's operator is not printed into a table."""
    one, two = key_of(replace(conv(), source="def f(): pass")), key_of(replace(conv(), source="def f(): return 1"))
    said = first_change(one.components, two.components)
    assert said is not None
    assert said.startswith("source of Conv ")
    assert "def f" not in said


def test_long_values_stay_short_and_apart() -> None:
    """Values that begin alike are told apart by their digests."""
    one, two = (replace(conv(), attrs={"text": "x" * 200 + end}) for end in "ab")
    left, _, right = str(first_change(key_of(one).components, key_of(two).components)).partition(" -> ")
    assert left.split("[")[1] != right.split("[")[1]
    assert len(right) < 100


def test_equal_keys_do_not_differ() -> None:
    """The distance is zero and there is no change."""
    assert first_change(OLD.components, dict(OLD.components)) is None
    assert distance(fields(OLD.components), fields(OLD.components)) == 0


def test_names_that_only_look_alike_still_differ() -> None:
    """A dot in an attribute's name does not hide a difference."""
    one, two = replace(conv(), attrs={"a.b": 1}), replace(conv(), attrs={"a": {"b": 1}})
    assert first_change(key_of(one).components, key_of(two).components) is not None


def test_another_family_is_farther_than_another_kernel_size() -> None:
    """The nearest entry is one that the same source files compile, if there is one."""
    wanted = replace(conv(), attrs={"kernel": [5, 5], "stride": [1, 1], "epilogue": ["relu", ["acc"]]})
    other_family = replace(wanted, family="winograd")
    components = key_of(wanted).components
    wanted_fields = fields(components)
    far = distance(fields(key_of(other_family).components), wanted_fields)
    assert distance(fields(OLD.components), wanted_fields) < far
