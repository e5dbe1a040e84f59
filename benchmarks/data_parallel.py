"""A step of data-parallel training over a network that is slow on purpose: beside computation, and in turn.

    python benchmarks/data_parallel.py                      # two ranks, one thread each
    python benchmarks/data_parallel.py --ranks 4 --width 512 --bucket 2

Each rank sleeps as long as its part of a ring would take to send (2 (n - 1) / n of the bytes, at the rate given), on
top of what the shared memory of one host takes. Steps with and without communication beside computation take turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

RATES = (0.0, 25.0, 10.0, 5.0, 2.5, 1.0)
"""Gigabits a second; 0 for nothing but shared memory."""


def main() -> None:
    """Start the ranks, or be one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--batch", type=int, default=256, help="rows of each rank")
    parser.add_argument("--bucket", type=int, default=8, help="megabytes of gradients that go together")
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--is-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.is_rank:
        measure(options)
        return
    command = [sys.executable, "-m", "opbuild", "launch", "-n", str(options.ranks), *sys.argv, "--is-rank"]
    sys.exit(subprocess.run(command, check=False).returncode)


def measure(options: argparse.Namespace) -> None:
    """Train as one rank; rank 0 prints."""
    import opbuild.mindspore as ms
    from opbuild.mindspore import context, nn
    from opbuild.mindspore.communication import get_rank, init
    from opbuild.ranks import world

    ms.set_context(mode=ms.GRAPH_MODE, runtime_num_threads=1)
    init()
    fusion = {"allreduce": {"mode": "size", "config": options.bucket}}
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, comm_fusion=fusion)
    ms.set_seed(1)
    layers: list[Any] = []
    for _ in range(options.layers):
        layers += [nn.Dense(options.width, options.width), nn.ReLU()]
    net = nn.SequentialCell(*layers[:-1])
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 1e-3))
    random = np.random.default_rng(get_rank())
    x, y = (ms.Tensor(random.standard_normal((options.batch, options.width)).astype(np.float32)) for _ in range(2))
    network = SlowNetwork(world.connected())
    world._WORLD.transport = network
    step(x, y)
    say = print if get_rank() == 0 else (lambda *_: None)
    say(f"{options.layers} layers of {options.width}, {options.batch} rows a rank, {options.ranks} ranks")
    say(
        "| network | in the network, ms | step in turn, ms | step beside, ms | saved | processor ms, in turn | beside |"
    )
    say("|---|---:|---:|---:|---:|---:|---:|")
    for rate in RATES:
        network.rate = rate
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        sent = []
        for number in range(2 * options.steps):
            beside = bool(number % 2)
            network.serves_threads, network.slept = beside, 0.0
            world._WORLD.line = None
            started, used = time.perf_counter(), time.process_time()
            step(x, y)
            found[beside].append((1e3 * (time.perf_counter() - started), 1e3 * (time.process_time() - used)))
            sent.append(1e3 * network.slept)
        (turn, turn_used), (side, side_used) = (
            [statistics.median(each) for each in zip(*found[way], strict=True)] for way in (False, True)
        )
        named = f"{rate:g} Gbit/s" if rate else "shared memory"
        say(
            f"| {named} | {statistics.median(sent):.1f} | {turn:.1f} | {side:.1f} | {1 - side / turn:.0%} "
            f"| {turn_used:.1f} | {side_used:.1f} |"
        )


class SlowNetwork:
    """A transport behind which a network of some rate is simulated."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.rank, self.size = transport.rank, transport.size
        self.local_rank, self.local_size = transport.local_rank, transport.local_size
        self.serves_threads = True
        self.rate = self.slept = 0.0

    def run(self, collective: Any, array: Any) -> Any:
        """Take part, as long as it would take there."""
        if self.rate:
            seconds = 2 * (self.size - 1) / self.size * array.nbytes * 8 / (self.rate * 1e9)
            time.sleep(seconds)
            self.slept += seconds
        return self._transport.run(collective, array)

    def close(self) -> None:
        """Let go of the other ranks."""
        self._transport.close()


if __name__ == "__main__":
    main()
