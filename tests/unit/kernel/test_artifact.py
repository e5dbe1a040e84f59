"""Artifacts: what compilers return, checked by their own kind, and stored as entries of three files."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from opbuild.kernel.artifact import OBJECT, Artifact, NotAnArtifactError, kind_of
from opbuild.kernel.entry import Entry, make_entry, read_entry
from opbuild.kernel.reason import Reason
from support import fake_device
from support.fake_compiler import fake_object
from support.fake_device.compiler import KIND
from support.samples import conv, key_of

DESC = conv()
KEY = key_of(DESC)
SOURCE = Artifact(f"def {KEY.symbol}(x, y):\n    y[...] = x\n".encode(), "", KIND, {"operands": 2})


def read(entry: Entry, **changes: Any) -> Entry | Reason:
    """Return the content of an entry's files, some fields of its record changed."""
    record = {name: each for name, each in {**entry.record, **changes}.items() if each is not None}
    return read_entry(KEY, entry.name, entry.object, entry.info, json.loads(json.dumps(record)))


def test_an_artifact_of_another_kind_is_stored_with_how_it_is_launched() -> None:
    """It comes back as it was; objects say nothing of either, as before there were others."""
    assert fake_device.NAME
    entry = make_entry(DESC, KEY, 0, SOURCE, 1.0)
    assert (entry.symbol, entry.record["magic"]) == (KEY.symbol, "PYTHON_SOURCE")
    found = read(entry)
    assert isinstance(found, Entry)
    assert (found.artifact.kind, found.artifact.launch, found.object) == (KIND, {"operands": 2}, SOURCE.data)
    plain = make_entry(DESC, KEY, 0, Artifact(fake_object(b"", (KEY.symbol,))), 1.0)
    assert not {"kind", "launch"} & plain.record.keys()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"launch": {"operands": 3}}, "digest differs"),
        ({"launch": None}, "digest differs"),
        ({"launch": [2]}, "no kind or launch"),
        ({"kind": 7}, "no kind or launch"),
        ({"kind": OBJECT}, "says how to be launched"),
        ({"kind": "hexagon"}, "of the kind 'hexagon', which no device here runs"),
        ({"magic": "RT_DEV_BINARY_MAGIC_ELF"}, "magic differs"),
    ],
)
def test_a_record_that_says_something_else_is_noticed(changes: dict[str, Any], why: str) -> None:
    """A kernel launched with other numbers than it was compiled for would write anywhere."""
    found = read(make_entry(DESC, KEY, 0, SOURCE, 1.0), **changes)
    assert isinstance(found, Reason)
    assert found.code == ("other-format" if changes.get("kind") == "hexagon" else "damaged")
    assert why in found.text


@pytest.mark.parametrize(
    ("artifact", "why"),
    [
        (replace(SOURCE, data=b"def other(x): pass"), "does not define"),
        (replace(SOURCE, data=b"def"), "no Python"),
        (replace(SOURCE, launch={}), "how many operands"),
        (Artifact(SOURCE.data), "does not begin as an ELF file"),
    ],
)
def test_what_is_not_of_its_kind_is_no_entry(artifact: Artifact, why: str) -> None:
    """The kind says why."""
    with pytest.raises(NotAnArtifactError, match=why):
        make_entry(DESC, KEY, 0, artifact, 1.0)


def test_kinds_that_nobody_brings_are_refused() -> None:
    """Objects are always known."""
    assert kind_of(OBJECT).symbols(fake_object(b"", ("a",)), {}).defined == ("a",)
    with pytest.raises(NotAnArtifactError, match="'ptx'"):
        kind_of("ptx")
