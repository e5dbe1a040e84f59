"""Random small networks: gradients of all inputs are those of torch, computed on the host in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from opbuild.graph.gradients.reverse import ExtendedGraph, differentiate
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.types import Array, Graph, TensorType
from support.fuzzing import check_seeds
from support.graph_runner import run_graph
from support.tiers import spans

Both = tuple[Value, torch.Tensor]
"""A value of the network, and torch's."""


class Network:
    """A network that grows in both."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.feeds: dict[str, Array] = {}
        self.leaves: list[torch.Tensor] = []
        self._types = {f"x{i}": TensorType("float64", shape) for i, shape in enumerate(self._shapes())}
        self.graph = Graph("random", (), tuple(self._types), (), self._types, {})
        self.scope = ExtendedGraph(self.graph)
        self.of = GraphBuilder("node", self.scope)
        self.values = [self._input(name) for name in self._types]

    def _shapes(self) -> list[tuple[int, ...]]:
        n, c, h, w = (int(each) for each in self.random.integers(1, 5, 4))
        return [(n, c, h, w), (n, c, h, w), (c, 1, 1), (w,), (n, 1, h, 1)]

    def _input(self, name: str) -> Both:
        array = self.random.standard_normal(self._types[name].shape)
        self.feeds[name] = array
        self.leaves.append(torch.tensor(array, requires_grad=True))
        return self.of.value(name), self.leaves[-1]

    def grow(self) -> None:
        """Apply one operator to values that it fits."""
        step = STEPS[int(self.random.integers(len(STEPS)))]
        first, second = (self.values[int(i)] for i in self.random.integers(len(self.values), size=2))
        if np.prod(first[0].shape, dtype=int) * np.prod(second[0].shape, dtype=int) > 4000 or len(first[0].shape) > 5:
            return
        found = step(self, first, second)
        if found is not None:
            self.values.append(found)

    def loss(self) -> Both:
        """Return the sum of all values, each bounded so that great ones do not hide the others."""
        parts = [(self.of("Tanh", v), t.tanh()) for v, t in self.values]
        sums = [self.of("ReduceSum", v, keepdims=0) for v, _ in parts]
        return self.of("Sum", *sums), torch.stack([t.sum() for _, t in parts]).sum()


Step = Callable[[Network, Both, Both], "Both | None"]


def _unary(op_type: str, function: Callable[[torch.Tensor], torch.Tensor], **attrs: Any) -> Step:
    return lambda net, a, b: (net.of(op_type, a[0], **attrs), function(a[1]))


def _fits(a: Both, b: Both) -> bool:
    try:
        np.broadcast_shapes(a[0].shape, b[0].shape)
    except ValueError:
        return False
    return True


def _binary(op_type: str, function: Callable[..., torch.Tensor]) -> Step:
    return lambda net, a, b: (net.of(op_type, a[0], b[0]), function(a[1], b[1])) if _fits(a, b) else None


def _reduced(op_type: str, function: Callable[..., torch.Tensor]) -> Step:
    def step(net: Network, a: Both, b: Both) -> Both | None:
        rank = len(a[0].shape)
        if not rank:
            return None
        axis, keep = int(net.random.integers(rank)), bool(net.random.integers(2))
        return net.of(op_type, a[0], net.of.ints(axis), keepdims=int(keep)), function(a[1], axis, keep)

    return step


def _softmax(net: Network, a: Both, b: Both) -> Both | None:
    rank = len(a[0].shape)
    return (net.of("Softmax", a[0], axis=rank - 1), a[1].softmax(-1)) if rank else None


def _product(net: Network, a: Both, b: Both) -> Both | None:
    if not a[0].shape or not b[0].shape or a[0].shape[-1] != b[0].shape[-1]:
        return None
    order = list(range(len(b[0].shape)))
    if len(order) > 1:
        order[-2:] = order[-1], order[-2]
    if not _fits(
        (Value("", TensorType("", a[0].shape[:-2])), a[1]), (Value("", TensorType("", b[0].shape[:-2])), b[1])
    ):
        return None
    return net.of("MatMul", a[0], net.of.transpose(b[0], order)), a[1] @ b[1].permute(order)


def _transposed(net: Network, a: Both, b: Both) -> Both:
    order = [int(each) for each in net.random.permutation(len(a[0].shape))]
    return net.of.transpose(a[0], order), a[1].permute(order)


def _flat(net: Network, a: Both, b: Both) -> Both:
    return net.of.reshape(a[0], (a[1].numel(),)), a[1].reshape(-1)


def _picked(net: Network, a: Both, b: Both) -> Both | None:
    if not a[0].shape:
        return None
    axis = int(net.random.integers(len(a[0].shape)))
    places = net.random.integers(a[0].shape[axis], size=3)
    return net.of("Gather", a[0], net.of.ints(*places), axis=axis), a[1].index_select(axis, torch.tensor(places))


def _joined(net: Network, a: Both, b: Both) -> Both | None:
    return (net.of("Concat", a[0], b[0], axis=0), torch.cat((a[1], b[1]))) if _same_rows(a, b) else None


def _same_rows(a: Both, b: Both) -> bool:
    return bool(a[0].shape) and bool(b[0].shape) and a[0].shape[1:] == b[0].shape[1:]


def _padded(net: Network, a: Both, b: Both) -> Both | None:
    rank = len(a[0].shape)
    if not rank:
        return None
    before, after = (int(each) for each in net.random.integers(0, 3, 2))
    amounts = (*(0,) * (rank - 1), before, *(0,) * (rank - 1), after)
    return net.of("Pad", a[0], net.of.ints(*amounts)), F.pad(a[1], (before, after))


def _strided(net: Network, a: Both, b: Both) -> Both | None:
    if not a[0].shape:
        return None
    start, step = int(net.random.integers(a[0].shape[0])), int(net.random.integers(1, 3))
    of = net.of
    return of("Slice", a[0], of.ints(start), of.ints(a[0].shape[0]), of.ints(0), of.ints(step)), a[1][start::step]


def _convolved(net: Network, a: Both, b: Both) -> Both | None:
    if len(a[0].shape) != 4 or len(b[0].shape) != 4 or a[0].shape[1] != b[0].shape[1]:
        return None
    stride, padding = int(net.random.integers(1, 3)), int(net.random.integers(3))
    if any(k > x + 2 * padding for x, k in zip(a[0].shape[2:], b[0].shape[2:], strict=True)):
        return None
    found = net.of("Conv", a[0], b[0], strides=(stride,) * 2, pads=(padding,) * 4)
    return found, F.conv2d(a[1], b[1], stride=stride, padding=padding)


def _pooled(net: Network, a: Both, b: Both) -> Both | None:
    if len(a[0].shape) != 4 or min(a[0].shape[2:]) < 2:
        return None
    if net.random.integers(2):
        return net.of("MaxPool", a[0], kernel_shape=(2, 2), strides=(1, 2)), F.max_pool2d(a[1], 2, (1, 2))
    found = net.of("AveragePool", a[0], kernel_shape=(2, 2), strides=(1, 2), pads=(1, 1, 1, 1), count_include_pad=1)
    return found, F.avg_pool2d(a[1], 2, (1, 2), 1)


def _normalised(net: Network, a: Both, b: Both) -> Both | None:
    if not a[0].shape or a[0].shape[-1:] != b[0].shape:
        return None
    found = net.of("LayerNormalization", a[0], b[0], axis=-1, epsilon=0.125)
    return found, F.layer_norm(a[1], b[0].shape, b[1], None, 0.125)


def _repeated(net: Network, a: Both, b: Both) -> Both | None:
    """Pad by repetition; torch has each way for the last axes of a batch of images."""
    if len(a[0].shape) != 4:
        return None
    names = (("reflect", "reflect"), ("edge", "replicate"), ("wrap", "circular"))
    mode, other = names[int(net.random.integers(3))]
    height, width = a[0].shape[2:]
    most = (height - 1, width - 1) if mode == "reflect" else (height, width)
    top, bottom, left, right = (int(net.random.integers(0, most[axis] + 1)) for axis in (0, 0, 1, 1))
    found = net.of("Pad", a[0], net.of.ints(0, 0, top, left, 0, 0, bottom, right), mode=mode)
    return found, F.pad(a[1], (left, right, top, bottom), other)


def _sampled(net: Network, a: Both, b: Both) -> Both | None:
    """Sample images at places that another value says."""
    if len(a[0].shape) != 4 or len(b[0].shape) != 4 or a[0].shape[0] != b[0].shape[0] or b[1].numel() < 2 * len(b[1]):
        return None
    images, places = len(b[1]), b[1].numel() // len(b[1]) // 2
    flat = net.of.reshape(b[0], (images, b[1].numel() // images))
    of, padding = net.of, ("zeros", "border", "reflection")[int(net.random.integers(3))]
    mode = ("linear", "cubic")[int(net.random.integers(2 if padding != "border" else 1))]
    grid = of("Slice", flat, of.ints(0), of.ints(2 * places), of.ints(1), of.ints(1))
    grid = of("Mul", of.reshape(grid, (images, places, 1, 2)), of.constant(0.7, "float64"))
    found = of("GridSample", a[0], grid, mode=mode, padding_mode=padding, align_corners=0)
    other = 0.7 * b[1].reshape(images, -1)[:, : 2 * places].reshape(images, places, 1, 2)
    return found, F.grid_sample(a[1], other, "bi" + mode, padding, align_corners=False)


def _multiplied(net: Network, a: Both, b: Both) -> Both | None:
    if not a[0].shape:
        return None
    axis = int(net.random.integers(len(a[0].shape)))
    return net.of("CumProd", a[0], net.of.constant(axis, "int64")), a[1].cumprod(axis)


def _overwritten(net: Network, a: Both, b: Both) -> Both | None:
    """Write some slices of one value over those of another, each once."""
    if not _same_rows(a, b):
        return None
    rows = min(a[0].shape[0], b[0].shape[0])
    places = net.random.permutation(a[0].shape[0])[:rows]
    of = net.of
    updates = of("Slice", b[0], of.ints(0), of.ints(rows), of.ints(0), of.ints(1))
    return of("ScatterND", a[0], of.constant(places.reshape(-1, 1)), updates), a[1].index_copy(
        0, torch.tensor(places), b[1][:rows]
    )


def _recurrent(net: Network, a: Both, b: Both) -> Both | None:
    """Read images as sequences of rows, by a layer of two units in a random direction."""
    if len(a[0].shape) != 4:
        return None
    kind = ("RNN", "GRU", "LSTM")[int(net.random.integers(3))]
    both, of = bool(net.random.integers(2)), net.of
    n, c, h, w = a[0].shape
    layer = getattr(torch.nn, kind)(w, 2, bidirectional=both, dtype=torch.float64)
    order = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}[kind]
    given: dict[str, list[Array]] = {"weight_ih": [], "weight_hh": [], "bias_ih": [], "bias_hh": []}
    for suffix in ("", "_reverse")[: 1 + both]:
        for name, found in given.items():
            parameter = getattr(layer, f"{name}_l0{suffix}")
            parameter.data = torch.tensor(net.random.standard_normal(tuple(parameter.shape)))
            parts = parameter.detach().chunk(len(order))
            found.append(torch.cat([parts[gate] for gate in order]).numpy())
    weights = {name: np.stack(found) for name, found in given.items()}
    bias = np.concatenate([weights["bias_ih"], weights["bias_hh"]], 1)
    sequences = of.reshape(a[0], (n * c, h, w))
    attrs: dict[str, Any] = {"hidden_size": 2, "direction": "bidirectional" if both else "forward"}
    attrs |= {"linear_before_reset": 1} if kind == "GRU" else {}
    known = (of.constant(each) for each in (weights["weight_ih"], weights["weight_hh"], bias))
    every = of(kind, of.transpose(sequences, (1, 0, 2)), *known, **attrs)
    every = of.reshape(of.transpose(every, (0, 2, 1, 3)), (h, n * c, 2 * (1 + both)))
    return every, layer(a[1].reshape(n * c, h, w).permute(1, 0, 2))[0]


STEPS: tuple[Step, ...] = (
    _unary("Tanh", torch.tanh), _unary("Relu", torch.relu), _unary("Gelu", F.gelu), _unary("Sigmoid", torch.sigmoid),
    _unary("Abs", torch.abs), _unary("Neg", torch.neg), _unary("Softplus", F.softplus), _unary("Sin", torch.sin),
    _binary("Add", torch.add), _binary("Sub", torch.sub), _binary("Mul", torch.mul), _binary("Max", torch.maximum),
    _binary("Min", torch.minimum), _reduced("ReduceSum", lambda x, axis, keep: x.sum(axis, keep)),
    _reduced("ReduceMean", lambda x, axis, keep: x.mean(axis, keep)),
    _reduced("ReduceMax", lambda x, axis, keep: x.amax(axis, keep)),
    _reduced("ReduceLogSumExp", lambda x, axis, keep: x.logsumexp(axis, keep)), _softmax, _product, _transposed, _flat,
    _picked, _joined, _padded, _strided, _convolved, _pooled, _normalised,
    _repeated, _sampled, _multiplied, _overwritten, _recurrent,
)  # fmt: skip


def _compared(seed: int) -> None:
    net = Network(seed)
    for _ in range(int(net.random.integers(4, 25))):
        net.grow()
    value, loss = net.loss()
    graph = net.scope.graph(net.graph).with_(outputs=(value.name,))
    names = list(net.feeds)
    y, *found = run_graph(differentiate(graph, names), net.feeds)
    np.testing.assert_allclose(y, loss.detach().numpy(), rtol=1e-9)
    for name, own, wanted in zip(names, found, torch.autograd.grad(loss, net.leaves), strict=True):
        np.testing.assert_allclose(own, wanted.numpy(), rtol=1e-7, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("seeds", spans(25, 9))
def test_a_random_networks_gradients_are_torchs(seeds: range) -> None:
    """Values are read by several operators, broadcast, picked twice, tied; each input's gradient is compared."""
    check_seeds("gradients", _compared, seeds, processes=0)
