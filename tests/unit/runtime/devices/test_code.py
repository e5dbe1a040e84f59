"""The code of a network: of the CPU alone its shared library, of several devices all of it one behind the other."""

from __future__ import annotations

import random

import pytest

from opbuild.errors import LinkError
from opbuild.runtime.devices.device import joined, open_device, parted
from opbuild.runtime.executor import load_code
from opbuild.target.level import CPU
from support.fuzzing import changed, check_seeds
from support.tiers import spans


def test_code_of_the_cpu_alone_is_its_library() -> None:
    """As it was stored before there were others; nothing is nothing."""
    assert joined({CPU: b"\x7fELF..."}) == b"\x7fELF..."
    assert parted(b"\x7fELF...") == {CPU: b"\x7fELF..."}
    assert (joined({}), parted(b""), load_code(b"", 2)) == (b"", {}, {})


def test_code_of_several_comes_apart_as_it_was_put_together() -> None:
    """Whatever bytes each has, the CPU's or none."""
    for code in ({CPU: b"one\n", "other": b"\n\x00two"}, {"other": b""}, {"a": b"1", "b": b"2"}):
        assert parted(joined(code)) == code


@pytest.mark.parametrize("seeds", spans(200, 50))
def test_code_that_was_changed_is_refused_or_some_code(seeds: range) -> None:
    """It was compared with its digest before; whatever passes that raises nothing but what is said."""
    whole = joined({CPU: b"library", "other": b"kernels"})

    def try_one(seed: int) -> tuple[str, str]:
        draw = random.Random(seed)
        data = changed(whole, [(draw.randint(0, 7), draw.randint(0, 99), draw.randint(0, 255)) for _ in range(3)])
        try:
            return ("read", "") if all(type(each) is bytes for each in parted(data).values()) else ("wrong", "")
        except LinkError:
            return "refused", ""

    check_seeds("code of several devices", try_one, seeds)


def test_a_device_that_is_not_there_is_named() -> None:
    """A network that was stored by a program that had it is built again."""
    with pytest.raises(LinkError, match="there is no device 'gone' here"):
        open_device("gone")
    with pytest.raises(LinkError, match="'gone'"):
        load_code(joined({"gone": b"code"}), 1)
