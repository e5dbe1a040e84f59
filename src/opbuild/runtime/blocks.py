"""Blocks: the memory that the bindings of one network run in, one after the other.

A network that is called with many sizes would otherwise hold the temporaries of each of them. Each concurrent call
takes a block, which is as large as the largest binding that ran in it, and what was prepared for that block: arguments
in which its addresses are written already.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from opbuild.graph.types import Array
from opbuild.runtime.reused import ReusedMemory, new_memory

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class User(Protocol[A_co]):
    """Runs in blocks."""

    @property
    def arena_size(self) -> int:
        """Bytes that it needs."""

    @property
    def zeroed(self) -> int:
        """Bytes at the beginning that hold padding: zero when it first runs in a block, and after others did."""

    def prepare(self, memory: Array) -> A_co:
        """Return what it needs to run in some memory."""


class Block(Generic[A]):
    """Memory for one call at a time.

    Attributes:
        prepared: What its latest user needs to run in it.
    """

    prepared: A

    def __init__(self) -> None:
        self.memory = np.zeros(0, np.uint8)
        self._user: ReferenceType[User[A]] | None = None  # a user has its blocks: no cycle
        self._prepared: WeakKeyDictionary[User[A], A] = WeakKeyDictionary()

    def enter(self, user: User[A]) -> A:
        """Make the block ready for a user and return what that needs to run in it.

        Raises:
            RunError: If there is no memory.
        """
        if self._user is not None and self._user() is user:
            return self.prepared
        if self.memory.nbytes < user.arena_size:
            self._prepared.clear()  # it points into the old memory
            self.memory = new_memory(user.arena_size, "intermediate values")
        else:
            self.memory[: user.zeroed] = 0
        prepared = self._prepared.get(user)
        if prepared is None:
            prepared = self._prepared[user] = user.prepare(self.memory)
        self._user, self.prepared = ref(user), prepared
        return prepared


class Blocks(Generic[A]):
    """The blocks of one network. Any thread may take one.

    Attributes:
        outputs: The memory of its outputs.
    """

    def __init__(self) -> None:
        self.outputs = ReusedMemory()
        self._free: list[Block[A]] = [Block()]

    def take(self) -> Block[A]:
        """Return a block that nobody uses."""
        try:
            return self._free.pop()
        except IndexError:
            return Block()

    def take_free(self) -> Block[A] | None:
        """Return a block that nobody uses, None if there is none."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give(self, block: Block[A]) -> None:
        """Take a block back; what its latest user left there stays."""
        self._free.append(block)

    def shrink(self, nbytes: int) -> None:
        """Let go of blocks that are larger than any that is still needed."""
        for _ in range(len(self._free)):
            block = self.take_free()
            if block is not None:
                self.give(block if block.memory.nbytes <= nbytes else Block())
