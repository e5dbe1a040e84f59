"""Records that lie: every number of a stored network and of an offline model changed, under digests that fit.

Whoever can write such a file can put other machine code there as well; but a lie about sizes or offsets, from whatever
fault, must be refused before memory is touched that is not the network's. An oracle of the test's own, which adds up
bytes and knows nothing of the code that is tested, says what a record may touch.
"""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.errors import OpbuildError
from opbuild.kernel.networks import NetworkKey
from opbuild.offline.file import PackedWeights, write_offline
from opbuild.offline.format import PLAN, Section, open_container, write_container
from opbuild.offline.load import load
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.trust import seal_text, unseal
from opbuild.program import View
from opbuild.runtime.changes import first_change
from opbuild.runtime.devices.cpu.library import Library
from opbuild.runtime.executor import Executor
from opbuild.runtime.record import KernelStep, Ports, Record, Steps, Storages
from opbuild.runtime.record_json import from_json, to_json
from opbuild.runtime.soundness import Soundness, problem
from opbuild.runtime.stored_network import LoadedNetwork
from opbuild.target.host import host_level
from opbuild.target.level import CPU
from support.handmade import build, chain, image_store

SIZE = 64 * 1024  # elements: the weights have a file of their own
KEY = NetworkKey("lies", {"model": "m", "inputs": [["x", "float32", [SIZE]]]}, lambda: "halide-1")
LIES = (-1, 1, 3, 64, SIZE + 64, 2 * SIZE, 2**31 - 1, 2**31, 2**40, 2**62, 2**64, 1e400, -(2**62), None, "x", True)


def numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where in a JSON value the numbers are."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from numbers(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from numbers(inner, (*path, index))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def changed(value: Any, path: tuple[Any, ...], lie: Any) -> Any:
    """Return a JSON value with another one at a place."""
    copied = copy.deepcopy(value)
    place = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = lie
    return copied


def touched(record: Record, constants: tuple[Any, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield for each view of a kernel the first and last byte that it reaches, and how many bytes are really there."""
    ports = {"input": [port.type for port in record.inputs], "output": [port.type for port in record.outputs]}
    for step in record.steps:
        for view in step.views:  # type: ignore[union-attr]  there are no host calls
            buffer = record.buffers[view.buffer]
            width = np.dtype(buffer.dtype).itemsize
            if buffer.kind == "temporary":
                start, room = buffer.place, record.arena_size
            elif buffer.kind == "constant":
                start, room = 0, constants[buffer.place].nbytes
            else:
                type_ = ports[buffer.kind][buffer.place]
                start, room = 0, int(np.prod(type_.shape)) * np.dtype(type_.dtype).itemsize
            low = high = view.offset
            for extent, stride in view.dims:
                low, high = low + min(0, (extent - 1) * stride), high + max(0, (extent - 1) * stride)
            if all(extent for extent, _ in view.dims):
                yield start + low * width, start + (high + 1) * width, room


def is_safe(record: Record, constants: tuple[Any, ...]) -> bool:
    """Return whether the record is for the inputs that were asked for, and all that it touches is its own."""
    shapes = [(port.type.dtype, port.type.shape) for port in record.inputs]
    return shapes == [("float32", (SIZE,))] and all(
        0 <= low <= high <= room for low, high, room in touched(record, constants)
    )


def test_every_number_of_a_stored_network_may_lie(tmp_path: Path) -> None:
    """F36, F58: whatever a record says under a digest that fits, it is refused or touches only its own memory."""
    store = image_store(tmp_path)
    weights = store.packer()
    built = build(chain(SIZE), weights)
    store.save(KEY, built.record, built.library, built.constants, weights)
    (path,) = tmp_path.glob("*.json")
    content = unseal(path.read_bytes(), path.name)
    refused = accepted = 0
    for where in numbers(content):
        for lie in LIES[::2]:
            body = json.dumps(changed(content, where, lie), sort_keys=True, separators=(",", ":")).encode()
            path.write_bytes(seal_text(body, path.name))
            image = store.load(KEY)
            if isinstance(image, LoadedNetwork):
                accepted += 1
                assert is_safe(image.record, image.constants), (where, lie)
                start(image)
            else:
                refused += 1
                assert image, (where, lie)
    assert refused > 5 * accepted > 0


def start(image: LoadedNetwork) -> None:
    """Make a network ready to run, as far as memory and addresses; it may refuse."""
    try:
        Executor(image.record, {CPU: Library(image.library, 1)}, image.constants, None)
    except OpbuildError:
        assert image.record.arena_size > 2**31  # more than there is


def write_model(path: Path) -> Path:
    """Write an offline model."""
    weights = PackedWeights()
    built = build(chain(SIZE))
    record = replace(built.record, constants=weights.place(built.constants.arrays))
    write_offline(path, name="lies", level=host_level(), records=[record],
                  library=built.library, weights=weights, build={"model": "m"})  # fmt: skip
    return path


@pytest.mark.slow
def test_every_number_of_an_offline_models_plan_may_lie(tmp_path: Path) -> None:
    """F58: a plan under a digest that fits is refused with opbuild's own error, or touches only its own memory."""
    path = write_model(tmp_path / "sound.om")
    container = open_container(path)
    others = [Section(kind, index, [container.section(kind, index).tobytes()])
              for kind, index in container.places if kind != PLAN]  # fmt: skip
    plan = json.loads(container.section(PLAN).tobytes())
    lying = tmp_path / "lying.om"
    refused = 0
    for where in numbers(plan):
        for lie in LIES[::5]:
            write_container(lying, [*others, Section(PLAN, 0, [json.dumps(changed(plan, where, lie)).encode()])])
            try:
                network = load(lying)
            except OpbuildError:
                refused += 1
            else:
                executor = network._bindings[((SIZE,),)].executor
                assert is_safe(executor.record, executor.constants), (where, lie)
    assert refused > 50


def test_every_field_of_an_offline_models_table_may_lie(tmp_path: Path) -> None:
    """F58: sizes and offsets of the container, under a digest of the table that fits: an error, or the right values."""
    path = write_model(tmp_path / "sound.om")
    data, x = path.read_bytes(), np.ones(SIZE, np.float32)
    expected = load(path)(x)
    count = struct.unpack_from("<I", data, 12)[0]
    fields = [(offset, "<I" if offset < 16 else "<Q") for offset in (8, 12, 16)]
    fields += [(64 + 64 * section + at, form) for section in range(count)
               for at, form in ((0, "<I"), (4, "<I"), (8, "<Q"), (16, "<Q"))]  # fmt: skip
    refused = 0
    for offset, form in fields:
        for lie in (0, 63, 64, 4096, len(data), len(data) - 64, 2**32 - 1, 2**63, 2**64 - 64):
            lying = bytearray(data)
            struct.pack_into(form, lying, offset, lie & (2**32 - 1 if form == "<I" else 2**64 - 1))
            sections = struct.unpack_from("<I", lying, 12)[0]
            lying[32:64] = bytes.fromhex(blake3_of(bytes(lying[:32]) + bytes(lying[64 : 64 + 64 * sections])))
            path.write_bytes(lying)
            try:
                np.testing.assert_array_equal(load(path)(x), expected)
            except OpbuildError:
                refused += 1
    assert refused > 5 * len(fields)


def test_what_looks_sound_at_once_is_sound_number_by_number() -> None:
    """The short look at a record accepts what is usual, and nothing that the careful one refuses."""
    record, draw = build(chain(64)).record, np.random.default_rng(0)
    assert Soundness(record)._is_plain(record)
    accepted = 0
    for _ in range(300):
        steps, buffers = record.steps, record.buffers
        columns = {
            "size": buffers.size.copy(), "place": buffers.place.copy(), "offset": steps.offset.copy(),
            "pairs": steps.dims.pairs.copy(), "extents": record.outputs.extents.copy(),
        }  # fmt: skip
        column = columns[str(draw.choice([*columns]))].reshape(-1)
        lie = int(draw.choice([-(2**62), -64, -1, 0, 1, 2, 63, 64, 128, 2**31, 2**40, 2**57, 2**62]))
        column[draw.integers(len(column))] = lie
        lying = replace(
            record,
            buffers=buffers.with_(size=columns["size"], place=columns["place"]),
            steps=steps.with_(offset=columns["offset"], dims=steps.dims.with_(pairs=columns["pairs"])),
            outputs=record.outputs.with_(extents=columns["extents"]),
        )
        checked = Soundness(lying)
        if checked.structure() is None and checked._is_plain(lying):
            accepted += 1
            assert (checked._unplaced_buffer(lying) or checked._overreaching_view(lying)) is None
    assert 0 < accepted < 150


def test_a_record_whose_outputs_are_not_each_written_is_refused() -> None:
    """What nothing writes would be whatever memory held, of this process or of another (F81)."""
    record = build(chain(SIZE)).record
    (port,) = record.outputs
    assert problem(record) is None
    assert "0 of them are written" in str(problem(replace(record, steps=Steps.of(record.steps[:-1]))))
    assert "which nothing wrote before" in str(problem(replace(record, steps=Steps.of(record.steps[::-1]))))
    assert "out has the buffer of output 0" in str(problem(replace(record, outputs=Ports.of([port, port]))))
    *others, last = record.steps
    assert isinstance(last, KernelStep)
    half = last._replace(views=tuple(halved(view) for view in last.views))
    assert f"{SIZE // 2} of them are written" in str(problem(replace(record, steps=Steps.of([*others, half]))))


def test_a_kernel_of_several_outputs_writes_all_of_them() -> None:
    """One call in the place of two; said to write less or more than it has, the record is refused."""
    record = build(chain(SIZE)).record
    first, second, third = record.steps
    assert isinstance(first, KernelStep)
    assert isinstance(second, KernelStep)
    both = first._replace(views=(*first.views, second.views[-1]), writes=2)
    joined = replace(record, steps=Steps.of([both, third]))
    assert problem(joined) is None
    assert problem(from_json(to_json(joined))) is None
    for writes, wrong in ((1, "which nothing wrote before"), (3, "would write to an input")):
        assert wrong in str(problem(replace(record, steps=Steps.of([both._replace(writes=writes), third]))))
    for count in (0, -1, 5):
        with pytest.raises(ValueError, match=f"of 4 arguments writes {count}"):
            from_json(to_json(replace(record, steps=Steps.of([both._replace(writes=count), third]))))


def test_an_input_is_written_only_where_it_is_returned() -> None:
    """A record that replaces an input says so by its output, stored too; one that writes there untold is refused."""
    record = build(chain(SIZE)).record
    (given,), (port,) = record.inputs, record.outputs
    *steps, last = record.steps
    assert isinstance(last, KernelStep)
    moved = last._replace(views=(*last.views[:-1], last.views[-1]._replace(buffer=given.buffer)))
    untold = replace(record, steps=Steps.of([*steps, moved]))
    assert "would write to an input" in str(problem(untold))
    replacing = replace(untold, outputs=Ports.of([port._replace(buffer=given.buffer)]))
    assert "not the one of output 0" in str(problem(replacing))
    buffers = [each._replace(kind="temporary", size=0) if each.kind == "output" else each for each in record.buffers]
    replacing = replace(replacing, buffers=Storages.of(buffers))
    assert problem(from_json(to_json(replacing))) is None
    assert (first_change(record), first_change(replacing)) == (None, len(steps))


def halved(view: View) -> View:
    """Return the first half of a view."""
    return view._replace(dims=tuple((extent // 2, stride) for extent, stride in view.dims))
