"""Placement: random programs give the same wherever their calls are, and nothing is read where it is not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering.placement import _Placing, place
from opbuild.program import Buffer, HostCall, KernelCall, Port, Program, Repeated, View
from opbuild.runtime.memory_plan import plan
from opbuild.target import devices
from opbuild.target.devices import DeviceClass, DeviceCost, register
from opbuild.target.level import CPU
from support.fuzzing import check_seeds
from support.tiers import spans

NAME = "placed-on"
SIZE = 12


class Class(DeviceClass):
    """Has kernels for one family."""

    @staticmethod
    def kinds() -> dict[str, Any]:
        """Return nothing: none is compiled."""
        return {}

    @staticmethod
    def kernel(desc: OpDesc, /) -> OpDesc | None:
        """Return the same, for the device."""
        return replace(desc, target=f"{NAME}:1") if desc.family == "served" else None

    @staticmethod
    def layouts(family: str, /) -> Collection[str] | None:
        """Return one layout beside plain ones."""
        return ("striped",) if family == "served" else None


class Dear(Class):
    """Says what its kernels and copies cost."""

    def __init__(self, kernel: DeviceCost, copy: DeviceCost) -> None:
        self.costs = kernel, copy

    def kernel_cost(self, _: str, /) -> DeviceCost:
        """Return the same for all."""
        return self.costs[0]

    def copy_cost(self) -> DeviceCost:
        """Return the cost of a copy."""
        return self.costs[1]


CLASS = Class()
register(NAME, f"{__name__}:CLASS")


def desc(family: str, inputs: int) -> OpDesc:
    """Return a kernel that adds up its inputs."""
    names = [f"x{index}" for index in range(inputs)]
    given = tuple(Operand(name, "float32", (Dim(),)) for name in names)
    return OpDesc(("Sum",), family, given, (Operand("out", "float32", (Dim(),)),))


def drawn(draw: random.Random) -> Program:
    """Return a program of sums, on the whole of buffers or a half, some on the host, some run again or not at all."""
    kinds = ["input", "input", "constant", *("temporary",) * draw.randint(1, 5), "output", "output"]
    if draw.random() < 0.3:
        kinds[-1] = "temporary"
    buffers = [
        Buffer(
            kind, "float32", SIZE, "edge" if kind == "temporary" and draw.random() < 0.3 else None,
            pack=lambda: np.arange(SIZE, dtype=np.float32), source=draw.choice((None, lambda: "values")),
        )
        if kind == "constant" else Buffer(kind, "float32", SIZE)
        for kind in kinds
    ]  # fmt: skip
    halves = {index: {0, 1} if index < 3 else set[int]() for index in range(len(kinds))}
    calls: list[KernelCall | HostCall] = []
    repeated: Repeated | None = None

    def add(target: int, own: set[int], sources: list[int], *, is_last: bool) -> None:
        nonlocal repeated
        start, size = min(own) * SIZE // 2, len(own) * SIZE // 2
        views = [View(each, start, ((size, 1),)) for each in (*sources, target)]
        name, types = (f"n{len(calls)}",), (TensorType("float32", (size,)),)
        if draw.random() < 0.25:
            halves[target] |= own
            node = Node("Sum", (), (), name=name[0])
            calls.append(HostCall(node, (*views[:-1],), (views[-1],), types * len(sources), types, 0))
            return
        repeated = (repeated or Repeated(draw.randint(0, 1))) if draw.random() < 0.3 and not is_last else None
        halves[target] |= own if repeated is None or repeated.count else set()
        family = draw.choice(("served", "other"))
        calls.append(KernelCall(desc(family, len(sources)), tuple(views), name, draw.randint(0, 99), repeated))

    targets = [index for index, kind in enumerate(kinds) if kind not in ("input", "constant")]
    outputs = [index for index, kind in enumerate(kinds) if kind == "output"]
    drawn_targets = [*draw.choices(targets, k=draw.randint(3, 14)), *outputs]
    for number, target in enumerate(drawn_targets):
        is_last = number >= len(drawn_targets) - len(outputs)
        own = {0, 1} if is_last else draw.choice(({0, 1}, {0, 1}, {0}, {1}))
        known = [each for each in halves if own <= halves[each]]
        add(target, own, draw.choices(known, k=draw.randint(1, 3)), is_last=is_last)
    ports = [Port(f"p{index}", TensorType("float32", (SIZE,)), index) for index in (0, 1, *outputs)]
    return Program("drawn", tuple(buffers), tuple(calls), tuple(ports[:2]), tuple(ports[2:]))


def ran(program: Program) -> list[Any]:
    """Return the outputs of a program: each device has memory of its own, in the places that are planned."""
    planned, memory = plan(program), {}
    sizes = {CPU: planned.size, **{name: size for name, (size, _) in planned.others.items()}}
    arenas = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    for index, buffer in enumerate(program.buffers):
        if buffer.kind == "temporary":
            place_ = int(planned.offsets[index])
            memory[index] = arenas[buffer.device][place_ : place_ + 4 * SIZE].view(np.float32)
        else:
            memory[index] = np.arange(SIZE, dtype=np.float32) * (1 + index * (buffer.kind == "input"))

    def window(view: View | None, device: str) -> Any:
        assert view is not None
        assert program.buffers[view.buffer].device == device
        return memory[view.buffer][view.offset : view.offset + view.dims[0][0]]

    for call in program.calls:
        if isinstance(call, HostCall) and call.is_copy:
            (source,), (target,) = call.inputs, call.outputs
            assert source is not None and target is not None  # noqa: PT018
            devices = [program.buffers[view.buffer].device for view in (source, target)]
            assert sorted(devices) == sorted((CPU, NAME))
            window(target, devices[1])[:] = window(source, devices[0])
            continue
        if isinstance(call, KernelCall) and call.repeated is not None and not call.repeated.count:
            continue
        device = call.desc.device if isinstance(call, KernelCall) else CPU
        given = [window(view, device) for view in call.inputs]
        window(call.outputs[0], device)[:] = sum(given) % 8191
    return [memory[port.buffer].copy() for port in program.outputs]


def try_one(seed: int) -> tuple[str, str] | None:
    """Compare the program of a seed with itself, placed."""
    program = drawn(random.Random(seed))
    placed = place(program, NAME)
    for one, other in zip(ran(program), ran(placed), strict=True):
        np.testing.assert_array_equal(one, other)
    kernels = [call for call in placed.calls if isinstance(call, KernelCall)]
    assert all(
        (each.desc.device == NAME) == (each.desc.family == "served" and each.repeated is None) for each in kernels
    )
    return ("placed", "") if placed.calls != program.calls else None


@pytest.mark.parametrize("seeds", spans(300, 100))
def test_random_programs_give_the_same_wherever_their_calls_are(seeds: range) -> None:
    """Copies bring what is read, and what is written in parts keeps the others; calls that repeat stay together."""
    check_seeds("programs on devices", try_one, seeds)


def nanoseconds(program: Program, costs: Dear) -> float:
    """Return the sum of what all calls that can be on either device take, and all copies."""
    kernel, copy = costs.costs
    total = 0.0
    for call in program.calls:
        nbytes = sum(4 * view.dims[0][0] for side in (call.inputs, call.outputs) for view in side if view)
        if isinstance(call, HostCall):
            total += call.is_copy * (copy.call + copy.byte * nbytes / 2)
        else:
            total += kernel.call + kernel.byte * nbytes if call.desc.device == NAME else call.work
    return total


def try_costs(seed: int, patch: pytest.MonkeyPatch) -> tuple[str, str] | None:
    """Compare the placement of a seed's program at a seed's costs with all that there could be instead."""
    draw = random.Random(seed)
    program, copy = drawn(draw), DeviceCost(draw.randint(0, 60), draw.choice((0, 0, 1)))
    dear = Dear(DeviceCost(draw.randint(0, 40), draw.choice((0, 0, 1))), copy)
    with patch.context() as patched:
        patched.setitem(devices._LOADED, NAME, dear)
        placed = place(program, NAME)
        for one, other in zip(ran(program), ran(placed), strict=True):
            np.testing.assert_array_equal(one, other)
        steps = [*_Placing(program, NAME)._steps()]
        ways = [*itertools.product(*((False, True) if step.served else (False,) for step in steps))]
        if len(ways) > 128:
            return "too many", ""
        totals = []
        for way in ways:
            patched.setattr(_Placing, "_device_steps", lambda *_, way=way: way)
            totals.append(nanoseconds(place(program, NAME), dear))
    assert nanoseconds(placed, dear) == min(totals)
    return ("split", "") if totals[0] > min(totals) < totals[-1] else None


@pytest.mark.parametrize("seeds", spans(200, 50))
def test_no_other_placement_of_a_program_costs_less(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all ways to place its calls, with the copies that each takes: on chains, and on whatever else is drawn."""
    tally = check_seeds("costs of placements", lambda seed: try_costs(seed, monkeypatch), seeds)
    assert tally.outcomes["split"] > len(seeds) / 20, tally


def copies(calls: Sequence[Any]) -> int:
    """Return how many of the calls are copies."""
    return sum(isinstance(call, HostCall) and call.is_copy for call in calls)


def test_what_only_the_device_touches_is_not_copied() -> None:
    """Of a chain on the device, the input goes there, the result comes back, and constants are uploaded once."""
    view = [View(index, 0, ((SIZE, 1),)) for index in range(4)]
    constant = Buffer("constant", "float32", SIZE, pack=lambda: np.zeros(SIZE), source=lambda: "values")
    buffers = (
        Buffer("input", "float32", SIZE),
        constant,
        *(Buffer(k, "float32", SIZE) for k in ("temporary", "output")),
    )
    calls = (
        KernelCall(desc("served", 2), (view[0], view[1], view[2]), ("one",)),
        KernelCall(desc("served", 2), (view[2], view[1], view[3]), ("other",)),
    )
    ports = [Port(name, TensorType("float32", (SIZE,)), index) for name, index in (("x", 0), ("y", 3))]
    placed = place(Program("chain", buffers, calls, tuple(ports[:1]), tuple(ports[1:])), NAME)
    assert copies(placed.calls) == 2
    assert [(each.kind, each.device) for each in placed.buffers if each.device == NAME and each.kind == "constant"]
    assert plan(placed).size == 0


def test_without_kernels_a_program_stays_as_it_is() -> None:
    """Nothing is copied, and no buffer is added."""
    buffers = (Buffer("input", "float32", SIZE), Buffer("output", "float32", SIZE))
    call = KernelCall(desc("other", 1), (View(0, 0, ((SIZE, 1),)), View(1, 0, ((SIZE, 1),))), ("only",))
    ports = [Port(name, TensorType("float32", (SIZE,)), index) for name, index in (("x", 0), ("y", 1))]
    program = Program("one", buffers, (call,), tuple(ports[:1]), tuple(ports[1:]))
    placed = place(program, NAME)
    assert (placed.buffers, [each.desc for each in placed.calls if isinstance(each, KernelCall)]) == (
        buffers,
        [call.desc],
    )


@pytest.mark.parametrize(("layout", "device"), [("", NAME), ("striped", NAME), ("blocked", CPU)])
def test_a_call_stays_where_its_operands_layout_is_known(layout: str, device: str) -> None:
    """A kernel of the device is given no operand that lies in another way than it takes."""
    buffers = [Buffer(kind, "float32", SIZE) for kind in ("input", "output")]
    between = Buffer("temporary", "float32", SIZE, layout=layout)
    views = [View(index, 0, ((SIZE, 1),)) for index in range(3)]
    calls = (
        KernelCall(desc("other", 1), (views[0], views[2]), ("one",)),
        KernelCall(desc("served", 1), (views[2], views[1]), ("other",)),
    )
    ports = [Port(name, TensorType("float32", (SIZE,)), index) for index, name in enumerate("xy")]
    placed = place(Program("laid", (*buffers, between), calls, (ports[0],), (ports[1],)), NAME)
    assert [each.desc.device for each in placed.calls if isinstance(each, KernelCall)] == [CPU, device]
    assert len(placed.calls) == (4 if device == NAME else 2)
