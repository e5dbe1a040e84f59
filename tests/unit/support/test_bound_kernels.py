"""Bound kernels: what is handed to compiled code is seen, and compared with what the kernels are for."""

from __future__ import annotations

import shutil
from pathlib import Path

import opbuild
from support.bound_kernels import Bound, checked, watched_bindings
from support.small_network import SHAPE, SmallNetwork


def test_a_call_outside_the_limits_of_its_kernel_is_told(small_network: SmallNetwork, tmp_path: Path) -> None:
    """All calls of a network are within them; the same with an extent that no kernel takes are not."""
    # Where a test before defined an operator the network is stored under another key, which others would find there.
    cache = shutil.copytree(small_network.cache, tmp_path / "cache")
    with watched_bindings() as bound:
        network = opbuild.compile(small_network.path, cache_path=cache, input_shapes={"x": SHAPE})
        network(small_network.x)
    calls = [each for each in bound if each.symbol]
    known, wrong = checked(calls, cache)
    assert known >= 2
    assert not wrong
    spoiled = [
        Bound(symbol, tuple(tuple((-1, stride) for _, stride in dims) for dims in operands))
        for symbol, operands in calls
    ]
    assert len(checked(spoiled, cache).wrong) == known
