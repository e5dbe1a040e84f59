"""What the bindings of one network share: the memory they run in, and the weights that are mapped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from opbuild.graph.types import Array
from opbuild.kernel.networks import Weight
from opbuild.platform.digest import blake3_of
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Arena, Executor
from opbuild.store.weights import weights_in
from opbuild.target.level import CPU
from support.handmade import build, chain, expected_chain


class User:
    """Runs in blocks, and counts how often something was prepared and filled for it."""

    def __init__(self, arena_size: int, zeroed: int = 0, calls: object = None) -> None:
        self.arena_size, self.zeroed, self.prepared, self.filled = arena_size, zeroed, 0, 0
        self.calls = self if calls is None else calls
        self.arenas: dict[str, tuple[int, int]] = {}

    def prepare(self, memory: Array, _: object) -> list[Array]:
        """Return where the memory is kept."""
        self.prepared += 1
        return [memory]

    def fill(self, prepared: list[Array], memory: Array, _: object) -> None:
        """Keep other memory."""
        self.filled += 1
        prepared[:] = [memory]


def test_bindings_of_several_sizes_run_in_one_block_and_stay_right() -> None:
    """Executors that share blocks take turns in the same memory, which is as large as the largest needs."""
    blocks: Blocks[Arena] = Blocks()
    executors = {}
    for size in (8, 300, 32):
        built = build(chain(size))
        library = Library(built.library, 2)
        executors[size] = Executor(built.record, {CPU: library}, built.constants.arrays, None, blocks)
    for size in (8, 300, 32, 8, 300, 300):
        x = np.linspace(-1, 1, size, dtype=np.float32)
        np.testing.assert_allclose(executors[size].run([x])[0], expected_chain(x), rtol=1e-6)
    assert len(blocks._free) == 1
    assert blocks.take().memory.nbytes == max(executor.arena_size for executor in executors.values())


def test_padding_is_zero_again_after_another_binding_wrote_there() -> None:
    """Only the bytes that hold padding are cleared, and only where somebody else ran in between."""
    block = Blocks[list[Array]]().take()
    padded, other = User(64, zeroed=16), User(64)
    block.enter(padded)[0][:] = 7
    assert block.enter(padded)[0][0] == 7
    block.enter(other)
    assert block.enter(padded)[0].tolist() == [0] * 16 + [7] * 48


def test_what_points_into_memory_that_was_replaced_is_filled_again() -> None:
    """A larger user replaces the memory; what the smaller one prepared is filled for the new one, once."""
    block = Blocks[list[Array]]().take()
    small, large = User(8), User(64)
    for user in (small, large, small, large, small):
        assert np.shares_memory(block.enter(user)[0], block.memory)
    assert (small.prepared, small.filled) == (1, 1)
    assert (large.prepared, large.filled) == (1, 0)


def test_users_with_the_same_calls_share_what_is_prepared() -> None:
    """It is filled for whoever comes, but not for the one that was there last."""
    block = Blocks[list[Array]]().take()
    one, apart = User(64), User(8)
    other = User(32, calls=one)
    for user in (one, other, other, apart, other, one):
        block.enter(user)
    assert (one.prepared, one.filled) == (1, 1)
    assert (other.prepared, other.filled) == (0, 1)
    assert apart.prepared == 1


def test_memory_that_nobody_needs_is_given_back() -> None:
    """Blocks larger than what is still needed are dropped; those that were made a little larger for it stay."""
    blocks: Blocks[list[Array]] = Blocks()
    block = blocks.take()
    for size in (64, 65):
        block.enter(User(size))
    assert block.memory.nbytes == 72
    for needed in (65, 64):
        blocks.give(block)
        blocks.shrink(needed)
        assert blocks.take() is block
    blocks.give(block)
    blocks.shrink(63)
    assert blocks.take().memory.nbytes == 0


def test_weights_are_mapped_once_while_somebody_uses_them(tmp_path: Path) -> None:
    """Asking again returns the same array; it is let go of with its last user."""
    store = weights_in(tmp_path)
    array = np.arange(5000, dtype=np.uint8)
    first = store.put(blake3_of(array.data), array)
    assert isinstance(first, Weight)
    store.remember("5" * 64, first)
    for again in (store.get(first.digest, array.nbytes), store.find("5" * 64, array.nbytes)):
        assert isinstance(again, Weight)
        assert again.array is first.array
    del first, again
    assert not store._used.items()
