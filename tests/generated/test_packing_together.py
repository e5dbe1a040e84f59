"""Several that pack the same weights at once, each with faults of its own: right bytes for all, nothing left behind.

Each is a thread with what a process has of its own: its claims' file, its part in packing, its view of the store.
``OPBUILD_FUZZ=5000`` tries so many rounds, beginning at ``OPBUILD_FUZZ_SEED``.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest import mock

import numpy as np
import pytest

from opbuild.graph.types import Array
from opbuild.kernel.networks import Weight
from opbuild.kernel.reason import Reason
from opbuild.platform.files.held import new_pages
from opbuild.platform.files.shared_pages import PREFIX
from opbuild.platform.paths import Path as OwnPath
from opbuild.program import Buffer, Program
from opbuild.runtime import sharing, weights
from opbuild.runtime.sharing import Sharing
from opbuild.runtime.weights import Packer, pack_constants
from opbuild.store.claims import WeightClaims
from opbuild.store.weights import StoredWeights, weights_in
from support.fuzzing import CAMPAIGN, SEED

ROUNDS = CAMPAIGN or 60
FAULTS = ("none", "none", "none", "late", "slow", "dies", "uncertain", "full", "stores early")


class DiedError(Exception):
    """Somebody ended while he packed."""


def contents(number: int, nbytes: int) -> Array:
    """Return the packed bytes of a weight."""
    return np.random.default_rng(number).integers(0, 256, nbytes, np.uint8)


class Participant:
    """One who packs all weights, with a fault."""

    def __init__(self, folder: Path, sizes: list[int], fault: str, chance: random.Random) -> None:
        self.sizes, self.fault = sizes, fault
        self.packs, self._dies_at = 0, chance.randrange(len(sizes))
        self._delay = chance.random() * 0.01
        self._pauses = [chance.choice([0, 0, 0.001, 0.004]) for _ in sizes]
        self._counting = threading.Lock()
        store = weights_in(OwnPath(folder / "weights"))
        if fault == "full":
            mock.patch.object(store, "put", return_value=Reason("unwritable", "no space left on device")).start()
        self._packer = Packer(
            cast("StoredWeights", store),
            sharing=Sharing(WeightClaims(OwnPath(folder / "claims"), "store"), lambda: fault != "uncertain"),
        )

    def _buffer(self, number: int, nbytes: int) -> Buffer:
        def pack() -> Array:
            with self._counting:
                self.packs += 1
                if self.fault == "dies" and self.packs > self._dies_at:
                    raise DiedError
            time.sleep(self._pauses[number] * (5 if self.fault == "slow" else 1))
            pages = new_pages((nbytes,), np.uint8)
            pages[:] = contents(number, nbytes)
            return pages

        return Buffer("constant", "uint8", nbytes, pack=pack, source=lambda: number)

    def run(self) -> None:
        """Pack, look, store, look again; or die."""
        if self.fault == "late":
            time.sleep(self._delay)
        program = SimpleNamespace(buffers=tuple(self._buffer(*each) for each in enumerate(self.sizes)))
        try:
            constants = pack_constants(cast("Program", program), self._packer)
        except DiedError:
            self._packer.close()
            return
        self._check(constants.arrays)
        if self.fault == "stores early":
            time.sleep(self._delay)
        self._packer.finish()
        self._packer.remember()
        self._packer.close()
        self._check(constants.arrays)

    def _check(self, arrays: tuple[Array, ...]) -> None:
        for number, (nbytes, array) in enumerate(zip(self.sizes, arrays, strict=True)):
            np.testing.assert_array_equal(array, contents(number, nbytes))


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("turn", range(ROUNDS))
def test_all_have_the_right_bytes_and_pack_them_once(
    turn: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once but for what somebody who died, or may not give, had begun; the store has each that anybody could store."""
    chance = random.Random(SEED + turn)
    monkeypatch.setattr(sharing, "LEAST_PATIENCE", 10.0)
    monkeypatch.setattr(weights, "available_cores", lambda: chance.choice([1, 2, 4]))
    sizes = [chance.choice([2**16, 2**16 + 4096, 100_000, 300_000]) for _ in range(chance.randint(1, 16))]
    given = [Participant(tmp_path, sizes, chance.choice(FAULTS), chance) for _ in range(chance.randint(2, 5))]
    with ThreadPoolExecutor(len(given)) as threads:
        list(threads.map(Participant.run, given))
    faults = [each.fault for each in given]
    if not {"dies", "uncertain", "full", "late"} & {*faults}:
        assert sum(each.packs for each in given) == len(sizes)
    stored = weights_in(OwnPath(tmp_path / "weights"))
    if {"none", "late", "slow", "stores early"} & {*faults} and "full" not in faults:
        for number, nbytes in enumerate(sizes):
            weight = stored.find(Packer().reference(number), nbytes)
            assert isinstance(weight, Weight)
            np.testing.assert_array_equal(weight.array, contents(number, nbytes))
    mock.patch.stopall()
    del given
    gc.collect()
    assert PREFIX not in Path("/proc/self/maps").read_text()
    assert not [*tmp_path.glob("claims/*")]
