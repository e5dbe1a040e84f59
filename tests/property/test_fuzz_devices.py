"""Records of networks on several devices with changed fields: each is refused, or keeps to the memory that it has."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.errors import OpbuildError
from opbuild.runtime.executor import Executor
from opbuild.runtime.record_json import from_json, to_json
from support import device_models, fake_device
from support.fuzzing import changed_json, check_seeds
from support.tiers import spans

pytestmark = pytest.mark.usefixtures("kept_objects")
OUTSIDE = ("reaches beyond", "is not the device's")
"""What the device says of memory that is not its own, or not all of it."""


@pytest.fixture(scope="module")
def runner(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Executor:
    """A network of which every kernel runs on the device: whatever it is told, the host's memory is its own."""
    folder = tmp_path_factory.mktemp("devices")
    onnx.save(device_models.perceptron(), folder / "perceptron.onnx")
    network = opbuild.compile(folder / "perceptron.onnx", cache_path=folder, target=fake_device.NAME)
    (found,) = network.runners
    assert found.modules.keys() == {fake_device.NAME}
    return found


@pytest.mark.parametrize("seeds", spans(400, 100))
def test_a_record_that_was_changed_is_refused_or_keeps_to_its_memory(seeds: range, runner: Executor) -> None:
    """Extents, strides, offsets, places, sizes of arenas, devices: what passes reads and writes nothing else."""
    whole = json.loads(json.dumps(to_json(runner.record)))
    assert from_json(whole).arenas == runner.record.arenas

    def try_one(seed: int) -> tuple[str, str]:
        draw = random.Random(seed)
        part, kinds = draw.choice((*whole, "arenas", "buffers", "dims", "steps")), (4, 4, 4, 4, *range(8))
        count = draw.randint(1, 3)
        changes = [(draw.choice(kinds), draw.randint(0, 2**16), draw.randint(0, 255)) for _ in range(count)]
        try:
            record = from_json({**whole, part: changed_json(whole[part], changes)})
            inputs = [np.zeros(port.type.shape, port.type.dtype) for port in record.inputs]
            Executor(record, runner.modules, runner.constants, None).run(inputs)
        except (ValueError, LookupError, TypeError) as error:
            return "refused", type(error).__name__
        except OpbuildError as error:
            outside = any(said in str(error) for said in OUTSIDE)
            return ("wrong", f"{error}") if outside else ("failed", "")
        return "ran", ""

    tally: Any = check_seeds("records of devices", try_one, seeds)
    assert tally.outcomes["refused"] > len(seeds) / 10, tally


def test_what_is_stored_of_the_cpu_says_nothing_of_devices(tmp_path: Path) -> None:
    """Records of networks on the CPU alone are what they were before there were others."""
    onnx.save(device_models.perceptron(), tmp_path / "perceptron.onnx")
    network = opbuild.compile(tmp_path / "perceptron.onnx", cache_path=tmp_path)
    stored = to_json(network.runners[0].record)
    assert "arenas" not in stored
    assert {len(each) for each in stored["buffers"]["sorts"]} == {2}


def strided(stored: Any) -> None:
    """Let a copy read one element over and over."""
    stored["steps"]["hosts"][0]["inputs"][0][2][0][1] = 0


def on_the_host(stored: Any) -> None:
    """Let a node be evaluated on the host where a value is copied."""
    stored["steps"]["hosts"][0]["host"]["op_type"] = "Identity"


def elsewhere(stored: Any) -> None:
    """Put the caller's arrays on the device."""
    for sort in stored["buffers"]["sorts"]:
        sort[2:] = [fake_device.NAME]


def apart(stored: Any) -> None:
    """Let one of a kernel's operands be the host's."""
    stored["steps"]["buffer"][0] = stored["inputs"][0][2]


def short(stored: Any) -> None:
    """Say that the device's memory is smaller than its buffers."""
    stored["arenas"][fake_device.NAME][0] -= 64


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (strided, "its views are not dense"),
        (on_the_host, "it is evaluated on the host, and has values elsewhere"),
        (elsewhere, f"lies on {fake_device.NAME}"),
        (apart, "a kernel has operands on several devices"),
        (short, "are outside the arena of"),
    ],
)
def test_what_would_leave_memory_is_named(change: Callable[[Any], None], why: str, runner: Executor) -> None:
    """Each way in which a record on several devices can lie is refused for its own reason."""
    stored = json.loads(json.dumps(to_json(runner.record)))
    change(stored)
    with pytest.raises(ValueError, match=re.escape(why)):
        from_json(stored)
