"""Damage of every kind to every file of a cache: right results, a reason, a repair, and hits the next time."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opbuild.store.counters import read_counters
from support import stopped_builds
from support.damage import DAMAGES, unreadable
from support.replayed import replayed_compiles
from support.stopped_builds import Place, forget_networks, output_of
from support.until import settle, until

OPERATOR = ("kernel_meta/softmax_*.o", "kernel_meta/softmax_*.info", "kernel_meta/softmax_*.json")
IMAGE = ("network_meta/small_*.so", "network_meta/small_*.bin", "network_meta/small_*.json",
         "network_meta/weights/*.bin")  # fmt: skip
MEMOS = ("network_meta/small_*.seen", "network_meta/small_*.model", "network_meta/small_*.digest",
         "network_meta/compiler.json", "network_meta/weights/*.json")  # fmt: skip
OTHERS = ("network_meta/counters.jsonl", "op_cache.ini")
WHOLLY = ("network_meta/small_*.json", "network_meta/weights/*.bin")
"""Files that meet every damage in each run of the tests."""
FEW = ("empty", "a byte short", "a middle bit", "swapped", "folder", "pipe", "unreadable")
"""What the others meet, unless the environment asks for everything."""
EVERYTHING = bool(os.environ.get("OPBUILD_TEST_EVERYTHING"))
CASES = [
    (pattern, damage)
    for pattern in (*OPERATOR, *IMAGE, *MEMOS)
    for damage in (*DAMAGES, "unreadable")
    if EVERYTHING or pattern in WHOLLY or (damage in FEW and pattern not in OPERATOR)
]


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cache in which a network was built with the real compiler, and a compiler that answers from it."""
    folder = tmp_path_factory.mktemp("damaged")
    stopped_builds.write_model(folder / "small.onnx")
    place = Place(folder / "reference", folder / "small.onnx")
    place.make()
    settle(place.model)
    subprocess.run([sys.executable, stopped_builds.__file__, "--reference", str(folder)], check=True)
    with replayed_compiles(place.cache / "rank_0"):
        yield place


@pytest.fixture
def place(reference: Place, tmp_path: Path) -> Place:
    """A copy of that cache."""
    copy = Place(tmp_path / "copy", reference.model)
    copy.make(reference.folder)
    return copy


def victim_of(place: Place, pattern: str) -> Path:
    """Return the one file of a pattern; the commit mark of an image, not a record beside it."""
    (found,) = place.cache.glob(f"rank_0/{pattern}")
    return found


def results(place: Place) -> tuple[Any, str]:
    """Compile, and return the report and the digest of what the network computes."""
    network = place.compile()
    return network.report, output_of(network)


@pytest.fixture(scope="module")
def expected(reference: Place) -> str:
    """The digest of what the undamaged network computes."""
    return results(reference)[1]


def check(place: Place, pattern: str, damage: str, expected: str) -> None:
    """Damage one file, and see the network built with right results, repaired, and started from its image again."""
    if pattern in OPERATOR or pattern == MEMOS[-1]:
        forget_networks(place)  # else nothing reads them
    path = victim_of(place, pattern)
    before = path.read_bytes()
    with contextlib.ExitStack() as stack:
        if damage == "unreadable":
            stack.enter_context(unreadable(path))
        else:
            DAMAGES[damage](path)
        report, output = results(place)
        assert output == expected
        changed = damage == "unreadable" or not path.is_file() or path.read_bytes() != before
        if pattern in IMAGE and not report.image:
            assert report.image_reason
            assert report.built == 0
        if pattern in OPERATOR and report.built:
            (again,) = (operator for operator in report.operators if operator.status == "built")
            assert again.name == path.stem
            assert again.reason
        repaired = place.compile(forbid_compile=True)
        assert output_of(repaired) == expected
        assert repaired.report.image, repaired.report.image_reason
        assert changed or path.read_bytes() == before
    # A thread in the background may be writing what it learned of the compiler.
    assert until(lambda: not any(".publish-" in name for name in place.tree()))


@pytest.mark.slow
@pytest.mark.parametrize(("pattern", "damage"), CASES)
def test_a_damaged_file_of_a_network_is_repaired(
    reference: Place, tmp_path: Path, expected: str, pattern: str, damage: str
) -> None:
    """Nothing hangs, nothing is wrong, only what was damaged is made again, and then all is found (F01 F07 F08 F09)."""
    place = Place(tmp_path / "copy", reference.model)
    place.make(reference.folder)
    check(place, pattern, damage, expected)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES if EVERYTHING else ("empty", "half", "folder", "pipe", "endless device"))
def test_damaged_counters_and_settings_harm_nothing(place: Place, expected: str, damage: str) -> None:
    """Counters that are no file are replaced, torn lines left out; settings that cannot be read do not count (F01)."""
    forget_networks(place)
    shutil.rmtree(place.config.kernel_meta)
    for pattern in OTHERS:
        with contextlib.suppress(ValueError):
            DAMAGES[damage](victim_of(place, pattern))
    report, output = results(place)
    assert (output, report.built) == (expected, 2)
    assert read_counters(place.config.network_meta).builds >= 1
    assert results(place)[0].image
