"""The callable network: what it accepts, what it refuses and with which words."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError, RunError
from opbuild.graph.types import Array, Node, TensorType
from opbuild.program import Buffer, HostCall, Port, Program, View
from opbuild.report import Report
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.endpoint import Endpoint, as_input
from opbuild.runtime.executor import Executor
from opbuild.runtime.network import MOST_IMPROVED, Network
from opbuild.runtime.reused import LEAST
from support.forked import in_fork
from support.handmade import build, chain, counting, expected_chain, parallel_program, two_in_two_out
from support.lagging import LaggingLock
from support.pools import tasks_of_process
from support.until import until


def network(open_extent: bool = False) -> tuple[Network, list[Any]]:
    """``chain`` as a network, and the signatures that were bound."""

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"))

    counted, bound = counting(bind)
    endpoint = Endpoint("x", TensorType("float32", (-1,) if open_extent else (32,)))
    return Network("chain", [endpoint], ["out"], counted, first=None if open_extent else counted(((32,),))), bound


X = np.linspace(-1, 1, 32, dtype=np.float32)


def test_sizes_are_improved_one_after_the_other_whenever_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also just when the one before is done: each by one thread, which nothing ends early."""
    under_way, most, failures = [0], [0], list[Any]()
    monkeypatch.setattr(threading, "excepthook", failures.append)
    monkeypatch.setattr("opbuild.runtime.network.Lock", LaggingLock)

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> Binding:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            time.sleep(1e-4)
            under_way[0] -= 1
            return bind(self.shapes)

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)

    def serve(first: int) -> None:
        for number in range(100):
            net(np.zeros(1 + (first + number) % 7, np.float32))

    threads = [threading.Thread(target=serve, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert until(lambda: not any(thread.name == "opbuild-improve" for thread in threading.enumerate()))
    assert (failures, most) == ([], [1])


def test_sizes_that_found_too_many_waiting_are_improved_when_they_are_called_again() -> None:
    """They kept what they had for ever: kernels of others, for networks that answer before theirs are compiled."""
    go_on = threading.Event()

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> Binding:
            go_on.wait(60)
            return bind(self.shapes)._replace(better=None)

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    try:
        for size in [*range(1, MOST_IMPROVED + 5)] * 2:
            net(np.zeros(size, np.float32))
    finally:
        go_on.set()
    assert until(lambda: net._improver is None)
    assert any(each.better for each in net._bindings.values())
    for size in range(1, MOST_IMPROVED + 5):
        net(np.zeros(size, np.float32))
    assert until(lambda: net._improver is None)
    assert not any(each.better for each in net._bindings.values())


def test_the_first_size_is_improved_when_another_one_is_called() -> None:
    """Prompts differ in length, and the first one's may not come again: no later one shall wait for its program."""
    asked: list[Shapes] = []

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> None:
            asked.append(self.shapes)

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    for size, expected in ((8, []), (1, [8]), (2, [8]), (3, [8]), (2, [8, 2])):
        net(np.zeros(size, np.float32))
        assert until(lambda: net._improver is None)
        assert asked == [((each,),) for each in expected]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("called", [3, 4, 5])
def test_the_child_of_a_fork_improves_sizes_too(called: int) -> None:
    """The thread that improves sizes stayed in the parent, where it has begun with one and another waits."""
    begun, go_on = threading.Event(), threading.Event()

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> Binding:
            if not begun.is_set():
                begun.set()
                go_on.wait(60)
            return bind(self.shapes)._replace(better=None)

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    def is_improved() -> bool:
        for _ in range(2):
            net(np.zeros(called, np.float32))
        return until(lambda: net._improver is None) and not any(each.better for each in net._bindings.values())

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    for size in (3, 3, 4, 4):
        net(np.zeros(size, np.float32))
    assert begun.wait(60)
    try:
        assert in_fork(is_improved)
    finally:
        go_on.set()


def test_calls_wait_for_no_other_size_while_theirs_is_improved() -> None:
    """Another size may be built just then, under the network's lock; it took as long for those that wait in line."""
    go_on = threading.Event()

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> Binding:
            go_on.wait(60)
            return bind(self.shapes)._replace(better=None)

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    sizes = range(1, MOST_IMPROVED + 2)  # no room in line for the last one
    try:
        for size in [*sizes] * 2:
            net(np.zeros(size, np.float32))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(net, "_lock", None)
            for size in sizes:
                net(np.zeros(size, np.float32))
    finally:
        go_on.set()
    assert until(lambda: net._improver is None)


def test_calls_begin_no_thread_again_where_there_can_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes keep what they have: who looks for room with each call takes longer than small networks do."""
    begun = list[str]()
    monkeypatch.setattr("opbuild.runtime.network.begin", lambda work, name: begun.append(name))
    better: Any = object()

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), better)

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    for size in (3, 3, 4, 4, 3, 4):
        net(np.zeros(size, np.float32))
    assert begun == ["opbuild-improve"] * 2


def test_one_output_comes_as_an_array() -> None:
    """A network with one output returns the array itself, fresh at each call."""
    net, _ = network()
    first, second = net(X), net(X)
    np.testing.assert_allclose(first, expected_chain(X), rtol=1e-6)
    assert not np.shares_memory(first, second)


def test_several_outputs_come_as_a_tuple_and_by_name_from_run() -> None:
    """A call returns a tuple in the model's order, ``run`` a dictionary."""
    net = two_in_two_out()
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)
    first, second = net(a, b)
    np.testing.assert_array_equal(first, a + b)
    np.testing.assert_array_equal(second, a + b + b)
    assert list(net.run({"b": b, "a": a})) == ["sum", "again"]


def test_inputs_by_position_by_name_by_dictionary_and_mixed() -> None:
    """All ways to pass the same arrays give the same."""
    net = two_in_two_out()
    a, b = np.ones((2, 4), np.float32), np.full((2, 4), 2, np.float32)
    for result in (net(a, b), net(b=b, a=a), net({"a": a, "b": b}), net(a, b=b)):
        np.testing.assert_array_equal(result[1], a + b + b)


@pytest.mark.parametrize(
    "array",
    [
        np.stack([X, X], axis=1)[:, 0],
        np.concatenate([X[::-1]])[::-1],
        np.frombuffer(b"\0" + X.tobytes(), np.uint8)[1:].view(np.float32),
        np.broadcast_to(np.float32(1), (32,)),
        X.tolist(),
        tuple(X.tolist()),
    ],
    ids=["strided", "reversed", "misaligned", "broadcast", "list", "tuple"],
)
def test_arrays_of_any_layout_are_accepted(array: Any) -> None:
    """What is not dense is made dense; lists of numbers are converted."""
    net, _ = network()
    np.testing.assert_allclose(net(array), expected_chain(np.asarray(array, np.float32)), rtol=1e-6)


def test_copies_of_what_is_not_dense_lie_where_those_of_the_call_before_did() -> None:
    """A large input in another order is copied into memory that is there, at each call anew."""
    net, _ = network(open_extent=True)
    for number in range(3):
        wide = np.full((LEAST, 2), number, np.float32)
        np.testing.assert_allclose(net(wide[:, 1]), expected_chain(wide[:, 1]), rtol=1e-6)
        (memory,) = [each for waiting in net._copies._latest[1].values() for each in waiting]
        if number == 0:
            place = memory.ctypes.data
        assert memory.ctypes.data == place


def test_dense_inputs_are_read_in_place_and_never_written() -> None:
    """The caller's array is not copied, and a read-only one serves."""
    net, _ = network()
    frozen = X.copy()
    frozen.flags.writeable = False
    net(frozen)
    assert as_input(frozen, frozen.dtype, "x") is frozen


class Foreign:
    """A tensor of another library."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Refusing(Foreign):
    """A tensor that cannot be shared, as torch's are that need a gradient."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


def test_anything_with_dlpack_is_accepted_without_a_copy() -> None:
    """Tensors of other libraries share their memory."""
    net, _ = network()
    np.testing.assert_allclose(net(Foreign(X)), expected_chain(X), rtol=1e-6)
    assert np.shares_memory(as_input(Foreign(X), X.dtype, "x"), X)


def test_a_torch_tensor_is_accepted() -> None:
    """Torch tensors work like arrays."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    net, _ = network()
    np.testing.assert_allclose(net(torch.from_numpy(X)), expected_chain(X), rtol=1e-6)


class Tensor(Foreign):
    """Stands for a torch tensor, which is not installed where these tests run."""

    device = SimpleNamespace(type="cpu")
    dtype, layout, requires_grad = "torch.float32", "torch.strided", False


def test_torch_tensors_of_bfloat16_are_read_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """DLPack in numpy does not know the type."""
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(int16=np.int16))
    numbers = np.array([1.5, -2.0, 3.25], numpy_dtype("bfloat16"))
    tensor = Tensor(numbers)
    vars(tensor).update(dtype="torch.bfloat16", view=lambda kind: Foreign(numbers.view(kind)))
    found = as_input(tensor, numbers.dtype, "x")
    assert found.tolist() == numbers.tolist()
    assert np.shares_memory(found, numbers)


class Parameter(Tensor):
    """Stands for a subclass, which is not in torch's own module."""


Tensor.__module__ = "torch"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"dtype": "torch.float64"}, r"torch.float64, the network needs float32\n  hint: convert it: x.float\(\)"),
        (
            {"dtype": "torch.bfloat16"},
            r"torch.bfloat16, the network needs float32\n  hint: convert it: x.float\(\)",
        ),
        ({"requires_grad": True}, r"requires grad\n  hint: give it without: x.detach\(\)"),
        ({"device": SimpleNamespace(type="cuda")}, r"on cuda\n  hint: move it to the CPU: x.cpu\(\)"),
        ({"layout": "torch.sparse_coo"}, r"sparse(?s:.*)x.to_dense\(\)"),
    ],
)
@pytest.mark.parametrize("kind", [Tensor, Parameter])
def test_refusals_of_torch_tensors_speak_torch(kind: type[Tensor], changed: dict[str, Any], words: str) -> None:
    """They said ``x.astype('float32')``, which tensors do not have, and did not name bfloat16."""
    net, _ = network()
    np.testing.assert_allclose(net(kind(X)), expected_chain(X), rtol=1e-6)
    tensor = kind(X)
    vars(tensor).update(changed)
    with pytest.raises(InputError, match=words):
        net(tensor)


def test_a_torch_tensor_of_another_type_is_told_how_to_become_an_integer() -> None:
    """Torch has no method for most types."""
    tensor = Tensor(X)
    with pytest.raises(InputError, match=r"needs int64\n  hint: convert it: x.to\(torch.int64\)"):
        as_input(tensor, np.dtype(np.int64), "x")
    with pytest.raises(InputError, match=r"convert it: tensor.half\(\)"):
        as_input(tensor, np.dtype(np.float16), "data/0")


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((X, X), {}, "2 arrays were given"),
        ((), {}, "input 'x' is missing"),
        ((), {"y": X}, "no input 'y'.*its inputs are 'x'"),
        ((X,), {"x": X}, "'x' was given twice"),
        (({"y": X},), {}, "no input 'y'"),
        ((X.astype(np.float64),), {}, "'x' has element type float64, the network needs float32.*astype"),
        ((X.astype(">f4"),), {}, "'x' has element type >f4"),
        ((X[:31],), {}, r"'x' has shape \[31\], the network needs \[32\].*input_shapes=\{'x': \(None,\)\}"),
        ((X.reshape(1, 32),), {}, r"'x' has shape \[1, 32\].*an array of rank 1"),
        ((np.float32(1),), {}, r"'x' has shape \[\].*an array of rank 1; x\[None\] adds a dimension"),
        ((None,), {}, "'x' is None, not an array.*give an array of float32"),
        ((X.astype(object),), {}, "'x' is an array of objects"),
        ((X.astype("U8"),), {}, "'x' is an array of text or times"),
        (("text",), {}, "'x' is a str, not an array"),
        (([1.0, "b"],), {}, "'x' cannot be read as an array"),
        ((Refusing(X),), {}, "'x' cannot be read as an array: Can't export tensors that require gradient"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(args: Any, kwargs: Any, words: str) -> None:
    """Every misuse is an InputError that names the input, what is needed and what was given."""
    net, _ = network()
    with pytest.raises(InputError, match=f"(?s){words}"):
        net(*args, **kwargs)


def test_open_extents_bind_each_signature_once() -> None:
    """A new shape is bound when it is first seen; shapes seen before are not bound again."""
    net, bound = network(open_extent=True)
    assert bound == []
    assert net.bound_inputs == net.bound_outputs == ()
    for size in (4, 9, 4, 9):
        x = np.ones(size, np.float32)
        np.testing.assert_allclose(net(x), expected_chain(x))
    assert bound == [((4,),), ((9,),)]
    assert (net.inputs[0].shape, net.bound_inputs[0].shape, net.bound_outputs[0].shape) == ((-1,), (9,), (9,))


def test_only_so_many_signatures_stay_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call with a new size would otherwise keep memory for ever; what was bound first goes and can come back."""
    monkeypatch.setattr("opbuild.runtime.network.MOST_KEPT", 4)
    net, bound = network(open_extent=True)
    for size in range(1, 7):
        np.testing.assert_allclose(net(X[:size]), expected_chain(X[:size]), rtol=1e-6)
    assert (len(bound), len(net._bindings)) == (6, 4)
    net(X[:6])
    assert len(bound) == 6
    np.testing.assert_allclose(net(X[:1]), expected_chain(X[:1]), rtol=1e-6)
    assert len(bound) == 7


def test_signatures_that_share_arguments_since_they_were_improved_stay_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """They counted as they were when kernels of others computed them, and were bound again."""
    monkeypatch.setattr("opbuild.runtime.network.MOST_KEPT", 2)

    class Better(NamedTuple):
        shapes: Shapes

        def bind(self) -> Binding:
            better = bind(self.shapes)._replace(better=None)
            better.executor.is_filled = True
            return better

    def bind(shapes: Shapes) -> Binding:
        return Binding(build(chain(shapes[0][0])).executor, Report("chain"), Better(shapes))

    net = Network("chain", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    for size in range(1, 6):
        for _ in range(2):
            net(X[:size])
        assert until(lambda: net._improver is None)
    assert len(net._bindings) == 5


def test_making_a_network_binds_nothing() -> None:
    """It is given its first signature, or none; the binder works when a call needs it."""
    net, bound = network()
    assert len(bound) == 1  # by who made it
    fixed = Network("n", [Endpoint("x", TensorType("float32", (4,)))], ["out"], lambda _: 1 / 0)  # type: ignore[arg-type, return-value]
    assert (fixed.bound_inputs, fixed.report.operators) == ((), ())
    assert net.bound_inputs[0].shape == (32,)
    net(X)
    assert len(bound) == 1


def test_a_signature_that_cannot_be_bound_can_be_tried_again() -> None:
    """A failed binding leaves nothing behind."""
    attempts: list[Shapes] = []

    def bind(shapes: Shapes) -> Binding:
        attempts.append(shapes)
        raise RunError("no")

    net = Network("n", [Endpoint("x", TensorType("float32", (-1,)))], ["out"], bind)
    for _ in range(2):
        with pytest.raises(RunError):
            net(np.ones(1, np.float32))
    assert len(attempts) == 2


@pytest.mark.parametrize("size", [0, 1])
def test_empty_and_single_element_tensors_run(size: int) -> None:
    """Zero elements are a legal shape: nothing is computed, an empty array comes back."""
    net, _ = network(open_extent=True)
    x = np.ones(size, np.float32)
    np.testing.assert_array_equal(net(x), expected_chain(x))


def host_network(evaluate: Any) -> Executor:
    """A network of one host call."""
    type_ = TensorType("int64", (2, 3))
    view = View(0, 0, ((3, 1), (2, 3)))
    node = Node("Odd", ("x", ""), ("out",), name="odd one")
    call = HostCall(node, (view, None), (View(1, 0, view.dims),), (type_, None), (type_,), 21)
    buffers = (Buffer("input", "int64", 6), Buffer("output", "int64", 6))
    program = Program("host", buffers, (call,), (Port("x", type_, 0),), (Port("out", type_, 1),))
    return build(program, evaluate=evaluate).executor


def test_host_calls_get_arrays_of_the_models_shapes() -> None:
    """The host backend sees row-major arrays, None for absent inputs, and the operator set."""
    seen: list[Any] = []

    def evaluate(node: Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
        seen.append((node.name, inputs[0].shape if inputs[0] is not None else None, inputs[1], opset))
        assert inputs[0] is not None
        return [inputs[0] % 2]

    x = np.arange(6, dtype=np.int64).reshape(2, 3)
    np.testing.assert_array_equal(host_network(evaluate).run([x])[0], x % 2)
    assert seen == [("odd one", (2, 3), None, 21)]


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (np.zeros((3, 2), np.int64), r"odd one.*gave int64\[3, 2\], the model says int64\[2,3\]"),
        (np.zeros((2, 3), np.float32), "odd one.*gave float32"),
        (None, "odd one.*gave nothing"),
        (ValueError("bad value"), "odd one.*bad value"),
    ],
)
def test_a_host_call_that_fails_names_its_node(result: Any, words: str) -> None:
    """Foreign exceptions and wrong results become a RunError; the network can be called again."""

    def evaluate(node: Node, inputs: Sequence[Array | None], opset: int) -> list[Any]:
        if isinstance(result, Exception):
            raise result
        return [result]

    executor = host_network(evaluate)
    for _ in range(2):
        with pytest.raises(RunError, match=f"(?s){words}"):
            executor.run([np.zeros((2, 3), np.int64)])


def test_a_kernel_that_returns_an_error_names_itself_and_its_node() -> None:
    """A kernel's error code becomes a RunError."""
    executor = build(chain()).executor
    failing = type("Failing", (), {"__call__": lambda self, *arguments: -11})()
    executor.calls.callees[1] = executor.calls.callees[1]._replace(function=failing)
    executor.blocks.shrink(-1)
    with pytest.raises(RunError, match=r"(?s)square__kernel0 failed.*second"):
        executor.run([X])


def test_the_report_reads_as_a_table() -> None:
    """The report's text has the counts, each operator with its reason, and the host's operators."""
    from opbuild.report import OperatorReport

    operators = (
        OperatorReport("square_1_0", "built", "not in the store", ("a", "b"), 40.0),
        OperatorReport("add_2_0", "reused", "in the store", ("c",)),
    )
    report = Report("net", operators, {"TopK": 2}, {"lower": 1.5}, image_reason="there is none yet")
    text = str(report)
    assert (report.built, report.reused) == (1, 1)
    counts = "1 operator built, 1 reused"
    for words in (counts, "square_1_0", "not in the store", "2 x TopK", "lower 1.5 ms", "there is none yet"):
        assert words in text


def test_a_network_is_not_pickled_and_the_error_says_what_to_do() -> None:
    """Machine code of this process cannot travel; a shallow copy is the network itself."""
    net, _ = network()
    for refused in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="compile the model again"):
            refused(net)
    assert copy.copy(net) is net


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_network_runs_in_a_forked_child_with_threads_of_its_own() -> None:
    """The child of a fork starts threads again; neither a call nor its end waits for threads of the parent."""
    x = np.arange(4096, dtype=np.float32)
    networks = [build(parallel_program(), threads=2)]
    networks[0].executor.run([x])

    def work() -> list[object]:
        before = len(tasks_of_process())
        right = np.array_equal(networks[0].executor.run([x])[0], x * 2 + 1)
        after = len(tasks_of_process())
        networks.clear()
        gc.collect()
        return [before, right, after]

    assert in_fork(work) == [1, True, 2]
    np.testing.assert_array_equal(networks[0].executor.run([x])[0], x * 2 + 1)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((1, 8, 6, 3), r"the channels stand last here, .*: np.transpose\(x, \(0, 3, 1, 2\)\)"),
        ((1, 8, 3, 6), r"compile with input_shapes=\{'x': \(1, None, None, 6\)\}"),
    ],
)
def test_an_image_with_its_channels_last_is_to_be_transposed(given, words):
    """To leave the channels open, as the hint said, helps nobody who has an NHWC array."""
    endpoint = Endpoint("x", TensorType("float32", (1, 3, 8, 6)))
    net = Network("image", [endpoint], ["out"], lambda shapes: None)
    with pytest.raises(InputError, match=words):
        net(np.zeros(given, np.float32))


def test_numbers_with_a_fraction_are_not_cut_to_whole_ones():
    """A list of floats was taken for int64 and lost its fractions; nothing else is converted silently."""
    assert as_input([[1, 2]], np.dtype("int64"), "ids").tolist() == [[1, 2]]
    assert as_input([1, 2], np.dtype("float32"), "x").dtype == np.float32
    with pytest.raises(InputError, match="'ids' has numbers with a fraction, the network needs int64"):
        as_input([[1.5, 2.0]], np.dtype("int64"), "ids")


def test_a_kernel_that_fails_is_named_with_the_node_that_it_computes() -> None:
    """One kernel serves several nodes; the error named the first of them, whichever had failed."""
    built = build(chain(8))
    block = built.executor.blocks.take()
    block.prepared.steps[2] = (lambda *operands: 1, block.prepared.steps[2][1])
    built.executor.blocks.give(block)
    with pytest.raises(RunError, match="kernel add") as caught:
        built.executor.run([np.zeros(8, np.float32)])
    assert caught.value.hint == "it computes node third"
