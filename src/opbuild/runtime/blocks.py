"""Blocks: the memory that the bindings of one network run in, one after the other.

A network that is called with many sizes would otherwise hold the temporaries of each of them. Each concurrent call
takes a block, which is as large as the largest binding that ran in it, and what was prepared for that block: arguments
in which its addresses are written already. A block has memory on each device that holds temporaries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, Protocol, TypeVar
from weakref import ReferenceType, ref

import numpy as np

from opbuild.graph.types import Array
from opbuild.runtime.devices.device import DeviceMemory, open_device
from opbuild.runtime.reused import ReusedMemory, new_memory

A = TypeVar("A")


class User(Protocol[A]):
    """Runs in blocks."""

    @property
    def arena_size(self) -> int:
        """Bytes that it needs."""

    @property
    def zeroed(self) -> int:
        """Bytes at the beginning that hold padding: zero when it first runs in a block, and after others did."""

    @property
    def arenas(self) -> Mapping[str, tuple[int, int]]:
        """Both numbers for each device other than the CPU that it needs memory on."""

    @property
    def calls(self) -> object:
        """The state that users share whose prepared calls can be filled with each other's numbers."""

    def prepare(self, memory: Array, others: Mapping[str, DeviceMemory]) -> A:
        """Return the prepared state of a call in some memory, and in some of other devices."""

    def fill(self, prepared: A, memory: Array, others: Mapping[str, DeviceMemory]) -> None:
        """Make ready the state that was prepared for another user with the same calls."""


class MemoryBlock(Generic[A]):
    """Memory for one call at a time.

    Attributes:
        prepared: What its latest user needs to run in it.
    """

    prepared: A

    def __init__(self) -> None:
        self.memory = np.zeros(0, np.uint8)
        self.others: dict[str, DeviceMemory] = {}
        self._user: ReferenceType[User[A]] | None = None  # a user has its blocks: no cycle
        self._prepared: dict[ReferenceType[object], tuple[A, ReferenceType[User[A]] | None]] = {}

    def enter(self, user: User[A]) -> A:
        """Make the block ready for a user and return the state that it runs with.

        Raises:
            RunError: If there is no memory.
        """
        if self._user is not None and self._user() is user:
            return self.prepared
        if self.memory.nbytes < user.arena_size:
            self._mark_outdated()
            self.memory = new_memory(max(user.arena_size, _grown(self.memory.nbytes)), "intermediate values")
        else:
            self.memory[: user.zeroed] = 0
        if user.arenas:
            self._enter_others(user.arenas)
        calls = ref(user.calls)
        found, filled = self._prepared.get(calls, (None, None))
        if found is None:
            self._prepared = {each: state for each, state in self._prepared.items() if each() is not None}
            found = user.prepare(self.memory, self.others)
        elif filled is None or filled() is not user:
            user.fill(found, self.memory, self.others)
        self._user, self.prepared = ref(user), found
        self._prepared[calls] = found, self._user
        return found

    def _mark_outdated(self) -> None:
        """Take note that filled arguments point into old memory."""
        for calls, (prepared, _) in [*self._prepared.items()]:
            self._prepared[calls] = prepared, None

    def _enter_others(self, arenas: Mapping[str, tuple[int, int]]) -> None:
        """Make ready the memory on other devices."""
        for name, (nbytes, zeroed) in arenas.items():
            known = self.others.get(name)
            if known is None or known.nbytes < nbytes:
                self._mark_outdated()
                least = 0 if known is None else _grown(known.nbytes)
                self.others[name] = open_device(name).allocate(max(nbytes, least))
            elif zeroed:
                open_device(name).clear(known.address, zeroed)


def _grown(nbytes: int) -> int:
    """Return as how many bytes memory is made anew that is too small: calls may be a little larger each time."""
    return nbytes + nbytes // 8


class Blocks(Generic[A]):
    """The blocks of one network. Any thread may take one.

    Attributes:
        outputs: The memory of its outputs.
    """

    def __init__(self) -> None:
        self.outputs = ReusedMemory()
        self._free: list[MemoryBlock[A]] = [MemoryBlock()]

    def take(self) -> MemoryBlock[A]:
        """Return a block that nobody uses."""
        try:
            return self._free.pop()
        except IndexError:
            return MemoryBlock()

    def take_free(self) -> MemoryBlock[A] | None:
        """Return a block that nobody uses, None if there is none."""
        try:
            return self._free.pop()
        except IndexError:
            return None

    def give(self, block: MemoryBlock[A]) -> None:
        """Take a block back; the content that its latest user left there stays."""
        self._free.append(block)

    def shrink(self, nbytes: int) -> None:
        """Let go of blocks that are larger than memory is made for as many bytes as are still needed."""
        for _ in range(len(self._free)):
            block = self.take_free()
            if block is not None:
                self.give(block if block.memory.nbytes <= _grown(nbytes) else MemoryBlock())
