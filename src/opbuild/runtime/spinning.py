"""How a network's idle threads wait: a replacement for one function of Halide's runtime, as an object to link.

An idle thread of Halide's pool asks 40 times whether there is work, calling ``halide_thread_yield`` (``sched_yield``,
0.3 us) in between, and then sleeps. A network is many short parallel loops one after the other, and waking a thread for
each costs more than the loop: with threads that keep looking for 0.2 ms instead, ResNet-50 ran in 0.90 and SqueezeNet
in 0.6 of the time (two cores of a virtual machine, where a sleeping core wakes slowly). The function is a weak symbol,
so the one given here takes its place. It still ends in ``sched_yield``: whoever needs the core gets it.

There may be no compiler where networks are linked, so the function is kept as machine code, its assembly beside it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

TICKS = 10_000
"""Ticks of the x86 time stamp counter (2 to 4 GHz) between two looks for work: about 4 us; 40 looks, then sleep."""

_NAME, _NEXT = b"halide_thread_yield", b"sched_yield"

_ELF_HEADER = "<4sBBBB8xHHIQQQIHHHHHH"
_SECTION = "<IIQQQQIIQQ"
_SYMBOL = "<IBBHQQ"
_RELA = "<QQq"
_PROGBITS, _SYMTAB, _STRTAB, _RELA_TYPE = 1, 2, 3, 4
_ALLOC_EXEC, _INFO_LINK = 0x6, 0x40
_GLOBAL_FUNCTION, _GLOBAL = 0x12, 0x10


class _Code(NamedTuple):
    """Machine code of one architecture, with the one place where the address of ``sched_yield`` goes.

    Attributes:
        machine: ELF's number of the architecture.
        text: The code.
        place: Offset of the relocation.
        kind: ELF's number of the relocation.
        addend: What the relocation adds.
    """

    machine: int
    text: bytes
    place: int
    kind: int
    addend: int


_X86_64 = _Code(
    machine=62,
    text=b"".join(
        (
            b"\x0f\x31",  # rdtsc
            b"\x89\xc1",  # mov ecx, eax
            b"\xf3\x90",  # again: pause
            b"\x0f\x31",  # rdtsc
            b"\x29\xc8",  # sub eax, ecx
            b"\x3d" + struct.pack("<I", TICKS),  # cmp eax, TICKS
            b"\x72\xf3",  # jb again
            b"\xe9\x00\x00\x00\x00",  # jmp sched_yield
        )
    ),
    place=18,
    kind=4,  # R_X86_64_PLT32
    addend=-4,
)

_ARM_64 = _Code(
    machine=183,
    text=struct.pack(
        "<9I",
        0xD53BE001,  # mrs x1, cntfrq_el0
        0xD352FC21,  # lsr x1, x1, #18: ticks in 3.8 us
        0xD53BE042,  # mrs x2, cntvct_el0
        0xD5033FDF,  # again: isb, the pause of Arm
        0xD53BE040,  # mrs x0, cntvct_el0
        0xCB020000,  # sub x0, x0, x2
        0xEB01001F,  # cmp x0, x1
        0x54FFFF83,  # b.lo again
        0x14000000,  # b sched_yield
    ),
    place=32,
    kind=282,  # R_AARCH64_JUMP26
    addend=0,
)

_CODES = {"x86-64-linux": _X86_64, "arm-64-linux": _ARM_64}


@lru_cache(maxsize=4)
def spinning_object(triple: str) -> bytes | None:
    """Return a relocatable object that defines ``halide_thread_yield``; None where Halide's own is to be kept.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    code = _CODES.get(triple)
    return None if code is None else _object(code)


def _object(code: _Code) -> bytes:
    """Return an ELF object (https://refspecs.linuxfoundation.org/elf/elf.pdf) with one function that ends in a jump."""
    strings = b"\0" + _NAME + b"\0" + _NEXT + b"\0"
    symbols = struct.pack(_SYMBOL, 0, 0, 0, 0, 0, 0)
    symbols += struct.pack(_SYMBOL, 1, _GLOBAL_FUNCTION, 0, 1, 0, len(code.text))
    symbols += struct.pack(_SYMBOL, 2 + len(_NAME), _GLOBAL, 0, 0, 0, 0)
    relocations = struct.pack(_RELA, code.place, 2 << 32 | code.kind, code.addend)
    names = b"\0.text\0.rela.text\0.symtab\0.strtab\0.shstrtab\0.note.GNU-stack\0"
    sections = (  # name, type, flags, contents, link, info, alignment, size of an entry
        (b".text", _PROGBITS, _ALLOC_EXEC, code.text, 0, 0, 16, 0),
        (b".rela.text", _RELA_TYPE, _INFO_LINK, relocations, 3, 1, 8, struct.calcsize(_RELA)),
        (b".symtab", _SYMTAB, 0, symbols, 4, 1, 8, struct.calcsize(_SYMBOL)),
        (b".strtab", _STRTAB, 0, strings, 0, 0, 1, 0),
        (b".shstrtab", _STRTAB, 0, names, 0, 0, 1, 0),
        (b".note.GNU-stack", _PROGBITS, 0, b"", 0, 0, 1, 0),
    )
    body = bytearray(struct.calcsize(_ELF_HEADER))
    table = bytearray(struct.calcsize(_SECTION))
    for name, kind, flags, contents, link, info, alignment, entry in sections:
        body += bytes(-len(body) % 16)
        where = names.index(b"\0" + name + b"\0") + 1
        table += struct.pack(_SECTION, where, kind, flags, 0, len(body), len(contents), link, info, alignment, entry)
        body += contents
    body += bytes(-len(body) % 16)
    header = (b"\x7fELF", 2, 1, 1, 0, 1, code.machine, 1, 0, 0, len(body), 0, struct.calcsize(_ELF_HEADER), 0, 0)
    struct.pack_into(_ELF_HEADER, body, 0, *header, struct.calcsize(_SECTION), len(sections) + 1, 5)
    return bytes(body + table)
