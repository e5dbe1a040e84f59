"""``InRange``: where graphs have it, what it says, and that the code which networks have agrees with numpy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from opbuild.backend.evaluate import evaluate
from opbuild.errors import InvalidModelError, OutOfRangeError
from opbuild.graph.extents import Extents
from opbuild.graph.indices import outside
from opbuild.graph.passes.indices import check_indices
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.lowering.lower import lower
from opbuild.program import HostCall
from opbuild.runtime.devices.cpu.library import DIMENSION, HEADER, Library, make_headers
from opbuild.runtime.devices.cpu.link import link, support_parts
from opbuild.runtime.record import CHECKS, DimsTable
from opbuild.target.host import host_level


def graph_of(*nodes: Node, **constants: Array) -> Graph:
    """A graph of gathers from ``x``, of 3 by 4 elements, by ``i`` and constants."""
    rows = TensorType("float32", (2, 4))
    types = {"x": TensorType("float32", (3, 4)), "i": TensorType("int64", (2,))}
    types |= {name: TensorType(str(each.dtype), each.shape) for name, each in constants.items()}
    types |= {name: rows for node in nodes for name in node.outputs}
    return Graph("g", nodes, ("x", "i"), tuple(node.outputs[0] for node in nodes), types, constants)


def checks(graph: Graph) -> list[str]:
    """The names of the nodes whose indices are looked at."""
    return [node.name for node in check_indices(graph).nodes if node.op_type == "InRange"]


def gather(name: str, indices: str = "i", **attrs: int) -> Node:
    """A node that takes rows."""
    return Node("Gather", ("x", indices), (name,), {"axis": 0, **attrs}, name)


def test_equal_indices_of_equal_ranges_are_looked_at_once() -> None:
    """A range of its own asks for another look."""
    assert checks(graph_of(gather("one"), gather("two"))) == ["one"]
    assert checks(graph_of(gather("one"), Node("Gather", ("x", "i"), ("two",), {"axis": 1}, "two"))) == ["one", "two"]


def test_known_indices_are_compared_when_the_network_is_built() -> None:
    """Those inside cost nothing at a call, one outside is an error that names its node."""
    assert checks(graph_of(gather("known", "k"), k=np.array([-3, 2]))) == []
    graph = graph_of(gather("known", "k"), k=np.array([-3, 3]))
    with pytest.raises(InvalidModelError, match=r"'known': index 3 is out of range: it must be from -3 to 2"):
        lower(optimize(graph, evaluate), host_level())


def test_an_open_extent_stays_open() -> None:
    """Two looks at indices of one are told apart without closing it."""
    extents = Extents()
    count = extents.input(3)
    graph = graph_of(gather("one"), gather("two"))
    graph = graph.with_(types={**graph.types, "x": TensorType("float32", (count, 4))})  # type: ignore[arg-type]
    assert checks(graph) == ["one"]
    assert not extents.conditions


def test_what_is_said_to_be_unchecked_is_not_looked_at() -> None:
    """Gradients of samples at places of NaN read the nearest element."""
    assert checks(graph_of(gather("free", unchecked=1))) == []


def test_indices_that_lie_repeated_are_looked_at_once_each() -> None:
    """An expanded index is one index in memory."""
    wide, picked = TensorType("int64", (3, 4)), TensorType("float32", (3, 4))
    nodes = (
        Node("Expand", ("i", "shape"), ("wide",), {}, "expand"),
        Node("GatherElements", ("x", "wide"), ("y",), {"axis": 0}, "pick"),
    )
    types = {
        "x": picked,
        "i": TensorType("int64", (3, 1)),
        "wide": wide,
        "y": picked,
        "shape": TensorType("int64", (2,)),
    }
    graph = Graph("g", nodes, ("x", "i"), ("y",), types, {"shape": np.array([3, 4])})
    (check,) = (call for call in lower(optimize(graph, evaluate), host_level()).calls if isinstance(call, HostCall))
    assert check.inputs[0] is not None
    assert check.inputs[0].dims == ((3, 1),)


def test_the_host_refuses_what_kernels_are_kept_from() -> None:
    """Also operators that onnx's own evaluator computes, which counts what is negative as numpy does."""
    data, updates = np.zeros((3, 4), np.float32), np.ones((1, 4), np.float32)
    node = Node("ScatterND", ("x", "i", "u"), ("y",), {}, "put")
    with pytest.raises(OutOfRangeError, match="index -4 is out of range"):
        evaluate(node, [data, np.array([[-4]]), updates], 21)


@pytest.fixture(scope="module")
def library() -> Library:
    """What every network is linked with."""
    parts = support_parts(host_level().triple)
    return Library(link([parts["tasks"], parts["indices"]]), 2)


def is_refused(library: Library, indices: Array, counts: tuple[int, ...], *, negative: bool, tasks: int) -> bool:
    """Return whether the code of networks refuses dense indices."""
    dims = DimsTable.of([((indices.size, 1),), tuple((count, 0) for count in reversed(counts))])
    bits = indices.dtype.itemsize * 8
    headers = make_headers(dims, np.array([0, 1]), np.array([[0, bits], [0, 32]], np.uint8))
    held = np.zeros(len(dims.pairs), DIMENSION)
    held["extent"], held["stride"] = dims.pairs.T
    headers["dim"] += held.ctypes.data
    headers["host"][0] = indices.ctypes.data
    places = (ctypes.c_char * headers.nbytes).from_buffer(headers.view(np.uint8).data)
    arguments = [ctypes.byref(places, place) for place in range(0, headers.nbytes, HEADER.itemsize)]
    assert len(held) == 1 + len(counts)
    return bool(library.kernel(CHECKS[negative])(tasks, *arguments))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("negative", [False, True])
def test_the_code_of_networks_agrees_with_numpy(library: Library, dtype: str, negative: bool) -> None:
    """Of any number of indices, at any place, at the ends of the type and of ranges as large as it."""
    rng, info = np.random.default_rng(0), np.iinfo(dtype)
    for _ in range(1500):
        group = int(rng.choice([1, 1, 2, 3, 4]))
        counts = tuple(int(each) for each in rng.choice([1, 2, 7, 1000, 2**31 - 1], group))
        most = np.array(counts)
        size = int(rng.integers(1, 40))
        values = rng.integers(-most if negative else 0 * most, most, (size, group)).astype(dtype)
        held = np.zeros(values.size + 1, dtype)
        indices = held[1:]  # at no multiple of a vector
        indices[:] = values.reshape(-1)
        tasks = int(rng.choice([1, 2, 5]))
        assert not is_refused(library, indices, counts, negative=negative, tasks=tasks)
        place = int(rng.integers(0, indices.size))
        count = counts[place % group]
        far = [count, count + 1, -count - 1, -1, info.min, info.max, 2**31, -(2**31), 2**32 + count - 1, -(2**32)]
        indices[place] = int(rng.choice([each for each in far if info.min <= each <= info.max]))
        expected = outside(indices, counts, negative=negative) is not None
        assert is_refused(library, indices, counts, negative=negative, tasks=tasks) == expected, (
            counts,
            indices,
            place,
        )
