"""Profile: where the time of a network goes, call by call.

Each call is timed in runs of the whole network, so that it meets the caches as it does in use; the median over the runs
counts. Taking the times costs about a microsecond a call, in profiled runs only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError
from opbuild.graph.types import Array, Node, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.runtime.calls import NetworkCall, node_call
from opbuild.runtime.timing import Timed, timing


class ProfileRow(NamedTuple):
    """One call of a profiled network.

    Attributes:
        call: What is called.
        milliseconds: How long it takes, the median of the runs.
        share: That over the sum of all calls.
    """

    call: NetworkCall
    milliseconds: float
    share: float

    @property
    def gflops(self) -> float:
        """Multiplications and additions in a nanosecond; 0 where they are not counted."""
        return self.call.operations / self.milliseconds / 1e6 if self.milliseconds else 0.0


class KernelRow(NamedTuple):
    """All calls of one kernel.

    Attributes:
        kernel: Its name.
        family: Its family.
        calls: How many calls there are.
        milliseconds: How long they take together.
        share: That over the sum of all calls.
        operations: Their multiplications and additions.
        nbytes: Bytes of their operands.
    """

    kernel: str
    family: str
    calls: int
    milliseconds: float
    share: float
    operations: int
    nbytes: int

    @property
    def gflops(self) -> float:
        """Multiplications and additions in a nanosecond; 0 where they are not counted."""
        return self.operations / self.milliseconds / 1e6 if self.milliseconds else 0.0


@dataclass(frozen=True)
class Profile:
    """The distribution of a network's time.

    Attributes:
        network: The network's name.
        rows: Its calls in the order in which they are made.
        milliseconds: How long a whole run takes that is not profiled, the median.
        runs: How many runs were timed.
    """

    network: str
    rows: tuple[ProfileRow, ...] = field(repr=False)
    milliseconds: float
    runs: int

    def by_kernel(self) -> tuple[KernelRow, ...]:
        """Return the times of each kernel, the one that takes longest first."""
        groups: dict[str, list[ProfileRow]] = {}
        for row in self.rows:
            groups.setdefault(row.call.kernel, []).append(row)
        rows = [
            KernelRow(
                kernel,
                group[0].call.family,
                len(group),
                sum(row.milliseconds for row in group),
                sum(row.share for row in group),
                sum(row.call.operations for row in group),
                sum(row.call.nbytes for row in group),
            )
            for kernel, group in groups.items()
        ]
        return tuple(sorted(rows, key=lambda row: -row.milliseconds))


def profiled(network: str, run: Callable[[], Any], runs: int) -> Profile:
    """Time the calls of a network.

    Args:
        network: Its name.
        run: Runs it, always in the same way.
        runs: How often it is timed; it runs once before, and as often without being profiled.

    Raises:
        InputError: If there is to be no run.
    """
    if runs < 1:
        raise InputError(f"runs is {runs}", "time one run at least")
    run()
    whole, timed = [], []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        whole.append(time.perf_counter() - started)
        with timing() as timer:
            run()
        timed.append(timer.calls)
    last = timed[-1]
    same = [calls for calls in timed if [each[:2] for each in calls] == [each[:2] for each in last]]
    seconds = np.median([[each.seconds for each in calls] for calls in same], axis=0).tolist()
    total = sum(seconds) or 1.0
    rows = tuple(
        ProfileRow(call_of(each), 1e3 * taken, taken / total) for each, taken in zip(last, seconds, strict=True)
    )
    return Profile(network, rows, 1e3 * float(np.median(whole)), runs)


def call_of(timed: Timed) -> NetworkCall:
    """Describe a call whose time was taken."""
    return node_call(timed.what) if isinstance(timed.what, Node) else timed.what.call_of(timed.step)


def random_input(type_: TensorType, generator: np.random.Generator) -> Array:
    """Return random numbers of a type; integers are 0 or 1, so that they are valid indices.

    Raises:
        InputError: If it is no type of numbers.
    """
    dtype = numpy_dtype(type_.dtype)
    if dtype.hasobject:
        raise InputError(
            "an input is text, a map or a sequence, for which no random numbers stand",
            "call the network from Python with values of your own",
        )
    if "float" in dtype.name:
        return generator.standard_normal(type_.shape).astype(dtype)
    return generator.integers(0, 2, type_.shape).astype(dtype)


def random_inputs(types: Mapping[str, TensorType], seed: int = 0) -> dict[str, Array]:
    """Return random numbers for inputs.

    Raises:
        InputError: If an extent of one is open.
    """
    for name, type_ in types.items():
        if FREE in type_.shape:
            raise InputError(f"the shape of input {name!r} is open", "give arrays to profile the network with")
    generator = np.random.default_rng(seed)
    return {name: random_input(type_, generator) for name, type_ in types.items()}
