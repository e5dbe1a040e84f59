"""Caches that earlier releases wrote are read as they are: the files' formats are a promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opbuild.cli.store.folder import Cache
from opbuild.program import HostCall
from opbuild.runtime.stored_network import LoadedNetwork
from support.handmade import image_store
from support.stored_network import KEY, SIZE, WEIGHT, store_network


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """The folder of networks of a cache with that network."""
    store_network(tmp_path / "network_meta")
    return tmp_path / "network_meta"


def test_a_network_that_an_earlier_release_stored_is_read(stored: Path) -> None:
    """Record, library, constants and weights, under the name that its key has always had."""
    image = image_store(stored).load(KEY)
    assert isinstance(image, LoadedNetwork), image
    assert image.library == b"library"
    large, small = image.constants
    np.testing.assert_array_equal(large.view(np.float32), np.arange(SIZE, dtype=np.float32))
    np.testing.assert_array_equal(small.view(np.float32), np.arange(4, dtype=np.float32))
    (step,) = image.record.steps
    assert isinstance(step, HostCall)
    assert step.node.attrs == {"axis": 1, "text": b"ab"}


def test_weights_that_an_earlier_release_packed_are_found(stored: Path) -> None:
    """The file that says what a source packs to has kept its name and its form."""
    packer = image_store(stored, "salt").packer()
    weight = packer.find(packer.reference(("big", (SIZE,))), 4 * SIZE)
    assert weight is not None
    assert weight.digest == WEIGHT


def test_a_cache_of_an_earlier_release_is_sound(stored: Path) -> None:
    """Every file is known for what it is, and none is damaged."""
    cache = Cache(stored.parent / "kernel_meta", stored)
    kinds = ("network", "reference", "weight")
    assert tuple(sorted(item.kind for item in cache.items(*kinds))) == kinds
    assert list(cache.problems()) == []
