"""Binaries for GPUs as a kind of artifacts: what is one, how it may be launched, and what damage makes of both.

The binaries are those that the checks on a GPU carry.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opbuild.backend.triton.cubin import Cubin, parameter_places
from opbuild.kernel.artifact import NotAnArtifactError, kind_of

CUBINS = Path(__file__).parents[4] / "benchmarks" / "gpu" / "cubins"
NAME = "add_layer_norm_fp16"
DATA = (CUBINS / f"{NAME}.cubin").read_bytes()
INDEX = json.loads((CUBINS / "index.json").read_text())["cubins"]
KINDS = {8: "address", 4: "extent"}


def launch_of(name: str) -> dict[str, Any]:
    """Return a launch that fits a binary."""
    places = [[each["offset"], each["size"]] for each in INDEX[name]["parameters"]]
    return {
        "warps": INDEX[name]["warps"],
        "shared": INDEX[name]["shared"],
        "arguments": [[KINDS[size], number, 0] for number, (_, size) in enumerate(places[:-2])],
        "parameters": places,
        "grid": [[[0, 1, 1], [0, 0, 128]], []],
    }


LAUNCH = launch_of(NAME)


@pytest.mark.parametrize(
    "name", [each for each in INDEX if not any(p["type"] == "tensormap" for p in INDEX[each]["parameters"])]
)
def test_a_binary_has_one_kernel_and_says_where_its_parameters_lie(name: str) -> None:
    """All that Triton made; where parameters lie is asked of the binary."""
    data, launch = (CUBINS / f"{name}.cubin").read_bytes(), launch_of(name)
    assert Cubin.symbols(data, launch).defined == (name,)
    assert [list(each) for each in parameter_places(data)] == launch["parameters"]


def test_the_kind_is_known_by_its_name() -> None:
    """Whoever reads a store finds it without having registered anything."""
    assert kind_of("cubin").symbols(DATA, LAUNCH).undefined == ()


WRONG: dict[str, dict[str, Any]] = {
    "no warps": {"warps": 0},
    "three warps": {"warps": 3},
    "warps that are true": {"warps": True},
    "too much memory": {"shared": 228 << 10},
    "memory of half a byte": {"shared": 0.5},
    "less than no memory": {"shared": -1},
    "no arguments": {"arguments": []},
    "arguments that are none": {"arguments": None},
    "one argument less": {"arguments": LAUNCH["arguments"][1:]},
    "an extent for a pointer": {"arguments": [["extent", 0, 0], *LAUNCH["arguments"][1:]]},
    "an argument of another kind": {"arguments": [["secret", 0, 0], *LAUNCH["arguments"][1:]]},
    "an operand below 0": {"arguments": [["address", -1, 0], *LAUNCH["arguments"][1:]]},
    "a list for a kind": {"arguments": [[[], 0, 0], *LAUNCH["arguments"][1:]]},
    "parameters elsewhere": {"parameters": [[8, 8], *LAUNCH["parameters"][1:]]},
    "no grid": {"grid": []},
    "four axes": {"grid": [[], [], [], []]},
    "tiles of nothing": {"grid": [[[0, 0, 0]]]},
    "a grid of numbers": {"grid": [1]},
    "something else": {"more": 1},
}


@pytest.mark.parametrize("name", WRONG)
def test_a_launch_that_does_not_fit_is_refused(name: str) -> None:
    """A kernel that is launched with other numbers than it was compiled for writes anywhere."""
    with pytest.raises(NotAnArtifactError):
        Cubin.symbols(DATA, LAUNCH | WRONG[name])


@pytest.mark.parametrize("name", LAUNCH)
def test_a_launch_that_says_too_little_is_refused(name: str) -> None:
    """Each of its parts is needed."""
    with pytest.raises(NotAnArtifactError, match="does not say how it is launched"):
        Cubin.symbols(DATA, {key: value for key, value in LAUNCH.items() if key != name})


def test_what_is_no_binary_for_a_gpu_is_refused() -> None:
    """Nothing, text, an object for a CPU, and a binary for another machine."""
    for_cpu = DATA[:16] + struct.pack("<HH", 2, 62) + DATA[20:]
    object_file = DATA[:16] + struct.pack("<HH", 1, 190) + DATA[20:]
    for data in (b"", b"\x7fELF", b"hello, world" * 9, DATA[:4] + b"\x01" + DATA[5:], for_cpu, object_file):
        with pytest.raises(NotAnArtifactError):
            Cubin.symbols(data, LAUNCH)


@given(st.integers(0, len(DATA) - 1))
@settings(max_examples=200, deadline=None)
def test_a_binary_that_is_cut_is_refused(size: int) -> None:
    """Nothing else is raised, wherever it ends."""
    with pytest.raises(NotAnArtifactError):
        Cubin.symbols(DATA[:size], LAUNCH)


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_random_damage_is_refused_or_changes_nothing_that_a_launch_is_made_of(data: st.DataObject) -> None:
    """Any bytes of the binary, most of them in its headers: an error is always the kind's own."""
    damaged = bytearray(DATA)
    (start,) = struct.unpack_from("<Q", DATA, 40)
    places = st.one_of(st.integers(0, 63), st.integers(start, len(DATA) - 1), st.integers(0, len(DATA) - 1))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(places)] = data.draw(st.integers(0, 255))
    try:
        found = Cubin.symbols(bytes(damaged), LAUNCH)
    except NotAnArtifactError:
        return
    assert len(found.defined) == 1
    assert [list(each) for each in parameter_places(bytes(damaged))] == LAUNCH["parameters"]


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
JSON = st.recursive(SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner)))


@given(st.sampled_from(sorted(LAUNCH)), JSON)
@settings(max_examples=300, deadline=None)
def test_any_other_launch_is_refused_by_the_kind(part: str, value: Any) -> None:
    """Whatever JSON has in its place: what is taken is sound."""
    launch = LAUNCH | {part: value}
    try:
        Cubin.symbols(DATA, launch)
    except NotAnArtifactError:
        return
    assert part in ("shared", "warps", "grid")
    assert {type(launch["shared"]), type(launch["warps"])} == {int}
    assert 1 <= len(launch["grid"]) <= 3
