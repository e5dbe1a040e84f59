"""Rates of the kernels beside torch's, by events, with rotating inputs.

Both run as graphs, so that launches cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import calls
import numpy as np
from calls import Call, Tensor
from cases import CASES

Array = np.ndarray[Any, Any]

ROTATED = 120 * 2**20
"""Bytes of the copies that calls take in turn: more than twice the cache of 50 MB."""

MOST_COPIES = 16
CALLS_IN_A_GRAPH = 16
MEASURES = 9

MATMULS = [
    (m, n, k) for m in (1, 16, 128, 1024, 8192) for n, k in ((768, 768), (3072, 768), (4096, 4096))
    if (m, n, k) not in ((16, 768, 768), (128, 4096, 4096), (8192, 768, 768))
]  # fmt: skip
"""Twelve shapes: of BERT-base's layers and of a language model's."""

ATTENTIONS = [(1, 12, 128), (8, 12, 128), (8, 12, 512), (4, 16, 2048)]
"""Batch, heads and length."""

ROWS = [(1024, 768), (8192, 768), (65536, 1024)]
"""Rows and columns for softmax and layer normalization."""


@dataclass(frozen=True)
class Rate:
    """What was measured of one shape.

    Attributes:
        what: The operation and its shape.
        name: The fastest binary.
        seconds: Of a call of it.
        torch: Of a call by torch; 0 if it is not there.
        work: Floating-point operations of a call, or bytes moved.
    """

    what: str
    name: str
    seconds: float
    torch: float
    work: float


def measured(device: Any, copies: Sequence[Call]) -> float:
    """Return the seconds of a call: the median over replays of a graph of calls that take their inputs in turn."""
    launches = [device.prepare(call) for call in copies]
    for launch in launches:
        launch()
    device.synchronize()
    with device.capture() as graphs:
        for number in range(CALLS_IN_A_GRAPH):
            launches[number % len(launches)]()
    graphs[0]()
    device.synchronize()
    return median(device.seconds(graphs[0]) for _ in range(MEASURES)) / CALLS_IN_A_GRAPH


class Room:
    """Memory for random arrays, given back at the end."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._pointers: list[int] = []
        self._rng = np.random.default_rng(0)

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        for pointer in self._pointers:
            self._device.free(pointer)

    def array(self, *shape: int) -> Tensor:
        """Return random float16 values between -1 and 1: products of zeros take less power, and less time."""
        tensor = Tensor(0, shape, "fp16")
        pointer = self._device.allocate(2 * tensor.size)
        self._pointers.append(pointer)
        block = (2 * self._rng.random(min(tensor.size, 2**20), np.float32) - 1).astype(np.float16)
        values = np.resize(block, tensor.size)
        self._device.write(pointer, values)
        return Tensor(pointer, shape, "fp16")


def copies_for(size: int) -> int:
    """Return how many copies of so many bytes do not fit into the cache."""
    return max(2, min(MOST_COPIES, -(-ROTATED // max(size, 1))))


def by_torch(make: Callable[[Any], Sequence[Callable[[], Any]]]) -> float:
    """Return the seconds of a call by torch, as ``measured`` does; 0 without torch on a GPU."""
    try:
        import torch
    except ImportError:
        return 0.0
    if not torch.cuda.is_available():
        return 0.0
    work = make(torch)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), torch.inference_mode():
        for call in work:
            call()
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for number in range(CALLS_IN_A_GRAPH):
                work[number % len(work)]()
        graph.replay()
        took = []
        for _ in range(MEASURES):
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            events[0].record(stream)
            graph.replay()
            events[1].record(stream)
            events[1].synchronize()
            took.append(events[0].elapsed_time(events[1]) / 1e3)
    return float(median(took) / CALLS_IN_A_GRAPH)


def matmul_rates(device: Any, shapes: Sequence[tuple[int, int, int]] = MATMULS) -> Iterator[Rate]:
    """Yield the rate of each product: of the fastest binary, beside ``torch.matmul`` with a bias."""
    names = [n for n, c in CASES.items() if c.element == "fp16" and c.kernel.startswith("matmul")
             and c.constants.get("ACTIVATION", "none") == "none" and "n" in c.aligned]  # fmt: skip
    for m, n, k in shapes:
        count = copies_for(2 * (m * k + k * n + m * n))
        with Room(device) as room:
            operands = [[room.array(m, k), room.array(k, n), room.array(n), room.array(m, n)] for _ in range(count)]
            took = {
                name: measured(device, [calls.matmul(name, *_right(name, each)) for each in operands]) for name in names
            }
        best = min(took, key=lambda name: took[name])

        def make(torch: Any, m: int = m, n: int = n, k: int = k, count: int = count) -> list[Callable[[], Any]]:
            def array(*shape: int) -> Any:
                return torch.rand(shape, device="cuda", dtype=torch.float16) * 2 - 1

            each = [(array(n), array(m, k), array(k, n)) for _ in range(count)]
            return [lambda bias=bias, a=a, b=b: torch.addmm(bias, a, b) for bias, a, b in each]

        yield Rate(f"matmul {m}x{n}x{k}", best, took[best], by_torch(make), 2.0 * m * n * k)


def _right(name: str, operands: Sequence[Tensor]) -> list[Tensor]:
    """Return operands with the second as a binary wants it: with tensor maps it has a column a row."""
    a, b, bias, out = operands
    if CASES[name].kernel == "matmul_tma":
        b = Tensor(b.pointer, (b.shape[1], b.shape[0]), b.element)
    return [a, b, bias, out]


def attention_rates(device: Any, shapes: Sequence[tuple[int, int, int]] = ATTENTIONS) -> Iterator[Rate]:
    """Yield the rate of each attention, causal and not, beside ``scaled_dot_product_attention``."""
    for batch, heads, length in shapes:
        for causal in (False, True):
            name, shape = f"attention_fp16{'_causal' * causal}", (batch, heads, length, 64)
            count = copies_for(8 * batch * heads * length * 64)
            with Room(device) as room:
                each = [[room.array(*shape) for _ in range(4)] for _ in range(count)]
                took = measured(device, [calls.attention(name, *tensors, 0.125) for tensors in each])

            def make(
                torch: Any, shape: Any = shape, causal: bool = causal, count: int = count
            ) -> list[Callable[[], Any]]:
                attention = torch.nn.functional.scaled_dot_product_attention
                each = [[torch.rand(shape, device="cuda", dtype=torch.float16) for _ in range(3)] for _ in range(count)]
                return [lambda qkv=qkv: attention(*qkv, is_causal=causal) for qkv in each]

            work = 4.0 * batch * heads * length * length * 64 / (2 if causal else 1)
            what = f"attention {batch}x{heads}x{length}x64{' causal' * causal}"
            yield Rate(what, name, took, by_torch(make), work)


def row_rates(device: Any, shapes: Sequence[tuple[int, int]] = ROWS) -> Iterator[Rate]:
    """Yield the rate of softmax and of layer normalization of a sum, whose work is the bytes that they move."""
    for rows, columns in shapes:
        count = copies_for(6 * rows * columns)
        with Room(device) as room:
            each = [[room.array(rows, columns) for _ in range(3)] for _ in range(count)]
            scale, bias = room.array(columns), room.array(columns)
            soft = measured(device, [calls.softmax("softmax_fp16", x, out) for x, _, out in each])
            name = "add_layer_norm_fp16"
            norm = measured(device, [calls.add_layer_norm(name, x, y, scale, bias, out, 1e-5) for x, y, out in each])

        def make(
            torch: Any, norm: bool = False, shape: Any = (rows, columns), count: int = count
        ) -> list[Callable[[], Any]]:
            each = [[torch.rand(shape, device="cuda", dtype=torch.float16) for _ in range(2)] for _ in range(count)]
            ones = torch.ones(shape[1], device="cuda", dtype=torch.float16)
            normalize = torch.nn.functional.layer_norm
            if norm:
                return [lambda x=x, y=y: normalize(x + y, shape[1:], ones, ones) for x, y in each]
            return [lambda x=x: torch.softmax(x, -1) for x, _ in each]

        moved = 2.0 * rows * columns
        yield Rate(f"softmax {rows}x{columns}", "softmax_fp16", soft, by_torch(make), 2 * moved)
        yield Rate(
            f"add, layer norm {rows}x{columns}",
            name,
            norm,
            by_torch(lambda torch, make=make: make(torch, True)),
            3 * moved,
        )


def copy_rate(device: Any, size: int = 2**30) -> float:
    """Return the bytes a second, read and written, of a copy within the device."""
    first, second = device.allocate(size), device.allocate(size)
    device.copy(second, first, size)
    device.synchronize()
    took = median(device.seconds(lambda: device.copy(second, first, size)) for _ in range(MEASURES))
    device.free(first)
    device.free(second)
    return 2 * size / took
