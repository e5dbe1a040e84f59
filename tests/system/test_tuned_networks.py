"""Networks whose variants a database decides: another kernel under another name, the same results, nothing forced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.families.matmul import family as matmul
from opbuild.report import Report
from opbuild.target.host import host_level
from opbuild.target.machine import Machine
from support.small_network import SHAPE, SmallNetwork
from support.tuned_records import product, record, remember

pytestmark = pytest.mark.usefixtures("kept_objects")

ROWS, COLUMNS = SHAPE
QUESTION = product("panels", ROWS, COLUMNS, COLUMNS)
ARGUMENTS: Any = ("panels", 1, ROWS, COLUMNS, COLUMNS, "float32", Machine.of(host_level()))
DEFAULT = matmul.choose(*ARGUMENTS)
OTHERS = [each for each in matmul.candidates(*ARGUMENTS) if each != DEFAULT]


def built(network: SmallNetwork, cache: Path, **options: Any) -> Report:
    """Build the network for two threads, compare what it computes, and return the report."""
    net = opbuild.compile(network.path, cache_path=cache, input_shapes={"x": SHAPE}, **{"num_threads": 2, **options})
    np.testing.assert_allclose(net(network.x), network.y, rtol=1e-4, atol=1e-6)
    return net.report


def product_in(report: Report) -> tuple[str, str, str]:
    """Return the name of the product's kernel, what became of it, and why."""
    found = next(each for each in report.operators if each.name.startswith("matmul"))
    return found.name, found.status, report.why(found)


def test_a_new_record_makes_the_next_build_take_another_kernel(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Nothing is forced or deleted: the choice is in the key, of the operator and of the stored network."""
    before, _, _ = product_in(built(small_network, tmp_path))
    assert built(small_network, tmp_path).image
    names = {before}
    for choice in OTHERS[:2]:
        remember(record(QUESTION, DEFAULT, choice), cache_path=tmp_path)
        name, status, why = product_in(built(small_network, tmp_path))
        assert status == "built"
        assert "tuned on" in why
        assert "2026-11-23" in why
        again = built(small_network, tmp_path)
        assert again.image
        assert product_in(again)[::2] == (name, f"in the stored network; {why.split('; ', 1)[1]}")
        names.add(name)
    assert len(names) == 3
    remember(record(QUESTION, DEFAULT, DEFAULT), cache_path=tmp_path)
    assert product_in(built(small_network, tmp_path))[0] == before


def test_other_threads_and_stale_records_take_the_table(small_network: SmallNetwork, tmp_path: Path) -> None:
    """A record is for as many threads as were measured, and for the sources that were."""
    before, _, _ = product_in(built(small_network, tmp_path))
    remember(record(QUESTION, DEFAULT, OTHERS[0]), cache_path=tmp_path)
    assert product_in(built(small_network, tmp_path, num_threads=1))[0] == before
    remember(record(QUESTION, DEFAULT, OTHERS[0], sources="edited since"), cache_path=tmp_path)
    report = built(small_network, tmp_path)
    assert product_in(report)[0] == before
    assert not report.variants


def test_a_record_that_is_illegal_here_is_not_taken(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Only what the family itself names a candidate for these extents is, so no database can make a network wrong."""
    before, _, _ = product_in(built(small_network, tmp_path))
    for choice in ({"rows": 4096, "columns": 64, "stage": False}, {"rows": True}, None, {}):
        remember(record(QUESTION, DEFAULT, choice), cache_path=tmp_path)
        assert product_in(built(small_network, tmp_path))[0] == before


def test_a_neighbour_of_the_same_bucket_is_named_so(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Measured with 100 rows, used with 64: both have seven binary digits, and one default."""
    near = product("panels", 100, COLUMNS, COLUMNS)
    remember(record(near, DEFAULT, OTHERS[0]), cache_path=tmp_path)
    report = built(small_network, tmp_path)
    assert "bucket: tuned at other sizes" in product_in(report)[2]
    assert "1 node bucket" in report.variants
    assert "all others table" in str(report)


def test_explain_names_where_a_variant_is_from(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built, and in JSON too."""
    monkeypatch.setenv("OPBUILD_NUM_THREADS", "2")
    remember(record(QUESTION, DEFAULT, OTHERS[0]), cache_path=tmp_path)
    rows, columns = SHAPE
    asked = ["explain", str(small_network.path), "--shape", f"x:{rows},{columns}", "--cache_path", str(tmp_path)]
    assert main(asked) == 0
    assert "variants: 1 node tuned on" in capfd.readouterr().out
    assert main([*asked, "--json"]) == 0
    assert any("tuned on" in each["why"] for each in json.loads(capfd.readouterr().out))


def test_where_nothing_can_be_compiled_what_is_there_serves(small_network: SmallNetwork, tmp_path: Path) -> None:
    """A database names a kernel that nobody has built: the untuned one runs, and no level is said to be lower."""
    before, _, _ = product_in(built(small_network, tmp_path))
    remember(record(QUESTION, DEFAULT, OTHERS[0]), cache_path=tmp_path)
    (images,) = (tmp_path / "rank_0").glob("network_meta")
    for image in images.glob("small_*"):
        image.unlink()
    told: list[object] = []
    report = built(small_network, tmp_path, forbid_compile=True, observer=told.append)
    assert product_in(report)[0] == before
    assert not [each for each in told if type(each).__name__ == "LowerServes"]
    assert built(small_network, tmp_path, forbid_compile=True).image
    assert product_in(built(small_network, tmp_path))[0] != before
